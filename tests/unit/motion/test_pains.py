"""What people suffer from with motion files, one test a kind: reproduced on BASE, with the numbers of the answer.

A19, long clips, is in test_stage.py, sim/test_sampler.py and sim/test_workers.py; A20, no motion but the one that was
asked for, in workflow/test_names_and_errors.py and workflow/test_sources.py.
"""

import io
import os
import pickle
import re
import zipfile

import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.config import MotionCfg, TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.motion.followability import followability
from q1pipe.motion.intake import take_in
from q1pipe.stages.motion import check_terminations
from tests.clips import base_clip, standing_clip
from tests.corruptions import (
    arrays_of,
    body_frame,
    breadth_first,
    breadth_first_joints,
    changed,
    columns,
    moved,
    negated,
    other_side,
    rows,
    with_world,
    y_up,
)
from tests.unit.motion.conftest import lines, same

# --- A1: order of bodies


def test_breadth_first_bodies_are_put_in_model_order(intake, arrays, base, robot):
    order = breadth_first(robot)
    assert order[0] == 0
    assert sum(k != b for k, b in enumerate(order)) == 19
    taken = intake(rows(arrays, order))
    same(taken.clip, base)
    (line,) = lines(taken, "body-order")
    assert line.startswith("WARN [body-order]")
    assert "bodies are in breadth-first (Isaac/PhysX) order, 19 of 23 rows moved" in line


def test_a_file_from_isaac_with_joints_breadth_first_too(intake, arrays, base, robot):
    taken = intake(columns(rows(arrays, breadth_first(robot)), breadth_first_joints(robot)))
    same(taken.clip, base)
    assert "columns are in breadth-first (Isaac/PhysX) order, 19 of 22 moved" in lines(taken, "joint-order")[0]
    assert len(lines(taken, "body-order")) == 1


def test_bodies_in_no_known_order_are_matched(intake, arrays, base):
    order = np.random.default_rng(0).permutation(23)
    taken = intake(rows(arrays, order))
    same(taken.clip, base)
    assert f"bodies are in another order, {(order != np.arange(23)).sum()} of 23 rows moved" in str(taken.findings[0])


def test_bodies_that_are_nowhere_near_are_named_in_metres(refused, arrays, robot):
    pos = arrays["body_pos_w"].copy()
    for n, row in enumerate((5, 9, 12, 17, 20, 22)):
        pos[:, row, 0] += 0.1 * (n + 1)
    text = refused({**arrays, "body_pos_w": pos})
    worst = [robot.body_names[b] for b in (22, 20, 17, 12, 9)]
    assert "[kinematics]" in text
    expected = ", ".join(f"{name} {0.6 - 0.1 * n:.3f} m" for n, name in enumerate(worst))
    assert f"6 of 23 bodies are not where root and joints put them: {expected}" in text


# --- A2: a row too many, rows too few


def test_world_row_is_dropped(intake, arrays, base):
    taken = intake(with_world(arrays))
    same(taken.clip, base)
    assert "row 0 is the world, at the origin; dropped" in lines(taken, "world-row")[0]


def test_missing_row_is_rebuilt(intake, arrays, base):
    taken = intake(rows(arrays, np.delete(np.arange(23), -4)))
    same(taken.clip, base)
    assert "22 body rows, robot has 23; rebuilt by forward kinematics" in lines(taken, "body-rows")[0]


def test_a_row_too_many_that_is_not_the_world_is_left_out(intake, arrays, base):
    taken = intake(rows(arrays, [*range(23), 7]))
    same(taken.clip, base)
    assert "24 body rows, robot has 23" in lines(taken, "body-rows")[0]


# --- A3: quaternion order


def test_xyzw_bodies(intake, arrays, base):
    wrong = arrays["body_quat_w"][..., [1, 2, 3, 0]]
    angles = rotations.angle_between(wrong, arrays["body_quat_w"])
    assert np.degrees(angles.mean(axis=1)).min() > 90  # it is not a small thing
    taken = intake({**arrays, "body_quat_w": wrong})
    same(taken.clip, base)
    assert "quaternions are x, y, z, w" in lines(taken, "quaternion-order")[0]


