"""The independent simulation: it finds what is wrong and names it, and agrees with the training's where nothing is."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from q1pipe.config import EvaluateCfg, RobotCfg, Sim2simCfg
from q1pipe.deploy.openloop import differences, replay
from q1pipe.deploy.run_policy import Controller
from q1pipe.deploy.sim2sim import Judge, Limits, close_loop, damped
from q1pipe.deploy.worlds import NOMINAL, Simulation, World, worlds
from q1pipe.errors import Q1Error
from q1pipe.motion.clip import from_poses
from q1pipe.robot import Robot, mjcf_path
from q1pipe.sim.env import TrackingEnv
from q1pipe.stages import sim2sim
from q1pipe.stages.episodes import play
from tests.clips import standing_clip
from tests.unit.deploy.conftest import EPISODES, SETTINGS, waving_clip

CFG = Sim2simCfg(episodes=2)


def mirrored(names):
    return [n.replace("left", "\0").replace("right", "left").replace("\0", "right") for n in names]


def found(robot, contract, controller, recording):
    table, _ = replay(robot, contract, controller, recording, 1)
    return [str(f) for f in differences(table, CFG, 1e-4, "policy.onnx")]


def test_recorded_steps_come_out_again(robot, exported):
    table, drift = replay(robot, exported.contract(), exported.controller(), exported.recording(), 1)
    assert {(row.what, row.term) for row in table} >= {
        ("state", "joint_vel"),
        ("step", "joint_vel"),
        ("action", "action"),
    }
    assert len(table) == 15
    assert max(row.largest for row in table) < 1e-5
    assert drift < 1e-9
    assert differences(table, CFG, 1e-4, "") == []


def test_two_terms_of_equal_size_swapped_are_named(robot, exported, tmp_path):
    """The metadata says joint velocities first, the network was trained with joint positions first."""
    layout = json.loads(exported.metadata()["observation_layout"])
    at = [t["name"] for t in layout].index("joint_pos")
    first, second = layout[at : at + 2]
    layout[at : at + 2] = [{**second, "start": first["start"]}, {**first, "start": second["start"]}]
    path = exported.changed(tmp_path / "policy.onnx", observation_layout=json.dumps(layout))
    contract, controller = sim2sim.load(path, exported.motion, robot)
    (line,) = found(robot, contract, controller, exported.recording())
    assert "ERROR [differs-state] policy.onnx: joint_vel" in line
    assert "it is what was recorded as joint_pos" in line
    assert "also joint_pos" in line


def test_velocity_turned_twice_is_named(robot, exported):
    class Twice(Controller):
        def observe(self, imu_quat, gyro, *rest):
            axis = imu_quat[..., 1:]
            turned = gyro + 2 * np.cross(axis, np.cross(axis, gyro) + imu_quat[..., :1] * gyro)
            return super().observe(imu_quat, turned, *rest)

    controller = Twice(str(exported.onnx), str(exported.motion))
    (line,) = found(robot, exported.contract(), controller, exported.recording())
    assert "base_ang_vel" in line
    assert "also" not in line


def test_actions_of_left_and_right_swapped_are_named(robot, exported, tmp_path):
    names = exported.contract().joint_names
    order = [names.index(n) for n in mirrored(names)]

    def change(model):
        for node in model.graph.node:
            if node.output[0] == "actions":
                node.output[0] = "unswapped"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(order), "order"))
        model.graph.node.append(onnx.helper.make_node("Gather", ["unswapped", "order"], ["actions"], axis=1))

    path = exported.changed(tmp_path / "policy.onnx", change)
    contract, controller = sim2sim.load(path, exported.motion, robot)
    (line,) = found(robot, contract, controller, exported.recording())
    assert "ERROR [differs-action]" in line
    assert "left and right are swapped" in line


def test_joint_names_of_left_and_right_swapped_are_named(robot, exported, tmp_path):
    """The arms' default pose tells at once. Both legs have the same numbers; what is observed tells."""
    names = exported.contract().joint_names
    path = exported.changed(tmp_path / "policy.onnx", joint_names=",".join(mirrored(names)))
    with pytest.raises(Q1Error, match="default_joint_pos — right_shoulder_roll_joint -0.2 .policy 0.2."):
        sim2sim.load(path, exported.motion, robot)
    swapped = [
        m if "shoulder" not in n and "elbow" not in n else n for n, m in zip(names, mirrored(names), strict=True)
    ]
    path = exported.changed(tmp_path / "policy.onnx", joint_names=",".join(swapped))
    contract, controller = sim2sim.load(path, exported.motion, robot)
    line = found(robot, contract, controller, exported.recording())[0]
    assert "ERROR [differs-state] policy.onnx: joint_pos" in line
    assert "left and right are swapped" in line


