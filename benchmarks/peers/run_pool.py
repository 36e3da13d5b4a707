"""q1pipe's worker pool on the whole task: physics, rewards, terminations, resets, pushes, observations.

Runs in q1pipe's Python. Actions are made between the steps and not timed, as for the others.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from serve import options, quiet, say

from benchmarks.peers import q1
from q1pipe.config import load_settings
from q1pipe.robot import Robot
from q1pipe.sim.workers import WorkerPool


def main(descriptor: int, asked: dict[str, Any]) -> None:
    """Go on stepping for as long as somebody asks. `asked`: settings."""
    settings = load_settings(json.dumps(asked["settings"]))
    robot, cfg = Robot.load(settings["robot"]), settings["train"]
    rng = np.random.default_rng(cfg.seed)
    with WorkerPool(settings["robot"], q1.GET_UP, cfg, cfg.num_workers, horizon=cfg.steps_per_env) as pool:
        pool.reset()
        say(descriptor, {})
        while sys.stdin.readline():
            seconds = 0.0
            for t in range(cfg.steps_per_env):
                pool.actions[t] = q1.explore(robot, pool.layout, pool.rows[t], rng)
                began = time.perf_counter()
                pool.step(t)
                seconds += time.perf_counter() - began
            pool.roll()
            say(descriptor, {"seconds": seconds})


if __name__ == "__main__":
    main(quiet(), options())
