"""Processes that are alike, at little more than the price of one: it is spawned, loads what all need, forks the others.

Importing is most of what it takes to start a worker, and most of its memory. Forks share both. Nobody forks the process
that asks, which has threads, an accelerator and the learner's libraries: the origin of the forks is spawned for them,
has one thread, and ends with the last of them. multiprocessing's forkserver does much the same, but is one for a whole
process: it outlives its pools, keeps the first one's environment, may import another q1pipe than runs here, and leaves
its socket in the temporary folder when the learner is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

Work = Callable[[int, Connection], None]


class Fork:
    """One of the processes, as far as multiprocessing's would be asked.

    Attributes:
        pid: its id.
    """

    def __init__(self, pid: int, forks: Forks):
        self.pid, self._forks = pid, forks

    @property
    def exitcode(self) -> int | None:
        """Of one that has ended, as far as is known: its status, or the negative number of the signal."""
        return self._forks.ended(self.pid, 0)

    def join(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        self._forks.ended(self.pid, seconds)

    def kill(self) -> None:
        """End it, where it has not ended."""
        if self.exitcode is None:
            _kill(self.pid)


class Forks:
    """The processes, seen from who asked for them; none until `start`.

    Attributes:
        processes: in the order of their pipes, once `born`.
    """

    def __init__(self) -> None:
        self.processes: list[Fork] = []
        self._origin: BaseProcess | None = None  # who forks them, and reports how they end
        self._codes: dict[int, int] = {}  # exit code of each process that has ended

    def start(self, context: SpawnContext, pipes: list[Connection], load: Callable[..., Work], args: Any) -> None:
        """Begin to start a process for each pipe.

        Args:
            context: of multiprocessing.
            pipes: one each; closed here, so that the other end sees when the process has ended.
            load: called once, with args, in the origin; may leave no thread. What it returns is called in each process
                with its number and its pipe.
            args: of load.
        """
        self._reports, theirs = context.Pipe(duplex=False)
        origin = context.Process(
            target=_originate, args=(theirs, pipes, load, args), name="q1pipe-workers", daemon=True
        )
        origin.start()
        self._origin = origin
        for pipe in (theirs, *pipes):
            pipe.close()

    def born(self, seconds: float) -> bool:
        """Whether the processes are there, so many seconds from now at the latest."""
        try:
            if self._reports.poll(seconds):
                self.processes += [Fork(pid, self) for pid in self._reports.recv()]
        except EOFError:
            if self._origin:
                self._origin.join(seconds)
        return bool(self.processes)

    @property
    def origin_exitcode(self) -> int | None:
        """Of the process that forks the others, where it has ended."""
        return self._origin.exitcode if self._origin else None

    def ended(self, pid: int, seconds: float) -> int | None:
        """How a process has ended, so many seconds from now at the latest; None: it has not, or nobody knows."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(EOFError):  # the origin has died: nobody knows how the others end, but they go on
            while pid not in self._codes and self._reports.poll(max(0.0, deadline - time.monotonic())):
                self._codes.update([self._reports.recv()])
        return self._codes.get(pid)

    def end(self, seconds: float) -> None:
        """Wait for all to leave, and end those that have not so many seconds from now. Can be called again."""
        if not self._origin:
            return
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            process.kill()
        self._origin.join(max(1.0, deadline - time.monotonic()))
        self._origin.kill()
        self._origin.join()
        self._origin.close()
        self._reports.close()
        self.processes.clear()
        self._origin = None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _originate(reports: Connection, pipes: list[Connection], load: Callable[..., Work], args: Any) -> None:
    """The origin: fork the processes, tell who they are, and then how each ends."""
    work = load(*args)
    gc.freeze()  # a collection would write to, and so copy, the pages that the forks share
    pids = []
    for i, pipe in enumerate(pipes):
        if not (pid := os.fork()):
            for other in (reports, *pipes):
                if other is not pipe:  # else nobody would see the end of whose it is
                    other.close()
            _be(work, i, pipe)
        pids.append(pid)
    for pipe in pipes:
        pipe.close()
    with contextlib.suppress(BrokenPipeError):  # who asked is gone: the others see that themselves
        reports.send(pids)
        for _ in pids:
            pid, status = os.wait()
            reports.send((pid, os.waitstatus_to_exitcode(status)))


def _be(work: Work, i: int, pipe: Connection) -> None:
    """Do a fork's work, and return from nothing that the origin has begun."""
    code = 1
    try:
        work(i, pipe)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
