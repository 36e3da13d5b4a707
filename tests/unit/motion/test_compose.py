"""Keyframes to clip: what the file may say, and what the drawing must hold."""

import numpy as np
import pytest
import yaml

from q1pipe.config import RobotCfg
from q1pipe.errors import MotionError, Q1Error
from q1pipe.motion.clip import Clip
from q1pipe.motion.compose import compose_file, joint_vector, read, sketch
from q1pipe.motion.followability import clip_qpos, touching_floor
from q1pipe.robot import Robot

STAND = {"hip_pitch": -0.2, "knee": 0.4, "ankle_pitch": -0.2, "shoulder_roll": 0.2}
KEYS = {
    "fps": 50,
    "keys": [
        {"t": 0.0, "joints": STAND},
        {"t": 1.0, "joints": {**STAND, "hip_pitch": -0.8, "knee": 1.6, "ankle_pitch": -0.8, "l_elbow": -1.0}},
        {"t": 1.5, "joints": STAND},
    ],
}


@pytest.fixture(scope="module")
def robot():
    return Robot.load(RobotCfg())


def written(tmp_path, content):
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_clip_passes_through_its_keys_and_stands_on_the_floor(robot, tmp_path):
    out = tmp_path / "squat.npz"
    findings = compose_file(written(tmp_path, KEYS), out, RobotCfg())
    assert [(f.level, f.code) for f in findings][:1] == [("INFO", "followability")]
    assert "support gap" in findings[0].found
    clip = Clip.load(out)
    assert (clip.frames, clip.fps, clip.joint_names) == (76, 50, robot.joint_names)
    knee, left, right = (
        robot.joint_names.index(n) for n in ("left_knee_joint", "left_elbow_joint", "right_elbow_joint")
    )
    np.testing.assert_allclose(clip.joint_pos[[0, 50, 75], knee], [0.4, 1.6, 0.4], atol=1e-6)
    np.testing.assert_allclose(clip.joint_pos[50, [left, right]], [-1, 0], atol=1e-6)
    # shape-preserving: nothing beyond the keys
    assert clip.joint_pos[:, knee].max() <= 1.6 + 1e-6
    feet = [robot.body_names.index(n) for n in ("left_ankle_roll_link", "right_ankle_roll_link")]
    assert touching_floor(robot, clip, 0.005)[:, feet].all()
    # planted feet stay: the pelvis moves, they do not
    assert np.ptp(clip.body_pos_w[:, feet, :2], axis=0).max() < 1e-3
    assert np.ptp(clip.body_pos_w[:, 0, 2]) > 0.05
    # velocities are the differences of the poses
    middle = (clip.body_pos_w[40] - clip.body_pos_w[38]) * 25
    np.testing.assert_allclose(clip.body_lin_vel_w[39], middle, atol=1e-4)


def test_root_turns_by_pitch_then_spin(robot, tmp_path):
    """On the back the body's x axis points up; spun by 180 degrees, down. The head stays at -x."""
    keys = [{"t": t, "pitch": -90, "spin": spin} for t, spin in ((0, 0), (0.5, 0), (1.5, 180), (2, 180))]
    qpos = sketch(robot, read(written(tmp_path, {"keys": keys})), "")
    clip = _clip(robot, qpos)
    torso = robot.anchor - 1
    for frame, up in ((0, 1), (-1, -1)):
        w, x, y, z = clip.body_quat_w[frame, torso]
        assert 2 * (x * z - w * y) == pytest.approx(up, abs=1e-6)  # z component of the body's x axis
        head = clip.body_pos_w[frame, robot.body_names.index("left_shoulder_pitch_link")] - clip.body_pos_w[frame, 0]
        assert head[0] < -0.2


def _clip(robot, qpos):
    from q1pipe.motion.compose import to_clip

    clip = to_clip(robot, 50, qpos)
    np.testing.assert_allclose(clip_qpos(robot, clip), qpos, atol=1e-6)
    return clip


