"""Any humanoid: the `robot:` section alone makes the Unitree G1 that the mjlab package ships work, up to training."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from q1pipe.config import load_settings
from q1pipe.robot import Robot
from q1pipe.stages import device, motion, smoke, train
from tests.clips import base_clip
from tests.corruptions import arrays_of, breadth_first, breadth_first_joints, columns, rows
from tests.unit.motion.conftest import same

SIDES = ("left", "right")
ENDS = [f"{side}_{part}_link" for part in ("ankle_roll", "wrist_yaw") for side in SIDES]
TRACKED = ["pelvis", "torso_link"] + [
    f"{side}_{part}_link"
    for part in ("hip_roll", "knee", "ankle_roll", "shoulder_roll", "elbow", "wrist_yaw")
    for side in SIDES
]
ROBOT = {
    "tracked": TRACKED,
    "end_effectors": ENDS,
    "feet": ENDS[:2],
    "imu": "imu_in_pelvis",
    # from mjlab's g1_constants.py: the model itself has neither torque limits nor armature
    "effort": {"*_hip_roll_*": 139, "*_knee_*": 139, "*_hip_*": 88, "waist_yaw_*": 88, "*_wrist_[py]*": 5, "*": 25},
    "armature": {"*_hip_roll_*": 0.025, "*_knee_*": 0.025, "*_hip_*": 0.0102, "waist_yaw_*": 0.0102, "*": 0.0036},
}
SMALL = {"num_envs": 16, "num_workers": 2, "max_iterations": 2, "save_interval": 1, "best_episodes": 4}


@pytest.fixture(scope="module")
def xml(tmp_path_factory):
    """The model out of the wheel; nothing of mjlab is installed or run."""
    folder = tmp_path_factory.mktemp("g1")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "mjlab"]
    if subprocess.run(command, capture_output=True, timeout=300).returncode:
        pytest.skip("pip cannot fetch mjlab here")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if "/unitree_g1/xmls/" in n]
        archive.extractall(folder, names)
    (path,) = folder.rglob("g1.xml")
    return path


@pytest.mark.slow
def test_check_smoke_and_two_iterations(xml, tmp_path):
    termination = {"body_z": {**dict.fromkeys(ENDS, 0.25), **{f"{s}_elbow_link": None for s in SIDES}}}
    sections = {
        "robot": {**ROBOT, "xml": str(xml)},
        "motion": {},
        "device": {"device": "cpu"},
        "smoke": {"num_envs": 16, "iterations": 2},
        "train": {**SMALL, "policy": {"hidden": [32]}, "termination": termination},
    }
    settings = load_settings(json.dumps(sections))
    robot = Robot.load(settings["robot"])
    assert len(robot.joint_names) == 29
    base = base_clip(robot)
    # as Isaac would write it: bodies and joints breadth-first
    spoiled = columns(rows(arrays_of(base), breadth_first(robot)), breadth_first_joints(robot))
    np.savez(tmp_path / "base.npz", **spoiled)

    made = {name: tmp_path / name for name in ("motion.npz", "motion.json", "device.json", "smoke.json", "train.json")}
    motion.run(tmp_path / "base.npz", made["motion.npz"], made["motion.json"], settings)
    codes = {f["code"] for f in json.loads(made["motion.json"].read_text())["findings"]}
    assert {"body-order", "joint-order"} <= codes
    same(motion.Clip.load(made["motion.npz"]), base)
    device.run(made["device.json"], settings)
    smoke.run(made["motion.npz"], made["motion.json"], made["device.json"], made["smoke.json"], 2, settings)
    assert json.loads(made["smoke.json"].read_text())["iterations"] == 2
    train.run(
        made["motion.npz"],
        made["device.json"],
        made["smoke.json"],
        tmp_path / "runs",
        tmp_path / "policy.pt",
        tmp_path / "train.csv",
        made["train.json"],
        2,
        2,
        settings,
    )
    assert len((tmp_path / "train.csv").read_text().splitlines()) == 3
    assert (tmp_path / "policy.pt").stat().st_size
