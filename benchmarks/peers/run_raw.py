"""The bound: `mujoco.batch.Batch.step` alone, on the states and targets of q1pipe's environments. In q1pipe's Python.

The states are those of an untrained policy in the episodes of training: before each step of a rollout the simulations
are put back to what they were then, which is not timed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serve import Answer, options, quiet, serve

from q1pipe.config import load_settings
from q1pipe.learn.policy import Policy, Shape
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.physics import VELOCITY


class Recorded:
    """A rollout, to step through again.

    Args:
        asked: settings, clip, threads.
    """

    def __init__(self, asked: dict[str, Any]):
        settings = load_settings(json.dumps(asked["settings"]))
        robot, clip, cfg = Robot.load(settings["robot"]), Clip.load(Path(asked["clip"])), settings["train"]
        torch.manual_seed(cfg.seed)
        env = TrackingEnv(robot, clip, cfg, np.arange(cfg.num_envs), nthread=asked["threads"])
        layout = env.layout
        shape = Shape(layout.actor_dim, layout.critic_dim, len(robot.joint_names), layout.reference_joint_pos.start)
        policy = Policy(shape, cfg.policy, robot.default_joint_pos.tolist(), robot.action_scale.tolist())
        out = StepBuffers.zeros(cfg.num_envs, layout)
        env.reset_all(out)
        self.physics, self.steps = env.physics, []
        with torch.no_grad():
            for _ in range(cfg.steps_per_env):
                mean = policy(torch.from_numpy(out.rows[:, : layout.actor_dim]))
                before = self.physics.save()
                env.step((mean + policy.log_std.exp() * torch.randn_like(mean)).numpy(), out)
                self.steps.append((before, self.physics.ctrl.copy()))

    def step(self) -> Answer:
        """The rollout once."""
        physics, seconds = self.physics, 0.0
        for state, ctrl in self.steps:
            physics.load(state)
            physics.ctrl[:] = ctrl
            began = time.perf_counter()
            physics.batch.step(nstep=physics.substeps, stage=VELOCITY)
            seconds += time.perf_counter() - began
        return {"seconds": seconds}


if __name__ == "__main__":
    descriptor = quiet()
    serve(descriptor, {}, Recorded(options()).step)
