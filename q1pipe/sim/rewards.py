"""The nine reward terms: one ordered table, name -> function. Weights and σ are in the config under the same names.

A term is computed per control step; the reward is the plain sum, at most 5.0. PPO multiplies it by the control dt.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import RewardCfg, RewardTerm

# Where the formulas are: `kernels.rewards`
REWARD_TERMS = (
    "root_pos",
    "root_ori",
    "body_pos",
    "body_ori",
    "body_lin_vel",
    "body_ang_vel",
    "action_rate",
    "joint_limit",
    "self_collision",
)


class Weights(NamedTuple):
    """What the config says of the terms, in their order.

    Attributes:
        weight: (9,).
        sigma: (6,) of the first six, which are exp(−error / σ²).
        contact_force: N, above which a robot–robot contact counts.
    """

    weight: NDArray[np.float64]
    sigma: NDArray[np.float64]
    contact_force: float

    @classmethod
    def of(cls, cfg: RewardCfg) -> Self:
        """From the config."""
        rows = describe(cfg)
        sigmas = [sigma for _, _, sigma in rows if sigma is not None]
        return cls(np.array([weight for _, weight, _ in rows]), np.array(sigmas), cfg.contact_force)


def describe(cfg: RewardCfg) -> list[tuple[str, float, float | None]]:
    """The table for people: (term, weight, σ or None) in order."""
    terms = [(name, getattr(cfg, name)) for name in REWARD_TERMS]
    return [(n, t.weight, t.sigma) if isinstance(t, RewardTerm) else (n, t, None) for n, t in terms]
