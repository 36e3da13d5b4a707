"""Where the project lies and what surrounds it: folders, working directories, HOME, networks, workflows, copies."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.project import EVERYTHING, NAME, SHARED, TIMEOUT, Project, copy, environment, jobs, options

MOTION = "results/getUp/motion.npz"


def run(*command: object, cwd: Path, **env: str) -> str:
    """Run a command that succeeds; what it said."""
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def without_network() -> list[str]:
    """The words before a command that take its network away, where this user may."""
    words = ["unshare", "-rn"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("may not take the network away")
    return words


def test_whole_workflow_ran_in_a_folder_with_every_kind_of_character(built: Project) -> None:
    assert set("机 '\"$-ü") <= set(str(built.folder))
    assert (built.folder / f"results/{NAME}/package.zip").stat().st_size
    assert (built.folder / f"results/{NAME}/policy.mp4").stat().st_size


def test_from_another_working_directory(fresh: Project, tmp_path: Path) -> None:
    """Settings, motions and results are those of --directory; code and profile come with the Snakefile."""
    elsewhere = tmp_path / "my motions"
    (fresh.folder / "config").rename(elsewhere.with_name("config"))
    elsewhere.mkdir()
    elsewhere.with_name("config").rename(elsewhere / "config")
    command = [sys.executable, "-m", "snakemake", MOTION, "--snakefile", fresh.folder / "Snakefile"]
    run(*command, "--directory", elsewhere, *options(2), cwd=tmp_path)
    assert (elsewhere / MOTION).stat().st_size
    assert not (fresh.folder / "results").exists()


def test_no_network_no_home_to_write_to_and_no_solver(fresh: Project, tmp_path: Path) -> None:
    """PAINS E8, E10. Snakemake itself wants a folder for its cache."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub/pulp.py").write_text("raise ImportError('no solver here')\n")
    surroundings = {"HOME": "/proc", "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path / "stub")}
    command = [*without_network(), sys.executable, "-m", "snakemake", MOTION, *options(2)]
    run(*command, cwd=fresh.folder, **surroundings)
    assert (fresh.folder / MOTION).stat().st_size


def test_snakemakes_own_report_needs_no_network(built: Project, tmp_path: Path) -> None:
    """PAINS E11; q1pipe's is looked at in test_pages.py."""
    report = tmp_path / "snakemake.html"
    command = [*without_network(), sys.executable, "-m", "snakemake", "--report", report, *options(2)]
    run(*command, cwd=built.folder)
    assert "policy_sheet.png" in report.read_text(encoding="utf-8")


def test_two_workflows_side_by_side(fresh: Project, tmp_path: Path) -> None:
    other = copy(tmp_path / "other")
    with fresh.started(MOTION, cores=1) as one, other.started(MOTION, cores=1) as two:
        assert [one.wait(TIMEOUT), two.wait(TIMEOUT)] == [0, 0]
    assert (fresh.folder / MOTION).read_bytes() == (other.folder / MOTION).read_bytes()


def test_moved_folder_goes_on_where_it_was(project: Project, tmp_path: Path) -> None:
    moved = Project(project.folder.rename(tmp_path / "moved"))
    assert moved.planned() == set()
    moved.edit("config/config.yaml", 'license: "" ', 'license: "CC0" ')
    assert moved.planned() == {("package", NAME)}


def test_copy_without_what_snakemake_knows_goes_by_dates_until_it_is_accepted(project: Project) -> None:
    shutil.rmtree(project.folder / ".snakemake")
    said = project.dry_run()
    assert jobs(said) == set()  # dates came along
    assert "WARN [copy] .snakemake — results/ is there, but not what Snakemake knew of it" in said
    project.edit("config/config.yaml", 'license: "" ', 'license: "CC0" ')
    assert project.planned() == set()  # unnoticed
    early = project.folder / f"results/{NAME}/motion.npz"
    os.utime(early, (2e9, 2e9))
    assert ("train", NAME) in project.planned()  # as `cp -r` may leave it
    result = project.without_jobs("--touch", "--forceall")
    assert result.returncode == 0, result.stdout
    said = project.dry_run()
    assert jobs(said) == set()
    assert "WARN [copy]" not in said
    project.edit("config/config.yaml", 'license: "CC0" ', 'license: "MIT" ')
    assert project.planned() == {("package", NAME)}


def test_copy_without_results_makes_everything(project: Project) -> None:
    shutil.rmtree(project.folder / "results")
    assert project.planned() == {(rule, "" if rule in SHARED else NAME) for rule in (*EVERYTHING, "device")}
