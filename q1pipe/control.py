"""Stopping what trains, and unlocking a folder after a kill."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from q1pipe.errors import Q1Error, error
from q1pipe.runfolder import STOP
from q1pipe.runs import motion_folder, motion_folders, runs_of

log = logging.getLogger(__name__)

STOP_SECONDS = 30.0


def stop(results: Path, motion: str) -> None:
    """Make a motion's training save and end, and wait for that. Works from anywhere that sees the folder.

    Raises:
        Q1Error: it did not end in time, or there is no such motion.
    """
    at_work = [run for run in runs_of(motion_folder(results, motion)) if run.holder]
    if not at_work:
        log.info("nothing trains for %s", motion)
    for run in at_work:
        log.info("%s: asking to stop", run.holder)
        (run.folder / STOP).touch()
    deadline = time.monotonic() + STOP_SECONDS
    while busy := [run for run in at_work if run.holder]:
        if time.monotonic() > deadline:
            found = f"{busy[0].holder} has not ended after {STOP_SECONDS:.0f} s"
            raise Q1Error(error("stop", str(busy[0].folder), found, "", "kill it; its checkpoints stay"))
        time.sleep(0.2)
    for run in at_work:
        kept = run.checkpoint
        log.info("stopped; the workflow goes on from %s", f"model_{kept[0]}.pt" if kept else "the beginning")


def unlock(results: Path) -> None:
    """Explain Snakemake's lock, and remove it where nobody works.

    Raises:
        Q1Error: a snakemake works in this folder, or a training run.
    """
    locks = list(Path(".snakemake/locks").glob("*.lock"))
    if not locks:
        log.info("this folder is not locked")
        return
    at_work = [f"snakemake, process {pid}" for pid in _snakemakes()]
    at_work += [str(run.holder) for f in motion_folders(results) for run in runs_of(f) if run.holder]
    if at_work:
        action = "wait for it; training whose snakemake was killed leaves within 15 s"
        raise Q1Error(error("unlock", str(Path.cwd()), f"{at_work[0]} works here", "nobody at work", action))
    log.info(
        "A snakemake in this folder was killed and could not remove its %d locks. They only keep a second one from\n"
        "starting beside it. Nobody works here now, so they go; results and training runs stay, and training goes on\n"
        "from its newest checkpoint. This is: snakemake --unlock",
        len(locks),
    )
    if subprocess.run([sys.executable, "-m", "snakemake", "--unlock"], check=False).returncode:
        raise Q1Error(error("unlock", str(Path.cwd()), "snakemake --unlock failed", "", "see what it says above"))


def _snakemakes() -> list[int]:
    """Processes of snakemake in this folder, where the system has /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            here = os.path.samefile(process / "cwd", ".")
        except OSError:
            continue
        if here and any(word.rpartition(b"/")[2] == b"snakemake" for word in words[:4]):
            found.append(int(process.name))
    return found