def csv(path, clip, order=(1, 2, 3, 0), joints=1.0, root=1.0, header=""):
    table = [clip.body_pos_w[:, 0] * root, clip.body_quat_w[:, 0][:, order], clip.joint_pos * joints]
    text = "\n".join(",".join(f"{v:.9g}" for v in row) for row in np.concatenate(table, axis=1))
    path.write_text(header + text + "\n")
    return path


def test_csv_in_wxyz_is_doubted_and_read_when_told(intake, refused, base, tmp_path):
    right = intake(csv(tmp_path / "a.csv", base), fps=50)
    same(right.clip, base)
    assert lines(right, "quaternion-order") == []
    path = csv(tmp_path / "b.csv", base, order=(0, 1, 2, 3))
    text = refused(path, fps=50)  # read so, it is also deep in the floor
    # w, x, y, z of an upright root read as x, y, z, w: upside down, but for its turn of 0.4 rad
    assert "read as xyzw, the root is tilted by 157° in the last second; as wxyz, by 0°" in text
    assert "set motions.b.motion.csv_quat: wxyz" in text
    told = intake(path, fps=50, csv_quat="wxyz")
    same(told.clip, base)
    assert lines(told, "quaternion-order") == []


# --- A4: names of keys


def test_other_names_and_unknown_keys(intake, arrays, base, robot):
    renamed = {**arrays, "dof_pos": arrays["joint_pos"], "framerate": arrays["fps"]}
    del renamed["joint_pos"], renamed["fps"]
    taken = intake({**renamed, "joint_names": np.array(robot.joint_names), "foo": np.zeros(3)})
    same(taken.clip, base)
    assert lines(taken, "keys") == [f"INFO [keys] {taken.findings[0].where} — not used: foo"]


def test_what_is_missing_and_what_may_be_meant(refused, arrays):
    del arrays["joint_pos"]
    text = refused({**arrays, "join_poss": np.zeros((200, 22))})
    assert "lacks joint_pos" in text
    assert "has fps, joint_vel, body_pos_w, body_quat_w, body_lin_vel_w, body_ang_vel_w, join_poss" in text
    assert "is join_poss meant as joint_pos?" in text
    human = {"trans": np.zeros((9, 3)), "poses": np.zeros((9, 156)), "mocap_framerate": 120.0}
    assert "a human's motion (SMPL: poses, trans)" in refused(human)


def test_names_beat_positions(intake, arrays, base, robot):
    joints, bodies = (np.random.default_rng(n).permutation(n) for n in (22, 23))
    a = rows(columns(arrays, joints), bodies)
    names = {"joint_names": np.array(robot.joint_names)[joints], "body_names": np.array(robot.body_names)[bodies]}
    taken = intake({**a, **names})
    same(taken.clip, base)
    assert [f.code for f in taken.findings if f.code != "limits"] == []


# --- A5: frame rate


@pytest.mark.parametrize("fps", [50, np.array([50]), np.array([[50.0]]), np.float32(50), "50", np.array(["50"])])
def test_any_single_number_is_a_frame_rate(intake, arrays, base, fps):
    taken = intake({**arrays, "fps": fps})
    same(taken.clip, base)
    assert type(taken.fps) is float
    assert taken.fps == 50


@pytest.mark.parametrize(
    ("fps", "said"), [(0, "0"), (-50, "-50"), (np.nan, "nan"), ([50, 50], "[50, 50]"), (501, "501"), ("fast", "'fast'")]
)
def test_no_frame_rate(refused, arrays, fps, said):
    text = refused({**arrays, "fps": fps})
    assert f"wave.npz: fps — {said} — one number, 5 to 500" in text


def test_missing_frame_rate_is_never_guessed(intake, refused, arrays, base):
    del arrays["fps"]
    text = refused(arrays)
    assert "no fps" in text
    assert "set motions.wave.motion.fps: 30" in text
    same(intake(arrays, fps=50).clip, base)


# --- A6: rates and lengths


def test_velocities_tell_a_wrong_rate(intake, refused, arrays, base):
    wrong = {**arrays, "fps": 30}
    text = refused(wrong)
    assert "velocities imply 50.0 fps, file says 30" in text
    assert "here 1.667" in text
    assert "set motions.wave.motion.trust: velocity, or trust: fps" in text
    same(intake(wrong, trust="velocity").clip, base)
    slow = intake(wrong, trust="fps")
    assert slow.fps == 30
    assert slow.clip.seconds == pytest.approx(199 / 30, abs=0.02)


