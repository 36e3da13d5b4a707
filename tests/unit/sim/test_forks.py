import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from q1pipe.sim.forks import Forks, Work

CONTEXT = multiprocessing.get_context("spawn")
Start = Callable[..., list[Connection]]


@pytest.fixture
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.end(0)
    forks.end(0)


@pytest.fixture
def start(forks: Forks) -> Start:
    def start(count: int, load: Callable[..., Work], *args: Any) -> list[Connection]:
        pairs = [CONTEXT.Pipe() for _ in range(count)]
        forks.start(CONTEXT, [theirs for _, theirs in pairs], load, args)
        return [ours for ours, _ in pairs]

    return start


def load(name: str) -> Work:
    """Processes that say who they are, and end with the exit code that they are sent."""
    origin, threads = os.getpid(), len(os.listdir("/proc/self/task")) if Path("/proc/self").exists() else 1

    def work(i: int, pipe: Connection) -> None:
        pipe.send((name, i, os.getpid(), os.getppid() == origin, threads))
        if code := pipe.recv():
            os._exit(code)

    return work


def test_each_has_its_number_and_its_pipe_and_what_was_loaded_once(forks: Forks, start: Start):
    pipes = start(3, load, "loaded")
    assert forks.born(60)
    said = [pipe.recv() for pipe in pipes]
    assert said == [("loaded", i, process.pid, True, 1) for i, process in enumerate(forks.processes)]
    assert len({process.pid for process in forks.processes}) == 3
    assert os.getpid() not in (process.pid for process in forks.processes)


def test_how_each_ends_is_known(forks: Forks, start: Start, capfd: pytest.CaptureFixture[str]):
    pipes = start(4, load, "")
    assert forks.born(60)
    for pipe in pipes:
        pipe.recv()
    first, second, third, fourth = forks.processes
    pipes[1].send(3)
    os.kill(third.pid, signal.SIGKILL)
    pipes[0].send(0)
    for process in (first, second, third):
        process.join(60)
    assert [process.exitcode for process in forks.processes] == [0, 3, -signal.SIGKILL, None]
    with pytest.raises(EOFError):  # nobody else holds their ends of the pipes
        pipes[1].recv()
    assert capfd.readouterr().err == ""
    pipes[3].close()  # raises EOFError there
    fourth.join(60)
    assert fourth.exitcode == 1
    assert "EOFError" in capfd.readouterr().err
    forks.end(60)
    assert forks.processes == []


def test_one_that_stays_is_ended(forks: Forks, start: Start):
    [pipe] = start(1, load, "")
    assert forks.born(60)
    *_, pid, _, _ = pipe.recv()
    forks.end(0.1)
    assert not _exists(pid)


def test_an_origin_that_dies_is_known(forks: Forks, start: Start):
    start(2, os._exit, 5)
    for _ in range(60):
        if forks.origin_exitcode is not None:
            break
        assert not forks.born(1)
    assert forks.origin_exitcode == 5


def test_an_origin_that_hangs_is_waited_for_no_longer_than_asked(forks: Forks, start: Start):
    start(2, time.sleep, 600)
    assert not forks.born(0.1)
    assert forks.origin_exitcode is None
    forks.end(0)
    assert forks.origin_exitcode is None
    assert not multiprocessing.active_children()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
