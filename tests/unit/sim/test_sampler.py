import numpy as np
import pytest

from q1pipe.config import ResetCfg
from q1pipe.sim.kernels import frame_in_bins
from q1pipe.sim.sampler import AdaptiveSampler, bin_count, bin_of
from q1pipe.sim.terminations import Cause


def start_frames(u_bin, u_within, bin_probs, frames):
    return np.array([frame_in_bins(*u, bin_probs, frames) for u in zip(u_bin, u_within, strict=True)])


CFG = ResetCfg(uniform=0.1, adapt_rate=0.5)


def fail(sampler, frames):
    sampler.update(np.array(frames), np.full(len(frames), Cause.TILT, np.int8))


@pytest.mark.parametrize(("frames", "bins"), [(350, 7), (101, 2), (50, 1), (20, 1), (2, 1), (1, 1)])
def test_bins_are_about_a_second(frames, bins):
    assert bin_count(frames, 50, CFG) == bins


def test_nothing_failed_is_uniform():
    assert AdaptiveSampler(350, 50, CFG).probs.tolist() == [1 / 7] * 7


@pytest.mark.parametrize("failures", [1, 64, 100_000])
def test_the_floor_does_not_depend_on_how_many_fail(failures):
    sampler = AdaptiveSampler(350, 50, CFG)
    fail(sampler, [120] * failures)
    assert sampler.probs.sum() == pytest.approx(1)
    assert sampler.probs.min() == pytest.approx(0.1 / 7)
    assert sampler.probs[2] == pytest.approx(0.9 + 0.1 / 7)


def test_truncations_are_no_failures():
    sampler = AdaptiveSampler(350, 50, CFG)
    frames = np.array([[10, 60], [120, 349]])
    cause = np.array([[Cause.NONE, Cause.SIM_UNSTABLE], [Cause.TIME_OUT, Cause.MOTION_END]])
    sampler.update(frames, cause)
    assert np.flatnonzero(sampler.failures).tolist() == [1]


def test_the_table_is_a_moving_average():
    sampler = AdaptiveSampler(101, 50, CFG)
    fail(sampler, [3, 4])  # 0 + 0.5 · 2
    assert sampler.failures.tolist() == [1, 0]
    fail(sampler, [99])  # (1 − 0.5, 0 + 0.5)
    assert sampler.failures.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("frames", [1, 2, 20])
def test_short_clips_have_one_bin(frames):
    sampler = AdaptiveSampler(frames, 50, CFG)
    fail(sampler, [frames - 1])
    assert sampler.probs.tolist() == [1]
    assert start_frames(np.array([0.99]), np.array([0.99]), sampler.probs, frames).tolist() == [max(frames - 2, 0)]


def test_starts_are_even_inside_a_bin_and_never_the_last_frame():
    rng = np.random.default_rng(0)
    frames, probs = 101, np.array([0.25, 0.75])
    starts = start_frames(rng.random(200_000), rng.random(200_000), probs, frames)
    counts = np.bincount(starts, minlength=frames)
    assert counts[100] == 0
    assert counts[:50] == pytest.approx(200_000 * 0.25 / 50, rel=0.15)
    assert counts[50:100] == pytest.approx(200_000 * 0.75 / 50, rel=0.15)


@pytest.mark.parametrize(("frames", "bins"), [(350, 7), (37, 5), (11, 10), (8, 3)])
def test_a_start_lies_in_the_bin_that_was_drawn(frames, bins):
    probs = np.full(bins, 1 / bins)
    u = (np.arange(bins) + 0.5) / bins
    for within in (0.0, 0.5, 1 - 2**-53):
        starts = start_frames(u, np.full(bins, within), probs, frames)
        assert bin_of(starts, frames, bins).tolist() == list(range(bins))


def test_a_bin_without_probability_is_never_drawn():
    u = np.linspace(0, 1 - 2**-53, 1001)
    starts = start_frames(u, np.zeros(1001), np.array([0, 1.0, 0]), 151)
    assert set(bin_of(starts, 151, 3)) == {1}


def test_state():
    sampler = AdaptiveSampler(350, 50, CFG)
    fail(sampler, [1, 200])
    other = AdaptiveSampler(350, 50, CFG)
    other.load_state(sampler.state())
    assert (other.probs == sampler.probs).all()
    fail(sampler, [1])
    assert (other.failures != sampler.failures).any()  # a copy
    with pytest.raises(ValueError, match="7 bins, this clip has 2"):
        AdaptiveSampler(101, 50, CFG).load_state(sampler.state())


# --- long clips


def test_ten_minutes_are_sampled_evenly_whatever_else_fails():
    """30 000 frames, 600 bins: each keeps ε/N, for 64 environments and for 1024, and starts reach all of the clip."""
    rng = np.random.default_rng(0)
    for envs in (64, 1024):
        sampler = AdaptiveSampler(30000, 50, CFG)
        for _ in range(20):
            fail(sampler, rng.integers(9000, 9050, envs))
        assert len(sampler.probs) == 600
        assert sampler.probs.min() == pytest.approx(0.1 / 600)
        assert sampler.probs[180] == pytest.approx(0.9 + 0.1 / 600)
    starts = start_frames(rng.random(100_000), rng.random(100_000), sampler.probs, 30000)
    assert set(bin_of(starts, 30000, 600)) == set(range(600))
    even = start_frames(rng.random(100_000), rng.random(100_000), AdaptiveSampler(30000, 50, CFG).probs, 30000)
    assert np.quantile(even, [0, 0.5, 1]) == pytest.approx([0, 15000, 29998], abs=300)


def test_how_much_of_the_clip_an_iteration_saw():
    sampler = AdaptiveSampler(350, 50, CFG)  # bins of 50 frames, but for the last
    sampler.update(np.array([[0, 10], [51, 349]]), np.zeros((2, 2), np.int8))
    assert sampler.covered == pytest.approx(3 / 7)