@pytest.mark.parametrize(
    ("old", "new", "joint"),
    [
        (
            'joint="left_ankle_roll_joint" class="strong"',
            'joint="left_ankle_roll_joint" kp="39.5" class="strong"',
            "left_ankle",
        ),
        ('<joint name="right_knee_joint"', '<joint name="right_knee_joint" armature="0.03"', "right_knee_joint"),
    ],
)
def test_other_physics_is_found_where_it_is(exported, tmp_path, old, new, joint):
    """Half the stiffness on one side; an armature that no metadata tells: same states look the same, steps do not."""
    text = mjcf_path(RobotCfg()).read_text()
    assert text.count(old) == 1
    (tmp_path / "q1.xml").write_text(text.replace(old, new))
    other = Robot.load(RobotCfg(xml=str(tmp_path / "q1.xml")))
    table, drift = replay(other, exported.contract(), exported.controller(), exported.recording(), 1)
    (finding,) = differences(table, CFG, 1e-4, "policy.onnx")
    assert finding.code == "differs-step"
    worst = max((row for row in table if row.term == "joint_vel"), key=lambda row: row.largest)
    assert joint in worst.at
    assert f"joint_vel {worst.largest:.2g} at {worst.at}" in str(finding)
    assert drift > 1e-5


def test_metadata_without_a_key_or_of_another_motion_stops_the_stage(robot, exported, tmp_path):
    path = exported.changed(tmp_path / "policy.onnx", anchor_body_name=None)
    with pytest.raises(Q1Error, match="no key anchor_body_name"):
        sim2sim.load(path, exported.motion, robot)
    standing_clip(robot, 61).save(tmp_path / "motion.npz")
    with pytest.raises(Q1Error, match="the policy follows another motion"):
        sim2sim.load(exported.onnx, tmp_path / "motion.npz", robot)


@pytest.fixture(scope="module")
def stand(robot):
    return waving_clip(robot)


@pytest.fixture(scope="module")
def judge(robot, stand):
    return Judge(robot, stand, Limits(SETTINGS["train"].termination, EvaluateCfg()))


def closed(exported, judge, group, counts, cfg=CFG, threads=1):
    recording = exported.recording()
    starts = recording["start_qpos"], recording["start_qvel"]
    return close_loop(judge, exported.contract(), exported.controller(), group, starts, counts, cfg, threads)


