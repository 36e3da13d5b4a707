"""The verdict: what counts as finishing, what the numbers are, and that a failed gate is a verdict and not a crash."""

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from q1pipe.config import EvaluateCfg, PolicyCfg, ResetCfg, RobotCfg, Sim2simCfg, TrainCfg
from q1pipe.errors import Q1Error
from q1pipe.learn import checkpoint
from q1pipe.learn.policy import Policy, Shape
from q1pipe.metrics import DEFINITIONS
from q1pipe.motion.clip import from_poses
from q1pipe.provenance import file_sha
from q1pipe.sim.env import TrackingEnv
from q1pipe.sim.observations import Layout
from q1pipe.sim.terminations import Cause
from q1pipe.stages import evaluate
from q1pipe.stages.episodes import play
from q1pipe.stages.versions import differing
from tests.clips import standing_clip

CPU = torch.device("cpu")
STILL = ResetCfg(
    xy=0, z=(0, 0), roll_pitch=0, yaw=0, joint=0, vel_xy=0, vel_z=0, vel_roll_pitch=0, vel_yaw=0
)  # what plain PD tracking survives
TRAIN = TrainCfg(num_envs=4, num_workers=1, reset=STILL)
CFG = EvaluateCfg(episodes=4)


@pytest.fixture(scope="module")
def stand(robot):
    return standing_clip(robot, 60)


@pytest.fixture(scope="module")
def policy(robot):
    """Untrained: the skip connection alone, which is plain PD tracking."""
    layout = Layout.of(robot)
    shape = Shape(layout.actor_dim, layout.critic_dim, len(robot.joint_names), layout.reference_joint_pos.start)
    torch.manual_seed(0)
    made = Policy(shape, PolicyCfg(hidden=(8,)), robot.default_joint_pos.tolist(), robot.action_scale.tolist())
    torch.nn.init.zeros_(made.net[-1].weight)
    return made.eval()


def played(robot, clip, policy, cfg=CFG, mode="nominal", train=TRAIN):
    return play(policy, TrackingEnv(robot, clip, train, np.arange(4), mode), clip, cfg, CPU)


def test_holding_a_stand_is_a_success_and_a_finish(robot, stand, policy):
    result = played(robot, stand, policy)
    summary = result.summary()
    assert (summary["success_rate"], summary["finish_rate"], summary["ep_len"]) == (1, 1, 59)
    assert summary["mean_rew"] > 4.5
    assert summary["mean_rew"] * summary["ep_len"] == pytest.approx(summary["ep_ret"], rel=1e-5)
    assert summary["r_mpkpe"] < 0.01
    # the same action in every step but the first, where the one before is 0 by definition
    assert summary["action_rate"] < 0.01
    assert 0 < summary["torque_use"] < summary["torque_peak"] < 0.5
    np.testing.assert_allclose(result.terms.sum(axis=1), result.ep_ret, rtol=1e-5)
    assert set(summary) == set(DEFINITIONS)


@pytest.mark.parametrize("strict", [{"hold_height": 1.0}, {"hold_tilt": 0.01}])
def test_height_and_tilt_decide_the_finish(robot, stand, policy, strict):
    """Under PD control the stand sags by a millimetre and leans by a tenth of a degree: too much for these limits."""
    result = played(robot, stand, policy, EvaluateCfg(**strict))
    assert result.success.all()
    assert not result.finish.any()


def test_a_body_on_the_floor_that_the_clip_has_not_there_is_no_finish(robot, stand, policy):
    """Height and tilt ask for nothing here; what is left is which bodies touch the floor."""
    lenient = TRAIN.model_copy(
        update={"termination": TRAIN.termination.model_copy(update={"anchor_z": 9, "tilt": 9, "body_z": {}})}
    )
    hovering = replace(stand, body_pos_w=stand.body_pos_w + np.array([0, 0, 0.1], np.float32))
    anything = EvaluateCfg(hold_height=0, hold_tilt=180)
    result = played(robot, hovering, policy, anything, train=lenient)  # dropped from 0.1 m, feet then on the floor
    assert result.success.all()
    assert not result.held.any()
    assert played(robot, stand, policy, anything, train=lenient).held.all()


