"""What config does with time: speed, mirror, the control rate, a blend at the start, a hold at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import interp1d
from scipy.spatial.transform import Rotation, Slerp

from q1pipe import rotations
from q1pipe.config import MotionCfg
from q1pipe.errors import MotionError, error
from q1pipe.motion.checks import lowest
from q1pipe.motion.clip import parts
from q1pipe.motion.judge import swapped_sides
from q1pipe.motion.raw import Trajectory
from q1pipe.robot import Robot

Array = NDArray[np.floating]

SAME_AXIS = 1e-3


def retime(motion: Trajectory, robot: Robot, cfg: MotionCfg, rate: float | None, path: Path) -> Trajectory:
    """Apply what config says about time.

    Args:
        motion: the checked motion.
        robot: the robot.
        cfg: speed, mirror, lead_in, hold_out, hold_seconds.
        rate: frames per second of the result; None: those of the motion, at speed 1.
        path: for messages.

    Raises:
        MotionError: the robot has no other side to mirror to.
    """
    rate = motion.fps if rate is None else rate
    if motion.frames == 1:
        motion = _hold(motion, round(cfg.hold_seconds * motion.fps))
    if cfg.mirror:
        motion = mirror(motion, robot, path)
    motion = resample(replace(motion, fps=motion.fps * cfg.speed), rate)
    if cfg.lead_in:
        motion = lead_in(motion, robot, round(cfg.lead_in * motion.fps))
    return _hold(motion, round(cfg.hold_out * motion.fps))


def resample(motion: Trajectory, rate: float) -> Trajectory:
    """Another frame rate: joints and positions linear, orientations by slerp.

    Keeps the duration within one frame, of each part where the motion jumps.
    """
    quat = motion.root_quat / np.linalg.norm(motion.root_quat, axis=-1, keepdims=True)
    if abs(motion.fps - rate) <= 1e-6 * rate:
        return replace(motion, fps=rate, root_quat=quat)
    resampled = []
    for part in parts(motion.frames, motion.jumps):
        t = np.arange(part.stop - part.start) / motion.fps
        new = np.minimum(np.arange(int(np.floor(t[-1] * rate + 1e-6)) + 1) / rate, t[-1])
        if len(t) == 1:
            resampled.append((motion.root_pos[part], quat[part], motion.joint_pos[part]))
            continue
        pos, joints = (interp1d(t, x[part], axis=0)(new) for x in (motion.root_pos, motion.joint_pos))
        turns = Slerp(t, Rotation.from_quat(quat[part], scalar_first=True))
        resampled.append((pos, turns(new).as_quat(scalar_first=True), joints))
    ends = np.cumsum([len(pos) for pos, _, _ in resampled])
    root_pos, root_quat, joint_pos = (np.concatenate(each) for each in zip(*resampled, strict=True))
    return Trajectory(rate, root_pos, root_quat, joint_pos, tuple((ends[:-1] - 1).tolist()))


def mirror(motion: Trajectory, robot: Robot, path: Path) -> Trajectory:
    """The motion as the other hand would do it: reflected in the world's xz plane, left and right exchanged.

    Raises:
        MotionError: joints have no counterpart of the mirrored axis.
    """
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.qpos(np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(len(robot.joint_names)))
    mujoco.mj_kinematics(robot.model, data)
    axes = data.xaxis[[robot.model.joint(name).id for name in robot.joint_names]]
    other = swapped_sides(robot.joint_names)
    if other is None:
        raise MotionError(error("mirror", str(path), "joint names without left and right", "a left for each right"))
    # a rotation about an axis becomes, mirrored, the opposite rotation about the mirrored axis
    mirrored = axes[other] * [-1, 1, -1]
    sign = (axes * mirrored).sum(axis=1)
    odd = [n for n, s in zip(robot.joint_names, sign, strict=True) if abs(abs(s) - 1) > SAME_AXIS]
    if odd:
        found = f"{', '.join(odd[:5])}: axes are no mirror images"
        raise MotionError(error("mirror", str(path), found, "a symmetric robot", "motion.mirror: false"))
    return replace(
        motion,
        root_pos=motion.root_pos * [1, -1, 1],
        root_quat=motion.root_quat * [1, -1, 1, -1],
        joint_pos=motion.joint_pos[:, other] * np.sign(sign),
    )


def lead_in(motion: Trajectory, robot: Robot, frames: int) -> Trajectory:
    """Put a blend before the motion: from the robot's stand, or lying flat, whichever its first frame is closer to."""
    quat = motion.root_quat[0]
    rest = rest_orientation(quat)
    x = np.arange(frames) / frames
    s = (x * x * (3 - 2 * x))[:, None]
    between = Slerp([0, 1], Rotation.from_quat([rest, quat], scalar_first=True))(s[:, 0]).as_quat(scalar_first=True)
    blend = Trajectory(
        motion.fps,
        np.tile(motion.root_pos[0] * [1, 1, 0], (frames, 1)),
        between,
        (1 - s) * robot.default_joint_pos + s * motion.joint_pos[0],
    )
    first = Trajectory(motion.fps, motion.root_pos[:1], motion.root_quat[:1], motion.joint_pos[:1])
    blend.root_pos[:, 2] = s[:, 0] * lowest(first, robot) - lowest(blend, robot)
    return Trajectory(
        motion.fps,
        np.concatenate([blend.root_pos, motion.root_pos]),
        np.concatenate([blend.root_quat, motion.root_quat]),
        np.concatenate([blend.joint_pos, motion.joint_pos]),
        tuple(k + frames for k in motion.jumps),
    )


def rest_orientation(quat: Array) -> Array:
    """The nearest orientation in which one of the body's axes points straight up: upright, or flat on a side. (4,)."""
    up = rotations.rotate_inv(quat, np.array([0.0, 0.0, 1.0]))
    up[2] = max(up[2], 0)  # nobody rests on the head
    axis = np.zeros(3)
    largest = int(np.abs(up).argmax())
    axis[largest] = np.sign(up[largest])
    now = rotations.rotate(quat, axis)
    turn = np.cross(now, [0.0, 0.0, 1.0])
    angle = np.arctan2(np.linalg.norm(turn), now[2])
    return rotations.mul(rotations.exp(turn / max(np.linalg.norm(turn), 1e-12) * angle), quat)


def _hold(motion: Trajectory, frames: int) -> Trajectory:
    """The last pose for some more frames."""
    if not frames:
        return motion
    arrays = (motion.root_pos, motion.root_quat, motion.joint_pos)
    root_pos, root_quat, joints = (np.concatenate([x, np.repeat(x[-1:], frames, axis=0)]) for x in arrays)
    return replace(motion, root_pos=root_pos, root_quat=root_quat, joint_pos=joints)
