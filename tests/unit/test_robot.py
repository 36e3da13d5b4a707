"""The shipped robot against its public figures, the compiled model against the formulas, and other people's MJCFs."""

import math
from pathlib import Path

import mujoco
import numpy as np
import pytest

from q1pipe.config import RobotCfg
from q1pipe.errors import RobotError
from q1pipe.robot import Robot

LEGS = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
ARMS = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")


@pytest.fixture(scope="module")
def robot():
    return Robot.load(RobotCfg())


def pose(robot, **stems):
    """Joint angles by stem, both sides, roll and yaw mirrored."""
    q = np.zeros(len(robot.joint_names))
    for stem, value in stems.items():
        for side, sign in (("left", 1), ("right", -1 if "roll" in stem or "yaw" in stem else 1)):
            q[robot.joint_names.index(f"{side}_{stem}_joint")] = sign * value
    return q


def hold(robot, joints, pitch, seconds=3.0):
    """Put the robot on the floor in a pose, hold it by its own actuators; the final data."""
    data = mujoco.MjData(robot.model)
    data.qpos[3:7] = [math.cos(math.radians(pitch) / 2), 0, math.sin(math.radians(pitch) / 2), 0]
    data.qpos[robot.qpos_adr] = joints
    mujoco.mj_kinematics(robot.model, data)
    data.qpos[2] -= robot.lowest(data).min()
    data.ctrl[robot.actuator_ids] = joints
    for _ in range(round(seconds / robot.model.opt.timestep)):
        mujoco.mj_step(robot.model, data)
    return data


def test_public_figures(robot):
    expected = [f"{side}_{stem}_joint" for side in ("left", "right") for stem in (*LEGS, *ARMS)]
    assert set(robot.joint_names) == {*expected, "waist_yaw_joint", "waist_roll_joint"}
    assert len(robot.joint_names) == 22
    assert robot.standing_height == pytest.approx(0.88, abs=0.02)
    assert robot.model.body_mass.sum() == pytest.approx(16, abs=0.3)
    for name, effort in zip(robot.joint_names, robot.effort, strict=True):
        assert effort == (14 if "shoulder_roll" in name else 33)


def test_gains_are_derived_from_the_armature(robot):
    armature = robot.model.dof_armature[robot.qvel_adr]
    omega = 2 * math.pi * 10
    np.testing.assert_allclose(robot.stiffness, armature * omega**2, rtol=1e-6)
    np.testing.assert_allclose(robot.damping, 2 * 2 * armature * omega, rtol=1e-6)
    np.testing.assert_allclose(robot.action_scale, 0.25 * robot.effort / robot.stiffness)


def test_soft_limits_are_the_middle_of_the_ranges(robot):
    np.testing.assert_allclose(robot.soft_limits.mean(axis=1), robot.limits.mean(axis=1))
    np.testing.assert_allclose(np.ptp(robot.soft_limits, axis=1), 0.9 * np.ptp(robot.limits, axis=1))


def test_left_and_right_are_mirror_images(robot):
    m = robot.model
    for name in robot.body_names:
        if name.startswith("left_"):
            left, right = m.body(name), m.body(name.replace("left_", "right_"))
            np.testing.assert_allclose(left.pos * [1, -1, 1], right.pos)
            np.testing.assert_allclose(left.ipos * [1, -1, 1], right.ipos, atol=1e-9)
            np.testing.assert_allclose([*left.mass, *left.inertia], [*right.mass, *right.inertia], rtol=1e-9)
    for name in robot.joint_names:
        if name.startswith("left_"):
            left, right = m.joint(name), m.joint(name.replace("left_", "right_"))
            mirrored = -left.range[::-1] if "roll" in name or "yaw" in name else left.range
            np.testing.assert_allclose(mirrored, right.range)


