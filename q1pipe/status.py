"""Where every motion stands, read from files only."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from q1pipe.log import span
from q1pipe.runs import Run, motion_folders, published, runs_of

FAILED = re.compile(rb"^[-\d]+ [:\d]+ (ERROR \[|this is a bug)", re.MULTILINE)  # lines of a log
TAIL = 1 << 16  # bytes at the end of a log in which they are
WIDE = 1000  # characters; nothing is folded
RECENT = 20  # iterations that the speed and the time left are taken from


def table(results: Path) -> Table:
    """A line for each motion."""
    head = ("motion", "stage", "iteration", "reward", "return", "steps/s", "time left", "checkpoint")
    result = Table(*head, box=None, pad_edge=False)
    for folder in motion_folders(results):
        run = current(folder)
        cells = [folder.name, stage(folder, run), *(progress(run) if run else ())]
        result.add_row(*(Text(cell) for cell in cells))
    return result


def watch(results: Path, every: float) -> None:
    """Show the table until Ctrl-C, anew every so many seconds."""
    shown = Cut(table(results))
    with suppress(KeyboardInterrupt), Live(shown, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            time.sleep(every)
            live.update(Cut(table(results)), refresh=True)


@dataclass(frozen=True)
class Cut:
    """A table whose lines end where the terminal does: rich would fold its cells, and the rest is still to be read."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines at their full width, cut."""
        for line in console.render_lines(self.table, options.update(width=WIDE), pad=False):
            yield from Segment.adjust_line_length(line, options.max_width, pad=False)
            yield Segment.line()


def current(folder: Path) -> Run | None:
    """The run to look at: where someone trains, else the published one, else the latest."""
    runs, ours = runs_of(folder), published(folder)
    at_work = [run for run in runs if run.holder]
    return next(iter(at_work or [run for run in runs if run.fingerprint == ours] or runs), None)


def stage(folder: Path, run: Run | None) -> str:
    """How far a motion has come."""
    if run and run.holder:
        return "trains"
    if failed := failure(folder):
        return f"{failed} failed"
    if (folder / "train.json").exists():
        judged = _json(folder / "eval.json")
        ours = judged.get("fingerprint") == published(folder)  # else it is an earlier policy's
        return f"evaluated: {judged['verdict']}" if ours else "trained"
    if run:
        return "training stopped"
    if (folder / "smoke.json").exists():
        return "smoke run refused" if _json(folder / "smoke.json").get("findings") else "smoke run passed"
    return "motion checked" if (folder / "motion.json").exists() else "–"


def progress(run: Run) -> list[str]:
    """Iteration, reward of a step and of an episode, speed, time left, last checkpoint."""
    rows, kept = run.rows[-RECENT:], run.checkpoint
    last = rows[-1] if rows else {}
    speed = sum(row["sps"] for row in rows) / len(rows) if rows else 0.0
    left = ""
    if run.holder and len(rows) > 1:
        per_iteration = (rows[-1]["wall_s"] - rows[0]["wall_s"]) / (len(rows) - 1)
        left = span(per_iteration * (run.last - run.iteration))
    return [
        f"{run.iteration} of {run.last or '?'}",
        f"{last['mean_rew']:.2f}" if last else "–",
        f"{last['ep_ret']:.1f}" if last else "–",
        f"{speed:.0f}" if last else "–",
        left,
        f"{kept[0]}, {span(time.time() - kept[1])} ago" if kept else "none",
    ]


def failure(folder: Path) -> str:
    """The stage that a motion failed at last, by the logs since it was checked; a new attempt has a new log."""
    failed: list[tuple[int, str]] = []
    for log in (folder / "logs").glob("*.log"):
        with suppress(OSError):  # a log is removed at any time
            if not log.name.startswith(".") and FAILED.search(log.read_bytes()[-TAIL:]):
                failed.append((log.stat().st_mtime_ns, log.stem))
    with suppress(OSError):
        checked = (folder / "motion.json").stat().st_mtime_ns
        failed = [found for found in failed if found[0] >= checked]
    return max(failed, default=(0, ""))[1]


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
