"""Fixtures for every test."""

import pytest

from q1pipe.config import RobotCfg
from q1pipe.robot import Robot


@pytest.fixture(scope="session")
def robot() -> Robot:
    """The robot that ships with q1pipe."""
    return Robot.load(RobotCfg())
