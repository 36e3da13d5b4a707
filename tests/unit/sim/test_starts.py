"""How episodes begin: worked out together, they are those that would be worked out alone."""

from __future__ import annotations

import numpy as np
import pytest

from q1pipe.config import TrainCfg
from q1pipe.sim.physics import Physics
from q1pipe.sim.reference import Reference
from q1pipe.sim.starts import NextStarts, Start

N = 6


@pytest.fixture
def starts(robot, clip, cfg):
    """A function that makes new ones."""

    def make(cfg=cfg):
        return NextStarts(Physics(robot, cfg, N), Reference(clip, robot, cfg), cfg, np.arange(N) + 10)

    return make


def same(a: Start, b: Start) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_starts_do_not_depend_on_which_are_worked_out_together(starts):
    probs = np.array([0.2, 0.5, 0.3])
    together, alone, episode = starts(), starts(), np.arange(N)
    everyone = together.sampled(np.arange(N), episode, probs)
    for i in range(N):
        fresh = alone.at(np.array([i]), episode[[i]], everyone.frame[[i]])
        assert same(together.sampled(np.array([i]), episode, probs), fresh)


def test_the_next_episode_begins_elsewhere(starts):
    probs, these = np.array([1.0]), starts()
    first = these.sampled(np.arange(N), np.zeros(N, int), probs)
    second = these.sampled(np.arange(N), np.ones(N, int), probs)
    assert not np.array_equal(first.qpos, second.qpos)
    assert same(these.sampled(np.arange(N), np.zeros(N, int), probs), first)


def test_a_new_distribution_counts_at_once(starts, clip):
    these, episode = starts(TrainCfg(reset={"from_start": 0})), np.zeros(N, int)
    early = these.sampled(np.arange(N), episode, np.array([1.0, 0.0])).frame
    late = these.sampled(np.arange(N), episode, np.array([0.0, 1.0])).frame
    assert early.max() < clip.frames / 2 <= late.min()
