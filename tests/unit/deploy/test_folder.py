"""The deploy folder: what it says is what the policy was trained with, and its controller needs nothing else."""

import ast
import csv
import io
import subprocess
import sys
import tokenize
import venv

import numpy as np
import pytest
import yaml

from q1pipe import rotations
from q1pipe.deploy import folder, run_policy


@pytest.fixture
def deploy(exported):
    return exported.folder / "deploy"


def test_all_files_are_there(deploy):
    assert sorted(p.name for p in deploy.iterdir()) == sorted(folder.FILES)


def test_rule_declares_all_files():
    text = (folder.Path(__file__).parents[3] / "workflow/rules/deploy.smk").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("DEPLOY_FILES"))
    assert tuple(line.split('"')[1].split()) == folder.FILES


def test_yaml_holds_the_numbers_of_the_training(deploy, robot, exported):
    content = yaml.safe_load((deploy / "deploy.yaml").read_text())
    assert list(content["joints"]) == list(robot.joint_names)
    for i, joint in enumerate(content["joints"].values()):
        assert joint == {
            "default": robot.default_joint_pos[i],
            "action_scale": robot.action_scale[i],
            "stiffness": robot.stiffness[i],
            "damping": robot.damping[i],
            "effort": robot.effort[i],
            "lower": robot.limits[i, 0],
            "upper": robot.limits[i, 1],
        }
    assert content["control_dt"] == 0.02
    assert [t["name"] for t in content["observation"]] == list(exported.contract().slices())
    assert content["imu_to_anchor"] == exported.contract().imu_to_anchor
    assert [step["joint"] for step in content["imu_to_anchor"] if "joint" in step] == [
        "waist_yaw_joint",
        "waist_roll_joint",
    ]
    assert content["command"]["end"] == {"stiffness": 0.0, "damping": 5.0}


def test_table_is_the_arrays(deploy):
    rows = list(csv.DictReader((deploy / "golden.csv").open(encoding="utf-8")))
    with np.load(deploy / "golden.npz") as golden:
        assert len(rows) == len(golden["action"]) == 20
        for row, observation, action in zip(rows, golden["observation"], golden["action"], strict=True):
            assert np.float32(row["action.left_knee_joint"]) == action[3]
            assert np.float32(row["observation.anchor_ori[2]"]) == observation[46]
        assert float(rows[0]["imu_quat.0"]) == golden["imu_quat"][0, 0]
        assert float(rows[3]["frame"]) == golden["frame"][3]


def check(folder, python=sys.executable):
    done = subprocess.run([python, "-B", "check.py"], cwd=folder, capture_output=True, text=True)
    said = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(said) == 3, done.stderr
    assert done.returncode == ("WRONG" in said)
    return said


def test_controller_checks_itself_and_notices(deploy, tmp_path):
    for path in deploy.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert check(tmp_path) == ["ok"] * 3
    golden = dict(np.load(tmp_path / "golden.npz"))
    golden["imu_quat"][0] = [1, 0, 0, 0]  # as if the IMU were read in another order
    golden["joint_pos"][0, 3] += 0.01
    np.savez(tmp_path / "golden.npz", **golden)
    assert check(tmp_path)[0] == "WRONG"


def test_controller_imports_nothing_of_ours():
    source = folder.Path(run_policy.__file__).read_text()
    tree = ast.parse(source)
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert names == {"json", "numpy", "onnxruntime"}
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {t.start[0] for t in tokens if t.type not in skipped}
    assert len(lines) - 1 <= 50  # without blanks and comments; the docstring is one token


def test_steps_are_observe_act_target_one_frame_ahead(exported):
    """One robot, no leading axis: the controller's own count of frames and last actions is that of the golden rows."""
    recording, robot = exported.recording(), exported.controller()
    np.testing.assert_array_equal(recording["frame"][:3], [0, 1, 2])
    with np.load(exported.folder / "deploy/golden.npz") as golden:
        first = {name: golden[name][0] for name in golden.files}  # the first step of the first episode
    measured = [first[name] for name in ("imu_quat", "gyro", "joint_pos", "joint_vel")]
    robot.last_action = robot.holding(first["joint_pos"])  # as `align` does, which would also turn the motion
    np.testing.assert_allclose(robot.last_action, first["last_action"], atol=1e-4)
    target = robot.step(*measured)
    assert robot.frame == first["frame"] == 1
    np.testing.assert_allclose(target, first["target"], atol=1e-5)
    np.testing.assert_allclose(robot.last_action, first["action"], atol=1e-4)
    again = robot.observe(*measured, 2, robot.last_action)
    np.testing.assert_allclose(again[-22:], first["action"], atol=1e-4)


def test_aligned_robot_sees_the_motion_where_it_faces(exported):
    """Turned by 2 rad about the vertical and aligned, it observes what it did before."""
    with np.load(exported.folder / "deploy/golden.npz") as golden:
        names = ("imu_quat", "gyro", "joint_pos", "joint_vel", "frame", "last_action")
        imu, *rest = (golden[name][0] for name in names)
    robot = exported.controller()
    leaning = [np.cos(0.5), 0, np.sin(0.5), 0]  # a reference that leans forward
    robot.anchor = np.tile(run_policy.matrix(leaning), (robot.frames, 1, 1))
    robot.align(imu, rest[1])
    straight = robot.observe(imu, *rest)
    turned = rotations.mul(np.array([np.cos(1), 0, 0, np.sin(1)]), imu)
    assert np.abs(robot.observe(turned, *rest) - straight).max() > 0.5
    robot.align(turned, rest[1])
    np.testing.assert_allclose(robot.observe(turned, *rest), straight, atol=1e-6)


@pytest.mark.slow
def test_controller_runs_where_only_numpy_and_onnxruntime_are(deploy, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy", "onnxruntime"], check=True)
    absent = subprocess.run([python, "-c", "import torch"], capture_output=True)
    assert absent.returncode != 0
    assert check(deploy, python) == ["ok"] * 3
