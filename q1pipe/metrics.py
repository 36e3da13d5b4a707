"""Tracking metrics, the same wherever they are quoted: per step, then the mean of an episode, then of episodes.

Robot state and reference belong to the same frame; `rel` is the reference turned to the robot's heading and moved to
its x and y (sim/reference.py). The definitions are mjlab's (since its corrections of May 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations

Array = NDArray[np.floating]

DEFINITIONS = {
    "success_rate": "share of episodes that reached the clip's end without a termination",
    "finish_rate": "share of episodes that reached the end and held the clip's final pose over its last moment: anchor "
    "high enough, upright enough, no body on the floor that is not on it in the clip",
    "mean_rew": "mean reward of a control step, plain sum of the nine terms, over all steps of all episodes; at most 5",
    "ep_ret": "mean sum of rewards of an episode",
    "ep_len": "mean control steps of an episode",
    "mpkpe": "m, mean distance of the tracked bodies from the reference, world frame",
    "r_mpkpe": "m, mean distance of the tracked bodies from rel",
    "joint_vel_error": "rad/s, root mean square over the joints of the velocity error",
    "ee_pos_error": "m, mean distance of the end effectors from rel",
    "ee_ori_error": "rad, mean rotation angle between the end effectors and rel",
    "action_rate": "mean of Σ(a_t − a_{t−1})², raw actions",
    "torque_use": "mean over joints of |torque| / limit",
    "torque_peak": "largest |torque| / limit of any joint in the episode, mean over episodes",
    "soft_limit_use": "share of steps with a joint beyond its soft limits",
}


def tracking_errors(
    pos_w: Array,
    quat_w: Array,
    ref_pos_w: Array,
    rel_pos_w: Array,
    rel_quat_w: Array,
    joint_vel: Array,
    ref_joint_vel: Array,
    end_effectors: NDArray[np.integer],
) -> dict[str, Array]:
    """Errors of one step of n robots, by the names of DEFINITIONS.

    Args:
        pos_w: tracked bodies, (n, Bt, 3) m.
        quat_w: their orientations, (n, Bt, 4).
        ref_pos_w: the reference's bodies, (n, Bt, 3) m.
        rel_pos_w: the same as `rel`, (n, Bt, 3) m.
        rel_quat_w: orientations of `rel`, (n, Bt, 4).
        joint_vel: (n, J) rad/s.
        ref_joint_vel: (n, J) rad/s.
        end_effectors: their rows among the tracked bodies.

    Returns:
        name -> (n,).
    """
    ends = end_effectors
    turn = rotations.mul(rel_quat_w[:, ends], rotations.conj(quat_w[:, ends]))
    return {
        "mpkpe": _distance(ref_pos_w, pos_w),
        "r_mpkpe": _distance(rel_pos_w, pos_w),
        "joint_vel_error": np.sqrt(np.mean((ref_joint_vel - joint_vel) ** 2, axis=-1)),
        "ee_pos_error": _distance(rel_pos_w[:, ends], pos_w[:, ends]),
        "ee_ori_error": rotations.angle(turn).mean(axis=-1),
    }


def _distance(a: Array, b: Array) -> Array:
    """Mean distance over the bodies, (n, B, 3) -> (n,)."""
    return np.linalg.norm(a - b, axis=-1).mean(axis=-1)


class EpisodeMeans:
    """Means over the steps in which each of n episodes was active."""

    def __init__(self, num_envs: int):
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._steps = np.zeros(num_envs)

    def add(self, values: Mapping[str, Array], active: NDArray[np.bool_]) -> None:
        """Count one step: name -> (n,), where active (n,)."""
        self._steps += active
        for name, value in values.items():
            total = self._sums.setdefault(name, np.zeros(len(active)))
            total[active] += value[active]  # an episode that has ended may be at NaN

    def result(self) -> dict[str, Array]:
        """name -> mean of each episode, (n,); 0 for an episode that never was active."""
        return {name: total / np.maximum(self._steps, 1) for name, total in self._sums.items()}


def gate(name: str, value: float, allowed: str, passed: bool) -> dict[str, Any]:
    """A line of a verdict: the number, what it may be, and whether it is."""
    return {"name": name, "value": value, "allowed": allowed, "passed": bool(passed)}