def test_arrays_of_other_lengths(intake, refused, arrays, base):
    shorter = {**arrays, **{k: arrays[k][:-1] for k in arrays if k.startswith("body")}}
    taken = intake(shorter)
    assert taken.clip.frames == 199
    same(taken.clip, base)
    assert "cut to 199" in lines(taken, "frames")[0]
    text = refused({**arrays, "body_pos_w": arrays["body_pos_w"][:-2]})
    assert "joint_pos 200" in text
    assert "body_pos_w 198" in text


@pytest.mark.parametrize("rate", [120, 59.94])
def test_any_rate_is_resampled(intake, base, robot, tmp_path, rate):
    """BASE is smooth: sampled at another rate and brought back, it is close to itself."""
    t, fine = np.arange(int(199 / 50 * rate) + 1) / rate, np.arange(200) / 50
    quat = base.body_quat_w[:, 0].astype(float)
    table = np.concatenate([base.body_pos_w[:, 0], quat[:, [1, 2, 3, 0]], base.joint_pos], axis=1)
    sampled = np.stack([np.interp(t, fine, column) for column in table.T], axis=1)
    np.savetxt(tmp_path / "wave.csv", sampled, delimiter=",")
    taken = intake(tmp_path / "wave.csv", fps=rate)
    assert abs(taken.clip.seconds - (len(t) - 1) / rate) <= 1 / 50
    np.testing.assert_allclose(taken.clip.body_pos_w, base.body_pos_w[: taken.clip.frames], atol=0.01)
    # velocities belong to the new frames: central differences of the clip itself
    np.testing.assert_allclose(
        taken.clip.joint_vel[5], (taken.clip.joint_pos[6] - taken.clip.joint_pos[4]) * 25, atol=1e-4
    )


# --- A7: another robot


def test_other_numbers_of_joints(refused, arrays):
    text = refused({**arrays, "joint_pos": np.zeros((200, 29)), "joint_vel": np.zeros((200, 29))})
    assert "29 columns, primebot_q1 has 22" in text
    assert "29 joints: Unitree G1?" in text
    assert "21 columns, primebot_q1 has 22" in refused({**arrays, "joint_pos": arrays["joint_pos"][:, 1:]})


def test_surplus_joints_are_dropped_only_when_config_says_so(intake, refused, arrays, base, robot):
    names = ["left_wrist_joint", *robot.joint_names, "right_wrist_joint"]
    wide = {key: np.pad(arrays[key], ((0, 0), (1, 1))) for key in ("joint_pos", "joint_vel")}
    a = {**arrays, **wide, "joint_names": np.array(names)}
    text = refused(a)
    assert "lacks none; has besides left_wrist_joint, right_wrist_joint" in text
    assert "set motions.wave.motion.drop_joints: [left_wrist_joint, right_wrist_joint]" in text
    same(intake(a, drop_joints=("left_wrist_joint", "right_wrist_joint")).clip, base)
    del a["joint_names"]
    same(intake(a, drop_joints=("0", "23")).clip, base)


def test_missing_joints_are_named(refused, arrays, robot):
    names = [n.replace("left_knee", "left_wheel") for n in robot.joint_names]
    text = refused({**arrays, "joint_names": np.array(names)})
    assert "lacks left_knee_joint; has besides left_wheel_joint" in text


def test_22_joints_of_another_robot(refused, arrays):
    joints = arrays["joint_pos"][:, np.random.default_rng(3).permutation(22)]
    assert "[kinematics]" in refused({**arrays, "joint_pos": joints})


# --- A8: containers


def zipped(*names):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return content.getvalue()


