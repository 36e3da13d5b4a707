"""The nine reward terms: one ordered table, name -> function. Weights and σ are in the config under the same names.

A term is computed per control step; the reward is the plain sum, at most 5.0. PPO multiplies it by the control dt.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import RewardCfg, RewardTerm
from q1pipe.sim.reference import Step

Floats = NDArray[np.float32]


def root_pos(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−‖p_ref − p‖² / σ²) of the anchor, world."""
    error = s.ref.body_pos_w[:, s.anchor] - s.state.body_pos_w[:, s.anchor]
    return _kernel(_squares(error), cfg.root_pos)


def root_ori(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−angle² / σ²) between the anchors, world."""
    angle = rotations.angle_between(s.ref.body_quat_w[:, s.anchor], s.state.body_quat_w[:, s.anchor])
    return _kernel(np.square(angle), cfg.root_ori)


def body_pos(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−mean over bodies of ‖p_rel − p‖² / σ²)."""
    return _kernel(_squares(s.rel_pos_w - s.state.body_pos_w).mean(axis=1), cfg.body_pos)


def body_ori(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−mean over bodies of angle(q_rel, q)² / σ²)."""
    return _kernel(np.square(rotations.angle_between(s.rel_quat_w, s.state.body_quat_w)).mean(axis=1), cfg.body_ori)


def body_lin_vel(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−mean over bodies of ‖v_ref − v‖² / σ²), link origins, world."""
    return _kernel(_squares(s.ref.body_lin_vel_w - s.state.body_lin_vel_w).mean(axis=1), cfg.body_lin_vel)


def body_ang_vel(s: Step, cfg: RewardCfg) -> Floats:
    """exp(−mean over bodies of ‖ω_ref − ω‖² / σ²), world."""
    return _kernel(_squares(s.ref.body_ang_vel_w - s.state.body_ang_vel_w).mean(axis=1), cfg.body_ang_vel)


def action_rate(s: Step, cfg: RewardCfg) -> Floats:
    """Σ (a_t − a_{t−1})², raw actions; before an episode's first step, the action that holds the robot where it is."""
    return _squares(s.action - s.previous_action)


def joint_limit(s: Step, cfg: RewardCfg) -> Floats:
    """Σ over joints of how far they are beyond their soft limits, rad."""
    low, high = s.robot.soft_limits.astype(np.float32).T
    q = s.state.joint_pos
    return (np.maximum(low - q, 0) + np.maximum(q - high, 0)).sum(axis=1)


def self_collision(s: Step, cfg: RewardCfg) -> Floats:
    """1 where the largest robot–robot contact force at the end of the step is above contact_force."""
    return (s.state.self_contact > cfg.contact_force).astype(np.float32)


REWARD_TERMS: dict[str, Callable[[Step, RewardCfg], Floats]] = {
    "root_pos": root_pos,
    "root_ori": root_ori,
    "body_pos": body_pos,
    "body_ori": body_ori,
    "body_lin_vel": body_lin_vel,
    "body_ang_vel": body_ang_vel,
    "action_rate": action_rate,
    "joint_limit": joint_limit,
    "self_collision": self_collision,
}


def weight(name: str, cfg: RewardCfg) -> float:
    """Weight of a term."""
    term = getattr(cfg, name)
    return term.weight if isinstance(term, RewardTerm) else term


def reward_terms(s: Step, cfg: RewardCfg, out: Floats) -> None:
    """Write weight · value of each term, table order, into out, (n, 9). Zero where the simulation broke."""
    for column, (name, function) in enumerate(REWARD_TERMS.items()):
        out[:, column] = function(s, cfg)
        out[:, column] *= weight(name, cfg)
    out[s.unstable] = 0


def describe(cfg: RewardCfg) -> list[tuple[str, float, float | None]]:
    """The table for people: (term, weight, σ or None) in order."""
    terms = [(name, getattr(cfg, name)) for name in REWARD_TERMS]
    return [(n, weight(n, cfg), t.sigma if isinstance(t, RewardTerm) else None) for n, t in terms]


def _kernel(error: Floats, term: RewardTerm) -> Floats:
    """exp(−error / σ²) of a squared error."""
    return np.exp(error * np.float32(-1 / term.sigma**2))


def _squares(v: Floats) -> Floats:
    """Squared length along the last axis."""
    return np.einsum("...i,...i->...", v, v)
