"""A tiny run that is really started, as its own processes, to be ended in every way."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from q1pipe.config import RobotCfg
from q1pipe.robot import Robot
from q1pipe.runfolder import holder
from tests.clips import standing_clip

ROOT = Path(__file__).parents[1]
SHARED = Path("/dev/shm")
NAME = "it's 起身"
TIME_COLUMNS = ("sps", "collect_s", "update_s", "wall_s")
TRAIN = {
    "num_envs": 8,
    "num_workers": 2,
    "max_iterations": 36,
    "steps_per_env": 6,
    "save_interval": 4,
    "best_episodes": 2,
    "policy": {"hidden": [16, 8]},
    "reset": {"bin_seconds": 0.1},
}
CONFIG = {"device": {"device": "cpu"}, "train": TRAIN}


class Run:
    """A folder with the project and all that training needs, and the processes of the run that goes on in it.

    Args:
        folder: made here.
        train: settings of `train` that differ.
    """

    def __init__(self, folder: Path, **train: Any):
        self.folder, self.results = folder, folder / "results" / NAME
        self.train = {**TRAIN, **train}
        self.mark = uuid.uuid4().hex  # in the environment of every process of the run
        self.shared = self._shared()
        self.results.mkdir(parents=True)
        for part in ("Snakefile", "environment.yml", "profiles", "workflow", "q1pipe"):
            os.symlink(ROOT / part, folder / part)
        shutil.copytree(ROOT / "config", folder / "config", ignore=shutil.ignore_patterns("*.npz"))
        self.set()
        clip = standing_clip(Robot.load(RobotCfg()), frames=12)
        for path in (folder / f"config/{NAME}.npz", self.results / "motion.npz"):
            clip.save(path)
        (folder / "results/device.json").write_text(json.dumps({"device": "cpu", "name": "a processor"}))
        for name in ("motion.json", "smoke.json"):
            (self.results / name).write_text("{}")

    def set(self, **train: Any) -> None:
        """Change settings of `train`."""
        self.train |= train
        (self.folder / "run.yaml").write_text(json.dumps({**CONFIG, "train": self.train}))

    def trainer(self) -> subprocess.Popen[str]:
        """Start `q1pipe train`, in a process group of its own."""
        results, command = self.results, [sys.executable, "-m", "q1pipe", "train"]
        options = {
            "motion": results / "motion.npz",
            "device": self.folder / "results/device.json",
            "smoke": results / "smoke.json",
            "runs-dir": results / "runs",
            "policy": results / "policy.pt",
            "history": results / "train.csv",
            "out-json": results / "train.json",
            "workers": self.train["num_workers"],
            "threads": 2,
            "settings": json.dumps({"robot": {}, **CONFIG, "train": self.train}),
        }
        return self._start([*command, *(f"--{key}={value}" for key, value in options.items())])

    def snakemake(self, *options: str, cores: int = 2) -> subprocess.Popen[str]:
        """Start snakemake for train.json, in a process group of its own."""
        options = (f"--cores={cores}", "--configfile", "run.yaml", *options)
        return self._start([sys.executable, "-m", "snakemake", f"results/{NAME}/train.json", *options])

    def q1pipe(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run another command there, to its end."""
        done = self._start([sys.executable, "-m", "q1pipe", *args])
        output, _ = done.communicate(timeout=60)
        return subprocess.CompletedProcess(args, done.returncode, output)

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "Q1_TEST": self.mark, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def run_folder(self) -> Path | None:
        return next((self.results / "runs").glob("*"), None)

    @property
    def iteration(self) -> int:
        """The last one in the live train.csv."""
        table = self.run_folder / "train.csv" if self.run_folder else None
        if not table or not table.exists():
            return 0
        last = table.read_text().splitlines()[-1].split(",")[0]
        return int(last) if last.isdigit() else 0

    @property
    def processes(self) -> dict[int, str]:
        """Live processes of the run: id -> command line."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone meanwhile
                if f"Q1_TEST={self.mark}".encode() in (process / "environ").read_bytes():
                    found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        return found

    def pid(self, what: str) -> int:
        """A process of the run: its trainer or one of its workers, the youngest: what they are forked from is older."""
        part = {"trainer": "q1pipe train ", "worker": "multiprocessing.spawn"}[what]
        return max(pid for pid, line in self.processes.items() if part in line and "bash" not in line)

    def wait(self, until: Callable[[], object], seconds: float = 60) -> float:
        """Seconds until something is so."""
        began = time.monotonic()
        while not until():
            assert time.monotonic() < began + seconds, f"not within {seconds} s: {self.processes}"
            time.sleep(0.02)
        return time.monotonic() - began

    def train_past(self, iterations: int) -> None:
        """Wait until so many more iterations than now are done."""
        goal = self.iteration + iterations
        self.wait(lambda: self.iteration >= goal)

    def require_nothing_left(self, seconds: float) -> None:
        """After some time no process, nobody who holds the run's lock, and no shared memory."""
        self.wait(lambda: not self.processes and not (self.run_folder and holder(self.run_folder)), seconds)
        assert self._shared() == self.shared

    def result(self) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The published train.csv without what the clock says, and the last checkpoint, likewise."""
        with open(self.results / "train.csv", newline="") as f:
            rows = [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in csv.DictReader(f)]
        last = f"model_{self.train['max_iterations']}.pt"
        assert self.run_folder
        state = torch.load(self.run_folder / last, weights_only=True)
        del state["wall_s"], state["best"]["wall_s"], state["meta"]
        return rows, state

    def _shared(self) -> set[str]:
        return {p.name for p in SHARED.iterdir()} if SHARED.is_dir() else set()


def same(a: Any, b: Any) -> bool:
    """Whether nested values are equal, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def end(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """Exit status and output of what should end by then."""
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a process and all below it, as a terminal does."""
    os.killpg(process.pid, number)
