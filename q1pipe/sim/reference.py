"""The clip at the frames of many environments, and what the robot is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.physics import Ids, RobotState, watched_bodies

Floats = NDArray[np.float32]
Tables = Mapping[str, NDArray[Any]]


@dataclass
class ReferenceFrames:
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

    def take(self, ids: Ids) -> Self:
        """A copy of some rows."""
        return type(self)(*(getattr(self, f.name)[ids] for f in fields(self)))


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
        root_pos_w: (T, 3) m; the root's state is what resets write.
        root_quat_w: (T, 4) wxyz.
        root_lin_vel_w: (T, 3) m/s.
        root_ang_vel_w: (T, 3) rad/s, world frame.
        joint_pos: (T, J) rad.
        joint_vel: (T, J) rad/s.
    """

    def __init__(self, clip: Clip | Tables, robot: Robot, cfg: TrainCfg):
        j, b, watched = len(robot.joint_names), len(robot.tracked), len(watched_bodies(robot, cfg))
        shapes = ((j,), (j,), (b, 3), (b, 4), (b, 3), (b, 3), (watched,))  # as the fields of ReferenceFrames
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        self._columns = [(slice(a, b), shape) for a, b, shape in zip([0, *ends[:-1]], ends, shapes, strict=True)]
        self.arrays = tables(clip, robot, cfg) if isinstance(clip, Clip) else clip
        self._table, root, self.following = (self.arrays[name] for name in ("frames", "root", "following"))
        self.frames = len(self._table)
        self.root_pos_w, self.root_quat_w = root[:, 0:3], root[:, 3:7]
        self.root_lin_vel_w, self.root_ang_vel_w = root[:, 7:10], root[:, 10:13]
        self.joint_pos, self.joint_vel = self._table[:, :j], self._table[:, j : 2 * j]
        self._starts = np.flatnonzero(self.following > np.arange(self.frames))

    def start(self, frames: Ids) -> Ids:
        """The start frame at or before each of some frames, (n,): one that another follows, without a jump."""
        if not len(self._starts):
            return np.zeros_like(frames)
        return self._starts[np.maximum(np.searchsorted(self._starts, frames, side="right") - 1, 0)]

    def at(self, frames: NDArray[np.integer]) -> ReferenceFrames:
        """The reference at a frame per environment, (n,)."""
        rows = np.take(self._table, frames, axis=0, mode="clip")  # faster than with a check of bounds
        return ReferenceFrames(*(rows[:, columns].reshape(len(rows), *shape) for columns, shape in self._columns))


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
    ref_anchor_pos, ref_anchor_quat = ref.body_pos_w[:, anchor], ref.body_quat_w[:, anchor]
    turn = rotations.yaw(rotations.mul(state.body_quat_w[:, anchor], rotations.conj(ref_anchor_quat)))  # (n, 4)
    origin = np.concatenate([state.body_pos_w[:, anchor, :2], ref_anchor_pos[:, 2:]], axis=1)  # (n, 3)
    arm = ref.body_pos_w - ref_anchor_pos[:, None]
    pos = origin[:, None] + rotations.rotate_each(turn, arm)
    return pos, rotations.mul_each(turn, ref.body_quat_w)


@dataclass
class Step:
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

    robot: Robot
    state: RobotState
    ref: ReferenceFrames
    rel_pos_w: Floats
    rel_quat_w: Floats
    ahead: ReferenceFrames
    action: Floats
    previous_action: Floats
    joint_zero: Floats
    unstable: NDArray[np.bool_]

    @property
    def anchor(self) -> int:
        """Row of the anchor in the tracked bodies."""
        return self.robot.tracked_anchor

    def take(self, ids: Ids) -> Self:
        """A copy of some rows."""
        return type(self)(
            self.robot,
            self.state.take(ids),
            self.ref.take(ids),
            self.rel_pos_w[ids],
            self.rel_quat_w[ids],
            self.ahead.take(ids),
            self.action[ids],
            self.previous_action[ids],
            self.joint_zero[ids],
            self.unstable[ids],
        )
