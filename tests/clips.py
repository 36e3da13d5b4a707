"""Clips made from a robot itself, so that tests do not depend on any motion file."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from q1pipe import rotations
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.robot import Robot

FPS = 50


def euler(roll: NDArray, pitch: NDArray, yaw: NDArray) -> NDArray:
    """R_z(yaw) · R_y(pitch) · R_x(roll), rad. (...) -> (..., 4)."""
    return Rotation.from_euler("xyz", np.stack([roll, pitch, yaw], axis=-1)).as_quat(scalar_first=True)


def poses(robot: Robot, frames: int = 200) -> tuple[NDArray, NDArray, NDArray]:
    """From lying on the back to upright: root positions (T, 3), root orientations (T, 4), joints (T, J).

    Every joint swings, left and right differently; the lowest geom touches the floor in each frame.
    """
    t = np.arange(frames) / FPS
    low, high = robot.limits.T
    middle = np.clip(0, low, high)
    swing = 0.6 * np.minimum(np.minimum(middle - low, high - middle), 0.25 * (high - low))
    joint_pos = middle + swing * np.sin(np.pi * t[:, None] + 0.7 * np.arange(len(low)))
    x = np.clip((t - 0.5) / 2.5, 0, 1)
    s = x * x * (3 - 2 * x)
    zero = np.zeros(frames)
    pitch = euler(zero, -np.pi / 2 * (1 - s), zero)
    quat = rotations.mul(euler(zero, zero, 0.4 * s), pitch)
    pos = np.stack([0.3 * s, 0.1 * s, zero], axis=1)
    data = mujoco.MjData(robot.model)
    for k, qpos in enumerate(robot.qpos(pos, quat, joint_pos)):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(robot.model, data)
        pos[k, 2] = -robot.lowest(data).min()
    return pos, quat, joint_pos


def base_clip(robot: Robot, frames: int = 200) -> Clip:
    """The clip of `poses`."""
    return from_poses(robot, FPS, *poses(robot, frames))


def standing_clip(robot: Robot, frames: int = 100) -> Clip:
    """The default pose, held."""
    pos = np.tile([0, 0, robot.default_root_height], (frames, 1))
    quat = np.tile([1.0, 0, 0, 0], (frames, 1))
    return from_poses(robot, FPS, pos, quat, np.tile(robot.default_joint_pos, (frames, 1)))