def test_wrong_containers_have_messages_of_their_own(refused, intake, arrays, base, tmp_path):
    np.savez(tmp_path / "good.npz", **arrays)
    good = (tmp_path / "good.npz").read_bytes()
    np.save(tmp_path / "one.npy", arrays, allow_pickle=True)
    cases = {
        "lfs.npz": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "git lfs pull"),
        "cut.npz": (good[:-200], f"truncated zip ({len(good) - 200} bytes)"),
        "empty.npz": (b"", "empty file (0 bytes)"),
        "dict.npz": ((tmp_path / "one.npy").read_bytes(), "an .npy: one array"),
        "h5.npz": (b"\x89HDF\r\n", "an HDF5 file"),
        "noise.csv": (bytes(range(128, 256)) * 9, "not a motion"),
        "dance.bvh": (b"HIERARCHY\nROOT Hips\n{\n", "a BVH: the motion of a skeleton"),
        "spin.txt": (b'{"Loop": "wrap",\n"Frames": [[0, 1]]}\n', "JSON"),
        "torch.pt": (zipped("archive/data.pkl", "archive/version"), "without arrays (PyTorch, Excel?): it holds arch"),
    }
    for name, (content, said) in cases.items():
        (tmp_path / name).write_bytes(content)
        assert said in refused(tmp_path / name), name
    (tmp_path / "good.npy").write_bytes(good)
    taken = intake(tmp_path / "good.npy")
    same(taken.clip, base)
    assert "the content is npz, the name says .npy" in lines(taken, "extension")[0]
    table = csv(tmp_path / "table.npz", base)
    assert "the content is CSV, the name says .npz" in lines(intake(table, fps=50), "extension")[0]


# --- A9: pickles


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_pickles_run_nothing(refused, intake, arrays, base, tmp_path):
    folder = tmp_path / "made"
    ragged = np.array([[0] * 22] * 7 + [[0] * 21], dtype=object)
    text = refused({**arrays, "joint_pos": ragged})
    assert "joint_pos — is an object array (ragged or pickled)" in text
    assert "re-save as float32" in text
    assert "object array" in refused({**arrays, "joint_pos": np.array([Bomb(folder)], dtype=object)})
    taken = intake({**arrays, "extra": np.array([Bomb(folder)], dtype=object)})
    same(taken.clip, base)
    assert "extra — is an object array (ragged or pickled) — skipped" in lines(taken, "object-array")[0]
    for protocol in range(6):
        (tmp_path / "x.pkl").write_bytes(pickle.dumps({"fps": Bomb(folder)}, protocol))
        text = refused(tmp_path / "x.pkl")
        if protocol >= 2:
            assert f"a pickle that calls {os.mkdir.__module__}.mkdir; nothing of it was run" in text
    assert not folder.exists()


# --- A10: jumps


def test_a_jump_that_lasts(intake, refused, arrays, base):
    jump = moved(arrays, [0.5, 0, 0], slice(120, None))
    text = refused(jump)
    assert "pelvis jumps by 0.5" in text
    assert "from frame 119 to 120, 25." in text
    assert "set motions.wave.motion.frames: [0, 119]" in text
    part = intake(jump, frames=(0, 119))
    assert part.clip.frames == 120
    np.testing.assert_allclose(part.clip.body_pos_w, base.body_pos_w[:120], atol=1e-5)


def test_jumps_that_are_allowed_are_kept_and_no_velocity_crosses_them(intake, arrays, base, robot, tmp_path):
    jumps = moved(moved(arrays, [0.5, 0, 0], slice(120, None)), [0, 0.4, 0], slice(160, None))
    taken = intake(jumps, allow_jumps=True)
    (line,) = lines(taken, "jump")
    assert line.startswith("WARN [jump]")
    assert "and 1 more: after frame 119, 159" in line
    assert "kept; no episode crosses it" in line
    clip = taken.clip
    assert clip.jumps == (119, 159)
    np.testing.assert_allclose(clip.body_pos_w, jumps["body_pos_w"], atol=1e-5)
    # as fast as BASE; 25 m/s where the jump counted
    assert np.abs(clip.body_lin_vel_w - base.body_lin_vel_w).max() < 0.2
    one_sided = (clip.body_pos_w[119] - clip.body_pos_w[118]) * 50
    np.testing.assert_allclose(clip.body_lin_vel_w[119], one_sided, atol=1e-3)
    clip.save(tmp_path / "a.npz")
    again = Clip.load(tmp_path / "a.npz")
    assert again.jumps == clip.jumps
    assert (again.opening().frames, again.opening().jumps) == (120, ())
    with np.load(tmp_path / "a.npz") as data:  # and it stays a file for everyone
        assert data["jumps"].tolist() == [119, 159]
    # neither inverse dynamics nor the speed of the centre of mass see an acceleration of 1250 m/s²
    curves, plain = (followability(robot, c, 0.01) for c in (clip, base))
    assert np.abs(curves.carried - plain.carried).max() < 2
    assert np.abs(curves.com_speed - plain.com_speed).max() < 0.2


