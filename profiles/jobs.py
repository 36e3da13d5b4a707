"""Jobs of a scheduler that Snakemake's cluster-generic executor drives, as commands that it calls.

A job is done when it said so itself: the last thing that it does is to write its exit status to a file. Schedulers
forget jobs, and their commands fail; a job that is not known and that left no exit status has failed, never succeeded.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

JOBS = Path(".snakemake/jobs")
RUNS, ENDED, FAILED, UNKNOWN = "runs", "ended", "failed", "unknown"

# Hands in a script, with what is asked for and a file for what the job prints; returns its number or name.
Submit = Callable[[Path, argparse.Namespace, Path], str]
# What the scheduler says of a number or name: RUNS, ENDED, FAILED or UNKNOWN.
Ask = Callable[[str], str]


def submit(script: Path, args: argparse.Namespace, hand_in: Submit) -> str:
    """Wrap a job script so that it leaves its exit status, and hand it in; returns ``number@folder``."""
    folder = (JOBS / uuid.uuid4().hex[:12]).resolve()
    folder.mkdir(parents=True)
    wrapped, path = folder / "job.sh", shlex.quote(str(folder))
    (folder / "snakemake.sh").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    # A shell that is a container's first process hears no SIGTERM unless it asks to, and hands none on. So the job has
    # a group of its own, which gets the signal; training saves, and when all are gone the exit status is written.
    wrapped.write_text(
        f"""#!/bin/sh
cd {shlex.quote(os.getcwd())}
trap 'kill -TERM -- -$job' TERM
setsid sh {path}/snakemake.sh &
job=$!
while kill -0 $job 2> /dev/null; do
    wait $job
    code=$?
done
while kill -0 -- -$job 2> /dev/null; do sleep 1; done
echo $code > {path}/exit.new
mv {path}/exit.new {path}/exit
""",
        encoding="utf-8",
    )
    wrapped.chmod(0o755)
    return f"{hand_in(wrapped, args, folder / 'log')}@{folder.name}"


def status(job: str, grace: float, ask: Ask) -> str:
    """``running``, ``success`` or ``failed``.

    Args:
        job: what `submit` returned.
        grace: s, for how long a job may be unknown, or ended without an exit status, before it counts as failed: the
            scheduler may be slow to list it, and the file system to show the file.
        ask: the scheduler.
    """
    number, _, name = job.rpartition("@")
    folder = JOBS / name
    exit_status, missing = folder / "exit", folder / "missing"
    if exit_status.exists():
        return "success" if exit_status.read_text(encoding="utf-8").strip() == "0" else "failed"
    state = ask(number)
    if state == FAILED:
        return "failed"
    if state == RUNS:
        missing.unlink(missing_ok=True)
        return "running"
    if not missing.exists():
        missing.touch()
    if time.time() - missing.stat().st_mtime < grace:
        return "running"
    print(f"job {number} is {state} and left no exit status: it counts as failed; see {folder}/log", file=sys.stderr)
    return "failed"


def main(hand_in: Submit, ask: Ask, cancel: Callable[[list[str]], None]) -> None:
    """The commands ``submit``, ``status`` and ``cancel`` of a scheduler."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("submit")
    for name in ("threads", "mem-mb", "minutes", "npu"):
        new.add_argument(f"--{name}", type=int, required=True)
    new.add_argument("--queue", default="")
    new.add_argument("--npu-name", default="npu", help="what the scheduler calls an accelerator")
    new.add_argument("script", type=Path)
    asked = commands.add_parser("status")
    asked.add_argument("--grace", type=float, default=120.0, help="s")
    asked.add_argument("job")
    commands.add_parser("cancel").add_argument("jobs", nargs="+")
    args = parser.parse_args()
    if args.command == "submit":
        print(submit(args.script, args, hand_in))
    elif args.command == "status":
        print(status(args.job, args.grace, ask))
    else:
        cancel([job.rpartition("@")[0] for job in args.jobs])
