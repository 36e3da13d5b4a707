"""Fixtures for every test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from q1pipe.config import RobotCfg
from q1pipe.robot import Robot


@pytest.fixture(scope="session")
def robot() -> Robot:
    """The robot that ships with q1pipe."""
    return Robot.load(RobotCfg())


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