def test_stems_mean_both_sides_and_mirror_roll_and_yaw(robot):
    q = joint_vector(robot, {"hip_roll": 0.3, "knee": 1.0, "waist_yaw": 0.5, "r_shoulder_yaw": 0.7}, "")
    value = dict(zip(robot.joint_names, q, strict=True))
    assert (value["left_hip_roll_joint"], value["right_hip_roll_joint"]) == (0.3, -0.3)
    assert (value["left_knee_joint"], value["right_knee_joint"]) == (1.0, 1.0)
    assert value["waist_yaw_joint"] == 0.5
    assert (value["left_shoulder_yaw_joint"], value["right_shoulder_yaw_joint"]) == (0, 0.7)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"keys": [{"t": 0}, {"t": 1, "joints": {"kneee": 1}}]}, ["keys.1.joints", "no joint 'kneee'", "mean knee?"]),
        (
            {"keys": [{"t": 0, "joints": {"wheel": 0, "l_kne": 0}}, {"t": 1, "joints": {"x": 1}}]},
            ["keys.0.joints — no joint 'wheel'", "no joint 'l_kne'", "left_knee?", "keys.1.joints — no joint 'x'"],
        ),
        ({"keys": [{"t": 0}, {"t": 2}, {"t": 1}]}, ["keys.2 at 1 s comes after keys.1 at 2 s", "sort the keys"]),
        ({"keys": [{"t": 0}, {"t": 0}]}, ["keys.1 at 0 s comes after keys.0 at 0 s"]),
        ({"keys": [{"t": 0.5}, {"t": 1}]}, ["keys.0.t", "the first key is at 0.5 s", "let the first key be at t: 0"]),
        ({"keys": [{"t": 0}, {"t": float("nan")}]}, ["keys.1.t — NaN", "finite number"]),
        ({"keys": [{"t": 0}, {"t": 1, "joints": {"knee": float("inf")}}]}, ["keys.1.joints.knee — Infinity"]),
        ({"keys": [{"t": 0}, {"t": 1, "pich": 3}], "fsp": 3}, ["keys.1.pich", "fsp"]),
        ({"keys": [{"t": 0}]}, ["keys", "at least 2"]),
        ({"fps": 0, "keys": [{"t": 0}, {"t": 1}]}, ["fps — 0", "greater than or equal to 5"]),
        ("just text", ["keys.yaml — str, 'just text'", "a mapping with fps and keys", "getUp.yaml shows"]),
        ([1, 2], ["keys.yaml — list, [1, 2]"]),
        (b"", ["keys.yaml — an empty file"]),
        (bytes(range(256)), ["keys.yaml — not text", "a YAML file in UTF-8"]),
        (b"keys: [{t: 0", ["keys.yaml", "a readable YAML file"]),
    ],
    ids=[
        *("joint", "all joints", "order", "twice", "no start", "nan", "inf", "unknown keys", "one key", "fps"),
        *("no mapping", "list", "empty", "binary", "half"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, content, words):
    path = written(tmp_path, content)
    if isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(MotionError) as caught:
        compose_file(path, tmp_path / "out.npz", RobotCfg())
    for word in words:
        assert word in str(caught.value)
    assert {f.code for f in caught.value.findings} == {"keyframes"}
    assert all(f.action for f in caught.value.findings)
    assert not (tmp_path / "out.npz").exists()


def test_where_it_cannot_be_written_is_said_first(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for out, words in {
        "folder.npz": ["[output]", "a folder", "name the file in it"],
        "there/out.npz": ["there is no folder", "mkdir -p"],
        "out.csv": ["ending .csv", "one of .npz"],
    }.items():
        with pytest.raises(Q1Error) as caught:
            compose_file(written(tmp_path, KEYS), tmp_path / out, RobotCfg())
        for word in words:
            assert word in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npz", "keys.yaml"]
