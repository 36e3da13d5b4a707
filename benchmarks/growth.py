"""How cost grows with the work: environments, workers, seconds of motion, motions in the workflow.

python -m benchmarks.growth speed      env steps/s for 64 to 4096 environments and 1 to 8 workers
python -m benchmarks.growth motion     the motion stage and a step's cost for clips of 1 s to 10 min
python -m benchmarks.growth workflow   `snakemake -n` with 1 to 200 motions
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common import MOTION, ROOT, get_up, laptop
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.robot import Robot
from q1pipe.sim.workers import WorkerPool

app = typer.Typer(no_args_is_help=True, help=__doc__)
ROUNDS = 5
ENVS, WORKERS = (64, 256, 1024, 4096), (1, 2, 4, 8)
SECONDS = (1, 10, 60, 600)
MOTIONS = (1, 20, 200)


def steps_per_second(motion: Path, envs: int, workers: int, steps: int) -> float:
    """Environment steps per second of the workers alone, with action 0, the default pose."""
    sections = laptop(num_envs=envs, num_workers=workers)
    with WorkerPool(sections.robot, motion, sections.train, workers, horizon=1) as pool:
        pool.reset()
        for _ in range(3):
            pool.step(0)
        begin = time.perf_counter()
        for _ in range(steps):
            pool.step(0)
        return envs * steps / (time.perf_counter() - begin)


@app.command()
def speed() -> None:
    """Environments and workers."""
    table = Table("environments", *(f"{n} workers" for n in WORKERS), title="collection, env steps/s, of the best")
    with tempfile.TemporaryDirectory() as name:
        motion = Path(name) / "motion.npz"
        get_up(laptop()).save(motion)
        found = {
            (envs, workers): statistics.median(
                steps_per_second(motion, envs, workers, max(5, 8192 // envs)) for _ in range(ROUNDS)
            )
            for envs in ENVS
            for workers in WORKERS
        }
    best = max(found.values())
    for envs in ENVS:
        table.add_row(str(envs), *(f"{found[envs, n]:,.0f} ({found[envs, n] / best:.2f})" for n in WORKERS))
    Console().print(table)


def repeated(clip: Clip, seconds: float, robot: Robot) -> Clip:
    """The clip forwards and backwards until it is so long."""
    there = np.arange(clip.frames)
    frames = np.resize(np.concatenate([there, there[::-1]]), round(seconds * clip.fps))
    root = robot.root - 1
    return from_poses(
        robot, clip.fps, clip.body_pos_w[frames, root], clip.body_quat_w[frames, root], clip.joint_pos[frames]
    )


@app.command()
def motion() -> None:
    """Seconds of motion."""
    sections = laptop()
    robot, clip = Robot.load(sections.robot), get_up(sections)
    table = Table("seconds of motion", "`q1pipe check`, s", "collection, env steps/s", title="length of the clip")
    with tempfile.TemporaryDirectory() as name:
        for seconds in SECONDS:
            file = Path(name) / f"{MOTION}.npz"
            repeated(clip, seconds, robot).save(file)
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-m", "q1pipe", "check", file], cwd=ROOT, stdout=subprocess.DEVNULL)
            checked = time.perf_counter() - begin
            rates = [steps_per_second(file, 256, 2, 20) for _ in range(ROUNDS)]
            table.add_row(str(seconds), f"{checked:.1f}", f"{statistics.median(rates):,.0f}")
    Console().print(table)


@app.command()
def workflow() -> None:
    """Motions in the workflow."""
    table = Table("motions", "`snakemake -n`, s", "more than with one", title="dry run of everything")
    one = 0.0
    for count in MOTIONS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part in ("Snakefile", "environment.yml", "config", "profiles", "q1pipe", "workflow"):
                (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, folder / part)
            for i in range(1, count):
                shutil.copy(folder / "config" / f"{MOTION}.npz", folder / "config" / f"motion{i}.npz")
            times = []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                command = [sys.executable, "-m", "snakemake", "-n", "--cores", "2", "--quiet"]
                subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
                times.append(time.perf_counter() - begin)
        seconds = statistics.median(times)
        one = one or seconds
        table.add_row(str(count), f"{seconds:.2f}", f"{seconds - one:+.2f}")
    Console().print(table)


if __name__ == "__main__":
    app()
