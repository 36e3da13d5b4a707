"""Quaternion formulas against scipy and hand-computed cases."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from q1pipe import rotations
from tests.clips import euler

RNG = np.random.default_rng(0)
HALF = np.sqrt(0.5)
TURN_Z = np.array([HALF, 0, 0, HALF])  # 90 degrees about z


def scipy(q):
    return Rotation.from_quat(q, scalar_first=True)


@pytest.fixture
def quats():
    q = RNG.standard_normal((2, 50, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def test_hand_computed():
    x, y = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])
    np.testing.assert_allclose(rotations.rotate(TURN_Z, x), y, atol=1e-12)
    np.testing.assert_allclose(rotations.rotate_inv(TURN_Z, y), x, atol=1e-12)
    np.testing.assert_allclose(rotations.angle(TURN_Z), np.pi / 2)
    np.testing.assert_allclose(rotations.log(TURN_Z), [0, 0, np.pi / 2])
    np.testing.assert_allclose(rotations.mul(TURN_Z, TURN_Z), [0, 0, 0, 1], atol=1e-12)


def test_against_scipy(quats):
    a, b = quats
    v = RNG.standard_normal((50, 3))
    np.testing.assert_allclose(rotations.to_matrix(rotations.mul(a, b)), (scipy(a) * scipy(b)).as_matrix(), atol=1e-12)
    np.testing.assert_allclose(rotations.rotate(a, v), scipy(a).apply(v), atol=1e-12)
    np.testing.assert_allclose(rotations.rotate_inv(a, v), scipy(a).inv().apply(v), atol=1e-12)
    np.testing.assert_allclose(rotations.angle(a), scipy(a).magnitude(), atol=1e-9)
    np.testing.assert_allclose(rotations.log(a), scipy(a).as_rotvec(), atol=1e-9)
    np.testing.assert_allclose(rotations.to_matrix(rotations.exp(v)), Rotation.from_rotvec(v).as_matrix(), atol=1e-9)


def test_yaw_is_the_heading_whatever_the_tilt():
    yaw = np.array([0.3, -2.0, 3.0])
    tilted = euler(np.full(3, 0.4), np.full(3, -0.7), yaw)
    want = euler(np.zeros(3), np.zeros(3), yaw)
    np.testing.assert_allclose(rotations.yaw(tilted), want, atol=1e-12)


def test_exp_and_log_at_zero_and_the_long_way_round():
    np.testing.assert_array_equal(rotations.exp(np.zeros(3)), [1, 0, 0, 0])
    np.testing.assert_array_equal(rotations.log(np.array([1.0, 0, 0, 0])), [0, 0, 0])
    np.testing.assert_allclose(rotations.log(-TURN_Z), [0, 0, np.pi / 2])


def test_continuous_flips_only_signs():
    q = np.stack([TURN_Z, -TURN_Z, -TURN_Z, TURN_Z])
    np.testing.assert_array_equal(rotations.continuous(q), np.stack([TURN_Z] * 4))


@pytest.mark.parametrize("name", ["mul", "rotate", "yaw", "log", "exp", "continuous"])
def test_dtype_stays(name, quats):
    a, b = quats.astype(np.float32)
    arguments = {"mul": (a, b), "rotate": (a, b[:, :3]), "exp": (a[:, :3],)}.get(name, (a,))
    assert getattr(rotations, name)(*arguments).dtype == np.float32
