"""What the policy and the critic see: one ordered table each, name -> width -> function -> noise.

The critic's observation is the actor's, without noise, and more. Both look at the reference one frame ahead of the
robot (`Step.ahead`): the frame that the coming action will be scored on. Everything in ACTOR_TERMS can be measured on
the robot without a state estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import NoiseCfg
from q1pipe.robot import Robot
from q1pipe.sim.reference import Step

Floats = NDArray[np.float32]


def reference_joint_pos(s: Step) -> Floats:
    """Reference joint positions, rad."""
    return s.ahead.joint_pos


def reference_joint_vel(s: Step) -> Floats:
    """Reference joint velocities, rad/s."""
    return s.ahead.joint_vel


def anchor_ori(s: Step) -> Floats:
    """Orientation of the reference's anchor in the robot's anchor frame: first two columns of R, row-major."""
    robot_anchor, ref_anchor = s.state.body_quat_w[:, s.anchor], s.ahead.body_quat_w[:, s.anchor]
    return rotations.six(rotations.mul(rotations.conj(robot_anchor), ref_anchor))


def base_ang_vel(s: Step) -> Floats:
    """Angular velocity of the IMU in its own frame (gyroscope), rad/s."""
    return s.state.gyro


def joint_pos(s: Step) -> Floats:
    """Joint positions as the encoders give them, from the default pose, rad."""
    return s.state.joint_pos + s.joint_zero - s.robot.default_joint_pos.astype(np.float32)


def joint_vel(s: Step) -> Floats:
    """Joint velocities, rad/s."""
    return s.state.joint_vel


def last_action(s: Step) -> Floats:
    """The action of the step that led here, raw; at an episode's start, the one that holds the robot where it is."""
    return s.action


def anchor_pos(s: Step) -> Floats:
    """Position of the reference's anchor in the robot's anchor frame, m."""
    offset = s.ahead.body_pos_w[:, s.anchor] - s.state.body_pos_w[:, s.anchor]
    return rotations.rotate_inv(s.state.body_quat_w[:, s.anchor], offset)


def base_lin_vel(s: Step) -> Floats:
    """Linear velocity of the root's origin in the root's frame, m/s."""
    return rotations.rotate_inv(s.state.root_quat_w, s.state.root_lin_vel_w)


def body_pos(s: Step) -> Floats:
    """Positions of the tracked bodies in the anchor's frame, m."""
    offset = s.state.body_pos_w - s.state.body_pos_w[:, s.anchor, None]
    return rotations.rotate_each_inv(s.state.body_quat_w[:, s.anchor], offset)


def body_ori(s: Step) -> Floats:
    """Orientations of the tracked bodies in the anchor's frame: first two columns of R each, row-major."""
    anchor = s.state.body_quat_w[:, s.anchor]
    return rotations.six(rotations.mul_each(rotations.conj(anchor), s.state.body_quat_w))


class Term(NamedTuple):
    """A row of the table: what it is called, how wide it is, how it is computed, the config key of its noise."""

    name: str
    width: Callable[[Robot], int]
    function: Callable[[Step], Floats]
    noise: str = ""


def _joints(robot: Robot) -> int:
    return len(robot.joint_names)


ACTOR_TERMS = (
    Term("reference_joint_pos", _joints, reference_joint_pos),
    Term("reference_joint_vel", _joints, reference_joint_vel),
    Term("anchor_ori", lambda robot: 6, anchor_ori, noise="anchor_ori"),
    Term("base_ang_vel", lambda robot: 3, base_ang_vel, noise="base_ang_vel"),
    Term("joint_pos", _joints, joint_pos, noise="joint_pos"),
    Term("joint_vel", _joints, joint_vel, noise="joint_vel"),
    Term("last_action", _joints, last_action),
)

CRITIC_TERMS = (
    Term("anchor_pos", lambda robot: 3, anchor_pos),
    Term("base_lin_vel", lambda robot: 3, base_lin_vel),
    Term("body_pos", lambda robot: 3 * len(robot.tracked), body_pos),
    Term("body_ori", lambda robot: 6 * len(robot.tracked), body_ori),
)


@dataclass(frozen=True)
class Layout:
    """Where everything lies in a row: actor terms | critic's extra terms | reward | terminated | truncated.

    Attributes:
        slices: columns of each term, in order.
        actor_dim: width of the actor's observation, the first columns.
        critic_dim: width of the critic's observation, the first columns too.
        row_dim: width of a row.
        reward_col: column of the reward.
        terminated_col: column of the termination flag.
        truncated_col: column of the truncation flag.
    """

    slices: dict[str, slice]
    actor_dim: int
    critic_dim: int

    @classmethod
    def of(cls, robot: Robot) -> Layout:
        """The layout for a robot, from the tables."""
        slices: dict[str, slice] = {}
        start = actor_dim = 0
        for term in (*ACTOR_TERMS, *CRITIC_TERMS):
            slices[term.name] = slice(start, start + term.width(robot))
            start = slices[term.name].stop
            if term is ACTOR_TERMS[-1]:
                actor_dim = start
        return cls(slices, actor_dim, start)

    @property
    def reward_col(self) -> int:
        """Column of the reward."""
        return self.critic_dim

    @property
    def terminated_col(self) -> int:
        """Column of the termination flag."""
        return self.critic_dim + 1

    @property
    def truncated_col(self) -> int:
        """Column of the truncation flag."""
        return self.critic_dim + 2

    @property
    def row_dim(self) -> int:
        """Width of a row."""
        return self.critic_dim + 3

    @property
    def reference_joint_pos(self) -> slice:
        """Columns of the reference joint positions, for the policy's skip connection."""
        return self.slices["reference_joint_pos"]

    def noise(self, cfg: NoiseCfg) -> Floats:
        """Half-range of the uniform noise on each column of the actor's observation, (actor_dim,)."""
        scale = np.zeros(self.actor_dim, np.float32)
        for term in ACTOR_TERMS:
            if term.noise:
                scale[self.slices[term.name]] = getattr(cfg, term.noise)
        return scale


def observe(step: Step, layout: Layout, out: Floats) -> None:
    """Write the critic's observation, the actor's first, into the first columns of out (n, critic_dim or more)."""
    for term in (*ACTOR_TERMS, *CRITIC_TERMS):
        columns = layout.slices[term.name]
        out[:, columns] = term.function(step).reshape(len(out), columns.stop - columns.start)


def describe(layout: Layout, cfg: NoiseCfg) -> list[tuple[str, str, int, float]]:
    """The table for people: (who sees it, term, width, noise half-range) in order."""
    rows = []
    for who, terms in (("actor, critic", ACTOR_TERMS), ("critic", CRITIC_TERMS)):
        for term in terms:
            columns = layout.slices[term.name]
            noise = float(getattr(cfg, term.noise)) if term.noise else 0.0
            rows.append((who, term.name, columns.stop - columns.start, noise))
    return rows
