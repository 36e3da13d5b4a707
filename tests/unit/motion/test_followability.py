"""Support, carried wrench and replay on cases whose answer is known."""

import mujoco
import numpy as np
import pytest

from q1pipe.config import RobotCfg
from q1pipe.motion.clip import from_poses
from q1pipe.motion.followability import clip_qpos, distance_outside, followability, replay
from q1pipe.robot import Robot
from tests.clips import standing_clip

SQUARE = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])


@pytest.fixture(scope="module")
def robot():
    return Robot.load(RobotCfg())


@pytest.mark.parametrize(
    ("point", "polygon", "want"),
    [
        ((0.5, 0.2), SQUARE, 0),
        ((1.5, 0.5), SQUARE, 0.5),
        ((2, 2), SQUARE, np.sqrt(2)),
        ((0.5, 1), SQUARE[:2], 1),
        ((2, 0), SQUARE[:2], 1),
        ((3, 4), SQUARE[:1], 5),
        ((0, 0), SQUARE[:0], np.inf),
        ((0.5, 1), np.array([[0.0, 0], [0.5, 0], [1, 0]]), 1),
    ],
)
def test_distance_outside(point, polygon, want):
    assert distance_outside(np.array(point, float), polygon) == pytest.approx(want)


def moved(robot, shift, frames=60, lean=0.0):
    """The default pose, moved by shift(t) metres of height and leaning forward by a constant angle."""
    t = np.arange(frames) / 50
    pos = np.zeros((frames, 3))
    pos[:, 2] = robot.default_root_height + shift(t)
    quat = np.tile([np.cos(lean / 2), 0, np.sin(lean / 2), 0], (frames, 1))
    return from_poses(robot, 50, pos, quat, np.tile(robot.default_joint_pos, (frames, 1)))


def test_a_stand_is_supported_by_two_feet_and_carries_itself(robot):
    curves = followability(robot, standing_clip(robot), 0.01)
    assert curves.support_gap.max() == 0
    assert curves.carried.max() < 1e-3
    np.testing.assert_array_equal(curves.contacts, 2)
    assert curves.com_speed.max() == 0


def test_hovering_is_carried_by_nothing(robot):
    curves = followability(robot, moved(robot, lambda t: 0.05 + 0 * t), 0.01)
    np.testing.assert_allclose(curves.carried, 1, atol=0.1)  # its weight; the moment about the pelvis adds a little
    assert np.isinf(curves.support_gap).all()
    np.testing.assert_array_equal(curves.contacts, 0)


def test_free_fall_needs_nothing(robot):
    curves = followability(robot, moved(robot, lambda t: 1 - 9.81 * t**2 / 2, 20), 0.01)
    np.testing.assert_allclose(curves.carried[2:-2], 0, atol=2e-2)
    np.testing.assert_allclose(curves.com_speed[2:-2], 9.81 * np.arange(2, 18) / 50, rtol=1e-3)


def test_leaning_over_the_toes_is_outside_by_the_lever(robot):
    """The whole robot turned forward by 0.5 rad stands on its toe edges, with the centre of mass in front of them."""
    data = mujoco.MjData(robot.model)
    qpos = clip_qpos(robot, moved(robot, lambda t: 0 * t, lean=0.5))
    data.qpos[:] = qpos[0]
    mujoco.mj_fwdPosition(robot.model, data)
    qpos[:, 2] -= robot.lowest(data).min()
    foot = robot.model.geom("left_foot")
    toe = data.geom("left_foot").xpos + data.geom("left_foot").xmat.reshape(3, 3) @ (foot.size * [1, 1, -1])
    curves = followability(robot, from_poses(robot, 50, qpos[:, :3], qpos[:, 3:7], qpos[:, robot.qpos_adr]), 0.01)
    np.testing.assert_allclose(curves.support_gap, data.subtree_com[robot.root, 0] - toe[0], atol=5e-3)
    assert curves.support_gap.min() > 0.1
    assert curves.carried.min() > 0.2


def test_replay_of_a_stand_holds_and_of_a_turn_in_the_air_does_not(robot):
    stand = replay(robot, standing_clip(robot), 1.0)
    assert stand.lost == {}
    assert max(stand.turned.values()) < 5
    t = np.arange(100) / 50
    half = np.pi / 2 * np.clip(t, 0, 1)  # turns over by 180 degrees while the joints stand still
    quat = np.stack([np.cos(half), np.sin(half), 0 * t, 0 * t], axis=1)
    pos = np.tile([0, 0, robot.default_root_height], (100, 1))
    fiction = from_poses(robot, 50, pos, quat, np.tile(robot.default_joint_pos, (100, 1)))
    result = replay(robot, fiction, 2.0)
    assert result.turned_reference["pelvis"] == pytest.approx(180, abs=1)
    assert result.turned["pelvis"] < 20
    assert 0 < min(result.lost.values()) < 60
