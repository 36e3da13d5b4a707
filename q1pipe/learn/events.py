"""What TensorBoard shows."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from q1pipe.learn.history import Growing


class Events(Growing):
    """Scalars for TensorBoard, one record an iteration.

    Written at once by the caller's thread: torch's SummaryWriter writes in one of its own, where a full disk is a
    traceback that nobody can answer.

    Args:
        folder: where a new event file is begun.
        after: what other files of the folder have of later iterations is not shown; 0: all is.
    """

    def __init__(self, folder: Path, after: int = 0):
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        super().__init__(folder / name)
        self._records = RecordWriter(self)
        self._event(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if after:
            start = SessionLog(status=SessionLog.START)
            self._event(Event(wall_time=time.time(), step=after + 1, session_log=start))

    def add(self, part: str, row: dict[str, float], names: Iterable[str], iteration: int) -> None:
        """Add an iteration's scalars, named ``part/name``.

        Raises:
            OSError: there is no room; they wait until there is.
        """
        values = [Summary.Value(tag=f"{part}/{name}", simple_value=row[name]) for name in names]
        self._event(Event(wall_time=time.time(), step=iteration, summary=Summary(value=values)))

    def _event(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
