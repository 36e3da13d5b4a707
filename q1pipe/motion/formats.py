"""Read a motion file: its content says what it is, never its name. Pickled objects never run.

npz in every dialect of ALIASES, CSV (table.py), GMR pickle (pickles.py), keyframes (compose.py).
"""

from __future__ import annotations

import difflib
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, MotionError, error, first, warn
from q1pipe.motion import compose
from q1pipe.motion.pickles import load_pickle
from q1pipe.motion.raw import RawMotion, one_fps
from q1pipe.motion.table import parse
from q1pipe.robot import Robot

Array = NDArray[np.floating]

# Our name -> what others call it, lower case. config/README.md shows this table.
ALIASES: dict[str, tuple[str, ...]] = {
    "fps": ("framerate", "frame_rate", "sample_rate", "mocap_framerate", "mocap_frame_rate", "motion_fps", "hz"),
    "joint_pos": ("dof_pos", "dof", "dofs", "dof_positions", "joint_positions", "joint_angles"),
    "joint_vel": ("dof_vel", "dof_velocities", "joint_velocities"),
    "body_pos_w": ("body_pos", "body_positions", "link_pos", "rigid_body_pos", "global_translation", "xpos"),
    "body_quat_w": ("body_quat", "body_rotations", "body_rot", "link_quat", "xquat"),
    "body_lin_vel_w": ("body_lin_vel", "body_linear_velocities", "global_velocity"),
    "body_ang_vel_w": ("body_ang_vel", "body_angular_velocities", "global_angular_velocity"),
    "root_pos": ("root_pos_w", "base_pos_w", "base_pos", "root_trans", "root_trans_offset", "root_translation"),
    "root_quat": ("root_quat_w", "base_quat_w", "base_quat"),
    "root_rot": (),  # the root's quaternion as GMR and its kin write it: xyzw
    "qpos": (),  # MuJoCo's: root position, wxyz, joints
    "joint_names": ("dof_names",),
    "body_names": ("link_names", "link_body_list"),
}
CANONICAL = {name: ours for ours, others in ALIASES.items() for name in (ours, *others)}
ARRAY_KEYS = (
    *("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"),
    *("root_pos", "root_quat", "root_rot", "qpos"),
)
LARGEST = 2**31  # bytes, unpacked
RETARGET = "retarget it to the robot first, with GMR for instance"
SUFFIXES = {"npz": (".npz",), "CSV": (".csv", ".txt"), "pickle": (".pkl", ".pickle"), "keyframes": (".yaml", ".yml")}


def read(path: Path, robot: Robot, cfg: MotionCfg) -> tuple[RawMotion, list[Finding]]:
    """Read a motion file of any kind.

    Returns:
        What it says, and findings about the file as such.

    Raises:
        MotionError: it is none, is damaged, or lacks what a motion needs.
    """
    kind = sniff(path)
    findings = []
    if path.suffix.lower() not in SUFFIXES[kind]:
        found = f"the content is {kind}, the name says {path.suffix or 'nothing'}"
        findings.append(warn("extension", str(path), found, "", f"read as {kind}; rename it to {SUFFIXES[kind][0]}"))
    try:
        raw, found_inside = _READERS[kind](path, robot, cfg)
    except MotionError as e:
        raise MotionError(*findings, *e.findings) from None
    return raw, findings + found_inside