def test_time_is_changed_in_each_part_of_a_clip_that_jumps(intake, arrays):
    """0 to 119 and 120 to 199, at twice the speed, after a second of lead-in."""
    jump = moved(arrays, [0.5, 0, 0], slice(120, None))
    clip = intake(jump, allow_jumps=True, speed=2, lead_in=1, hold_out=0.5, mirror=True).clip
    assert clip.jumps == (50 + 59,)
    assert clip.frames == 50 + 60 + 40 + 25
    assert np.abs(clip.body_lin_vel_w).max() < 10


def test_a_part_between_jumps_needs_two_frames(refused, arrays):
    jumps = moved(moved(arrays, [0.5, 0, 0], slice(120, None)), [0, 0.5, 0], slice(123, None))
    assert "1 frame between jumps at 50 Hz" in refused(jumps, allow_jumps=True, speed=4)


def test_a_frame_that_is_elsewhere(intake, arrays, base):
    taken = intake(moved(arrays, [0.5, 0, 0], 60))
    (line,) = lines(taken, "outlier")
    assert "pelvis jumps away and back at 25." in line
    assert "in frame 60" in line
    same(taken.clip, base, metres=2e-3)


# --- A11: numbers that are none


def test_gaps(intake, refused, arrays, base):
    taken = intake(changed(arrays, "joint_pos", (slice(50, 53), 4), np.nan))
    same(taken.clip, base, 1e-4, 1e-3)
    assert "in 3 frames: 50–52 — interpolated" in lines(taken, "not-finite")[0]
    taken = intake(changed(arrays, "body_pos_w", 100, np.inf))
    same(taken.clip, base, metres=5e-3)  # the root's place in that frame is gone: between its neighbours
    assert "100" in lines(taken, "not-finite")[0]
    assert np.isfinite(taken.clip.body_lin_vel_w).all()
    assert "in 6 frames: 50–55" in refused(changed(arrays, "joint_pos", (slice(50, 56), 4), np.nan))
    assert "in 1 frames: 0" in refused(changed(arrays, "joint_pos", (0, 4), np.nan))


# --- A12: heights


def test_a_constant_height_is_taken_out(intake, arrays, base):
    for by in (0.15, -0.08):
        taken = intake(moved(arrays, [0, 0, by]))
        same(taken.clip, base)
        (line,) = lines(taken, "floor-offset")
        assert f"{abs(by):.3f} m" in line
        assert f"moved by {-by:+.3f} m" in line


def test_in_the_floor_for_a_while(intake, refused, arrays):
    ramp = np.zeros((200, 1, 3))
    ramp[55:96, 0, 2] = -0.08 * np.minimum(1, np.minimum(np.arange(41) / 5, np.arange(41)[::-1] / 5))
    sunk = {**arrays, "body_pos_w": arrays["body_pos_w"] + ramp}
    text = refused(sunk)
    assert "[penetration]" in text
    assert "up to 0.080 m in the floor in 37 frames: 57–93" in text
    assert "allow_penetration: true" in text
    (line,) = lines(intake(sunk, allow_penetration=True), "penetration")
    assert line.startswith("WARN")
    shallow = {**arrays, "body_pos_w": arrays["body_pos_w"] + 0.4 * ramp}
    assert "up to 0.032 m in the floor" in lines(intake(shallow), "penetration")[0]


def test_a_start_on_tiptoe_is_no_offset(intake, robot):
    """The first frame's lowest point says nothing of the clip: heel up, and down again."""
    clip = standing_clip(robot)
    pos = clip.body_pos_w.copy()
    pos[:10, :, 2] += np.linspace(0.04, 0, 10)[:, None]
    taken = intake({**arrays_of(clip), "body_pos_w": pos})
    assert lines(taken, "floor-offset") == []


# --- A13: signs and lengths of quaternions


def test_signs_and_lengths(intake, refused, arrays, base):
    taken = intake(negated(arrays, 0))
    same(taken.clip, base)
    assert np.abs(taken.clip.body_ang_vel_w - base.body_ang_vel_w).max() < 1e-3
    taken = intake({**arrays, "body_quat_w": arrays["body_quat_w"] * np.float32(1.01)})
    same(taken.clip, base)
    assert "lengths off by up to 0.01; made 1" in lines(taken, "quaternions")[0]
    text = refused(changed(arrays, "body_quat_w", (7, 3), 0))
    assert "length 0 in frame 7, 1 frames: 7" in text
    assert "length 1.06" in refused({**arrays, "body_quat_w": arrays["body_quat_w"] * 1.06})


