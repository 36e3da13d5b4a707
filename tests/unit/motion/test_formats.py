"""Every way to write a motion that people have, and what is not one."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml

from q1pipe.motion.convert import write
from q1pipe.motion.formats import ALIASES, CANONICAL
from tests.corruptions import rows
from tests.unit.motion.conftest import lines, same
from tests.unit.motion.test_compose import KEYS


@pytest.fixture
def table(base):
    """(T, 7 + J): root, quaternion xyzw, joints."""
    return np.concatenate([base.body_pos_w[:, 0], base.body_quat_w[:, 0][:, [1, 2, 3, 0]], base.joint_pos], axis=1)


def text_of(table, separator=",", end="\n"):
    return end.join(separator.join(f"{v:.9g}" for v in row) for row in table) + end


def root_only(taken, base):
    same(taken.clip, base)
    assert {f.code for f in taken.findings} <= {"limits"}


# --- CSV


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headerless_tables(intake, base, table, tmp_path, separator, end):
    (tmp_path / "a.csv").write_bytes(text_of(table, separator, end).encode())
    root_only(intake(tmp_path / "a.csv", fps=50), base)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_and_comments(intake, base, table, tmp_path, encoding):
    text = "# made by a tool, fps: 50\n\n" + text_of(table)
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    root_only(intake(tmp_path / "a.csv"), base)


def test_decimal_commas_between_semicolons(intake, base, table, tmp_path):
    (tmp_path / "a.csv").write_text(text_of(table, ";").replace(".", ","))
    root_only(intake(tmp_path / "a.csv", fps=50), base)


def test_header_gives_names_order_and_time(intake, base, robot, table, tmp_path):
    names = ["root_x", "root_y", "root_z", "root_qx", "root_qy", "root_qz", "root_qw"]
    names += [n.removesuffix("_joint") + "_dof" for n in robot.joint_names]
    order = np.random.default_rng(0).permutation(len(names))
    header = ",".join(["time", "frame", *np.array(names)[order]])
    counted = np.concatenate([np.arange(200)[:, None] / 50, np.arange(200)[:, None], table[:, order]], axis=1)
    (tmp_path / "a.csv").write_text(header + "\n" + text_of(counted))
    root_only(intake(tmp_path / "a.csv"), base)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n4,5,6\n", ["3 columns", "7 + J"]),
        ("1,2,3,4,5,6,7,8\n1,2\n", ["line 2", "2 columns", "8 numbers"]),
        ("1,2,3,4,5,6,7,8\n1,2,3,4,x,6,7,8\n", ["line 2", "no number: 'x'"]),
        ("a,b,c\n1,2,3\n", ["lacks the root's position x, y, z", "lacks the root's quaternion w, x, y, z"]),
        ("x,y,z,qw,qx,qy,qz,knee [inch]\n1,2,3,1,0,0,0,1\n", ["unit of knee [inch]", "deg, rad, m, cm or mm"]),
        ("x,y,z,qw,qx,qy,qz,knee,knee\n1,2,3,1,0,0,0,1,1\n", ["knee more than once"]),
        ("# fps: 50\n", ["no table"]),
    ],
    ids=["narrow", "ragged", "text", "no root", "unit", "twice", "no rows"],
)
def test_tables_that_are_none(refused, tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    said = refused(tmp_path / "a.csv", fps=50)
    for word in words:
        assert word in said


# --- pickles


@pytest.mark.parametrize("protocol", range(2, 6))
def test_gmr_pickles(intake, base, table, tmp_path, protocol):
    record = {
        "fps": 50,
        "root_pos": table[:, :3].astype(np.float64),
        "root_rot": table[:, 3:7],
        "dof_pos": np.asfortranarray(table[:, 7:]),
        "local_body_pos": None,
        "link_body_list": None,
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(record, protocol))
    root_only(intake(tmp_path / "a.pkl"), base)


def test_one_motion_in_a_dict_of_motions(intake, base, table, tmp_path):
    record = {"wave": {"fps": np.float64(50), "root_trans_offset": table[:, :3], "root_rot": table[:, 3:7]}}
    record["wave"] |= {"dof": table[:, 7:], "contact_mask": {"a": object}}
    record["wave"].pop("contact_mask")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(record))
    root_only(intake(tmp_path / "a.pkl"), base)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ([1, 2], "a pickled list"),
        ({"fps": print}, "a pickle that calls builtins.print"),
        ({"fps": 50, "root_pos": [[1, 2, 3]] * 4, "root_rot": [], "dof_pos": []}, "is an object array"),
    ],
)
def test_pickles_that_are_no_motion(refused, tmp_path, value, word):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value))
    assert word in refused(tmp_path / "a.pkl")


def test_half_a_pickle(refused, tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"fps": 50, "dof_pos": np.zeros((9, 22))})[:-100])
    assert "damaged pickle" in refused(tmp_path / "a.pkl")


# --- npz dialects


def test_no_name_means_two_things():
    names = [name for ours, others in ALIASES.items() for name in (ours, *others)]
    assert len(names) == len(set(names)) == len(CANONICAL)


def test_manual_shows_every_name():
    text = (Path(__file__).parents[3] / "config/README.md").read_text(encoding="utf-8")
    assert [name for name in CANONICAL if f"`{name}`" not in text] == []


def test_names_of_isaac_lab_and_of_the_root(intake, arrays, base, robot, table):
    lab = {
        "fps": 50,
        "dof_names": np.array(robot.joint_names),
        "body_names": np.array(robot.body_names),
        "dof_positions": arrays["joint_pos"],
        "dof_velocities": arrays["joint_vel"],
        "body_positions": arrays["body_pos_w"],
        "body_rotations": arrays["body_quat_w"],
        "body_linear_velocities": arrays["body_lin_vel_w"],
        "body_angular_velocities": arrays["body_ang_vel_w"],
    }
    root_only(intake(lab), base)
    wxyz = table[:, [6, 3, 4, 5]]
    root_only(intake({"fps": 50, "base_pos_w": table[:, :3], "base_quat_w": wxyz, "joint_pos": table[:, 7:]}), base)
    qpos = np.concatenate([table[:, :3], wxyz, table[:, 7:]], axis=1)
    root_only(intake({"sample_rate": 50, "qpos": qpos}), base)


def test_our_own_name_comes_first(intake, arrays, base):
    taken = intake({**arrays, "dof_pos": np.zeros((3, 3))})
    same(taken.clip, base)
    assert "dof_pos — means the same as joint_pos — not used" in lines(taken, "keys")[0]


def test_some_bodies_by_name(intake, arrays, base, robot):
    some = [0, 3, 7, 22]
    a = rows(arrays, some) | {"body_names": np.array([*np.array(robot.body_names)[some]])}
    taken = intake(a)
    same(taken.clip, base)
    assert "4 body rows, robot has 23; rebuilt" in lines(taken, "body-rows")[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"body_quat_w": np.zeros((200, 23, 3))}, ["[shape]", "body_quat_w", "(200, 23, 3)", "(frames, bodies, 4)"]),
        ({"body_quat_w": np.zeros((200, 22, 4))}, ["[shape]", "body_pos_w 23, body_quat_w 22"]),
        ({"joint_names": np.array(["a", "b"])}, ["[joint-names]", "2 names for 22 columns"]),
        ({"body_names": np.array([f"b{i}" for i in range(23)])}, ["[body-names]", "lacks pelvis", "has besides b0"]),
        ({"joint_pos": np.array(["1"])}, ["[type]", "joint_pos"]),
        ({"fps": 1e400}, ["[fps]", "inf"]),
    ],
)
def test_arrays_that_do_not_fit(refused, arrays, change, words):
    text = refused({**arrays, **change})
    for word in words:
        assert word in text


# --- keyframes, and writing


def test_keyframes_are_a_source(intake, robot, tmp_path):
    (tmp_path / "squat.yaml").write_text(yaml.safe_dump(KEYS))
    taken = intake(tmp_path / "squat.yaml")
    assert taken.clip.frames == 76
    knee = robot.joint_names.index("left_knee_joint")
    assert taken.clip.joint_pos[50, knee] == pytest.approx(1.6, abs=1e-6)


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.pkl"])
def test_what_is_written_is_read_again(intake, base, robot, tmp_path, name):
    write(base, robot, tmp_path / name)
    root_only(intake(tmp_path / name), base)
