"""Kill a tiny run at random moments in random ways, and see whether the same comes out: python -m tests.slow.stress

Every attempt is the real snakemake with the real trainer. At the end there must be no stray process, nothing new in
/dev/shm, and a train.csv and weights that are bit-identical to those of a run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.deaths import NAME, Run, end, group, same

WAYS = (
    "KILL group",
    "KILL snakemake",
    "KILL trainer",
    "KILL worker",
    "INT group",
    "TERM group",
    "INT trainer",
    "TERM trainer",
    "INT trainer twice",
    "q1pipe stop",
)
LEAVES = 15.0  # s until nothing of an attempt is there


def stress(folder: Path, deaths: int, seed: int) -> dict[str, object]:
    """Kill one run so many times, finish it, compare.

    Raises:
        AssertionError: something was left, or what came out differs.
    """
    chance = random.Random(seed)
    undisturbed, run = Run(folder / "undisturbed", **LONG), Run(folder / "killed", **LONG)
    code, output = end(undisturbed.trainer(), 600)
    assert code == 0, output
    ways: Counter[str] = Counter()
    starting = slowest = 0.0
    began = time.monotonic()
    for _ in range(deaths):
        run.q1pipe("unlock")
        snakemake = run.snakemake()
        time.sleep(chance.uniform(0.5, 8))  # also while it starts
        way = chance.choice(WAYS)
        before, at = snakemake.poll() is None, run.iteration
        assert before, snakemake.communicate()[0]
        if not kill(run, snakemake, way):
            way = "KILL group"  # there is no trainer or no worker yet
            group(snakemake, signal.SIGKILL)
            starting += 1
        ended = time.monotonic()
        run.require_nothing_left(LEAVES)
        slowest = max(slowest, time.monotonic() - ended)
        ways[way] += 1
        print(f"{sum(ways.values()):3d}  {way:18} in iteration {at:3d}, gone after {time.monotonic() - ended:.1f} s")
    run.q1pipe("unlock")
    code, output = end(run.snakemake(), 600)
    assert code == 0, output
    run.require_nothing_left(1)
    assert same(run.result(), undisturbed.result()), "what came out differs"
    corrupt = len(list(run.run_folder.glob("*.corrupt"))) if run.run_folder else 0
    return {
        "deaths": deaths,
        "ways": dict(ways),
        "while starting": int(starting),
        "slowest to leave, s": round(slowest, 1),
        "damaged checkpoints": corrupt,
        "stray processes": len(run.processes),
        "bit-identical": True,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


LONG = {"max_iterations": 600}


def kill(run: Run, snakemake: object, way: str) -> bool:
    """End it in a way; False when the process that this needs is not there yet."""
    what, _, whom = way.partition(" ")
    if way == "q1pipe stop":
        return run.q1pipe("stop", NAME).stdout.count("stopped") > 0
    try:
        pid = (
            {"group": 0, "snakemake": snakemake.pid}.get(whom)
            if whom in ("group", "snakemake")
            else run.pid(whom.split()[0])
        )  # type: ignore[attr-defined]
        number = signal.Signals[f"SIG{what}"]
        if whom == "group":
            group(snakemake, number)  # type: ignore[arg-type]
            return True
        os.kill(pid, number)
        if whom.endswith("twice"):
            time.sleep(0.05)
            os.kill(pid, number)
    except ValueError:  # no such process
        return False
    except ProcessLookupError:
        pass  # gone after the first of two
    return True


def main() -> None:
    """Twenty deaths, or as many as the first argument says; the second is the seed."""
    deaths, seed = (int(a) for a in [*sys.argv[1:], "20", "1"][:2]) if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="q1pipe-stress-") as folder:
        for key, value in stress(Path(folder), deaths, seed).items():
            print(f"{key:22} {value}")


if __name__ == "__main__":
    main()
