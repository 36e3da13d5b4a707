"""UniLab's G1 motion tracking on the CPU, by its own configuration, environment and runner. Runs in UniLab's Python.

Changed against its `train` command: sizes, the clip, the logger (none), and that it pauses between iterations.
"""

from __future__ import annotations

import os
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import unilab
from hydra import compose, initialize_config_dir
from serve import Answer, options, quiet, serve


class Contest:
    """A runner that trains a few iterations at a time, and an environment to watch its policy in.

    Args:
        asked: envs, steps, hidden, iterations, clip, threads, play (episodes; 0: none), trajectory (file).
    """

    def __init__(self, asked: dict[str, Any]):
        from rsl_rl.runners import OnPolicyRunner
        from unilab.rl import RslRlVecEnvAdapter
        from unilab.training import algo_config_dict, ensure_registries
        from unilab.training.seed import apply_configured_training_seed

        torch.set_num_threads(asked["threads"])
        self.asked, self.adapter = asked, RslRlVecEnvAdapter
        ensure_registries()
        self.cfg = self.config([])
        apply_configured_training_seed(self.cfg, torch_runtime=True, cuda=False)
        env = self.environment(self.cfg, asked["envs"])
        self.runner: Any = OnPolicyRunner(
            RslRlVecEnvAdapter(env, device="cpu"), {**algo_config_dict(self.cfg), "logger": "none"}, None, "cpu"
        )
        self.times: list[tuple[float, float]] = []
        self.runner.logger.log = lambda **told: self.times.append((told["collect_time"], told["learn_time"]))
        self.watched: Any = None
        if asked["play"]:
            command = "env.commands.motion.params"
            still = [f"{command}.pose_range={{}}", f"{command}.velocity_range={{}}"]
            still += [f"{command}.joint_position_range=[0.0,0.0]", f"{command}.sampling_mode=mixed"]
            still += [f"{command}.sampling_start_ratio=1.0", "env.max_episode_seconds=1000"]
            self.watched = self.environment(self.config(still), asked["play"])

    def config(self, more: list[str]) -> Any:
        """Its G1 task with the sizes asked for."""
        asked, hidden = self.asked, str(list(self.asked["hidden"])).replace(" ", "")
        sizes = [f"algo.num_envs={asked['envs']}", f"algo.num_steps_per_env={asked['steps']}"]
        sizes += [f"algo.{net}.hidden_dims={hidden}" for net in ("actor", "critic")]
        sizes += ["training.device=cpu", "training.logger=none", "training.nan_guard.enabled=false"]
        sizes += [f"env.commands.motion.params.motion_file={asked['clip']}"]
        folder = Path(unilab.__file__).parent / "conf" / "ppo"
        with initialize_config_dir(version_base="1.3", config_dir=str(folder)):
            return compose("config", overrides=["task=g1_motion_tracking/mujoco", *sizes, *more])

    @staticmethod
    def environment(cfg: Any, envs: int) -> Any:
        """As its train command makes it."""
        from unilab.base.config_adapter import create_env
        from unilab.scripts.train_rsl_rl import build_ppo_env_cfg_override

        return create_env(cfg, num_envs=envs, env_cfg_override=build_ppo_env_cfg_override(cfg))

    def train(self) -> Answer:
        """A few iterations."""
        self.times.clear()
        began = time.perf_counter()
        self.runner.learn(self.asked["iterations"], init_at_random_ep_len=self.runner.current_learning_iteration == 0)
        seconds = time.perf_counter() - began
        collect, update = (sum(column) for column in zip(*self.times, strict=True))
        answer = {"seconds": seconds, "collect_s": collect, "update_s": update}
        if self.watched is not None:
            self.play()
        return answer

    @torch.no_grad()
    def play(self) -> None:
        """Deterministic episodes from frame 0: where the robots were after each step, and whether they still track."""
        env = self.adapter(self.watched, device="cpu")
        policy = self.runner.get_inference_policy(device="cpu")
        self.watched.reset()
        obs = env.get_observations()
        seen, tracking = [], []
        alive = torch.ones(env.num_envs, dtype=torch.bool)
        layout = self.watched.get_physics_state_layout()
        for _ in range(self.asked["frames"] - 1):
            obs, _, dones, _ = env.step(policy(obs))
            alive &= ~dones.bool()
            seen.append(self.watched.get_physics_state_snapshot())
            tracking.append(alive.numpy().copy())
        print(layout)
        np.savez(self.asked["trajectory"], state=np.stack(seen), tracking=np.stack(tracking))


if __name__ == "__main__":
    descriptor = quiet()
    asked = options()
    os.chdir(asked["folder"])
    began = time.perf_counter()
    contest = Contest(asked)
    versions = {name: metadata.version(name) for name in ("unilab", "mujoco", "torch", "rsl-rl-lib")}
    serve(descriptor, {"start_s": time.perf_counter() - began, "versions": versions}, contest.train)
