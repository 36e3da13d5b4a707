"""The clip at the frames of many environments, and what the robot is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.physics import Ids, RobotState, watched_bodies

Floats = NDArray[np.float32]


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

    Attributes:
        frames: T.
        root_pos_w: (T, 3) m; the root's state is what resets write.
        root_quat_w: (T, 4) wxyz.
        root_lin_vel_w: (T, 3) m/s.
        root_ang_vel_w: (T, 3) rad/s, world frame.
        joint_pos: (T, J) rad.
        joint_vel: (T, J) rad/s.
    """

    def __init__(self, clip: Clip, robot: Robot, cfg: TrainCfg):
        root, tracked = robot.root - 1, robot.tracked - 1  # rows of the clip: all bodies but the world
        watched = watched_bodies(robot, cfg) - 1
        self.frames = clip.frames
        self.root_pos_w, self.root_quat_w = clip.body_pos_w[:, root], clip.body_quat_w[:, root]
        self.root_lin_vel_w, self.root_ang_vel_w = clip.body_lin_vel_w[:, root], clip.body_ang_vel_w[:, root]
        self.joint_pos, self.joint_vel = clip.joint_pos, clip.joint_vel
        parts = ReferenceFrames(
            joint_pos=clip.joint_pos,
            joint_vel=clip.joint_vel,
            body_pos_w=clip.body_pos_w[:, tracked],
            body_quat_w=clip.body_quat_w[:, tracked],
            body_lin_vel_w=clip.body_lin_vel_w[:, tracked],
            body_ang_vel_w=clip.body_ang_vel_w[:, tracked],
            watched_z=clip.body_pos_w[:, watched, 2],
        )
        columns = [getattr(parts, f.name) for f in fields(parts)]
        self._table = np.concatenate([c.reshape(clip.frames, -1) for c in columns], axis=1, dtype=np.float32)
        ends = np.cumsum([math.prod(c.shape[1:]) for c in columns]).tolist()
        starts = [0, *ends[:-1]]
        self._columns = [(slice(a, b), c.shape[1:]) for a, b, c in zip(starts, ends, columns, strict=True)]

    def at(self, frames: NDArray[np.integer]) -> ReferenceFrames:
        """The reference at a frame per environment, (n,); frames beyond the end are the last."""
        rows = np.take(self._table, frames, axis=0, mode="clip")
        return ReferenceFrames(*(rows[:, columns].reshape(len(rows), *shape) for columns, shape in self._columns))


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
