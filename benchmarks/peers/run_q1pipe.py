"""q1pipe's own training, by the code of `q1pipe train`, that pauses between iterations. Runs in q1pipe's Python."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serve import Answer, options, quiet, say

from q1pipe.config import ResetCfg, load_settings
from q1pipe.learn.history import numbers
from q1pipe.learn.policy import Policy
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.stages.train import train
from q1pipe.stopping import Stopping

# Starts on the reference itself, as UniLab's test episodes do
STILL = ResetCfg(xy=0, z=(0, 0), roll_pitch=0, yaw=0, joint=0, vel_xy=0, vel_z=0, vel_roll_pitch=0, vel_yaw=0)


class Turns(Stopping):
    """Where training can be interrupted, it waits for its turn: before the first of every few iterations.

    Args:
        descriptor: where answers go.
        history: train.csv, for what collection and update took.
        iterations: of a turn.
    """

    def __init__(self, descriptor: int, history: Path, iterations: int):
        super().__init__()
        self.descriptor, self.history, self.iterations = descriptor, history, iterations
        self.started, self.entered, self.began = time.perf_counter(), 0, 0.0
        self.apart = 0.0  # s of the turn that were not training

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around the start of the workers, around the first reset, then around each iteration."""
        done = self.entered - 2  # iterations
        if done >= 0 and done % self.iterations == 0:
            self.wait(done)
        self.entered += 1
        with super().interruptible():
            yield

    def wait(self, done: int) -> None:
        """Say what the last turn took, and wait for the next."""
        if done == 0:
            versions = {name: metadata.version(name) for name in ("mujoco", "torch")}
            answer: Answer = {"start_s": time.perf_counter() - self.started, "versions": versions}
        else:
            rows = numbers(self.history)[-self.iterations :]
            answer = {"seconds": time.perf_counter() - self.began - self.apart}
            answer |= {name: sum(row[name] for row in rows) for name in ("collect_s", "update_s")}
        say(self.descriptor, answer)
        if not sys.stdin.readline():
            sys.exit()
        self.began, self.apart = time.perf_counter(), 0.0


def main(descriptor: int, asked: dict[str, Any]) -> None:
    """Train until nobody asks any more. `asked`: settings, clip, folder, iterations, play, trajectory."""
    settings = load_settings(json.dumps(asked["settings"]))
    robot, clip, cfg = Robot.load(settings["robot"]), Clip.load(Path(asked["clip"])), settings["train"]
    folder = Path(asked["folder"])
    turns = Turns(descriptor, folder / "train.csv", asked["iterations"])
    still = cfg.model_copy(update={"reset": STILL})
    watched = TrackingEnv(robot, clip, still, np.arange(asked["play"] or 1), "nominal", nthread=asked["threads"])

    @torch.no_grad()
    def play(policy: Policy) -> dict[str, float]:
        """Deterministic episodes from frame 0: where the robots were after each step, and whether they still track."""
        began = time.perf_counter()
        layout = watched.layout
        out = StepBuffers.zeros(watched.num_envs, layout)
        watched.reset_all(out)
        seen, tracking = [], []
        for frame in range(1, clip.frames):
            watched.step(policy(torch.from_numpy(out.rows[:, : layout.actor_dim])).numpy(), out)
            seen.append(watched.physics.qpos.copy())
            tracking.append(watched.episodes.cause == 0 if frame < clip.frames - 1 else tracking[-1])
        np.savez(asked["trajectory"], qpos=np.stack(seen), tracking=np.stack(tracking))
        turns.apart += time.perf_counter() - began
        return dict.fromkeys(("score", "success", "finish", "finish_disturbed", "mean_rew", "ep_ret", "ep_len"), 0.0)

    evaluate = play if asked["play"] else None
    of = (settings["robot"], robot, Path(asked["clip"]), clip, cfg, asked["threads"])
    train(*of, torch.device("cpu"), folder, {}, evaluate, turns)


if __name__ == "__main__":
    main(quiet(), options())
