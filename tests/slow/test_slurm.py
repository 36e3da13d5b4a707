"""Two motions on a SLURM of two nodes; the training of one is preempted by a job that is more urgent, and goes on."""

import csv
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.deaths import TIME_COLUMNS
from tests.slow.slurm import MISSING, Slurm
from tests.workflow.project import TINY, copy

ITERATIONS, SAVED = 150, 20
PROFILE = "profiles/slurm"


def reason() -> str:
    if MISSING:
        return f"SLURM is not installed: {', '.join(MISSING)} missing"
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root"
    return "" if find_spec("snakemake_executor_plugin_slurm") else "snakemake-executor-plugin-slurm is not installed"


def rows(table: Path) -> list[dict[str, str]]:
    """A train.csv, without what the clock says."""
    if not table.exists():
        return []
    with open(table, newline="") as f:
        whole = list(csv.DictReader(line for line in f if line.endswith("\n")))
    return [{key: value for key, value in row.items() if key not in TIME_COLUMNS} for row in whole]


def wait(until, what: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.skipif(bool(reason()), reason=reason())
def test_two_motions_at_once_one_preempted_and_resumed(tmp_path: Path) -> None:
    project = copy(tmp_path / "project")
    for name in ("walk", "wave"):
        shutil.copy(project.folder / "config/getUp.npz", project.folder / f"config/{name}.npz")
    tiny = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tiny["train"] |= {"max_iterations": ITERATIONS, "save_interval": SAVED, "best_episodes": 2}
    (project.folder / "tiny.yaml").write_text(yaml.safe_dump(tiny), encoding="utf-8")
    results = project.folder / "results"
    targets = ["results/walk/train.json", "results/wave/sim2sim.json"]
    command = [sys.executable, "-m", "snakemake", *targets, "--workflow-profile", PROFILE, "--configfile", "tiny.yaml"]
    polling = ["--slurm-status-command", "squeue", "--seconds-between-status-checks", "3", "--latency-wait", "10"]

    def live(name: str) -> list[dict[str, str]]:
        return max((rows(t) for t in (results / name / "runs").glob("*/train.csv")), key=len, default=[])

    with Slurm(tmp_path / "slurm") as slurm, open(tmp_path / "snakemake.txt", "w+b") as said:
        snakemake = subprocess.Popen([*command, *polling], cwd=project.folder, env=slurm.env, stdout=said, stderr=said)
        try:
            alive = snakemake.poll
            wait(lambda: alive() is not None or (live("walk") and live("wave")), "both train")
            assert alive() is None, (tmp_path / "snakemake.txt").read_text()
            jobs = {name: slurm.job(f"rule_train_wildcards_{name}") for name in ("walk", "wave")}
            print({name: [job[key] for key in ("JobId", "NodeList", "TresPerNode")] for name, job in jobs.items()})
            assert {job["NodeList"] for job in jobs.values()} == {"node1", "node2"}
            wait(lambda: len(live("walk")) > 25, "25 iterations")
            node = jobs["walk"]["NodeList"]
            urgent = ("sbatch", "--partition=urgent", "--gres=npu:1", f"--nodelist={node}", "--output=/dev/null")
            slurm(*urgent, "--job-name=urgent", "--wrap=sleep 3")
            wait(lambda: slurm.job("rule_train_wildcards_walk")["Restarts"] == "1", "preempted", 120)
            stopped_at = len(live("walk"))
            print("preempted after iteration", stopped_at)
            lowest = stopped_at
            while snakemake.poll() is None:
                lowest = min(lowest, len(live("walk")))
                time.sleep(0.2)
            assert snakemake.returncode == 0, (tmp_path / "snakemake.txt").read_text()
            ends = {name: slurm.job(f"rule_train_wildcards_{name}") for name in ("walk", "wave")}
        finally:
            snakemake.terminate()
            snakemake.wait(60)
        print((tmp_path / "snakemake.txt").read_text()[-1500:])
    assert 25 < stopped_at < ITERATIONS
    assert [ends[name]["Restarts"] for name in ("walk", "wave")] == ["1", "0"]
    assert ends["walk"]["JobId"] == jobs["walk"]["JobId"]
    tables = {name: rows(results / name / "train.csv") for name in ("walk", "wave")}
    assert [int(row["iteration"]) for row in tables["walk"]] == list(range(1, ITERATIONS + 1))
    assert tables["walk"] == tables["wave"]  # two names of one clip: the numbers of the one that nobody disturbed
    assert lowest >= SAVED  # it went on; SLURM may kill before all is saved, then from the last regular checkpoint
    assert (results / "wave/sim2sim.json").exists()
    for name in ("walk", "wave"):
        assert (results / name / "logs/train.log").exists()