@pytest.mark.parametrize(
    ("pitch", "upright", "joints"),
    [
        (0, True, dict(hip_pitch=-0.2, knee=0.4, ankle_pitch=-0.2, shoulder_roll=0.2, elbow=-0.5)),
        (23, True, dict(hip_pitch=-2.0, knee=2.2, ankle_pitch=-0.6, shoulder_pitch=-1.2, shoulder_roll=0.2)),
        (70, False, dict(ankle_pitch=-0.5, shoulder_pitch=-1.5, shoulder_roll=0.2)),
    ],
    ids=["stand", "deep squat", "plank on hands and toes"],
)
def test_holds_by_its_own_gains(robot, pitch, upright, joints):
    target = pose(robot, **joints)
    data = hold(robot, target, pitch)
    np.testing.assert_allclose(data.qpos[robot.qpos_adr], target, atol=0.1)
    low = dict(zip((robot.model.geom(g).name for g in robot.geoms), robot.lowest(data), strict=True))
    on_floor = {name.split("_", 1)[-1] for name, z in low.items() if z < 0.005}
    assert on_floor == ({"foot"} if upright else {"foot", "hand"})


def test_keyframes_rest_where_they_say(robot):
    m = robot.model
    for name in ("stand", "supine"):
        data = mujoco.MjData(m)
        mujoco.mj_resetDataKeyframe(m, data, m.key(name).id)
        np.testing.assert_array_equal(m.key(name).ctrl, m.key(name).qpos[robot.qpos_adr])
        mujoco.mj_kinematics(m, data)
        assert -0.002 < robot.lowest(data).min() < 0.01, name
        start = data.qpos.copy()
        for _ in range(400):
            mujoco.mj_step(m, data)
        np.testing.assert_allclose(data.qpos, start, atol=0.06, err_msg=name)


def test_self_collision_sensor_sees_arm_against_trunk_and_not_the_floor(robot):
    lying = hold(robot, pose(robot, shoulder_roll=0.4), -90, 1.0)
    assert np.linalg.norm(lying.sensordata[robot.self_collision]) == 0
    pressed = hold(robot, pose(robot, shoulder_roll=-0.5, elbow=-1.0), -90, 1.0)
    force = np.linalg.norm(pressed.sensordata[robot.self_collision])
    wrench = np.zeros(6)
    forces = []
    for i, contact in enumerate(pressed.contact[: pressed.ncon]):
        if robot.floor not in contact.geom:
            mujoco.mj_contactForce(robot.model, pressed, i, wrench)
            forces.append(np.linalg.norm(wrench[:3]))
    assert force > 10
    assert force == pytest.approx(max(forces), rel=1e-6)


BARE = """<mujoco model="bare"><compiler autolimits="true"/><worldbody><body name="base" pos="0 0 1"><freejoint/>
<geom size="0.1" mass="2"/><body name="limb" pos="0.1 0 0"><joint name="hinge" axis="0 1 0" range="-90 90" {joint}/>
<geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0" mass="1"/></body></body></worldbody>{actuator}</mujoco>"""


def bare(tmp_path, joint='armature="0.01"', actuator="", **cfg):
    path = tmp_path / "bare_without_scene.xml"
    path.write_text(BARE.format(joint=joint, actuator=actuator))
    names = {
        "root": "base",
        "anchor": "limb",
        "tracked": ("base", "limb"),
        "end_effectors": ("limb",),
        "feet": ("limb",),
    }
    return RobotCfg(xml=str(path), **{**names, **cfg})


def test_bare_mjcf_gets_floor_sensors_and_actuators(tmp_path):
    robot = Robot.load(bare(tmp_path, effort={"*": 20}))
    assert robot.model.geom(robot.floor).name == "floor"
    assert robot.model.nlight == 1
    np.testing.assert_allclose(robot.stiffness, 0.01 * (20 * math.pi) ** 2)
    np.testing.assert_allclose(robot.effort, 20)
    data = mujoco.MjData(robot.model)
    data.qvel[3:6] = [1, 2, 3]
    mujoco.mj_forward(robot.model, data)
    np.testing.assert_allclose(data.sensordata[robot.gyro], [1, 2, 3])


def test_motors_become_position_actuators_with_their_torque_limit(tmp_path):
    motor = '<actuator><motor name="m" joint="hinge" gear="2" ctrlrange="-5 5"/></actuator>'
    robot = Robot.load(bare(tmp_path, actuator=motor))
    assert robot.model.nu == 1
    np.testing.assert_allclose(robot.effort, 10)
    np.testing.assert_allclose(robot.damping, 4 * 0.01 * 20 * math.pi)


