"""What came of a run of the workflow: which motions are done, which failed, at which stage and why.

Snakemake removes what a failed stage wrote, so the reason is in the stage's log, and who failed in Snakemake's own.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

# Lines of Snakemake's log: a job begins, or begins again; it failed, whether or not it is tried again; what is its own.
BEGINS = re.compile(r"(?:local)?rule (\w+):")
FAILS = re.compile(r"Error in rule (\w+):")
FIELD = re.compile(r"    (jobid|log|wildcards): (.*)")
MOTION = re.compile(r"motion=(.*?)(?:, \w+=.*)?")
ERROR = re.compile(r"ERROR |(srun|slurmstepd): (error|fatal): ")  # ours, and SLURM's: time limit, memory, node
LAST_LINES = 20  # of a failed log
NO_WORD = "ended before it said anything: killed, or out of memory"
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


@dataclass
class Job:
    """A job of the workflow.

    Attributes:
        rule: what is made.
        motion: for which motion; empty for all.
        log: path of its log.
        scheduler_log: path of what a cluster's scheduler wrote of a failed attempt; empty on one machine.
        failed: it failed, and no later attempt did better.
    """

    rule: str
    motion: str = ""
    log: str = ""
    scheduler_log: str = ""
    failed: bool = False


def jobs(text: str) -> list[Job]:
    """The jobs that a log of Snakemake tells of, in the order in which they began."""
    found: dict[str, Job] = {}
    now, failing = Job(""), False
    for line in text.splitlines():
        if begins := BEGINS.fullmatch(line):
            now, failing = Job(begins[1]), False
        elif fails := FAILS.fullmatch(line):
            now, failing = Job(fails[1]), True
        elif field := FIELD.fullmatch(line):
            key, value = field.groups()
            if key == "jobid":
                now = found.setdefault(value, now)
                now.failed = failing
            elif key == "wildcards" and (motion := MOTION.fullmatch(value)):
                now.motion = motion[1]
            elif key == "log" and not failing:
                now.log = value
            elif key == "log":
                more = value.removesuffix(" (check log file(s) for error details)").removeprefix(now.log)
                now.scheduler_log = more.removeprefix(", ")
    return [job for job in found.values() if job.rule]


def last_words(text: str, folder: Path) -> list[str]:
    """The last lines of each log of a job that failed, with its path; all of it may be hours of training.

    Args:
        text: of Snakemake's log.
        folder: where the workflow ran.
    """
    said = []
    for job in jobs(text):
        if job.failed and (log := folder / job.log).is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            said += [f"The end of {job.log}:", *(f"    {line}" for line in lines[-LAST_LINES:])]
    return said


def ending(text: str, folder: Path) -> list[str]:
    """A line for each motion that a run dealt with, and for each failure its reason; none when nothing was to be done.

    Args:
        text: of Snakemake's log.
        folder: where the workflow ran.
    """
    ran = jobs(text)
    failed = {job.motion: job for job in reversed(ran) if job.failed}  # the first of each motion
    motions = sorted({job.motion for job in ran if job.motion})
    shared = failed.pop("", None)
    if not motions and not shared:
        return []
    rows = [(motion, *_state(folder, motion, failed.get(motion), shared)) for motion in motions]
    done = sum(ok for _, ok, _ in rows)
    head = f"{done} of {len(motions)} motion{'s' * (len(motions) != 1)} done" if motions else "not done"
    width = max(map(columns, motions), default=0)
    lines = [f"q1pipe: {head}"]
    if shared:
        lines += _failure(folder, shared, "  all motions  ")
    for motion, _, state in rows:
        before = f"  {motion}{'':{width - columns(motion)}}  "
        lines += _failure(folder, failed[motion], before) if motion in failed else [before + state]
    return lines


def _state(folder: Path, motion: str, failed: Job | None, shared: Job | None) -> tuple[bool, str]:
    """Whether a motion is done, and how it stands."""
    if failed or shared:
        return False, f"waits for {shared.rule}" if shared else ""
    results = folder / "results" / motion
    try:
        judged, trained = (
            json.loads((results / name).read_text(encoding="utf-8")) for name in ("eval.json", "train.json")
        )
        verdict, ours = judged["verdict"], judged["fingerprint"] == trained["fingerprint"]
    except (OSError, ValueError, KeyError):
        ours = False
    if not ours:  # or it is the verdict on an earlier policy
        return True, "as far as was asked for"
    page = next(name for name in ("report.html", "eval.json") if (results / name).exists())
    return True, f"verdict: {verdict}  results/{motion}/{page}"


def _failure(folder: Path, job: Job, before: str) -> list[str]:
    """Stage, reason and where to read more."""
    logs = [log for log in (job.log, job.scheduler_log) if log]
    reason = why(*(folder / log for log in logs))
    return [f"{before}FAILED at {job.rule}: {reason}", *(f"{'':{columns(before)}}{log}" for log in logs)]


def columns(text: str) -> int:
    """Columns of a terminal: Chinese characters take two."""
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def why(*logs: Path) -> str:
    """The first error in a stage's log or in what the scheduler wrote; where there is none, the first last line."""
    last = ""
    for log in logs:
        try:
            text = log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines = [STAMP.sub("", line, count=1) for line in text.splitlines() if line.strip()]
        if errors := [line for line in lines if ERROR.match(line)]:
            return errors[0] + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
        last = last or (lines[-1] if lines else "")
    return f"ended without saying why; its last words: {last}" if last else NO_WORD
