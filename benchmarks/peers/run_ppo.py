"""q1pipe's PPO update alone, on a made-up batch. Runs in q1pipe's Python."""

from __future__ import annotations

import time
from typing import Any

import torch
from learner import ACTIONS, OBS
from serve import Answer, options, quiet, serve

from q1pipe.config import PolicyCfg, PpoCfg
from q1pipe.learn.buffer import Batch
from q1pipe.learn.policy import Critic, Policy, Shape
from q1pipe.learn.ppo import Ppo


class Updating:
    """A learner with a batch.

    Args:
        asked: envs, steps, hidden, threads, bf16 (networks in bfloat16).
    """

    def __init__(self, asked: dict[str, Any]):
        torch.set_num_threads(asked["threads"])
        torch.manual_seed(0)
        rows, cfg = asked["envs"] * asked["steps"], PolicyCfg(hidden=asked["hidden"], skip=False)
        policy = Policy(Shape(OBS, OBS, ACTIONS, 0), cfg, [0.0] * ACTIONS, [1.0] * ACTIONS)
        critic = Critic(OBS, cfg.hidden)
        obs = torch.randn(rows, OBS)
        with torch.no_grad():
            features, offset = policy.features(obs)
            means, values = policy.mean(features, offset), critic.value(features)
            actions = means + policy.log_std.exp() * torch.randn_like(means)
        advantages, log_std = torch.randn(rows), policy.log_std.detach().clone()
        returns = values + torch.randn(rows)
        self.batch = Batch(features, offset, features, actions, means, values, returns, advantages, log_std)
        self.ppo = Ppo(policy, critic, PpoCfg(), torch.Generator().manual_seed(0), asked["bf16"])

    def update(self) -> Answer:
        """One update."""
        began = time.perf_counter()
        self.ppo.update(self.batch)
        return {"seconds": time.perf_counter() - began}


if __name__ == "__main__":
    descriptor = quiet()
    serve(descriptor, {}, Updating(options()).update)
