"""The lock of a run folder, and what else the commands and the trainer agree on."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from q1pipe.errors import Q1Error, error, warn

log = logging.getLogger(__name__)

LOCK, STOP = "lock", "stop"
BUDGET = {"max_iterations", "save_interval", "num_workers"}  # settings of `train` that may differ within a run
ATTEMPTS, PAUSE = 5, 0.2  # `holder` takes the lock for a moment: a trainer that meets it there tries again


@dataclass(frozen=True)
class Holder:
    """Who trains in a folder."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the run folder and hold its lock, which goes with the process, however it ends.

    What an earlier process that was killed left half written is removed.

    Raises:
        Q1Error: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab", buffering=0) as f:
        if not _taken(f.fileno()):
            found = f"{_written(folder) or 'another process'} trains there"
            action = f"wait for it, or end it: q1pipe stop {shlex.quote(folder.absolute().parent.parent.name)}"
            raise Q1Error(error("locked", str(folder), found, "one trainer per run folder", action))
        if killed := _written(folder):
            log.warning(warn("taken-over", str(folder), f"{killed}, did not end by itself", action="going on from it"))
        for half in folder.glob(".*.tmp"):
            half.unlink()
        f.truncate(0)
        ours = Holder(os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%d %H:%M:%S"))
        f.write(json.dumps(asdict(ours)).encode())
        try:
            yield
        finally:
            f.truncate(0)  # that something stays there tells of a kill


def holder(folder: Path) -> Holder | None:
    """Who trains in a folder; None when nobody does."""
    try:
        with open(folder / LOCK, encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except FileNotFoundError:
        return None
    except OSError:
        return _written(folder) or Holder(0, "?", "?")


def _taken(descriptor: int) -> bool:
    for attempt in range(ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < ATTEMPTS - 1:
                time.sleep(PAUSE)
    return False


def _written(folder: Path) -> Holder | None:
    """What the lock's last holder wrote; nothing when it ended by itself."""
    try:
        return Holder(**json.loads((folder / LOCK).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
