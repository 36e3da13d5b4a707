"""The exported policy in sim2sim's nominal world, a control step at a time, with pushes when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.deploy.contract import Contract
from q1pipe.deploy.run_policy import Controller
from q1pipe.deploy.sim2sim import Judge
from q1pipe.deploy.worlds import NOMINAL, Simulation, World

Array = NDArray[np.floating]


class Live:
    """One robot under its policy. Undisturbed, its episodes are those of sim2sim.

    Args:
        judge: of the clip.
        contract: of the policy.
        controller: of the policy.
        recording: recording.npz of export, for the poses to start from.

    Attributes:
        frame: of the clip; the last one is held.
        error: m, tracking error (r_mpkpe).
        ended: why training would have ended the episode, the first cause since the start; empty: it would not.
        episode: number of starts.
    """

    def __init__(self, judge: Judge, contract: Contract, controller: Controller, recording: Path):
        with np.load(recording, allow_pickle=False) as data:
            self._starts = data["start_qpos"], data["start_qvel"]
        self.judge, self._controller = judge, controller
        self.dt = contract.control_dt
        self._simulation = Simulation(judge.robot, contract, [World(NOMINAL)], [1], 1)
        self._rng = np.random.default_rng()
        self.episode = 0
        self.reset()

    def reset(self) -> None:
        """Start from the next recorded start."""
        row = self.episode % len(self._starts[0])
        self.state = self._simulation.start(*(start[row : row + 1] for start in self._starts))
        self._last_action = self._controller.holding(self.state.measured[2])
        self._command = self.state.joint_pos.copy()
        self.frame, self.error, self.ended = 0, 0.0, ""
        self.episode += 1

    def step(self) -> None:
        """One control step."""
        self.frame = min(self.frame + 1, self.judge.clip.frames - 1)
        obs = self._controller.observe(*self.state.measured, self.frame, self._last_action)
        self._last_action = self._controller.act(obs)
        previous, self._command = self._command, self._controller.target(self._last_action).astype(float)
        self.state = self._simulation.step(self._command, previous)
        self.error = float(self.judge.errors(self.state, self.frame)["r_mpkpe"][0])
        if not self.ended:
            causes = {**self.judge.ended(self.state, self.frame), "sim_unstable": self._simulation.unstable}
            self.ended = next((name for name, holds in causes.items() if holds[0]), "")

    @property
    def unstable(self) -> bool:
        """Whether the physics broke; only a reset helps."""
        return bool(self._simulation.unstable[0])

    @property
    def qpos(self) -> Array:
        """(nq,)."""
        return self._simulation.qpos[0]

    def push(self, speed: float) -> Array:
        """Add a velocity in a random direction along the floor to the root's; returns it, (3,) m/s."""
        direction = self._rng.uniform(0, 2 * np.pi)
        velocity = speed * np.array([np.cos(direction), np.sin(direction), 0.0])
        self._simulation.kick(velocity[None])
        self.state = self._simulation.read()
        return velocity
