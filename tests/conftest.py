"""Fixtures for every test."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from q1pipe.config import RobotCfg
from q1pipe.robot import Robot
from tests.standin_npu import build

# Where the tests run in the background, signals are ignored, and every process that a test starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def robot() -> Robot:
    """The robot that ships with q1pipe."""
    return Robot.load(RobotCfg())


@pytest.fixture(scope="session")
def standin() -> str:
    """A folder for PYTHONPATH with a torch_npu whose NPU is the host's memory and processor."""
    if not build.compiler():
        pytest.skip("no C++ compiler for the stand-in NPU")
    return str(build.folder())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
