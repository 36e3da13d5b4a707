"""Clips, settings and steps to compute on by hand."""

import numpy as np
import pytest

from q1pipe.config import TrainCfg
from q1pipe.sim.physics import RobotState
from q1pipe.sim.reference import ReferenceFrames, RobotConstants, Step
from tests.clips import base_clip, standing_clip

IDENTITY = np.array([1, 0, 0, 0], np.float32)


@pytest.fixture(scope="session")
def clip(robot):
    return base_clip(robot)


@pytest.fixture(scope="session")
def standing(robot):
    return standing_clip(robot)


@pytest.fixture
def cfg():
    return TrainCfg(num_envs=4, num_workers=1)


@pytest.fixture
def still():
    """Settings without anything random."""
    no_noise = dict.fromkeys(("xy", "roll_pitch", "yaw", "joint", "vel_xy", "vel_z", "vel_roll_pitch", "vel_yaw"), 0)
    return TrainCfg(num_envs=4, num_workers=1, reset={**no_noise, "z": (0, 0)})


@pytest.fixture
def make_step(robot):
    """A step of n robots that are where the reference is: all at the origin, upright, at rest."""

    def make(n=1):
        j, b, k = len(robot.joint_names), len(robot.tracked), 6
        state = RobotState.zeros(robot, k, n)
        state.body_quat_w[:] = state.root_quat_w[:] = IDENTITY

        def frames():
            return ReferenceFrames(
                np.zeros((n, j), np.float32),
                np.zeros((n, j), np.float32),
                np.zeros((n, b, 3), np.float32),
                np.tile(IDENTITY, (n, b, 1)),
                np.zeros((n, b, 3), np.float32),
                np.zeros((n, b, 3), np.float32),
                np.zeros((n, k), np.float32),
            )

        return Step(
            robot=RobotConstants.of(robot),
            state=state,
            ref=frames(),
            rel_pos_w=np.zeros((n, b, 3), np.float32),
            rel_quat_w=np.tile(IDENTITY, (n, b, 1)),
            ahead=frames(),
            action=np.zeros((n, j), np.float32),
            previous_action=np.zeros((n, j), np.float32),
            joint_zero=np.zeros((n, j), np.float32),
            unstable=np.zeros(n, bool),
        )

    return make


def about(axis, degrees):
    """The rotation about an axis (x, y, z) by an angle, wxyz."""
    half = np.radians(degrees) / 2
    return np.array([np.cos(half), *(np.sin(half) * np.eye(3)["xyz".index(axis)])], np.float32)


@pytest.fixture(name="about")
def _about():
    return about
