"""Where a stage's lines go: standard error for the person who waits, and the rule's log file for later."""

from __future__ import annotations

import logging
from pathlib import Path


def setup(path: Path | None, prefix: str = "") -> logging.Logger:
    """Send what loggers below ``q1pipe`` say to standard error and to a new file.

    Args:
        path: log file; folders are made. None: standard error only.
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
        file = logging.FileHandler(path, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(file)
    return logger