def test_position_actuators_stay_as_they_are(tmp_path):
    position = '<actuator><position name="m" joint="hinge" kp="7" kv="0.5" forcerange="-3 3"/></actuator>'
    robot = Robot.load(bare(tmp_path, actuator=position))
    assert (robot.stiffness[0], robot.damping[0], robot.effort[0]) == (7, 0.5, 3)


def test_targets_are_not_clamped_and_the_limit_may_sit_on_the_joint(tmp_path):
    joint = 'armature="0.01" actuatorfrcrange="-3 3"'
    position = '<actuator><position name="m" joint="hinge" kp="7" kv="0.5" inheritrange="1"/></actuator>'
    robot = Robot.load(bare(tmp_path, joint=joint, actuator=position))
    assert (robot.stiffness[0], robot.effort[0]) == (7, 3)
    data = mujoco.MjData(robot.model)
    data.ctrl[0] = 10  # rad, far beyond the joint's range
    mujoco.mj_forward(robot.model, data)
    assert data.actuator_force[0] == 3
    data.ctrl[0] = 0.1
    mujoco.mj_forward(robot.model, data)
    assert data.actuator_force[0] == pytest.approx(0.7)


@pytest.mark.parametrize(
    "actuators",
    ['<velocity name="v" joint="hinge" kv="5"/>', '<motor name="a" joint="hinge"/><motor name="b" joint="hinge"/>'],
    ids=["velocity", "two"],
)
def test_other_actuators_are_refused(tmp_path, actuators):
    with pytest.raises(RobotError, match="none, one motor or one position actuator"):
        Robot.load(bare(tmp_path, actuator=f"<actuator>{actuators}</actuator>", effort={"*": 20}))


def test_meshes_beside_the_mjcf_are_found(tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes/limb.obj").write_text(
        "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    )
    cfg = bare(tmp_path, effort={"*": 20})
    path = Path(cfg.xml)
    text = path.read_text().replace(
        'autolimits="true"/>', 'autolimits="true" meshdir="meshes"/><asset><mesh file="limb.obj"/></asset>'
    )
    path.write_text(text.replace('type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"', 'type="mesh" mesh="limb"'))
    robot = Robot.load(cfg)
    before = robot.sha
    (tmp_path / "meshes/limb.obj").write_text((tmp_path / "meshes/limb.obj").read_text().replace("v 0 0 1", "v 0 0 2"))
    assert Robot.load(cfg).sha != before


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ({"effort": {"*": 20}, "anchor": "limp"}, ["robot.anchor", "limp", "base, limb", "did you mean limb"]),
        ({"effort": {"*": 20}, "tracked": ("base",)}, ["robot.tracked", "limb"]),
        ({"effort": {"*": 20}, "end_effectors": ("base",), "tracked": ("limb",)}, ["robot.tracked", "base"]),
        ({}, ["hinge", "torque limit 0", "robot.effort"]),
        ({"effort": {"*": 20}, "root": "limb"}, ["robot.root", "limb", "the floating base, base"]),
        ({"effort": {"*": 20}, "imu": "imuu"}, ["robot.imu", "imuu", "no sites"]),
        ({"effort": {"*": 20}, "default_keyframe": "stnd"}, ["robot.default_keyframe", "stnd", "no keyframes"]),
        (
            {"effort": {"*": 20}, "root": "bse", "feet": ("lim",), "tracked": ("base", "limp")},
            ["robot.root", "bse", "robot.feet", "lim", "robot.tracked", "limp"],
        ),
        ({"xml": "/nowhere/robot.xml"}, ["/nowhere/robot.xml", "no such file", "Q1_XML"]),
    ],
    ids=[
        "name",
        "anchor not tracked",
        "end effector not tracked",
        "no torque limit",
        "root",
        "imu",
        "keyframe",
        "all at once",
        "no file",
    ],
)
def test_what_is_wrong_is_said(tmp_path, cfg, words):
    with pytest.raises(RobotError) as caught:
        Robot.load(bare(tmp_path, **{k: v for k, v in cfg.items() if k != "xml"}).model_copy(update=cfg))
    for word in words:
        assert word in str(caught.value)
