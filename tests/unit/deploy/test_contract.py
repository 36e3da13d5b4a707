"""The metadata: complete, exact, and what contradicts it is named."""

from dataclasses import fields, replace

import mujoco
import numpy as np
import pytest

from q1pipe.config import RobotCfg
from q1pipe.deploy.contract import Contract, chain, check
from q1pipe.deploy.sim2sim import widths
from q1pipe.errors import Q1Error
from q1pipe.robot import Robot, mjcf_path

KEYS = [f.name for f in fields(Contract)]
BEYONDMIMIC = (
    "run_path joint_names joint_stiffness joint_damping default_joint_pos command_names observation_names "
    "observation_history_lengths action_scale anchor_body_name body_names"
).split()


def said(contract, robot, inputs=119):
    return [str(f) for f in check(contract, robot, widths(robot), inputs, "policy.onnx")]


def test_numbers_come_back_to_the_last_digit(robot, exported):
    contract = exported.contract()
    for key, values in {
        "joint_stiffness": robot.stiffness,
        "joint_damping": robot.damping,
        "joint_effort_limits": robot.effort,
        "action_scale": robot.action_scale,
        "default_joint_pos": robot.default_joint_pos,
        "joint_lower_limits": robot.limits[:, 0],
    }.items():
        np.testing.assert_array_equal(getattr(contract, key), values, err_msg=key)
    assert (contract.control_dt, contract.sim_dt, contract.decimation) == (0.02, 0.005, 4)
    assert contract.metadata() == exported.metadata()


def test_beyondmimics_keys_are_there_under_its_names(exported):
    metadata = exported.metadata()
    assert set(BEYONDMIMIC) <= set(metadata)
    assert metadata["observation_names"] == "command,motion_anchor_ori_b,base_ang_vel,joint_pos,joint_vel,actions"
    assert metadata["observation_history_lengths"] == "1,1,1,1,1,1"
    assert metadata["anchor_body_name"] == "torso_link"
    assert len(metadata["joint_stiffness"].split(",")) == 22


@pytest.mark.parametrize("key", KEYS)
def test_removed_key_is_named(exported, key):
    metadata = exported.metadata()
    del metadata[key]
    with pytest.raises(Q1Error, match=f"metadata-missing.*no key {key} "):
        Contract.read(metadata, "policy.onnx")


def test_value_that_does_not_read_is_named(exported):
    with pytest.raises(Q1Error, match="policy.onnx: control_dt — 'soon'"):
        Contract.read({**exported.metadata(), "control_dt": "soon"}, "policy.onnx")


def test_policy_and_robot_of_one_run_agree(robot, exported):
    assert said(exported.contract(), robot) == []


def test_policy_of_another_variant_is_refused_with_what_is_missing(robot, exported):
    contract = exported.contract()
    layout = [*contract.observation_layout, {"name": "anchor_pos", "start": 119, "size": 3, "noise": 0, "history": 1}]
    (line,) = said(replace(contract, observation_layout=layout), robot, inputs=122)
    assert "policy expects 122 = [reference_joint_pos(22)," in line
    assert "here 119 of them can be built; missing anchor_pos(3)" in line


def test_layout_that_does_not_fill_the_input_or_has_gaps(robot, exported):
    contract = exported.contract()
    (line,) = said(replace(contract, observation_layout=contract.observation_layout[:-1]), robot)
    assert "the terms add up to 97" in line
    shifted = [{**t, "start": t["start"] + (t["name"] == "joint_vel")} for t in contract.observation_layout]
    (line,) = said(replace(contract, observation_layout=shifted), robot)
    assert "observation-start" in line


@pytest.fixture(scope="module")
def weak_left(tmp_path_factory):
    """The robot with the stiffness of the left ankle halved, in a copy of its MJCF."""
    path = tmp_path_factory.mktemp("robot") / "q1.xml"
    text = mjcf_path(RobotCfg()).read_text()
    for name in ("left_ankle_pitch_joint", "left_ankle_roll_joint"):
        old = f'<position name="{name}" joint="{name}" class="strong"/>'
        assert text.count(old) == 1
        text = text.replace(old, old.replace("/>", ' kp="39.478417605"/>'))
    path.write_text(text)
    return Robot.load(RobotCfg(xml=str(path)))


def test_stiffness_halved_on_one_side_is_named(weak_left, exported):
    lines = said(exported.contract(), weak_left)
    (line,) = (line for line in lines if "joint_stiffness" in line)
    assert "left_ankle_pitch_joint 39.4784 (policy 78.9568), left_ankle_roll_joint 39.4784 (policy 78.9568)" in line
    assert "right" not in line


def test_joints_that_do_not_match_are_named(robot, exported):
    contract = exported.contract()
    names = ("left_toe_joint", *contract.joint_names[1:])
    (line,) = said(replace(contract, joint_names=names), robot)
    assert "not in the model: left_toe_joint; not in the policy: left_hip_pitch_joint" in line
    (line,) = said(replace(contract, joint_stiffness=contract.joint_stiffness[:3]), robot)
    assert "3 numbers for 22 joints" in line


def test_known_action_means_a_known_target(robot, exported):
    contract = exported.contract()
    action, target = (np.array(contract.action_example[k]) for k in ("action", "target"))
    assert np.abs(action).max() == 1
    np.testing.assert_allclose(robot.default_joint_pos + robot.action_scale * action, target, atol=1e-12)
    target[3] += 0.1
    example = {"action": action.tolist(), "target": target.tolist()}
    (line,) = said(replace(contract, action_example=example), robot)
    assert contract.joint_names[3] in line
    assert "action_scale * action" in line


def test_chain_through_what_is_no_hinge_is_refused(robot):
    with pytest.raises(Q1Error, match="of pelvis is between them"):
        chain(robot.model, robot.model.site(robot.cfg.imu).id, 0)


@pytest.mark.parametrize("imu", ["pelvis", "left_shoulder_pitch_link"])
def test_chain_is_the_models_kinematics(robot, exported, imu):
    """From an IMU that sits askew on the root or on an arm, up and down to others: what MuJoCo computes."""
    spec = mujoco.MjSpec.from_file(str(mjcf_path(RobotCfg())))
    spec.body(imu).add_site(name="askew", quat=[0.5, 0.5, -0.5, 0.5])
    model, rng, controller = spec.compile(), np.random.default_rng(0), exported.controller()
    data, site = mujoco.MjData(model), model.site("askew").id
    for name in ("torso_link", "left_elbow_link", "pelvis", "right_knee_link"):
        data.qpos[3:7] = rng.normal(size=4)
        joints = rng.uniform(-1, 1, len(robot.joint_names))
        data.qpos[[model.joint(j).qposadr[0] for j in robot.joint_names]] = joints
        mujoco.mj_kinematics(model, data)
        seen = np.empty(4)
        mujoco.mju_mat2Quat(seen, data.site_xmat[site])
        controller.chain = chain(model, site, model.body(name).id)
        mine = controller.measured_anchor(seen, joints)
        np.testing.assert_allclose(mine, data.xmat[model.body(name).id].reshape(3, 3), atol=1e-12)


def test_an_imu_on_the_anchor_needs_no_chain(robot):
    assert chain(robot.model, robot.model.site(robot.cfg.imu).id, robot.root) == []
