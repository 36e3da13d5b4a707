"""Compiled formulas against scipy and `rotations`; how they are kept."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from q1pipe import rotations
from q1pipe.sim import turns
from q1pipe.sim.compiled import SOURCES

RNG = np.random.default_rng(0)


@pytest.fixture(params=range(5))
def turn(request):
    return Rotation.random(rng=request.param)


def quat(rotation):
    return tuple(rotation.as_quat(scalar_first=True))


def test_quaternions(turn):
    other, v = Rotation.random(rng=9), (0.3, -2.0, 1.5)
    close = pytest.approx
    assert rotations.to_matrix(np.array(turns.mul(quat(turn), quat(other)))) == close((turn * other).as_matrix())
    assert turns.rotate(quat(turn), v) == close(turn.apply(v))
    assert turns.rotate(turns.conj(quat(turn)), v) == close(turn.inv().apply(v))
    assert turns.six(quat(turn)) == close(turn.as_matrix()[:, :2].ravel())
    assert turns.up(quat(turn)) == close(turn.inv().apply([0, 0, 1]))
    assert turns.yaw(quat(turn)) == close(rotations.yaw(np.array(quat(turn))))
    angle = (turn.inv() * other).magnitude()
    assert turns.angle_between(quat(turn), quat(other)) == close(angle)
    assert turns.angle_between(quat(turn), tuple(-np.array(quat(other)))) == close(angle)


def test_euler_is_yaw_pitch_roll():
    angles = [0.4, -0.7, 2.0]
    want = Rotation.from_euler("ZYX", angles[::-1]).as_matrix()
    assert rotations.to_matrix(np.array(turns.from_euler(*angles))) == pytest.approx(want)


def test_what_is_kept_of_other_sources_is_not_taken():
    """Numba looks at the file of a kernel only, not at those of what it is made of."""
    turns.up((1.0, 0.0, 0.0, 0.0))
    kept = Path(turns.up.stats.cache_path).glob(f"turns.up-{SOURCES}-*.nbi")
    assert list(kept)