# --- A14: velocities


def test_velocities_that_belong_to_another_motion(intake, arrays, base):
    taken = intake({**arrays, "body_ang_vel_w": 0 * arrays["body_ang_vel_w"]})
    same(taken.clip, base)
    np.testing.assert_allclose(taken.clip.body_ang_vel_w, base.body_ang_vel_w, atol=1e-3)
    assert "body_ang_vel_w — all zero; recomputed" in lines(taken, "velocities")[0]
    (line,) = lines(intake(body_frame(arrays)), "velocities")
    assert "body_ang_vel_w — differs from the poses' by" in line


def test_copied_frames(intake, arrays, robot):
    stuck = {k: v.copy() for k, v in arrays.items()}
    for key in ("joint_pos", "body_pos_w", "body_quat_w"):
        stuck[key][80:85] = stuck[key][79]
    (line,) = lines(intake(stuck), "duplicates")
    assert "frames 80–84 are copies of the one before" in line
    # standing still is none
    assert lines(intake(arrays_of(standing_clip(robot))), "duplicates") == []


# --- A15: axes


def test_y_up(intake, refused, arrays, base):
    text = refused(y_up(arrays))
    assert "looks Y-up" in text
    assert "set motions.wave.motion.up_axis: y" in text
    same(intake(y_up(arrays), up_axis="y").clip, base)


def test_getting_up_is_not_y_up(intake, arrays, robot):
    """BASE lies on its back and ends upright; and a clip that never gets up."""
    assert lines(intake(arrays), "up-axis") == []
    short = arrays_of(base_clip(robot, 40))
    assert lines(intake(short), "up-axis") == []


# --- A16: units, limits


def test_degrees_and_centimetres(intake, base, tmp_path):
    taken = intake(csv(tmp_path / "wave.csv", base, joints=57.2958, root=100), fps=50)
    same(taken.clip, base, 1e-5, 1e-4)
    degrees, centimetres = lines(taken, "units")
    most = np.abs(np.degrees(base.joint_pos)).max()
    assert f"in degrees (up to {most:.4g}); converted to rad" in degrees
    assert f"in cm (height up to {100 * base.body_pos_w[:, 0, 2].max():.4g})" in centimetres


def test_units_in_the_header_decide(intake, base, robot, tmp_path):
    head = [f"root_{axis} [cm]" for axis in "xyz"] + [f"root_q{axis}" for axis in "xyzw"]
    head += [f"{name} (deg)" for name in robot.joint_names]
    path = csv(tmp_path / "wave.csv", base, joints=57.29577951, root=100, header=",".join(head) + "\n")
    taken = intake(path, fps=50)
    same(taken.clip, base)
    assert lines(taken, "units") == []


def test_slightly_beyond_a_limit_is_clamped(intake, robot):
    clip = standing_clip(robot)
    knee = robot.joint_names.index("left_knee_joint")
    low = robot.limits[knee, 0]
    joints = clip.joint_pos.copy()
    joints[:, knee] = low - 0.05
    table = np.concatenate([clip.body_pos_w[:, 0], clip.body_quat_w[:, 0]], axis=1)
    taken = intake({"fps": 50, "qpos": np.concatenate([table, joints], axis=1)})
    np.testing.assert_allclose(taken.clip.joint_pos[:, knee], low, atol=1e-6)
    assert "left_knee_joint by 0.050 rad" in lines(taken, "limits")[0]
    assert "clamped" in lines(taken, "limits")[0]


# --- A17: terminations on the reference


def test_terminations_on_the_reference_are_looked_at(intake, arrays, robot):
    """Only what is relative to the reference ends an episode here; a lying start breaks none of it."""
    clip = intake(arrays).clip
    assert clip.body_pos_w[:15, 0, 2].max() < 0.2  # the pelvis, where others end an episode
    assert not [f for f in check_terminations(robot, clip, TrainCfg(), "x") if f.level == "ERROR"]


