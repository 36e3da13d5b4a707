"""The profiles for clusters: what each asks for, and who is believed when a job is said to be done."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.workflow.project import ROOT, TINY, Project

# Each scheduler as commands that run a job at once and forget it when it has ended. LOSE: take it, lose it.
RUN = """\
import os, subprocess, sys
def start(command, log):
    if not os.path.exists("LOSE"):
        out = open(log, "w") if log else subprocess.DEVNULL
        pid = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True).pid
        return pid
    os.remove("LOSE")
    return 99999999
def runs(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False
"""
FAKES = {
    "donau": {
        "dsub": 'a = sys.argv\nopen("asked", "a").write(" ".join(a[1:-1]) + "\\n")\n'
        "print(f\"Submit job <{start([a[-1]], a[a.index('-oo') + 1])}> successfully.\")",
        "djob": 'print("RUNNING") if runs(sys.argv[-1]) else sys.exit("no such job")',
        "dkill": 'open("killed", "a").write(" ".join(sys.argv[1:]) + "\\n")',
    },
    "kubernetes": {
        "kubectl": """
import json
if sys.argv[1] == "create":
    container = (job := json.load(sys.stdin))["spec"]["template"]["spec"]["containers"][0]
    open("asked", "a").write(json.dumps(job) + "\\n")
    print(f"job.batch/q1pipe-{start(container['command'], '')}")
elif sys.argv[1] == "get":
    print("{}") if runs(sys.argv[3].split("-")[1]) else sys.exit("NotFound")
else:
    open("killed", "a").write(" ".join(sys.argv[1:]) + "\\n")
""",
    },
}
SCHEDULERS = pytest.mark.parametrize("scheduler", FAKES)


def fakes(folder: Path, scheduler: str) -> dict[str, str]:
    """Environment with a scheduler's commands in it."""
    folder.mkdir()
    for name, body in FAKES[scheduler].items():
        (folder / name).write_text(f"#!{sys.executable}\n{RUN}{body}\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join((str(folder), os.path.dirname(sys.executable), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


class Commands:
    """submit, status and cancel of a profile, in a folder."""

    def __init__(self, folder: Path, scheduler: str):
        self.folder, self.scheduler = folder, scheduler
        self.env = fakes(folder / "bin", scheduler)

    def __call__(self, *args: str) -> str:
        command = [sys.executable, "-m", f"profiles.{self.scheduler}.job", *args]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def submit(self, script: str, npu: int = 0) -> str:
        (self.folder / "snakejob.sh").write_text(script)
        wanted = ("--threads=8", "--mem-mb=6000", "--minutes=30", f"--npu={npu}")
        return self("submit", *wanted, "--npu-name=card", "snakejob.sh")

    def end(self, job: str, grace: float = 60) -> str:
        """The status that a job ends with."""
        deadline = time.monotonic() + 60
        while (status := self("status", f"--grace={grace}", job)) == "running":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return status


@pytest.fixture
def commands(tmp_path: Path, scheduler: str) -> Commands:
    folder = tmp_path / "a folder"
    folder.mkdir()
    return Commands(folder, scheduler)


@SCHEDULERS
def test_a_job_ends_as_its_script_does_and_runs_where_it_was_submitted(commands: Commands) -> None:
    assert commands.end(commands.submit("pwd > here; sleep 0.3; exit 0")) == "success"
    assert (commands.folder / "here").read_text().strip() == str(commands.folder)
    assert commands.end(commands.submit("exit 3")) == "failed"


@SCHEDULERS
def test_a_job_that_the_scheduler_does_not_know_is_not_done(commands: Commands) -> None:
    (commands.folder / "LOSE").touch()
    job = commands.submit("exit 0")
    assert commands("status", "--grace=60", job) == "running"  # it may be slow to list it
    assert commands.end(job, grace=0.5) == "failed"


@SCHEDULERS
def test_a_job_that_was_killed_is_not_done(commands: Commands) -> None:
    assert commands.end(commands.submit("kill -9 $PPID"), grace=0.5) == "failed"


@SCHEDULERS
def test_accelerators_cores_and_memory_are_asked_for(commands: Commands) -> None:
    job = commands.submit("exit 0", npu=1)
    asked = (commands.folder / "asked").read_text()
    if commands.scheduler == "donau":
        assert "-R cpu=8;mem=6G;card=1 -T 1800" in asked
    else:
        spec = json.loads(asked)["spec"]
        resources = spec["template"]["spec"]["containers"][0]["resources"]
        assert resources == {
            "requests": {"cpu": 8, "memory": "6000M", "card": 1},
            "limits": {"memory": "6000M", "card": 1},
        }
        assert spec["activeDeadlineSeconds"] == 1800
    commands("cancel", job)
    number = job.split("@")[0]
    assert (commands.folder / "killed").read_text().split()[-1] == number


def planned(project: Project, profile: str) -> dict[str, str]:
    """Rule -> its resources, in a dry run with a profile."""
    plugin = {"slurm": "slurm"}.get(profile, "cluster-generic")
    if find_spec(f"snakemake_executor_plugin_{plugin.replace('-', '_')}") is None:
        pytest.skip(f"snakemake-executor-plugin-{plugin} is not installed")
    result = project.without_jobs("results/getUp/eval.json", "-n", "--workflow-profile", f"profiles/{profile}")
    assert result.returncode == 0, result.stdout
    blocks = re.split(r"^(?:local)?rule ", result.stdout, flags=re.MULTILINE)[1:]
    return {b.partition(":")[0]: re.search(r"^    resources: (.*)$", b, re.MULTILINE)[1] for b in blocks}


@pytest.mark.parametrize(
    ("profile", "on_npu", "elsewhere"),
    [
        ("slurm", ("slurm_partition=npu", "gres=npu:1"), "slurm_partition=cpu"),
        ("donau", ("queue=npu", "npu=1"), "queue=default"),
        ("kubernetes", ("npu=1",), "npu=0"),
    ],
)
def test_each_profile_plans_and_asks_for_the_accelerator_where_it_is_used(
    fresh: Project, profile: str, on_npu: tuple[str, ...], elsewhere: str
) -> None:
    resources = planned(fresh, profile)
    for rule in ("device", "smoke", "train"):
        assert all(want in resources[rule] for want in on_npu), resources[rule]
    for rule in ("motion", "export", "sim2sim", "evaluate"):
        assert elsewhere in resources[rule]
        assert on_npu[-1] not in resources[rule]
    assert "runtime=480" in resources["train"]
    assert "mem_mb=64000" in resources["train"]


@pytest.mark.slow
@SCHEDULERS
def test_a_lost_job_is_submitted_again(fresh: Project, tmp_path: Path, scheduler: str) -> None:
    """The real Snakemake and its executor; only the scheduler's commands are stand-ins."""
    if find_spec("snakemake_executor_plugin_cluster_generic") is None:
        pytest.skip("snakemake-executor-plugin-cluster-generic is not installed")
    (fresh.folder / "LOSE").touch()
    status = f"python -m profiles.{scheduler}.job status --grace=3"
    command = [sys.executable, "-m", "snakemake", "results/getUp/motion.npz", "--configfile", str(TINY)]
    command += ["--workflow-profile", f"profiles/{scheduler}", "--cluster-generic-status-cmd", status]
    command += ["--seconds-between-status-checks", "1", "--latency-wait", "5"]
    env = fakes(tmp_path / "bin", scheduler)
    result = subprocess.run(command, cwd=fresh.folder, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "left no exit status: it counts as failed" in result.stderr
    assert len((fresh.folder / "asked").read_text().splitlines()) == 2
    assert (fresh.folder / "results/getUp/motion.npz").exists()
