"""What the policy and the critic see: one ordered table each, name -> width -> noise.

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

from q1pipe.config import NoiseCfg
from q1pipe.robot import Robot

Floats = NDArray[np.float32]


class Term(NamedTuple):
    """A row of the table: what it is called, how wide it is, the config key of its noise."""

    name: str
    width: Callable[[Robot], int]
    noise: str = ""


def _joints(robot: Robot) -> int:
    return len(robot.joint_names)


# In the order of `kernels.observe`, where the formulas are
ACTOR_TERMS = (
    Term("reference_joint_pos", _joints),  # rad
    Term("reference_joint_vel", _joints),  # rad/s
    # Orientation of the reference's anchor in the robot's anchor frame: first two columns of R, row-major
    Term("anchor_ori", lambda robot: 6, noise="anchor_ori"),
    Term("base_ang_vel", lambda robot: 3, noise="base_ang_vel"),  # of the IMU in its own frame (gyroscope), rad/s
    Term("joint_pos", _joints, noise="joint_pos"),  # as the encoders give them, from the default pose, rad
    Term("joint_vel", _joints, noise="joint_vel"),  # rad/s
    # Of the step that led here, raw; at an episode's start, the one that holds the robot where it is
    Term("last_action", _joints),
)

CRITIC_TERMS = (
    Term("anchor_pos", lambda robot: 3),  # of the reference's anchor in the robot's anchor frame, m
    Term("base_lin_vel", lambda robot: 3),  # of the root's origin in the root's frame, m/s
    Term("body_pos", lambda robot: 3 * len(robot.tracked)),  # in the anchor's frame, m
    Term("body_ori", lambda robot: 6 * len(robot.tracked)),  # likewise, first two columns of R each, row-major
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


def describe(layout: Layout, cfg: NoiseCfg) -> list[tuple[str, str, int, float]]:
    """The table for people: (who sees it, term, width, noise half-range) in order."""
    rows = []
    for who, terms in (("actor, critic", ACTOR_TERMS), ("critic", CRITIC_TERMS)):
        for term in terms:
            columns = layout.slices[term.name]
            noise = float(getattr(cfg, term.noise)) if term.noise else 0.0
            rows.append((who, term.name, columns.stop - columns.start, noise))
    return rows