def test_nominal_episodes_are_those_of_evaluate(robot, stand, exported, judge):
    """Same starts, same metrics, other code: episode by episode."""
    (mine,) = closed(exported, judge, [World(NOMINAL)], [EPISODES])
    train = SETTINGS["train"].model_copy(update={"seed": SETTINGS["evaluate"].seed})
    env = TrackingEnv(robot, stand, train, np.arange(EPISODES), "nominal")
    theirs = play(exported.policy, env, stand, EvaluateCfg(), torch.device("cpu"))
    np.testing.assert_array_equal(mine.success, theirs.success)
    np.testing.assert_array_equal(mine.success & mine.held, theirs.finish)
    np.testing.assert_array_equal(mine.ep_len, theirs.ep_len)
    assert set(mine.means) == set(theirs.means)
    for name, values in mine.means.items():
        np.testing.assert_allclose(values, theirs.means[name], rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(mine.torque_peak, theirs.torque_peak, rtol=1e-3)
    assert mine.success.all()


def test_fall_ends_the_episode_with_its_cause(robot, stand, exported):
    """A reference that lies from frame 20 on: by height, as in evaluate; and one on its side: by tilt."""
    pos = stand.body_pos_w[:, robot.root - 1].astype(float).copy()
    pos[20:, 2] = 0.06
    quat = stand.body_quat_w[:, robot.root - 1].astype(float).copy()
    lying = from_poses(robot, 50, pos, quat, stand.joint_pos)
    quat[20:] = [np.cos(0.7), np.sin(0.7), 0, 0]
    turned = from_poses(robot, 50, stand.body_pos_w[:, robot.root - 1].astype(float), quat, stand.joint_pos)
    lenient = SETTINGS["train"].termination.model_copy(update={"anchor_z": 9.0, "body_z": {}})
    for clip, termination, cause in ((lying, SETTINGS["train"].termination, "anchor_z"), (turned, lenient, "tilt")):
        (outcome,) = closed(exported, Judge(robot, clip, Limits(termination, EvaluateCfg())), [World("x")], [2])
        assert outcome.ends == {cause: 2}
        np.testing.assert_array_equal(outcome.ep_len, 20)
        assert not outcome.success.any()


def test_body_on_the_floor_that_the_clip_has_not_there_is_no_finish(robot, stand, exported):
    hovering = replace(stand, body_pos_w=stand.body_pos_w + np.array([0, 0, 0.1], np.float32))
    lenient = SETTINGS["train"].termination.model_copy(update={"anchor_z": 9.0, "tilt": 9.0, "body_z": {}})
    anything = EvaluateCfg(hold_height=0, hold_tilt=180)
    for clip, holds in ((stand, True), (hovering, False)):
        (outcome,) = closed(exported, Judge(robot, clip, Limits(lenient, anything)), [World("x")], [2])
        assert outcome.success.all()
        assert outcome.held.all() == holds


def test_every_world_differs_from_the_nominal_one(exported, judge):
    cfg = CFG.model_copy(update={"push_interval": 0.4})
    every = worlds(cfg)
    assert len({w.name for w in every}) == len(every) == 17
    nominal, *others = (closed(exported, judge, [w], [2], cfg)[0] for w in every)
    for outcome in others:
        assert (outcome.means["mpkpe"] != nominal.means["mpkpe"]).all(), outcome.world


def test_worlds_in_one_batch_are_the_worlds_alone_and_threads_change_nothing(exported, judge):
    group = [World(NOMINAL), World("a", mass=1.1), World("b", friction=0.5, strength=0.9), World("c", delay=2, slope=3)]
    together = closed(exported, judge, group, [2] * 4, threads=2)
    for outcome in together[:3]:  # the direction of a slope is drawn for the whole batch
        (alone,) = closed(exported, judge, [outcome.world], [2])
        for name, values in outcome.means.items():
            np.testing.assert_allclose(values, alone.means[name], rtol=1e-4, atol=1e-6, err_msg=outcome.world.name)


def test_worlds_change_what_they_say(robot, exported):
    contract, model = exported.contract(), robot.model
    group = [World("a"), World("b", friction=0.4, mass=1.1, strength=0.85, slope=3)]
    simulation = Simulation(robot, contract, group, [1, 1], 1)
    floor, knee = robot.floor, robot.actuator_ids[3]
    one, other = simulation.batch.get_model(0), simulation.batch.get_model(1)
    assert one.geom_friction[floor, 0] == model.geom_friction[floor, 0]
    assert other.geom_friction[floor, 0] == 0.4
    assert other.geom_priority[floor] > other.geom_priority[robot.geoms].max()
    assert other.body_mass.sum() == pytest.approx(1.1 * model.body_mass.sum())
    np.testing.assert_allclose(other.body_inertia, 1.1 * model.body_inertia)
    assert other.actuator_gainprm[knee, 0] == pytest.approx(0.85 * model.actuator_gainprm[knee, 0])
    np.testing.assert_allclose(other.actuator_forcerange[knee], 0.85 * model.actuator_forcerange[knee])
    np.testing.assert_allclose(one.opt.gravity, model.opt.gravity)
    cosine = other.opt.gravity @ model.opt.gravity / np.square(model.opt.gravity).sum()
    assert np.degrees(np.arccos(cosine)) == pytest.approx(3)
    # upright to the floor is 3° off upright in the world
    qpos = np.tile(robot.qpos(np.array([0, 0, 1.0]), np.array([1.0, 0, 0, 0]), robot.default_joint_pos), (2, 1))
    state = simulation.start(qpos, np.zeros((2, model.nv)))
    lean = np.degrees(2 * np.arccos(np.clip(state.imu_quat[:, 0], -1, 1)))
    np.testing.assert_allclose(lean, [0, 3], atol=1e-6)
    fine = Simulation(robot, contract, [World("c", timestep=0.001, integrator="EULER")], [1], 1)
    assert (fine.substeps, fine.model.opt.timestep, fine.model.opt.integrator) == (20, 0.001, 0)


def test_delay_holds_the_measured_pose_until_the_first_action_arrives(exported, judge):
    (outcome,) = closed(exported, judge, [World(NOMINAL, delay=2)], [2])
    start = exported.recording()["start_qpos"][:2][:, judge.robot.qpos_adr]
    ctrl = outcome.trace["ctrl"]
    np.testing.assert_allclose(ctrl[:2], np.stack([start, start]), atol=1e-6)
    (prompt,) = closed(exported, judge, [World(NOMINAL)], [2])
    assert np.abs(prompt.trace["ctrl"][0] - start).max() > 1e-3
    assert np.abs(ctrl[2] - start).max() > 1e-3


def test_ramp_ends_at_the_target(robot, exported):
    ramped = Simulation(robot, exported.contract(), [World("r", timestep=0.001, ramp=True)], [1], 1)
    at = robot.default_joint_pos[None]
    qpos = robot.qpos(np.array([[0, 0, 1.0]]), np.array([[1.0, 0, 0, 0]]), at)
    ramped.start(qpos, np.zeros((1, robot.model.nv)))
    state = ramped.step(at + 0.2, at)
    np.testing.assert_allclose(ramped.ctrl[:, robot.actuator_ids], at + 0.2)
    held = Simulation(robot, exported.contract(), [World("h", timestep=0.001)], [1], 1)
    held.start(qpos, np.zeros((1, robot.model.nv)))
    assert (np.abs(state.joint_pos - at) < np.abs(held.step(at + 0.2, at).joint_pos - at)).all()  # it comes later


def test_last_command_damps(robot, exported):
    """Stiffness 0: the robot in the air keeps no pose; strong damping is slower than weak."""
    qpos = robot.qpos(np.array([[0, 0, 1.0]]), np.array([[1.0, 0, 0, 0]]), robot.default_joint_pos[None])
    qvel = np.zeros((1, robot.model.nv))
    weak, _ = damped(robot, exported.contract(), qpos, qvel, 0.5, 0.5, 1)
    strong, joint = damped(robot, exported.contract(), qpos, qvel, 50.0, 0.5, 1)
    assert 0 < strong < weak
    assert joint in robot.joint_names


@pytest.fixture(scope="module")
def ran(exported):
    names = ("policy.onnx", "recording.npz", "motion.npz", "sim2sim.json", "trajectory.npz")
    sim2sim.run(*(exported.folder / n for n in names), 1, SETTINGS)
    return json.loads((exported.folder / "sim2sim.json").read_text())


def test_stage_writes_worlds_gates_safety_and_a_trajectory(ran, exported, robot):
    assert list(ran["worlds"]) == [w.name for w in worlds(SETTINGS["sim2sim"])]
    assert ran["worlds"][NOMINAL]["episodes"] == EPISODES
    assert ran["worlds"]["mass +10%"]["episodes"] == 2
    assert ran["worlds"]["mass +10%"]["changed"] == {"mass": 1.1}
    names = [f"{w.name}.success_rate" for w in worlds(SETTINGS["sim2sim"])]
    assert [g["name"] for g in ran["gates"]] == ["open_loop.difference", *names]
    assert {g["allowed"] for g in ran["gates"]} == {"<= 1e-05", ">= 0.95", ">= 0.6"}
    assert ran["verdict"] == "pass"
    assert ran["safety"]["verdict"] == "pass"
    with np.load(exported.folder / "trajectory.npz") as data:
        steps = int(ran["worlds"][NOMINAL]["ep_len"])
        assert data["qpos"].shape == (steps, robot.model.nq)
        assert data["torque"].shape == data["ctrl"].shape == (steps, 22)
        feet = [data["body_names"].tolist().index(f"{s}_ankle_roll_link") for s in ("left", "right")]
        assert data["contact"][-1, feet].all()
        assert data["contact"][-1].sum() == 2
        weight = data["contact_force"][-1].sum()
        assert weight == pytest.approx(robot.weight, rel=0.1)
    assert ran["nominal_success"] == [True] * EPISODES


def test_other_versions_and_another_model_than_the_training_s_are_warnings(ran, robot, exported):
    """The small policy says that it was trained with version 0 of everything; onnxruntime trains nothing."""
    (finding,) = ran["findings"]
    assert (finding["level"], finding["code"], finding["where"]) == ("WARN", "versions", "sim2sim")
    here = ran["versions"]
    assert finding["found"].startswith(f"trained on mujoco 0, numpy 0, here mujoco {here['mujoco']}, numpy")
    assert sim2sim.other_robot(exported.contract(), robot) == []
    (other,) = sim2sim.other_robot(replace(exported.contract(), robot_sha="0" * 12), robot)
    assert other.code == "other-robot"
    assert robot.sha in other.found


def test_stage_stops_at_a_difference_and_says_so_in_its_record(exported, tmp_path):
    recording = exported.recording()
    recording["observation"][5, 60] += 0.1  # joint_pos of a hip
    np.savez(tmp_path / "recording.npz", **recording)
    with pytest.raises(Q1Error, match="differs-state.*policy.onnx: joint_pos — differs by 0.1 at .*_joint in step 5"):
        sim2sim.run(
            *(exported.onnx, tmp_path / "recording.npz", exported.motion, tmp_path / "s.json", tmp_path / "t.npz"),
            1,
            SETTINGS,
        )
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["verdict"] == "fail"
    assert record["findings"][0]["code"] == "differs-state"
    assert len(record["open_loop"]["rows"]) == 15


def test_failed_gate_is_a_verdict_and_not_a_crash(exported, tmp_path):
    settings = {**SETTINGS, "sim2sim": Sim2simCfg(episodes=1, min_success_worlds=1.0, push=5.0, push_interval=0.2)}
    names = ("policy.onnx", "recording.npz", "motion.npz")
    sim2sim.run(*(exported.folder / n for n in names), tmp_path / "s.json", tmp_path / "t.npz", 1, settings)
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["verdict"] == "fail"
    assert [g["name"] for g in record["gates"] if not g["passed"]] == ["pushes 5 m/s.success_rate"]
