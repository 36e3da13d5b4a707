"""Stopping what trains, and unlocking a folder after a kill."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from q1pipe.errors import Q1Error, error
from q1pipe.runfolder import STOP
from q1pipe.runs import motion_folder, motion_folders, runs_of
from q1pipe.stopping import alive

log = logging.getLogger(__name__)

STOP_SECONDS = 30.0


def stop(results: Path, motion: str) -> None:
    """Make a motion's training save and end, and wait for that. Works from anywhere that sees the folder.

    On this machine also in the seconds before training has a run folder to be asked in: it is sent a signal.

    Raises:
        Q1Error: it did not end in time, or there is no such motion.
    """
    folder = motion_folder(results, motion)
    at_work = [(run, by) for run in runs_of(folder) if (by := run.holder)]
    starting = sorted(set(_trainers(folder)) - {by.pid for _, by in at_work})
    if not at_work and not starting:
        log.info("nothing trains for %s", motion)
    for run, by in at_work:
        log.info("%s: asking to stop", by)
        (run.folder / STOP).touch()
    for pid in starting:
        log.info("process %d, which is starting: asking to stop", pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while busy := [str(by) for r, by in at_work if r.holder] or [f"process {p}" for p in starting if alive(p)]:
        if time.monotonic() > deadline:
            found = f"{busy[0]} has not ended after {STOP_SECONDS:.0f} s"
            raise Q1Error(error("stop", str(folder), found, "", "kill it; its checkpoints stay"))
        time.sleep(0.2)
    for run, _ in at_work:
        kept = run.checkpoint
        log.info("stopped; the workflow goes on from %s", f"model_{kept[0]}.pt" if kept else "the beginning")
    if starting:
        log.info("stopped before it trained")


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
    """Processes of snakemake in this folder."""
    here = Path.cwd()
    return [p for p, cwd, words in _processes() if cwd == here and "snakemake" in (Path(w).name for w in words[:4])]


def _trainers(folder: Path) -> Iterator[int]:
    """Processes of the train stage of a motion's folder, whether or not they hold a lock yet."""
    option, ours = "--runs-dir=", (folder / "runs").resolve()
    for pid, cwd, words in _processes():
        given = next((word.removeprefix(option) for word in words if word.startswith(option)), None)
        if given and "train" in words[:4] and (cwd / given).resolve() == ours:
            yield pid


def _processes() -> Iterator[tuple[int, Path, list[str]]]:
    """Id, working directory and command line of all processes that this user may look at; none without /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile, or another user's
            words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
            yield int(process.name), Path(os.readlink(process / "cwd")), words
