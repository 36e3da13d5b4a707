"""How long a run takes to begin, and what it holds in memory: 1024 environments in 32 workers.

    python -m benchmarks.startup

From the start of the process that trains to its first iteration, less that iteration, and the proportional set size of
all its processes after it.
"""

from __future__ import annotations

import contextlib
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.common import full, prepare, train_run

ROUNDS, WORKERS = 3, 32


def one(folder: Path) -> tuple[float, float]:
    """Seconds to the first iteration, and GB of all processes after it."""
    prepare(folder, full())
    begin = time.monotonic()
    process = psutil.Popen([sys.executable, "-m", "benchmarks.startup", str(folder)], stdout=subprocess.DEVNULL)
    try:
        while not (rows := [row for file in folder.glob("runs/*/train.csv") for row in csv.DictReader(file.open())]):
            if process.poll() is not None:
                raise RuntimeError(f"the run ended with {process.returncode}")
            time.sleep(0.05)
        seconds = time.monotonic() - begin - float(rows[0]["collect_s"]) - float(rows[0]["update_s"])
        return seconds, sum(p.memory_full_info().pss for p in (process, *process.children(recursive=True))) / 1e9
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
        process.wait()


def main() -> None:
    """Measure and print."""
    found = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            found.append(one(Path(name)))
    seconds, memory = (statistics.median(column) for column in zip(*found, strict=True))
    print(
        f"{WORKERS} workers, 1024 environments: {seconds:.1f} s to the first step, {memory:.2f} GB; median of {ROUNDS}"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_run(Path(sys.argv[1]), full(), WORKERS)
    else:
        main()
