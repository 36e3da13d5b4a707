"""Where a stage's lines go: standard error for the person who waits, and the rule's log file for later."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PROGRESS_SECONDS = 10.0

EARLIER = 3  # attempts whose logs are kept


class LogFile(logging.FileHandler):
    """A log file; lines that find no room on the disk are lost, without a traceback on the screen for each."""

    def __init__(self, path: Path, mode: str):
        super().__init__(path, mode, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        """Say nothing where the disk is the reason."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def setup(path: Path | None, prefix: str = "") -> logging.Logger:
    """Send what loggers below ``q1pipe`` say to standard error and to a new file.

    Args:
        path: log file; folders are made. Those of earlier attempts become ``.1``, ``.2``, …, the latest first. None:
            standard error only.
        prefix: begins each line on standard error, such as ``[getUp] ``: stages of several motions share a terminal.

    Returns:
        The logger ``q1pipe``, parent of each module's.
    """
    logger = logging.getLogger("q1pipe")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    screen = logging.StreamHandler()
    screen.setFormatter(logging.Formatter(prefix.replace("%", "%%") + "%(message)s"))
    logger.addHandler(screen)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Snakemake deletes the log that it knows before each attempt: a second one, which it does not know, is kept
        second = path.with_name(f".{path.name}")
        _rotate(second, path)
        for name in (path, second):
            logger.addHandler(LogFile(name, "w"))
    return logger


def _rotate(latest: Path, path: Path) -> None:
    """Rename the latest log to ``{path}.1``, that one to ``.2``, and so on; the oldest is replaced."""
    names = [latest, *(path.with_name(f"{path.name}.{n}") for n in range(1, EARLIER + 1))]
    for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
        if newer.exists():
            os.replace(newer, older)


def span(seconds: float) -> str:
    """A duration for a person: 40 s, 25 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items; while they are worked through, a line at most every `PROGRESS_SECONDS`: how far, how long still."""
    begun = said = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - said >= PROGRESS_SECONDS:
            said, left = now, (now - begun) / done * (total - done)
            logging.getLogger("q1pipe").info(
                "%s %d/%d %d%%  %s left", what, done, total, 100 * done // total, span(left)
            )
        yield item
