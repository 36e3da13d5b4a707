"""Support, carried wrench and replay on cases whose answer is known."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from q1pipe.config import MotionCfg, RobotCfg
from q1pipe.motion.clip import from_poses, stepping
from q1pipe.motion.followability import clip_qpos, distance_outside, followability, judge, replay, score
from q1pipe.robot import Robot
from tests.clips import base_clip, standing_clip

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
    stand = replay(robot, standing_clip(robot), 200, 1.0)
    assert stand.lost == {}
    assert max(stand.turned.values()) < 5
    t = np.arange(100) / 50
    half = np.pi / 2 * np.clip(t, 0, 1)  # turns over by 180 degrees while the joints stand still
    quat = np.stack([np.cos(half), np.sin(half), 0 * t, 0 * t], axis=1)
    pos = np.tile([0, 0, robot.default_root_height], (100, 1))
    fiction = from_poses(robot, 50, pos, quat, np.tile(robot.default_joint_pos, (100, 1)))
    result = replay(robot, fiction, 200, 2.0)
    assert result.turned_reference["pelvis"] == pytest.approx(180, abs=1)
    assert result.turned["pelvis"] < 20
    assert 0 < min(result.lost.values()) < 60


def test_physics_steps_are_those_of_training_whatever_the_model_says(robot):
    """The MJCF of another robot says 2 ms, ours 5: replayed in steps of 5 ms, both do the same."""
    model = robot.model.__copy__()
    model.opt.timestep = 0.002
    clip = base_clip(robot)
    assert replay(replace(robot, model=model), clip, 200, 1.0) == replay(robot, clip, 200, 1.0)
    assert replay(robot, clip, 1000, 1.0) != replay(robot, clip, 200, 1.0)
    stepped, substeps = stepping(robot, 30, 200)
    assert substeps == 7
    assert stepped.opt.timestep * substeps == pytest.approx(1 / 30)


# --- what a motion asks of joints and feet


def test_torque_of_a_stand_is_what_holds_its_weight(robot):
    """By hand, for one leg: half the weight above a knee, times its horizontal distance from the foot's pressure."""
    curves = followability(robot, standing_clip(robot), 0.01)
    # the simulated robot holds the same pose with the same torques
    data = mujoco.MjData(robot.model)
    data.qpos[:] = clip_qpos(robot, standing_clip(robot))[0]
    data.ctrl[robot.actuator_ids] = robot.default_joint_pos
    for _ in range(1000):
        mujoco.mj_step(robot.model, data)
    held = np.abs(data.actuator_force[robot.actuator_ids] / robot.effort).max()
    np.testing.assert_allclose(curves.torque, held, atol=0.05)
    assert 0.05 < held < 0.5


def test_fast_joints_and_a_robot_in_itself(robot):
    t = np.arange(60) / 50
    names = list(robot.joint_names)
    joints = np.tile(robot.default_joint_pos, (60, 1))
    joints[:, names.index("left_shoulder_pitch_joint")] += 0.5 * np.sin(8 * t)
    joints[:, names.index("left_hip_roll_joint")] = robot.limits[names.index("left_hip_roll_joint"), 0]
    joints[:, names.index("right_hip_roll_joint")] = robot.limits[names.index("right_hip_roll_joint"), 1]
    pos = np.tile([0, 0, 2.0], (60, 1))
    clip = from_poses(robot, 50, pos, np.tile([1.0, 0, 0, 0], (60, 1)), joints)
    curves = followability(robot, clip, 0.01)
    # central differences of 0.5 sin 8t: 0.5 · sin(8 dt)/dt · cos 8t
    np.testing.assert_allclose(curves.joint_speed[1:-1].max(), 0.5 * np.sin(0.16) * 50, rtol=2e-3)
    assert curves.self_penetration.min() > 0.01
    assert followability(robot, standing_clip(robot), 0.01).self_penetration.max() == 0


def test_a_stand_that_is_pushed_along_skates(robot):
    t = np.arange(60) / 50
    pos = np.stack([0.5 * t, 0 * t, np.full(60, robot.default_root_height)], axis=1)
    joints = np.tile(robot.default_joint_pos, (60, 1))
    slid = followability(robot, from_poses(robot, 50, pos, np.tile([1.0, 0, 0, 0], (60, 1)), joints), 0.01)
    np.testing.assert_allclose(slid.skating, 0.5, atol=1e-3)
    assert score(slid, MotionCfg()) == 0
    (finding,) = [f for f in judge(slid, MotionCfg(), "x") if f.code == "score"]
    assert "skating: 60 frames, 0–59" in finding.found
    still = followability(robot, standing_clip(robot), 0.01)
    assert still.skating.max() < 1e-6
    assert score(still, MotionCfg()) == 1