def sniff(path: Path) -> str:
    """What a file is, by its first bytes: npz, CSV, pickle or keyframes.

    Raises:
        MotionError: none of them; says what it is instead, where that is known.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            head = f.read(4096)
    except OSError as e:
        raise MotionError(error("motion-missing", str(path), e.strerror or str(e), "a motion file")) from None

    def refuse(found: str, action: str = "export it again") -> MotionError:
        return MotionError(error("container", str(path), found, "npz, CSV, GMR pickle or keyframe YAML", action))

    if not head.strip():
        raise refuse(f"empty file ({size} bytes)")
    if size > LARGEST:
        raise refuse(f"{size / 1e9:.1f} GB", f"split it; at most {LARGEST / 1e9:.1f} GB")
    if head.startswith(b"version https://git-lfs"):
        raise refuse("a Git-LFS pointer, the data itself was not fetched", "git lfs pull")
    if head.startswith(b"PK"):
        if not zipfile.is_zipfile(path):
            raise refuse(f"truncated zip ({size} bytes)", "copy or export it again, whole")
        return "npz"
    if head.startswith(b"\x93NUMPY"):
        raise refuse("an .npy: one array, perhaps with a pickled dict in it", "save the arrays with np.savez")
    if head.startswith(b"\x89HDF"):
        raise refuse("an HDF5 file", "save the arrays with np.savez")
    if re.match(rb"\x80[\x02-\x05]", head) or re.match(rb"[(](dp|lp|d|l)\d*\n", head):
        return "pickle"
    text = head.decode("utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")
    if "\0" in text or text.count("\ufffd") > 1:  # one: a letter that the end of the head cuts
        raise refuse(f"not a motion: it begins with {head[:24]!r}")
    if text.lstrip().startswith("HIERARCHY"):
        raise refuse("a BVH: the motion of a skeleton", RETARGET)
    if re.match(r"\s*[{\[]\s*[\"{\[]", text):
        raise refuse("JSON", "save the arrays with np.savez")
    if re.search(r"^(keys|fps|follow)\s*:", text, re.MULTILINE):
        return "keyframes"
    rows = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if rows and (re.search(r"[,;\t]", rows[0]) or re.match(r"\s*[-+.\d]+[eE\d]*\s+[-+.\d]", rows[0])):
        return "CSV"
    raise refuse(f"text that is no table: it begins with {text[:24]!r}")


def load_npz(path: Path) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The arrays of an npz, and the keys of object arrays, which stay unread: they are pickles, and pickles run code.

    Raises:
        MotionError: the file is damaged or too large.
    """
    arrays: dict[str, NDArray[Any]] = {}
    objects = []
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            names = archive.namelist()
        if not any(name.endswith(".npy") for name in names):
            found = f"a zip without arrays (PyTorch, Excel?): it holds {first(names) or 'nothing'}"
            raise MotionError(error("container", str(path), found, "an npz", "save the arrays with np.savez"))
        if size > LARGEST:
            found = f"{size / 1e9:.1f} GB when unpacked"
            raise MotionError(error("container", str(path), found, f"at most {LARGEST / 1e9:.1f} GB", "split the clip"))
        with np.load(path, allow_pickle=False) as data:
            for key in data.files:
                try:
                    arrays[key] = np.asarray(data[key])
                except ValueError as e:
                    if "allow_pickle" not in str(e):
                        raise
                    objects.append(key)
    except MotionError:
        raise
    except Exception as e:  # bytes of a stranger: zipfile and numpy raise a dozen kinds of exceptions over them
        found = f"damaged npz: {type(e).__name__}: {e}"
        raise MotionError(error("container", str(path), found[:200], "a whole npz", "export it again")) from None
    return arrays, objects


