"""Kill a tiny run at random moments in random ways, and see whether the same comes out: python -m tests.slow.stress

Every attempt is the real snakemake with the real trainer. At the end there must be no stray process, nothing new in
/dev/shm, and a train.csv and weights that are bit-identical to those of a run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.deaths import NAME, Run, end, same

WAYS = (
    "KILL group",
    "KILL snakemake",
    "KILL trainer",
    "KILL worker",
    "INT group",
    "TERM group",
    "INT trainer",
    "TERM trainer",
    "INT INT trainer",
    "q1pipe stop",
)
ITERATIONS = 400  # every attempt does its share of them at most
LEAVES = 15.0  # s until nothing of an attempt is there


def stress(folder: Path, deaths: int, seed: int) -> dict[str, object]:
    """Kill one run so many times, finish it, compare.

    Raises:
        AssertionError: something was left, or what came out differs.
    """
    chance, began = random.Random(seed), time.monotonic()
    undisturbed, run = (Run(folder / name, max_iterations=ITERATIONS) for name in ("undisturbed", "killed"))
    code, output = end(undisturbed.trainer(), 600)
    assert code == 0, output
    ways: Counter[str] = Counter()
    slowest, starting = 0.0, 0
    for death in range(1, deaths + 1):
        run.q1pipe("unlock")
        snakemake = run.snakemake()
        moment = time.monotonic() + chance.choice([chance.uniform(0.5, 5), 60])  # while it starts, or while it trains
        goal = run.iteration + chance.randint(1, ITERATIONS // deaths - 2)
        while time.monotonic() < moment and run.iteration < goal:
            assert snakemake.poll() is None, snakemake.communicate()[0]
            time.sleep(chance.uniform(0, 0.1))
        way = chance.choice(WAYS)
        if not kill(run, snakemake, way):
            way, starting = "KILL group", starting + 1
            kill(run, snakemake, way)
        killed = time.monotonic()
        run.require_nothing_left(LEAVES)
        took = time.monotonic() - killed
        ways[way], slowest = ways[way] + 1, max(slowest, took)
        print(f"{death:3d}  {way:16} at iteration {run.iteration:3d}, nothing left after {took:.1f} s", flush=True)
    run.q1pipe("unlock")
    code, output = end(run.snakemake(), 600)
    assert code == 0, output
    run.require_nothing_left(1)
    assert same(run.result(), undisturbed.result()), "what came out differs"
    assert run.run_folder
    return {
        "deaths": deaths,
        "ways": ", ".join(f"{n} × {way}" for way, n in ways.most_common()),
        "while starting": starting,
        "slowest to leave": f"{slowest:.1f} s",
        "damaged checkpoints": len(list(run.run_folder.glob("*.corrupt"))),
        "stray processes": len(run.processes),
        "new in /dev/shm": 0,
        "bit-identical": "yes",
        "took": f"{(time.monotonic() - began) / 60:.1f} min",
    }


def kill(run: Run, snakemake: subprocess.Popen[str], way: str) -> bool:
    """End a run in a way; False when what that needs is not there yet."""
    *signals, whom = way.split()
    if way == "q1pipe stop":
        return "stopped" in run.q1pipe("stop", NAME).stdout
    try:
        pid = snakemake.pid if whom in ("group", "snakemake") else run.pid(whom)
    except ValueError:
        return False
    for name in signals:
        try:
            (os.killpg if whom == "group" else os.kill)(pid, signal.Signals[f"SIG{name}"])
        except ProcessLookupError:
            return name != signals[0]  # the first one was enough
        time.sleep(0.05)
    return True


def main() -> None:
    """Twenty deaths, or as many as the first argument says; the second one is the seed."""
    deaths, seed = (int(x) for x in (sys.argv[1:] + ["20", "1"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="q1pipe-stress-") as folder:
        for key, value in stress(Path(folder), deaths, seed).items():
            print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
