"""stable-baselines3's PPO update alone (`PPO.train`), on a made-up batch. Runs in a Python of its own."""

from __future__ import annotations

import time
from importlib import metadata
from typing import Any

import gymnasium
import numpy as np
import torch
from learner import ACTIONS, CLIP, ENTROPY, MAX_GRAD_NORM, OBS, STD
from serve import Answer, options, quiet, serve
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv


class Nothing(gymnasium.Env):
    """Only its spaces are looked at."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-9, 9, (ACTIONS,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Zeros."""
        return np.zeros(OBS, np.float32), {}


class Updating:
    """A learner with a full rollout buffer.

    Args:
        asked: envs, steps, hidden, threads, epochs, mini_batches.
    """

    def __init__(self, asked: dict[str, Any]):
        torch.set_num_threads(asked["threads"])
        envs, steps, hidden = asked["envs"], asked["steps"], asked["hidden"]
        self.ppo = PPO(
            "MlpPolicy",
            DummyVecEnv([Nothing] * envs),
            n_steps=steps,
            batch_size=envs * steps // asked["mini_batches"],
            n_epochs=asked["epochs"],
            clip_range=CLIP,
            clip_range_vf=CLIP,
            ent_coef=ENTROPY,
            vf_coef=1.0,
            max_grad_norm=MAX_GRAD_NORM,
            policy_kwargs={
                "net_arch": {"pi": hidden, "vf": hidden},
                "activation_fn": torch.nn.ELU,
                "log_std_init": float(np.log(STD)),
            },
            seed=0,
            device="cpu",
        )
        self.ppo.set_logger(Logger(None, []))
        rng = np.random.default_rng(0)
        buffer = self.ppo.rollout_buffer
        buffer.reset()
        for _ in range(steps):
            obs = rng.standard_normal((envs, OBS)).astype(np.float32)
            with torch.no_grad():
                actions, values, log_probs = self.ppo.policy(torch.from_numpy(obs))
            rewards, starts = rng.standard_normal(envs), np.zeros(envs)
            buffer.add(obs, actions.numpy(), rewards, starts, values, log_probs)
        buffer.compute_returns_and_advantage(values, np.zeros(envs))

    def update(self) -> Answer:
        """One update."""
        began = time.perf_counter()
        self.ppo.train()
        return {"seconds": time.perf_counter() - began}


if __name__ == "__main__":
    descriptor = quiet()
    updating = Updating(options())
    versions = {name: metadata.version(name) for name in ("stable-baselines3", "torch")}
    serve(descriptor, {"versions": versions}, updating.update)
