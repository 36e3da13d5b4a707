"""The clip at the frames of many environments, and what the robot is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim import kernels
from q1pipe.sim.physics import Ids, RobotState, watched_bodies

Floats = NDArray[np.float32]
Tables = Mapping[str, NDArray[Any]]


class ReferenceFrames(NamedTuple):
    """The reference of n environments, one frame each, float32. J joints, Bt tracked bodies, K watched bodies.

    Attributes:
        joint_pos: (n, J) rad.
        joint_vel: (n, J) rad/s.
        body_pos_w: (n, Bt, 3) m, link origins.
        body_quat_w: (n, Bt, 4) wxyz.
        body_lin_vel_w: (n, Bt, 3) m/s, of the link origins.
        body_ang_vel_w: (n, Bt, 3) rad/s.
        watched_z: (n, K) m.
    """

    joint_pos: Floats
    joint_vel: Floats
    body_pos_w: Floats
    body_quat_w: Floats
    body_lin_vel_w: Floats
    body_ang_vel_w: Floats
    watched_z: Floats


class Starts(NamedTuple):
    """What a reset takes from a clip.

    Attributes:
        root: (T, 13) m, wxyz, m/s, rad/s in the world.
        joint_pos: (T, J) rad.
        joint_vel: (T, J) rad/s.
        at: (T,) the start frame at or before each frame: one that another follows, without a jump.
    """

    root: Floats
    joint_pos: Floats
    joint_vel: Floats
    at: Ids


class Reference:
    """A clip as one float32 table, a row per frame, so that a lookup is one gather.

    Args:
        clip: the clip, or the `arrays` of its reference, which then are used where they lie.
        robot: the robot.
        cfg: what the height termination watches.

    Attributes:
        arrays: all that it is made of; see `tables`.
        frames: T.
        following: (T,) the frame after each one; the last before a jump, and of all, is followed by itself.
        table: (T, columns) float32, the fields of `ReferenceFrames` one after the other.
        starts: what resets take.
    """

    def __init__(self, clip: Clip | Tables, robot: Robot, cfg: TrainCfg):
        j, b, watched = len(robot.joint_names), len(robot.tracked), len(watched_bodies(robot, cfg))
        self._shapes = ((j,), (j,), (b, 3), (b, 4), (b, 3), (b, 3), (watched,))  # as the fields of ReferenceFrames
        self.arrays = tables(clip, robot, cfg) if isinstance(clip, Clip) else clip
        constant = {name: array.view() for name, array in self.arrays.items()}
        for array in constant.values():
            array.flags.writeable = False  # it may be everyone's, and each kind would be compiled for by itself
        self.table, root, self.following = (constant[name] for name in ("frames", "root", "following"))
        self.frames = len(self.table)
        joint_pos, joint_vel = self.table[:, :j], self.table[:, j : 2 * j]
        self.starts = Starts(root, joint_pos, joint_vel, _starts(self.following))

    def at(self, frames: NDArray[np.integer]) -> ReferenceFrames:
        """The reference at a frame per environment, (n,)."""
        out = ReferenceFrames(*(np.empty((len(frames), *shape), np.float32) for shape in self._shapes))
        rows = np.clip(frames, 0, self.frames - 1)
        kernels.look_up(self.table, rows, np.arange(len(frames)), out)
        return out


def _starts(following: Ids) -> Ids:
    """The start frame at or before each frame; the first of all where there is none before."""
    frames = np.arange(len(following))
    starts = np.flatnonzero(following > frames)
    if not len(starts):
        return np.zeros_like(frames)
    return starts[np.maximum(np.searchsorted(starts, frames, side="right") - 1, 0)]


def tables(clip: Clip, robot: Robot, cfg: TrainCfg) -> Tables:
    """What a reference is made of: ``frames`` (T, …) and ``root`` (T, 13) float32, ``following`` (T,)."""
    root, tracked = robot.root - 1, robot.tracked - 1  # rows of the clip: all bodies but the world
    bodies = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
    columns = [clip.joint_pos, clip.joint_vel, *(getattr(clip, name)[:, tracked] for name in bodies)]
    columns.append(clip.body_pos_w[:, watched_bodies(robot, cfg) - 1, 2])
    following = np.minimum(np.arange(clip.frames) + 1, clip.frames - 1)
    following[list(clip.jumps)] = clip.jumps
    return {
        "frames": np.concatenate([c.reshape(clip.frames, -1) for c in columns], axis=1, dtype=np.float32),
        "root": np.concatenate([getattr(clip, name)[:, root] for name in bodies], axis=1, dtype=np.float32),
        "following": following,
    }


def relative(ref: ReferenceFrames, state: RobotState, anchor: int) -> tuple[Floats, Floats]:
    """The `rel` reference: turned about its anchor to the robot's heading, moved to its x, y, keeping its own height.

    Δyaw = yaw(q_anchor · q_ref_anchor⁻¹); p_rel = (x_robot, y_robot, z_ref) + Δyaw(p_ref − p_ref_anchor);
    q_rel = Δyaw · q_ref. Computed with the robot's state of the same step.

    Args:
        ref: the reference at the frame of the state.
        state: the robots.
        anchor: row of the anchor in the tracked bodies.

    Returns:
        positions (n, Bt, 3) m and orientations (n, Bt, 4).
    """
    pos, quat = np.empty_like(ref.body_pos_w), np.empty_like(ref.body_quat_w)
    kernels.relative(ref, state, anchor, pos, quat)
    return pos, quat


class RobotConstants(NamedTuple):
    """What a step needs to know of the robot.

    Attributes:
        anchor: row of the anchor in the tracked bodies.
        qpos_adr: (J,) of the joints, in qpos.
        qvel_adr: (J,) of the joints, in qvel.
        default_joint_pos: (J,) rad, the pose of action 0; float32, as on the robot.
        action_scale: (J,) rad per unit of action; float32.
        soft_limits: (J, 2) rad.
    """

    anchor: int
    qpos_adr: Ids
    qvel_adr: Ids
    default_joint_pos: Floats
    action_scale: Floats
    soft_limits: NDArray[np.float64]

    @classmethod
    def of(cls, robot: Robot) -> Self:
        """Those of a robot."""
        default, scale = robot.default_joint_pos.astype(np.float32), robot.action_scale.astype(np.float32)
        return cls(robot.tracked_anchor, robot.qpos_adr, robot.qvel_adr, default, scale, robot.soft_limits)


class Step(NamedTuple):
    """All that rewards, terminations and observations read about n environments after a control step.

    Attributes:
        robot: the robot.
        state: the robots' new state.
        ref: the reference at the frame that the state belongs to, which the step is scored on.
        rel_pos_w: (n, Bt, 3) m, positions of the `rel` reference.
        rel_quat_w: (n, Bt, 4), its orientations.
        ahead: the reference one frame later: what the next action is scored on, so what the policy sees.
        action: (n, J) of this step; after a reset, the one that would hold the robot where it is.
        previous_action: (n, J) of the step before.
        joint_zero: (n, J) rad, encoder offset: the robot reads joint_pos + joint_zero.
        unstable: (n,) bool, the simulation broke.
    """

    robot: RobotConstants
    state: RobotState
    ref: ReferenceFrames
    rel_pos_w: Floats
    rel_quat_w: Floats
    ahead: ReferenceFrames
    action: Floats
    previous_action: Floats
    joint_zero: Floats
    unstable: NDArray[np.bool_]
