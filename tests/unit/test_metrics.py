"""Metrics by hand, the same for any robot."""

import numpy as np
import pytest

from q1pipe.metrics import DEFINITIONS, EpisodeMeans, tracking_errors

UNIT = np.array([1.0, 0, 0, 0])
TURN = np.array([np.cos(0.1), np.sin(0.1), 0, 0])  # 0.2 rad about x


def test_errors_by_hand():
    """One robot, two bodies, two joints; the second body is the end effector."""
    pos = np.array([[[0.0, 0, 0], [1, 0, 0]]])
    ref = np.array([[[0.3, 0.4, 0], [1, 0, 0.1]]])
    rel = np.array([[[0.0, 0, 0], [1, 0, 0.2]]])
    quat, rel_quat = np.array([[UNIT, UNIT]]), np.array([[UNIT, TURN]])
    vel, ref_vel = np.array([[1.0, 2.0]]), np.array([[4.0, -2.0]])
    errors = tracking_errors(pos, quat, ref, rel, rel_quat, vel, ref_vel, np.array([1]))
    want = {
        "mpkpe": (0.5 + 0.1) / 2,
        "r_mpkpe": (0 + 0.2) / 2,
        "joint_vel_error": np.sqrt((9 + 16) / 2),
        "ee_pos_error": 0.2,
        "ee_ori_error": 0.2,
    }
    assert set(want) <= set(DEFINITIONS)
    for name, value in want.items():
        assert errors[name] == pytest.approx([value]), name


def test_only_active_steps_count_even_next_to_nan():
    means = EpisodeMeans(3)
    means.add({"e": np.array([1.0, 2.0, 5.0])}, np.array([True, True, False]))
    means.add({"e": np.array([3.0, np.nan, 7.0])}, np.array([True, False, False]))
    np.testing.assert_array_equal(means.result()["e"], [2, 2, 0])
