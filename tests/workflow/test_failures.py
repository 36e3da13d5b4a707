"""What a stage that fails says and keeps, and that it leaves other motions alone."""

from pathlib import Path

from tests.workflow.project import Project


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_failure_shows_the_end_of_its_log_keeps_earlier_ones_and_leaves_other_motions_alone(fresh: Project) -> None:
    config, results = fresh.folder / "config", fresh.folder / "results"
    (config / "getUp.npz").rename(config / "A.npz")
    (config / "B.csv").write_text("1,2,3\nx\n")
    assert fresh.snakemake("results/A/motion.npz").returncode == 0
    before = contents(results / "A")

    result = fresh.snakemake("results/A/motion.npz", "results/B/motion.npz", "--retries", "4")
    assert result.returncode != 0
    assert contents(results / "A") == before
    names = ["motion.log", "motion.log.1", "motion.log.2", "motion.log.3"]  # of five attempts, the latest first
    assert sorted(p.name for p in (results / "B/logs").iterdir()) == [".motion.log", *names]
    logs = [(results / "B/logs" / name).read_text() for name in names]
    assert all("ERROR [table] config/B.csv: line 2 — no number: 'x'" in log for log in logs)
    assert sorted((log[:19] for log in logs), reverse=True) == [log[:19] for log in logs]  # by their times

    assert f"The end of results/B/logs/motion.log:\n    {logs[0]}" in result.stdout