def test_a_termination_that_fires_on_the_reference_is_named_with_frames_value_and_limit(intake, arrays, robot):
    """The clip is 0.32 m in the floor for a while, a reset lifts the robot out: 0.32 m above its reference.

    On the Q1 the limit of 0.25 m is 0.166 m, and that of the knees 0.09 m.
    """
    ramp = np.zeros((200, 1, 3))
    ramp[55:96, 0, 2] = -0.32 * np.minimum(1, np.minimum(np.arange(41) / 10, np.arange(41)[::-1] / 10))
    clip = intake({**arrays, "body_pos_w": arrays["body_pos_w"] + ramp}, allow_penetration=True).clip
    findings = check_terminations(robot, clip, TrainCfg(), "wave.npz")
    anchor, knees = [f for f in findings if f.level == "ERROR"]
    # 0.032 m deeper a frame: more than 0.09 m from the third to the third last, than 0.166 m from the sixth
    assert re.fullmatch(
        "anchor_z fires on the reference itself in frames 61–89, up to 0.320 > 0.166 in frame ([67][0-9]|8[0-5])",
        anchor.found,
    )
    assert "body_z fires on the reference itself in frames 58–60, 90–92, up to 0.160 > 0.090" in knees.found
    assert "loosen train.termination" in anchor.action
    strict = TrainCfg(termination={"anchor_z": 1.0, "body_z": {}})
    assert not [f for f in check_terminations(robot, clip, strict, "wave.npz") if f.level == "ERROR"]


def test_root_that_is_not_where_its_bodies_are(refused, arrays):
    """Root z + 0.5 in the root's row only."""
    raised = changed(arrays, "body_pos_w", (slice(None), 0, 2), arrays["body_pos_w"][:, 0, 2] + 0.5)
    text = refused(raised)
    assert "22 of 23 bodies are not where root and joints put them" in text
    assert len(re.findall(r"_link 0\.500 m", text)) == 5


# --- A18: short clips


def test_short_clips(intake, refused, base, robot):
    def first(n):
        return {k: v[:n] if k != "fps" else v for k, v in arrays_of(base).items()}

    assert "0 frames" in refused(first(0))
    text = refused(first(1))
    assert "static pose: 1 frame" in text
    assert "set motions.wave.motion.hold_seconds: 2" in text
    held = intake(first(1), hold_seconds=2)
    assert held.clip.frames == 101
    assert np.abs(held.clip.joint_vel).max() == 0
    for n in (2, 10):
        taken = intake(first(n))
        assert taken.clip.frames == n
        assert f"{n} frames" in lines(taken, "frames")[0]
        assert np.isfinite(taken.clip.body_ang_vel_w).all()
    assert lines(intake(first(20)), "frames") == []


# --- strict, and everything at once


def test_strict_makes_repairs_errors(intake, refused, arrays, base, robot):
    same(intake(arrays, strict=True).clip, base)
    text = refused(rows(arrays, breadth_first(robot)), strict=True)
    assert text.startswith("ERROR [body-order]")


def test_swapped_sides_break_no_limit_and_are_seen(intake, arrays, base, robot):
    joints = arrays["joint_pos"][:, other_side(robot)]
    low, high = robot.limits.T
    assert ((joints >= low - 1e-6) & (joints <= high + 1e-6)).all()
    taken = intake(columns(arrays, other_side(robot)))
    same(taken.clip, base)
    assert "left and right are swapped, 20 of 22 columns" in lines(taken, "swapped-sides")[0]


def test_all_problems_in_one_run(refused, arrays):
    bad = changed(arrays, "joint_pos", (slice(50, 60), 4), np.nan)
    bad = changed(bad, "body_quat_w", (7, 3), 0)
    text = refused({**bad, "body_lin_vel_w": np.zeros(3)})
    for code in ("not-finite", "quaternions", "shape"):
        assert f"ERROR [{code}]" in text
    both = moved(arrays, [0.5, 0, 0], slice(120, None))
    text = refused({**both, "fps": 30})
    assert "[jump]" in text
    assert "[fps]" in text


def test_the_file_is_never_changed(robot, arrays, tmp_path):
    path = tmp_path / "wave.npz"
    np.savez(path, **rows(arrays, breadth_first(robot)))
    before = path.read_bytes()
    take_in(path, robot, MotionCfg(), 50.0)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["wave.npz"]
