"""Reading, forward kinematics as judge, resampling: what is refused, what is repaired, what stays the same."""

import json
from dataclasses import replace

import numpy as np
import pytest

from q1pipe.config import MotionCfg, RobotCfg, TrainCfg
from q1pipe.errors import MotionError, Q1Error
from q1pipe.motion.clip import ARRAYS, Clip, from_poses
from q1pipe.motion.formats import RawMotion, read_npz
from q1pipe.motion.normalise import check_kinematics, check_limits, normalise
from q1pipe.robot import Robot
from q1pipe.stages import motion as stage
from tests.clips import base_clip, poses


@pytest.fixture(scope="module")
def robot():
    return Robot.load(RobotCfg())


@pytest.fixture(scope="module")
def clip(robot):
    return base_clip(robot)


def write(path, clip, without=(), **changed):
    arrays = {"fps": np.array([clip.fps]), **{k: getattr(clip, k) for k in ARRAYS}, **changed}
    np.savez(path, **{k: v for k, v in arrays.items() if k not in without})
    return path


def intake(path, robot, rate=50.0):
    raw, findings = read_npz(path, robot)
    check_kinematics(robot, raw, MotionCfg().max_body_error, path)
    return normalise(robot, raw, rate), findings


def refused(path, robot):
    with pytest.raises(MotionError) as caught:
        intake(path, robot)
    return str(caught.value)


def same(a, b, atol=1e-5):
    for name in ("joint_pos", "body_pos_w", "body_quat_w", "body_lin_vel_w"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=atol, err_msg=name)


def test_a_good_clip_stays_what_it_is(robot, clip, tmp_path):
    read, findings = intake(write(tmp_path / "a.npz", clip), robot)
    assert findings == []
    same(read, clip, 1e-4)


def test_saved_clip_loads_the_same(clip, tmp_path):
    clip.save(tmp_path / "a.npz")
    again = Clip.load(tmp_path / "a.npz")
    same(again, clip, 0)
    assert (again.fps, again.body_names) == (clip.fps, clip.body_names)


def test_world_row_is_dropped_with_a_warning(robot, clip, tmp_path):
    zero = np.zeros((clip.frames, 1, 3))
    unit = np.tile([1.0, 0, 0, 0], (clip.frames, 1, 1))
    changed = {
        "body_pos_w": np.concatenate([zero, clip.body_pos_w], axis=1),
        "body_quat_w": np.concatenate([unit, clip.body_quat_w], axis=1),
    }
    read, findings = intake(write(tmp_path / "a.npz", clip, **changed), robot)
    assert [(f.level, f.code) for f in findings] == [("WARN", "world-row")]
    same(read, clip, 1e-4)


def test_names_beat_positions(robot, clip, tmp_path):
    joints = np.random.default_rng(0).permutation(len(robot.joint_names))
    bodies = np.random.default_rng(1).permutation(len(robot.body_names))
    path = write(
        tmp_path / "a.npz",
        clip,
        joint_pos=clip.joint_pos[:, joints],
        joint_names=np.array(robot.joint_names)[joints],
        body_pos_w=clip.body_pos_w[:, bodies],
        body_quat_w=clip.body_quat_w[:, bodies],
        body_names=np.array(robot.body_names)[bodies],
    )
    same(intake(path, robot)[0], clip, 1e-4)


def breadth_first(robot):
    parents = robot.model.body_parentid[1:] - 1
    order, queue = [], [0]
    while queue:
        order.append(queue.pop(0))
        queue += [b for b in range(len(parents)) if parents[b] == order[-1] and b]
    return order


def test_forward_kinematics_sees_another_body_order(robot, clip, tmp_path):
    order = breadth_first(robot)
    text = refused(
        write(tmp_path / "a.npz", clip, body_pos_w=clip.body_pos_w[:, order], body_quat_w=clip.body_quat_w[:, order]),
        robot,
    )
    gap = np.linalg.norm(clip.body_pos_w - clip.body_pos_w[:, order], axis=-1).mean(axis=0)
    moved = (gap > MotionCfg().max_body_error).sum()  # a link may sit where its neighbour's origin is
    assert f"{moved} of {len(order)} bodies" in text
    assert "another order" in text


def test_forward_kinematics_sees_swapped_sides_and_quaternion_order(robot, clip, tmp_path):
    names = list(robot.joint_names)
    swapped = [names.index(n.replace("left", "#").replace("right", "left").replace("#", "right")) for n in names]
    assert "[kinematics]" in refused(write(tmp_path / "a.npz", clip, joint_pos=clip.joint_pos[:, swapped]), robot)
    xyzw = clip.body_quat_w[..., [1, 2, 3, 0]]
    assert "[kinematics]" in refused(write(tmp_path / "b.npz", clip, body_quat_w=xyzw), robot)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fps": np.array([0])}, ["[fps]", "0", "5 to 500"]),
        ({"fps": np.array([50, 60])}, ["[fps]", "[50, 60]"]),
        ({"fps": np.array("fast")}, ["[fps]", "fast"]),
        ({"fps": np.nan}, ["[fps]", "nan"]),
        ({"joint_pos": np.zeros((200, 29))}, ["[shape]", "(200, 29)", "22 joint columns"]),
        ({"body_quat_w": np.zeros((200, 23, 3))}, ["[shape]", "body_quat_w", "(200, 23, 3)"]),
        ({"joint_pos": np.zeros((199, 22))}, ["[frames]", "joint_pos 199", "body_pos_w 200"]),
        ({"joint_names": np.array([f"j{i}" for i in range(22)])}, ["[joint-names]", "left_hip_pitch_joint", "j0"]),
        ({"joint_pos": np.array([[0] * 22] * 199 + [[0] * 21], dtype=object)}, ["[object-array]", "joint_pos"]),
    ],
    ids=["fps 0", "two fps", "fps text", "fps nan", "29 joints", "quat of 3", "lengths", "names", "objects"],
)
def test_bad_arrays_are_named(robot, clip, tmp_path, changed, words):
    text = refused(write(tmp_path / "a.npz", clip, **changed), robot)
    for word in words:
        assert word in text


