"""gymnasium's AsyncVectorEnv, one process per environment: physics, and positions and velocities as the observation.

No rewards, terminations or resets. Runs in a Python of its own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv
from serve import Answer, options, quiet, serve


class Physics(gymnasium.Env):
    """One robot.

    Args:
        model: file.
        state: (1 + nq + nv) where it starts.
        substeps: physics steps per control step.
    """

    def __init__(self, model: str, state: np.ndarray, substeps: int):
        self.model = mujoco.MjModel.from_binary_path(model)
        self.data, self.state, self.substeps = mujoco.MjData(self.model), state, substeps
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(state) - 1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.model.nu,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Back to the start."""
        mujoco.mj_setState(self.model, self.data, self.state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        return self.state[1:].astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One control step."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, self.substeps)
        return np.concatenate([self.data.qpos, self.data.qvel]).astype(np.float32), 0.0, False, False, {}


class Stepping:
    """The first environments of the recorded rollout, from its first states on with its targets.

    Args:
        asked: model, rollout (files), envs.
    """

    def __init__(self, asked: dict[str, Any]):
        recorded = np.load(asked["rollout"])
        self.ctrl = recorded["ctrl"][:, : asked["envs"]].astype(np.float32)
        starts, substeps = recorded["state"][0, : asked["envs"]], int(recorded["substeps"])
        self.envs = AsyncVectorEnv([partial(Physics, asked["model"], start, substeps) for start in starts])

    def step(self) -> Answer:
        """The rollout once."""
        self.envs.reset()
        seconds = 0.0
        for ctrl in self.ctrl:
            began = time.perf_counter()
            self.envs.step(ctrl)
            seconds += time.perf_counter() - began
        return {"seconds": seconds}


if __name__ == "__main__":
    descriptor = quiet()
    serve(descriptor, {}, Stepping(options()).step)
