"""Who may ask a run to stop, and how it is stopped without losing anything.

SIGINT, SIGTERM, SIGHUP (a terminal that closes, but not under nohup), a stop-file (`q1pipe stop`) and the death of the
launcher all take the same way: where the run says that it can be interrupted, `Stopped` is raised at once; elsewhere,
such as while files are written, at the next such place.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # between looks at the stop-file and at the launcher
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A run was asked to stop. Not an `Exception`: nothing on the way may take it for a failure of its own.

    Attributes:
        code: exit status, 128 + signal number.
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class Stopping:
    """Turns what asks a run to stop into `Stopped`, while used as a context manager in the main thread.

    A second signal ends the process at once, without cleaning up: all that is on disk is whole anyway.

    Args:
        file: stop-file; that it exists is a request, which is removed when it is heard and before the run begins.
        launcher: process id; when that process is gone, nobody waits for the run any more. None: whoever started it
            may leave, as a shell does whose user logs out.
    """

    def __init__(self, file: Path | None = None, launcher: int | None = None):
        self.file = file
        self._orphaned = _watch(launcher) if launcher else lambda: False
        self._number = 0
        self._reason = ""
        self._may_raise = False
        self._ended = threading.Event()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around what may be abandoned at any moment.

        Raises:
            Stopped: a request came before, or comes meanwhile.
        """
        try:
            self._may_raise = True
            if self._number:
                raise Stopped(self._number)
            yield
        finally:
            self._may_raise = False

    def sleep(self, seconds: float) -> None:
        """Wait, and leave at once when asked to.

        Raises:
            Stopped: a request came before, or comes meanwhile.
        """
        with self.interruptible():
            time.sleep(seconds)

    def __enter__(self) -> Self:
        if self.file:
            self.file.unlink(missing_ok=True)
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            heard = [n for n in SIGNALS if not (n == signal.SIGHUP and nohup)]
            self._previous = {n: signal.signal(n, self._asked) for n in heard}
            threading.Thread(target=self._look, name="q1pipe-stopping", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._main:
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self._number:
            os.write(2, b"second signal: leaving at once\n")
            os._exit(128 + number)
        self._number = number
        log.warning("%s: saving and leaving; once more: leaving at once", self._reason or signal.Signals(number).name)
        if self._may_raise:
            raise Stopped(number)

    def _look(self) -> None:
        """In a thread: look for the other requests now and then, and make a signal of the first one."""
        while not self._ended.wait(LOOK_SECONDS):
            if self.file and self.file.exists():
                self.file.unlink(missing_ok=True)
                self._reason = "asked by q1pipe stop"
            elif self._orphaned():
                self._reason = "the process that started this one is gone"
            else:
                continue
            if not self._number:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            return


def _watch(launcher: int) -> Callable[[], bool]:
    """A test whether a process is gone.

    While it is our parent, our parent's id tells at once, also when its id is given to another process or it stays a
    zombie. With another process in between (a wrapper), it is looked up.
    """
    if os.getppid() == launcher:
        return lambda: os.getppid() != launcher
    return lambda: not alive(launcher)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return True  # no /proc here