@pytest.mark.parametrize("fps", [50, np.array([50]), np.array([[50.0]]), np.float32(50), "50"])
def test_any_single_number_is_a_frame_rate(robot, clip, tmp_path, fps):
    raw, _ = read_npz(write(tmp_path / "a.npz", clip, fps=fps), robot)
    assert raw.fps == 50
    assert type(raw.fps) is float


def test_all_problems_in_one_go(robot, clip, tmp_path):
    joints = clip.joint_pos.copy()
    joints[50:53, 4] = np.nan
    text = refused(write(tmp_path / "a.npz", clip, joint_pos=joints, fps=-1, body_pos_w=np.zeros((200, 3))), robot)
    assert "NaN or infinite in 3 frames: 50, 51, 52" in text
    assert "[fps]" in text
    assert "[shape]" in text


def test_missing_keys_and_broken_containers(robot, clip, tmp_path):
    assert "lacks fps, body_quat_w" in refused(write(tmp_path / "a.npz", clip, ("fps", "body_quat_w")), robot)
    good = write(tmp_path / "b.npz", clip).read_bytes()
    for name, data, word in (
        ("cut.npz", good[:-200], "not an npz"),
        ("empty.npz", b"", "empty file"),
        ("lfs.npz", b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
    ):
        (tmp_path / name).write_bytes(data)
        assert word in refused(tmp_path / name, robot)


@pytest.mark.parametrize("fps", [30, 59.94, 120])
def test_other_rates_are_resampled_to_the_same_motion(robot, clip, fps):
    """BASE is smooth, so its samples at another rate, brought back to 50 Hz, are close to itself."""
    pos, quat, joints = poses(robot)
    t, fine = np.arange(int(199 / 50 * fps) + 1) / fps, np.arange(200) / 50
    pos, quat, joints = (np.stack([np.interp(t, fine, c) for c in x.T], axis=1) for x in (pos, quat, joints))
    source = from_poses(robot, fps, pos, quat / np.linalg.norm(quat, axis=1, keepdims=True), joints)
    got = normalise(robot, RawMotion(fps, source.joint_pos, source.body_pos_w, source.body_quat_w), 50)
    assert abs(got.seconds - source.seconds) <= 1 / 50
    np.testing.assert_allclose(got.joint_pos, clip.joint_pos[: got.frames], atol=0.02)
    np.testing.assert_allclose(got.body_pos_w, clip.body_pos_w[: got.frames], atol=0.02)


def test_joints_beyond_their_limits_are_named(robot, clip):
    joints = clip.joint_pos.copy()
    joints[10, 3] = robot.limits[3, 1] + 0.2
    (finding,) = check_limits(robot, replace(clip, joint_pos=joints), "x.npz")
    assert finding.level == "WARN"
    assert f"{robot.joint_names[3]} by 0.200 rad" in finding.found
    assert "joint range" in finding.found


SETTINGS = {"robot": RobotCfg(), "motion": MotionCfg(), "train": TrainCfg()}


def test_stage_writes_clip_and_record(robot, clip, tmp_path):
    source = write(tmp_path / "base.npz", clip)
    before = source.read_bytes()
    stage.run(source, tmp_path / "motion.npz", tmp_path / "motion.json", SETTINGS)
    record = json.loads((tmp_path / "motion.json").read_text())
    assert source.read_bytes() == before
    assert record["frames"] == 200
    assert len(record["followability"]["curves"]["support_gap"]) == 200
    assert [r["gain"] for r in record["replay"]] == [1.0, 2.0]
    same(Clip.load(tmp_path / "motion.npz"), clip, 1e-4)
    # BASE stands up by magic: its centre of mass is nowhere near what touches the floor
    assert {"support", "carried"} <= {f["code"] for f in record["findings"]}


def test_stage_refuses_and_still_says_why(robot, clip, tmp_path):
    source = write(tmp_path / "base.npz", clip, body_pos_w=clip.body_pos_w + 0.5 * np.arange(23)[:, None])
    with pytest.raises(Q1Error):
        stage.run(source, tmp_path / "motion.npz", tmp_path / "motion.json", SETTINGS)
    assert not (tmp_path / "motion.npz").exists()
    assert "kinematics" in (tmp_path / "motion.json").read_text()


def test_terminations_see_nothing_wrong_with_the_reference_itself(robot, clip):
    findings = stage.check_terminations(robot, clip, TrainCfg(), "x")
    assert not [f for f in findings if f.level == "ERROR"]


def test_a_termination_that_fires_on_the_reference_is_an_error(robot, clip):
    """A reference whose stored heights are not where its own root and joints are: every episode would end at once."""
    pos = clip.body_pos_w.copy()
    pos[100:, robot.body_names.index("left_knee_link"), 2] += 0.2
    findings = stage.check_terminations(robot, replace(clip, body_pos_w=pos), TrainCfg(), "x")
    (finding,) = [f for f in findings if f.level == "ERROR"]
    assert "body_z fires on the reference itself, from 100 of 200 frames: 100, 101" in finding.found
