"""How episodes begin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.sim.physics import Ids, Physics
from q1pipe.sim.randomization import reset_states, sample_starts, steps_to_first_push
from q1pipe.sim.reference import Reference

Array = NDArray[np.float64]


class Start(NamedTuple):
    """How k episodes begin.

    Attributes:
        frame: (k,) reference frame.
        qpos: (k, nq) with noise, out of the floor.
        qvel: (k, nv) with noise.
        until_push: (k,) control steps to the first push.
    """

    frame: NDArray[np.intp]
    qpos: Array
    qvel: Array
    until_push: NDArray[np.intp]


class NextStarts:
    """The next start of every environment, worked out for many at once.

    One by one, as episodes end, it would take a worker of few environments a fifth of its time.

    Args:
        physics: the simulations; read only.
        reference: the clip.
        cfg: settings of the task.
        env_ids: global numbers of the environments, (n,).
    """

    def __init__(self, physics: Physics, reference: Reference, cfg: TrainCfg, env_ids: Ids):
        self._physics, self._reference, self._cfg, self._env_ids = physics, reference, cfg, env_ids
        n, model = len(env_ids), physics.robot.model
        none = np.full(n, -1)
        self._episode = none  # (n,) that the start is of
        self._bin_probs: Array = np.empty(0)  # that the frame was drawn from
        self._start = Start(none.copy(), np.zeros((n, model.nq)), np.zeros((n, model.nv)), none.copy())

    def sampled(self, ids: Ids, episode: NDArray[np.int64], bin_probs: Array) -> Start:
        """Starts of some environments, at frames drawn from a distribution over bins.

        Args:
            ids: rows of the environments, (k,).
            episode: number of the episode that begins, or will begin next, in each environment, (n,).
            bin_probs: (bins,).
        """
        if not np.array_equal(self._bin_probs, bin_probs):
            self._bin_probs = bin_probs.copy()
            self._episode[:] = -1
        if (self._episode[ids] != episode[ids]).any():
            missing = np.flatnonzero(self._episode != episode)
            number, reference = episode[missing], self._reference
            frame = sample_starts(self._cfg, self._env_ids[missing], number, bin_probs, reference.frames)
            for whole, part in zip(self._start, self.at(missing, number, reference.start(frame)), strict=True):
                whole[missing] = part
            self._episode[missing] = number
        frame, qpos, qvel, until_push = self._start
        return Start(frame[ids], qpos[ids], qvel[ids], until_push[ids])

    def at(self, ids: Ids, episode: NDArray[np.int64], frame: NDArray[np.intp]) -> Start:
        """Starts of some environments (k,) at given frames (k,); `episode` (k,) numbers those that begin."""
        env_ids = self._env_ids[ids]
        physics, cfg = self._physics, self._cfg
        qpos, qvel = reset_states(physics.robot, self._reference, cfg, env_ids, episode, frame)
        physics.lift_out_of_floor(qpos)
        return Start(frame, qpos, qvel, steps_to_first_push(cfg, env_ids, episode))
