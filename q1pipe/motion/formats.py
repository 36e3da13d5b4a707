"""Read a motion file into raw arrays: what is in the file, checked for form but not yet against physics."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Finding, MotionError, error, first, warn
from q1pipe.robot import Robot

Array = NDArray[np.floating]

REQUIRED = ("fps", "joint_pos", "body_pos_w", "body_quat_w")
FPS_RANGE = (5.0, 500.0)


@dataclass(frozen=True, eq=False)
class RawMotion:
    """Arrays of a motion file in the robot's own joint and body order.

    Attributes:
        fps: frames per second.
        joint_pos: (T, J) rad.
        body_pos_w: (T, B, 3) m, all bodies but the world.
        body_quat_w: (T, B, 4) wxyz.
    """

    fps: float
    joint_pos: Array
    body_pos_w: Array
    body_quat_w: Array


def read_npz(path: Path, robot: Robot) -> tuple[RawMotion, list[Finding]]:
    """Read an npz of the field's layout (fps, joint_pos, body_pos_w, body_quat_w; velocities are recomputed).

    `joint_names` and `body_names`, where they are in the file, beat the position of a column.

    Returns:
        The motion, and WARN findings about what was repaired.

    Raises:
        MotionError: every problem of the file in one go.
    """
    data = _load(path)
    missing = [key for key in REQUIRED if key not in data]
    if missing:
        raise MotionError(
            error(
                "keys", str(path), f"has {first(data, 12)}; lacks {', '.join(missing)}", f"needs {', '.join(REQUIRED)}"
            )
        )
    problems: list[Finding] = []
    findings: list[Finding] = []
    fps = _fps(data["fps"], path, problems)
    joints = _columns(data, "joint_pos", "joint_names", robot.joint_names, path, problems)
    bodies = robot.body_names
    pos_w = data["body_pos_w"]
    extra = "body_names" not in data and pos_w.ndim == 3 and pos_w.shape[1] == len(bodies) + 1
    if extra and not pos_w[:, 0].any():
        findings.append(warn("world-row", f"{path}: body_pos_w", "row 0 is the world, at the origin; dropped"))
        data = {**data, **{key: data[key][:, 1:] for key in ("body_pos_w", "body_quat_w")}}
    pos = _columns(data, "body_pos_w", "body_names", bodies, path, problems, 3)
    quat = _columns(data, "body_quat_w", "body_names", bodies, path, problems, 4)
    lengths = {key: len(data[key]) for key in ("joint_pos", "body_pos_w", "body_quat_w")}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} {n}" for key, n in lengths.items())
        problems.append(error("frames", str(path), f"frames: {found}", "one number of frames"))
    elif min(lengths.values()) < 2:
        problems.append(error("frames", str(path), f"{min(lengths.values())} frames", "at least 2"))
    for name, array in (("joint_pos", joints), ("body_pos_w", pos), ("body_quat_w", quat)):
        if array is not None and not np.isfinite(array).all():
            bad = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
            problems.append(
                error("not-finite", f"{path}: {name}", f"NaN or infinite in {len(bad)} frames: {first(bad)}", "numbers")
            )
    if problems or joints is None or pos is None or quat is None:
        raise MotionError(*problems)
    return RawMotion(fps, joints, pos, quat), findings


def _load(path: Path) -> dict[str, NDArray]:
    if not path.is_file():
        raise MotionError(error("motion-missing", str(path), "no such file"))
    if not zipfile.is_zipfile(path):
        start = path.read_bytes()[:40]
        found = "empty file" if not start else f"not an npz: it begins with {start!r}"
        raise MotionError(error("container", str(path), found, "an npz (a zip of arrays)", "export it again"))
    arrays = {}
    try:
        # never pickles: they run code
        with np.load(path, allow_pickle=False) as data:
            for key in data.files:
                arrays[key] = data[key]
    except ValueError:
        raise MotionError(
            error(
                "object-array", f"{path}: {key}", "an object array (ragged or pickled)", "numbers", "re-save as float32"
            )
        ) from None
    except (zipfile.BadZipFile, OSError, EOFError) as e:
        raise MotionError(error("container", str(path), f"damaged: {e}", "", "export it again")) from None
    return arrays


def _fps(value: NDArray, path: Path, problems: list[Finding]) -> float:
    allowed = f"one number, {FPS_RANGE[0]:g} to {FPS_RANGE[1]:g}"
    try:
        fps = float(np.asarray(value).reshape(()) if np.size(value) == 1 else "several")
    except ValueError:
        problems.append(error("fps", f"{path}: fps", f"{np.asarray(value).tolist()}", allowed))
        return 1.0
    if not FPS_RANGE[0] <= fps <= FPS_RANGE[1]:
        problems.append(error("fps", f"{path}: fps", f"{fps:g}", allowed))
    return fps


def _columns(
    data: dict[str, NDArray],
    key: str,
    names_key: str,
    wanted: tuple[str, ...],
    path: Path,
    problems: list[Finding],
    width: int | None = None,
) -> Array | None:
    """The array with its second axis in the robot's order, or None and a problem."""
    array = data[key]
    what = names_key.removesuffix("_names")
    shape = (array.shape[0] if array.ndim else 0, len(wanted), *([width] if width else []))
    if names_key in data and array.ndim == len(shape):
        names = [str(n) for n in data[names_key].tolist()]
        lacking, surplus = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
        if len(names) != array.shape[1] or lacking:
            problems.append(
                error(
                    f"{what}-names",
                    f"{path}: {names_key}",
                    f"{len(names)} names for {array.shape[1]} columns; lacks {first(lacking) or 'none'}; "
                    f"has besides {first(surplus) or 'none'}",
                    f"the robot's {len(wanted)} {what} names",
                )
            )
            return None
        array = array[:, [names.index(n) for n in wanted]]
    if array.shape != shape:
        problems.append(
            error(
                "shape",
                f"{path}: {key}",
                f"shape {array.shape}",
                f"(frames, {', '.join(map(str, shape[1:]))}): the robot has {len(wanted)} {what} columns",
                "is the clip for another robot?",
            )
        )
        return None
    return array.astype(np.float64)
