"""`mujoco.rollout`, one call for each control step, as a policy needs it: states and sensors come back, nothing else.

No rewards, terminations, resets or observations are made of them. Runs in a Python of its own.
"""

from __future__ import annotations

import time
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout
from serve import Answer, options, quiet, serve


class Stepping:
    """The recorded rollout, a call for each step from the state that was recorded before it.

    Args:
        asked: model, rollout (files), threads.
    """

    def __init__(self, asked: dict[str, Any]):
        model = mujoco.MjModel.from_binary_path(asked["model"])
        recorded = np.load(asked["rollout"])
        self.state, self.substeps = recorded["state"], int(recorded["substeps"])
        self.ctrl = np.repeat(recorded["ctrl"][:, :, None], self.substeps, axis=2)  # (T, n, substeps, nu)
        self.models = [model] * self.state.shape[1]
        self.data = [mujoco.MjData(model) for _ in range(asked["threads"])]
        self.pool = rollout.Rollout(nthread=asked["threads"])

    def step(self) -> Answer:
        """The rollout once."""
        seconds = 0.0
        for state, ctrl in zip(self.state, self.ctrl, strict=True):
            began = time.perf_counter()
            self.pool.rollout(self.models, self.data, state, ctrl, nstep=self.substeps)
            seconds += time.perf_counter() - began
        return {"seconds": seconds}


if __name__ == "__main__":
    descriptor = quiet()
    serve(descriptor, {}, Stepping(options()).step)