def from_keys(data: Mapping[str, Any], objects: list[str], path: Path) -> tuple[RawMotion, list[Finding]]:
    """Arrays under any dialect's names -> one set of names.

    Args:
        data: key -> array.
        objects: keys of what cannot be read without running code.
        path: for messages.

    Raises:
        MotionError: no joints, or nothing that says where the root is.
    """
    findings: list[Finding] = []
    problems: list[Finding] = []
    ours: dict[str, tuple[str, Any]] = {}
    unknown = []
    for key in sorted(data, key=lambda k: k.lower() not in ALIASES):  # our own name comes before others'
        name = CANONICAL.get(key.lower())
        if name is None:
            unknown.append(key)
        elif name in ours:
            findings.append(warn("keys", f"{path}: {key}", f"means the same as {ours[name][0]}", "", "not used"))
        else:
            ours[name] = (key, data[key])
    for key in objects:
        found = "is an object array (ragged or pickled)"
        if CANONICAL.get(key.lower()) in (*ARRAY_KEYS, "fps"):
            problems.append(error("object-array", f"{path}: {key}", found, "numbers", "re-save as float32"))
        else:
            findings.append(warn("object-array", f"{path}: {key}", found, "", "skipped"))
    if unknown:
        findings.append(Finding("INFO", "keys", str(path), f"not used: {first(unknown, 12)}"))

    arrays: dict[str, Array] = {}
    for name in ARRAY_KEYS:
        if name in ours:
            key, value = ours[name]
            array = np.asarray(value)
            if array.dtype.kind not in "fiu":
                problems.append(
                    error("type", f"{path}: {key}", f"array of {array.dtype}", "numbers", "save as float32")
                )
            else:
                arrays[name] = array.astype(np.float64)
    problems += _split_qpos(arrays, path)
    order = "wxyz" if "root_quat" in arrays else "xyzw" if "root_rot" in arrays else ""
    if "root_rot" in arrays:
        rot = arrays.pop("root_rot")
        arrays.setdefault("root_quat", rot[..., [3, 0, 1, 2]] if rot.ndim and rot.shape[-1] == 4 else rot)
    if not problems:
        problems += _lacking(arrays, data, path)
    fps = None
    if "fps" in ours:
        try:
            fps = one_fps(ours["fps"][1], f"{path}: {ours['fps'][0]}")
        except MotionError as e:
            problems += e.findings
    if problems:
        raise MotionError(*problems)
    joint_names, body_names = (_names(ours[key][1]) if key in ours else None for key in ("joint_names", "body_names"))
    return RawMotion(fps, arrays, joint_names, body_names, doubtful_quat=order), findings


def _split_qpos(arrays: dict[str, Array], path: Path) -> list[Finding]:
    """Replace qpos by what it is made of."""
    if "qpos" not in arrays:
        return []
    qpos = arrays.pop("qpos")
    if qpos.ndim != 2 or qpos.shape[1] < 8:
        return [error("shape", f"{path}: qpos", f"shape {qpos.shape}", "(frames, 7 + joints)")]
    for name, part in (("root_pos", qpos[:, :3]), ("root_quat", qpos[:, 3:7]), ("joint_pos", qpos[:, 7:])):
        arrays.setdefault(name, part)
    return []


def _lacking(arrays: Mapping[str, Any], data: Mapping[str, Any], path: Path) -> list[Finding]:
    """What a motion needs: joints, and bodies or the root."""
    lacking = [name for name in ("joint_pos",) if name not in arrays]
    for body, root in (("body_pos_w", "root_pos"), ("body_quat_w", "root_quat")):
        if body not in arrays and root not in arrays:
            lacking.append(f"{body} (or {root})")
    if not lacking:
        return []
    near = {key: difflib.get_close_matches(key.lower(), CANONICAL, 1) for key in data if key.lower() not in CANONICAL}
    if {"poses", "trans"} <= data.keys():
        return [error("keys", str(path), "a human's motion (SMPL: poses, trans)", "a motion of the robot", RETARGET)]
    hints = [f"is {key} meant as {match[0]}?" for key, match in near.items() if match]
    return [
        error(
            "keys",
            str(path),
            f"has {first(data, 12) or 'nothing'}; lacks {', '.join(lacking)}",
            "fps, joint_pos, body_pos_w, body_quat_w, or another name of the table in config/README.md",
            "; ".join(hints) or "rename the keys",
        )
    ]


def _names(value: Any) -> tuple[str, ...]:
    return tuple(n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in np.ravel(np.asarray(value)))


def _read_keyframes(path: Path, robot: Robot, cfg: MotionCfg) -> tuple[RawMotion, list[Finding]]:
    clip, findings = compose.compose(path, robot)
    arrays = {name: getattr(clip, name).astype(np.float64) for name in ("joint_pos", "body_pos_w", "body_quat_w")}
    return RawMotion(clip.fps, arrays, robot.joint_names, robot.body_names), findings


_READERS: dict[str, Callable[[Path, Robot, MotionCfg], tuple[RawMotion, list[Finding]]]] = {
    "npz": lambda path, robot, cfg: from_keys(*load_npz(path), path),
    "pickle": lambda path, robot, cfg: from_keys(*load_pickle(path), path),
    "CSV": lambda path, robot, cfg: parse(path, cfg.csv_quat),
    "keyframes": _read_keyframes,
}