def test_falling_ends_the_episode_and_its_numbers_there(robot, stand, policy):
    """A reference that lies on its back from frame 20 on: the standing robot is terminated at once, by height."""
    pos = stand.body_pos_w[:, robot.root - 1].astype(float).copy()
    pos[20:, 2] = 0.06
    fallen = from_poses(robot, 50, pos, stand.body_quat_w[:, robot.root - 1], stand.joint_pos)
    result = played(robot, fallen, policy)
    np.testing.assert_array_equal(result.cause, Cause.ANCHOR_Z)
    np.testing.assert_array_equal(result.ep_len, 20)
    assert result.summary()["success_rate"] == 0


def test_disturbed_episodes_differ_from_nominal_ones_and_repeat(robot, stand, policy):
    train = TrainCfg(num_envs=4, num_workers=1)
    torch.manual_seed(1)
    policy = Policy.from_record(policy.record())
    torch.nn.init.normal_(policy.net[-1].weight, std=0.01)  # else it would not look at what the noise is on
    env = TrackingEnv(robot, stand, train, np.arange(4), "disturbed")
    first, again = (play(policy, env, stand, CFG, CPU, noise_seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.ep_ret, again.ep_ret)
    other = play(policy, env, stand, CFG, CPU, noise_seed=4)
    assert (first.ep_ret != other.ep_ret).all()
    assert (first.ep_ret != played(robot, stand, policy, train=train).ep_ret).all()


def test_evaluation_leaves_the_normaliser_as_it_is(robot, stand, policy):
    """Bit for bit, after hundreds of observations."""
    before = {name: value.clone() for name, value in policy.state_dict().items() if isinstance(value, torch.Tensor)}
    count = policy.normalizer.count
    played(robot, stand, policy)
    after = policy.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert policy.normalizer.count == count


def test_gates_compare_the_right_numbers():
    summaries = {
        "nominal": {"success_rate": 0.96, "finish_rate": 0.94, "mean_rew": 4.0},
        "disturbed": {"success_rate": 0.0, "finish_rate": 0.8, "mean_rew": 0.0},
    }
    result = {g["name"]: (g["value"], g["passed"]) for g in evaluate.gates(EvaluateCfg(), summaries)}
    assert result == {
        "nominal.success_rate": (0.96, True),
        "nominal.finish_rate": (0.94, False),
        "disturbed.finish_rate": (0.8, True),
        "nominal.mean_rew": (4.0, True),
    }


@pytest.fixture
def folder(tmp_path: Path, robot, stand, policy):
    stand.save(tmp_path / "motion.npz")
    meta = {
        "fingerprint": "f" * 12,
        "motion_sha": file_sha(tmp_path / "motion.npz"),
        "robot_sha": robot.sha,
        "versions": {"torch": "0"},
        "device": "cpu",
    }
    judged = {"iteration": 3, "env_steps": 300, "wall_s": 1.5}
    checkpoint.save(tmp_path / "policy.pt", {"policy": policy.record(), "evaluation": judged, "meta": meta})
    (tmp_path / "train.json").write_text(json.dumps({"fingerprint": meta["fingerprint"]}))
    onnx = "1" * 12
    exported = {
        "parity": [{"file": "policy.onnx", "rows": "real", "largest": 2e-5}],
        "allowed": 1e-4,
        "hashes": {"policy.pt": file_sha(tmp_path / "policy.pt"), "policy.onnx": onnx},
    }
    rule = {"rule": "joint speed", "value": 3.0, "unit": "rad/s", "allowed": 20.0, "worst": "", "passed": True}
    simulated = {
        "verdict": "pass",
        "gates": [{"name": "nominal.success_rate", "value": 1.0, "allowed": ">= 0.95", "passed": True}],
        "nominal_success": [True] * 4,
        "worlds": {},
        "open_loop": {},
        "safety": {"verdict": "pass", "rules": [rule]},
        "hashes": {"policy.onnx": onnx},
        "findings": [],
    }
    (tmp_path / "export.json").write_text(json.dumps(exported))
    (tmp_path / "sim2sim.json").write_text(json.dumps(simulated))
    return tmp_path


def change(path, *keys, value):
    """Give a value in a JSON file another value."""
    record = inside = json.loads(path.read_text())
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    path.write_text(json.dumps(record))


def run(folder, train=TRAIN, threads=1, **cfg):
    evaluation = EvaluateCfg(episodes=4, **cfg)
    settings = {"robot": RobotCfg(), "train": train, "evaluate": evaluation, "sim2sim": Sim2simCfg()}
    names = ("policy.pt", "train.json", "motion.npz", "export.json", "sim2sim.json", "eval.json")
    evaluate.run(*(folder / name for name in names), threads, settings)
    return json.loads((folder / "eval.json").read_text())


def test_stage_writes_plain_numbers_and_a_verdict(folder):
    record = run(folder, min_finish_disturbed=0)
    assert record["verdict"] == "pass"
    assert {g["name"]: g["value"] for g in record["gates"][4:]} == {
        "parity.policy.onnx.real": 2e-5,
        "sim2sim.nominal.success_rate": 1.0,
        "sim2sim.nominal.gap_to_evaluate": 0.0,
        "safety.joint speed": 3.0,
    }
    assert [g["passed"] for g in record["gates"]] == [True] * 8
    assert record["nominal"]["finish_rate"] == 1
    assert record["nominal"]["ends"] == {**dict.fromkeys(record["nominal"]["ends"], 0), "motion_end": 4}
    assert record["policy"] == {"iteration": 3, "env_steps": 300, "wall_s": 1.5}
    assert record["hashes"]["motion"] == file_sha(folder / "motion.npz")
    described = set(record["definitions"])
    assert described <= set(record["nominal"])
    assert described <= set(record["disturbed"])


def test_failed_gate_is_a_verdict_and_not_a_crash(folder):
    record = run(folder, min_reward=5.1)
    assert record["verdict"] == "fail"
    assert {g["name"] for g in record["gates"] if not g["passed"]} >= {"nominal.mean_rew"}


@pytest.mark.parametrize(
    ("file", "keys", "value", "gate"),
    [
        ("export.json", ("parity", 0, "largest"), 2e-4, "parity.policy.onnx.real"),
        ("sim2sim.json", ("gates", 0, "passed"), False, "sim2sim.nominal.success_rate"),
        ("sim2sim.json", ("nominal_success",), [True, True, True, False], "sim2sim.nominal.gap_to_evaluate"),
        ("sim2sim.json", ("safety", "rules", 0, "passed"), False, "safety.joint speed"),
    ],
)
def test_what_export_sim2sim_and_safety_found_is_in_the_verdict(folder, file, keys, value, gate):
    change(folder / file, *keys, value=value)
    record = run(folder, min_finish_disturbed=0)
    assert record["verdict"] == "fail"
    assert [g["name"] for g in record["gates"] if not g["passed"]] == [gate]


def test_number_that_was_not_finite_is_no_crash(folder):
    change(folder / "sim2sim.json", "safety", "rules", 0, "value", value=None)
    change(folder / "sim2sim.json", "safety", "rules", 0, "passed", value=False)
    assert run(folder)["verdict"] == "fail"


@pytest.mark.parametrize(
    ("file", "key", "said"),
    [("export.json", "policy.pt", "another policy.pt"), ("sim2sim.json", "policy.onnx", "another policy.onnx")],
)
def test_export_and_sim2sim_of_another_policy_are_refused(folder, file, key, said):
    change(folder / file, "hashes", key, value="0" * 12)
    with pytest.raises(Q1Error, match=said):
        run(folder)


def test_other_versions_than_the_training_s_are_a_warning(folder, caplog):
    doubt = {"level": "WARN", "code": "versions", "where": "sim2sim", "found": "…", "allowed": "", "action": ""}
    change(folder / "sim2sim.json", "findings", value=[doubt])
    mine, theirs = run(folder)["findings"]
    assert theirs == doubt
    assert (mine["level"], mine["code"], mine["where"]) == ("WARN", "versions", "evaluate")
    assert mine["found"] == f"trained on torch 0, here torch {version('torch')}: results may differ"
    assert "WARN [versions] evaluate — trained on torch 0" in caplog.text


def test_only_versions_that_both_know_are_compared():
    here = {"torch": "2.7.1", "mujoco": "4.0.0", "numpy": "2.0.0"}
    assert differing({"torch": "2.7.1", "onnx": "1"}, here, "evaluate") == []
    (finding,) = differing({"torch": "2.8.0", "mujoco": "3.17.0", "numpy": "2.0.0"}, here, "evaluate")
    assert "trained on torch 2.8.0, mujoco 3.17.0, here torch 2.7.1, mujoco 4.0.0" in finding.found


def test_threads_change_nothing(folder):
    assert run(folder, threads=1) == run(folder, threads=2)


def test_files_of_different_runs_are_refused(folder):
    (folder / "train.json").write_text(json.dumps({"fingerprint": "0" * 12}))
    with pytest.raises(Q1Error, match="fingerprint of the policy is f{12}, here it is 0{12}"):
        run(folder)
