"""The work of the collection contests: the Q1 and its get-up as q1pipe trains it, and a rollout of it to repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.config import load_settings
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.observations import Layout

GET_UP = Path(__file__).parents[2] / "config" / "getUp.npz"


def settings_of(envs: int, steps: int) -> dict[str, Any]:
    """q1pipe's own settings, with the sizes asked for."""
    return {"robot": {}, "train": {"num_envs": envs, "num_workers": 2, "steps_per_env": steps}}


def explore(
    robot: Robot, layout: Layout, obs: NDArray[np.float32], rng: np.random.Generator, std: float = 0.5
) -> NDArray[np.float32]:
    """Actions of an untrained policy: those that target the reference, with noise. (n, actor) -> (n, J)."""
    reference = obs[:, layout.reference_joint_pos]
    mean = (reference - robot.default_joint_pos) / robot.action_scale
    return (mean + std * rng.standard_normal(mean.shape)).astype(np.float32)


def record(settings: dict[str, Any], model: Path, rollout: Path) -> None:
    """Write the model, and a rollout of the task for those who only have the physics.

    Args:
        settings: of `settings_of`.
        model: mjb file.
        rollout: npz with state (T, n, 1 + nq + nv) before each step, MuJoCo's full physics state, ctrl (T, n, nu),
            and substeps.
    """
    made = load_settings(json.dumps(settings))
    cfg, robot, clip = made["train"], Robot.load(made["robot"]), Clip.load(GET_UP)
    env = TrackingEnv(robot, clip, cfg, np.arange(cfg.num_envs), nthread=2)
    out, rng = StepBuffers.zeros(cfg.num_envs, env.layout), np.random.default_rng(cfg.seed)
    env.reset_all(out)
    states, ctrls = [], []
    for _ in range(cfg.steps_per_env):
        states.append(np.concatenate([np.zeros((cfg.num_envs, 1)), env.physics.qpos, env.physics.qvel], axis=1))
        env.step(explore(robot, env.layout, out.rows, rng), out)
        ctrls.append(env.physics.ctrl.copy())
    mujoco.mj_saveModel(env.physics.batch.model, str(model), None)
    np.savez(rollout, state=np.stack(states), ctrl=np.stack(ctrls), substeps=cfg.substeps)
