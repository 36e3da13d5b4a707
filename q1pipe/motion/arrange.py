"""From a raw file to arrays in the robot's columns: names, shapes, lengths, the frames that are wanted, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from q1pipe import rotations
from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, MotionError, error, first, warn
from q1pipe.motion.raw import KNOWN_ROBOTS, UNBELIEVABLE, RawMotion, runs_of, setting, spans
from q1pipe.robot import Robot

Array = NDArray[np.floating]
Ints = NDArray[np.intp]

LONGEST_GAP = 5  # frames that may be interpolated
SHORT = 10  # frames: trained on, but worth a word
MAX_NORM_ERROR = 0.05  # of quaternions
NORM_ROUNDING = 1e-6
MOST_ROWS = 1000  # of bodies


@dataclass(frozen=True, eq=False)
class Stored:
    """What the file holds, its form checked: T frames, the robot's J joints, R rows of bodies.

    Attributes:
        fps: frames per second.
        joint_pos: (T, J).
        root_pos: (T, 3), where the file gives the root itself.
        root_quat: (T, 4) wxyz, where the file gives the root itself.
        body_pos: (T, R, 3), or None: the file has the root only.
        body_quat: (T, R, 4), or None.
        rows: (R,) body of each row by its name (row of `Robot.body_names`), or None: unnamed.
        velocities: any of joint_vel (T, J), body_lin_vel_w, body_ang_vel_w (T, R, 3).
        named_joints: joint columns were found by their names.
        doubtful_quat: the order that the root's quaternion was read in, where only a convention says so.
        lost_root: (T,) frames that lack the root, but not all bodies; interpolated so far.
    """

    fps: float
    joint_pos: Array
    root_pos: Array | None
    root_quat: Array | None
    body_pos: Array | None
    body_quat: Array | None
    rows: Ints | None
    velocities: dict[str, Array]
    named_joints: bool
    doubtful_quat: str
    lost_root: NDArray[np.bool_]


def arrange(raw: RawMotion, robot: Robot, cfg: MotionCfg, path: Path) -> tuple[Stored, list[Finding]]:
    """Bring the arrays of a file into form.

    Raises:
        MotionError: every problem in one go.
    """
    problems: list[Finding] = []
    findings: list[Finding] = []
    fps = _rate(raw, cfg, path, problems, findings)
    arrays = _shapes(raw, path, problems)
    arrays, named = _joints(arrays, raw, robot, cfg, path, problems, findings)
    rows = _bodies(arrays, raw, robot, path, problems)
    arrays = _lengths(arrays, path, problems, findings)
    if not all(map(len, arrays.values())):
        raise MotionError(*findings, *problems)
    if not problems:
        arrays = _wanted_frames(arrays, cfg, path, problems, findings)
    arrays, lost_root = _gaps(arrays, robot, rows, path, problems, findings)
    for name in ("body_quat_w", "root_quat"):
        if name in arrays:
            arrays[name] = _quaternions(arrays[name], f"{path}: {name}", problems, findings)
    if problems:
        raise MotionError(*findings, *problems)
    bodies = "body_pos_w" in arrays and "body_quat_w" in arrays
    stored = Stored(
        fps=fps,
        joint_pos=arrays["joint_pos"],
        root_pos=arrays.get("root_pos"),
        root_quat=arrays.get("root_quat"),
        body_pos=arrays["body_pos_w"] if bodies else None,
        body_quat=arrays["body_quat_w"] if bodies else None,
        rows=rows if bodies else None,
        velocities={k: arrays[k] for k in ("joint_vel", "body_lin_vel_w", "body_ang_vel_w") if k in arrays},
        named_joints=named,
        doubtful_quat=raw.doubtful_quat,
        lost_root=lost_root,
    )
    return stored, findings


def fill(values: Array, bad: NDArray[np.bool_]) -> Array:
    """Replace single frames and short gaps by a cubic spline through their neighbours. (T, ...), (T,) -> (T, ...)."""
    values = values.copy()
    for a, b in runs_of(np.flatnonzero(bad)):
        near = [i for i in range(max(a - 6, 0), min(b + 7, len(values))) if not bad[i]]
        values[a : b + 1] = CubicSpline(near, values[near])(np.arange(a, b + 1))
    return values


def _rate(raw: RawMotion, cfg: MotionCfg, path: Path, problems: list[Finding], findings: list[Finding]) -> float:
    if cfg.fps is None and raw.fps is None:
        action = setting(path, "fps", 30) + ", or what it was recorded at"
        problems.append(error("fps", str(path), "no fps", "frames per second, in the file or in config", action))
        return 50.0
    if cfg.fps is not None and raw.fps is not None and cfg.fps != raw.fps:
        findings.append(Finding("INFO", "fps", f"{path}: fps", f"{raw.fps:g}; {cfg.fps:g} from config is used"))
    return float(cfg.fps if cfg.fps is not None else raw.fps or 0)


def _shapes(raw: RawMotion, path: Path, problems: list[Finding]) -> dict[str, Array]:
    """Arrays with the right number of axes and components."""
    widths = {"joint_pos": 0, "joint_vel": 0, "root_pos": 3, "root_quat": 4}
    rows = {"body_pos_w": 3, "body_quat_w": 4, "body_lin_vel_w": 3, "body_ang_vel_w": 3}
    arrays = {}
    for name, array in raw.arrays.items():
        width = widths.get(name, rows.get(name, 0))
        axes = 3 if name in rows else 2
        if array.ndim == axes and (not width or array.shape[-1] == width) and 0 < array.shape[1] <= MOST_ROWS:
            arrays[name] = array
            continue
        allowed = f"(frames, {'bodies, ' if axes == 3 else ''}{width or 'joints'})"
        finding = error("shape", f"{path}: {name}", f"shape {array.shape}", allowed, "export it again")
        problems.append(finding)
    if "body_pos_w" in arrays and "body_quat_w" in arrays:
        counts = {name: arrays[name].shape[1] for name in rows if name in arrays}
        if counts["body_pos_w"] != counts["body_quat_w"]:
            found = ", ".join(f"{name} {n}" for name, n in counts.items())
            problems.append(error("shape", str(path), f"rows of bodies: {found}", "one number of bodies"))
        for name, n in counts.items():
            if n != counts["body_pos_w"] and name not in ("body_pos_w", "body_quat_w"):
                del arrays[name]
    return arrays


def _stem(name: str) -> str:
    """A joint's name without what tools hang on it."""
    name = name.strip().lower()
    for suffix in ("_dof", "_joint", "_pos"):
        name = name.removesuffix(suffix)
    return name


def _joints(
    arrays: dict[str, Array],
    raw: RawMotion,
    robot: Robot,
    cfg: MotionCfg,
    path: Path,
    problems: list[Finding],
    findings: list[Finding],
) -> tuple[dict[str, Array], bool]:
    """Joint columns in the robot's order; names beat positions."""
    if "joint_pos" not in arrays:
        return arrays, False
    columns, wanted = arrays["joint_pos"].shape[1], len(robot.joint_names)
    names = list(raw.joint_names) if raw.joint_names is not None else None
    xml = path_of(robot)
    if names is not None and len(names) != columns:
        found = f"{len(names)} names for {columns} columns of joint_pos"
        problems.append(error("joint-names", f"{path}: joint_names", found, "a name for each column"))
        return arrays, False
    keep = [i for i in range(columns) if not _dropped(i, names, cfg.drop_joints)]
    if names is not None:
        stems = {_stem(names[i]): i for i in keep}
        lacking = [n for n in robot.joint_names if _stem(n) not in stems]
        ours = {_stem(n) for n in robot.joint_names}
        surplus = [names[i] for i in keep if _stem(names[i]) not in ours]
        if lacking or surplus:
            found = f"{len(keep)} joints, {xml} has {wanted}; lacks {first(lacking) or 'none'}"
            found += f"; has besides {first(surplus) or 'none'}"
            only_surplus = surplus and not lacking
            action = setting(path, "drop_joints", f"[{', '.join(surplus)}]") if only_surplus else _other(keep)
            problems.append(error("joint-names", f"{path}: joint_names", found, f"the joints of {xml}", action))
            return arrays, True
        keep = [stems[_stem(n)] for n in robot.joint_names]
    elif len(keep) != wanted:
        found = f"{len(keep)} columns, {xml} has {wanted}"
        found += f" (shape {arrays['joint_pos'].shape})"
        problems.append(error("shape", f"{path}: joint_pos", found, f"{wanted} joint columns", _other(keep)))
        return arrays, False
    arrays["joint_pos"] = arrays["joint_pos"][:, keep]
    if "joint_vel" in arrays:
        if arrays["joint_vel"].shape[1] == columns:
            arrays["joint_vel"] = arrays["joint_vel"][:, keep]
        else:
            shape = arrays.pop("joint_vel").shape
            found = f"shape {shape}, joint_pos has {columns} columns; recomputed"
            findings.append(warn("velocities", f"{path}: joint_vel", found))
    return arrays, names is not None


def _dropped(i: int, names: Sequence[str] | None, drop: Sequence[str]) -> bool:
    """Whether a column is among those to drop, by its name or its number."""
    return str(i) in drop or (names is not None and _stem(names[i]) in {_stem(d) for d in drop})


def path_of(robot: Robot) -> str:
    """The robot's file, for messages."""
    return Path(robot.cfg.xml).name if robot.cfg.xml else "primebot_q1"


def _other(columns: Sequence[int]) -> str:
    known = KNOWN_ROBOTS.get(len(columns))
    action = "retarget it, or set drop_joints to leave joints out, or robot.xml to its robot"
    return f"{len(columns)} joints: {known}? {action}" if known else action


def _bodies(arrays: dict[str, Array], raw: RawMotion, robot: Robot, path: Path, problems: list[Finding]) -> Ints | None:
    """Which body each row is, by names; rows with other names are left out. (R,) or None without names."""
    if raw.body_names is None or "body_pos_w" not in arrays:
        return None
    names, rows = list(raw.body_names), arrays["body_pos_w"].shape[1]
    known = [i for i, n in enumerate(names) if n in robot.body_names]
    if len(names) != rows or robot.body_names[robot.root - 1] not in names or len(set(names)) < len(names):
        surplus = [n for n in names if n not in robot.body_names]
        lacking = [n for n in robot.body_names if n not in names]
        found = f"{len(names)} names for {rows} rows; lacks {first(lacking) or 'none'}; "
        found += f"has besides {first(surplus) or 'none'}"
        allowed = f"a name for each row, once, {robot.body_names[robot.root - 1]} among them"
        problems.append(error("body-names", f"{path}: body_names", found, allowed))
        return None
    for key in ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"):
        if key in arrays:
            arrays[key] = arrays[key][:, known]
    return np.array([robot.body_names.index(names[i]) for i in known], np.intp)


def _lengths(
    arrays: dict[str, Array], path: Path, problems: list[Finding], findings: list[Finding]
) -> dict[str, Array]:
    """One number of frames; a difference of one frame is cut off."""
    lengths = {key: len(array) for key, array in arrays.items()}
    shortest = min(lengths.values(), default=0)
    if len(set(lengths.values())) > 1:
        found = f"frames: {', '.join(f'{key} {n}' for key, n in lengths.items())}"
        if max(lengths.values()) - shortest > 1 or not shortest:
            problems.append(error("frames", str(path), found, "one number of frames", "export it again"))
        else:
            findings.append(warn("frames", str(path), found, "one number of frames", f"cut to {shortest}"))
    elif not shortest and not problems:
        problems.append(error("frames", str(path), "0 frames", "at least 2"))
    return {key: array[:shortest] for key, array in arrays.items()}


def _wanted_frames(
    arrays: dict[str, Array], cfg: MotionCfg, path: Path, problems: list[Finding], findings: list[Finding]
) -> dict[str, Array]:
    """The frames that config asks for, and a word about very few."""
    frames = len(arrays["joint_pos"])
    if cfg.frames is not None:
        a, b = cfg.frames
        if b >= frames:
            allowed = f"0 to {frames - 1}, both included"
            problems.append(error("frames", str(path), f"frames [{a}, {b}] of {frames}", allowed, "mend motion.frames"))
            return arrays
        arrays = {key: array[a : b + 1] for key, array in arrays.items()}
        frames = b - a + 1
    if frames == 1 and not cfg.hold_seconds:
        action = setting(path, "hold_seconds", 2) + " to hold it"
        problems.append(error("frames", str(path), "static pose: 1 frame", "at least 2", action))
    elif 1 < frames <= SHORT:
        findings.append(warn("frames", str(path), f"{frames} frames", f"more than {SHORT}", "a very short clip"))
    return arrays


def _gaps(
    arrays: dict[str, Array],
    robot: Robot,
    rows: Ints | None,
    path: Path,
    problems: list[Finding],
    findings: list[Finding],
) -> tuple[dict[str, Array], NDArray[np.bool_]]:
    """Frames that are no numbers: short gaps of what counts are interpolated; of what is recomputed anyway, left.

    Returns:
        The arrays, and the frames that lack the root but not all bodies, (T,).
    """
    lost_root = np.zeros(max(map(len, arrays.values())), bool)
    for name, array in list(arrays.items()):
        fine = np.isfinite(array) & (np.abs(array) < UNBELIEVABLE)
        if fine.all():
            continue
        where, bad = f"{path}: {name}", np.flatnonzero(~fine.reshape(len(array), -1).all(axis=1))
        found = f"NaN, infinite or beyond {UNBELIEVABLE:g} in {len(bad)} frames: {spans(bad)}"
        array = np.where(fine, array, np.nan)
        if name.endswith("_vel") or name.endswith("_vel_w"):
            findings.append(warn("not-finite", where, found, "", "recomputed"))
            arrays[name] = array
            continue
        counts = np.asarray(np.isnan(array).any(axis=-1))
        how = "interpolated"
        if counts.ndim == 2:  # bodies: all but the root's are rebuilt
            rest = np.delete(counts, _root_row(array, robot, rows), axis=1)
            if rest.any():
                rebuilt = f"of bodies besides the root in {rest.any(axis=1).sum()} frames: "
                rebuilt += spans(np.flatnonzero(rest.any(axis=1)))
                findings.append(warn("not-finite", where, f"NaN {rebuilt}", "", "rebuilt by forward kinematics"))
            counts = counts[:, _root_row(array, robot, rows)]
            if not rest[counts].all(axis=1).any():
                lost_root |= counts
                how = "rebuilt from the other bodies"
        longest = max((b - a + 1 for a, b in runs_of(np.flatnonzero(counts))), default=0)
        if longest > LONGEST_GAP or counts[0] or counts[-1] or (counts.any() and (~counts).sum() < 4):
            allowed = f"numbers, or gaps of at most {LONGEST_GAP} frames inside the clip"
            problems.append(error("not-finite", where, found, allowed, "cut them off with motion.frames"))
        elif counts.any():
            findings.append(warn("not-finite", where, found, "", how))
            if array.ndim == 3:
                row = _root_row(array, robot, rows)
                array[:, row] = fill(_signed(array[:, row]), counts)
            else:
                array = fill(_signed(array), counts)
            arrays[name] = array
            continue
        arrays[name] = array
    return arrays, lost_root


def _root_row(array: Array, robot: Robot, rows: Ints | None) -> int:
    if rows is not None:
        return int(np.flatnonzero(rows == robot.root - 1)[0])
    return min(robot.root - 1 + (array.shape[1] == len(robot.body_names) + 1), array.shape[1] - 1)


def _signed(values: Array) -> Array:
    """Quaternions with signs that can be interpolated; anything else as it is. (T, n)."""
    if values.shape[-1] != 4:
        return values
    good = ~np.isnan(values).any(axis=-1)
    values = values.copy()
    values[good] = rotations.continuous(values[good])
    return values


def _quaternions(quat: Array, where: str, problems: list[Finding], findings: list[Finding]) -> Array:
    """Refuse what is no rotation; small deviations are normalised later. (T, ..., 4)."""
    with np.errstate(over="ignore"):
        norm = np.linalg.norm(quat, axis=-1)
    norm = np.nan_to_num(norm, nan=1.0, posinf=np.inf)  # gaps are looked at elsewhere
    off = np.abs(norm - 1).reshape(len(quat), -1).max(axis=1, initial=0)
    if (off > MAX_NORM_ERROR).any():
        bad = np.flatnonzero(off > MAX_NORM_ERROR)
        worst = norm.reshape(len(quat), -1)[bad[0]]
        found = f"length {worst[np.abs(worst - 1).argmax()]:.3g} in frame {bad[0]}, {len(bad)} frames: {spans(bad)}"
        allowed = f"length 1 ± {MAX_NORM_ERROR:g}"
        problems.append(error("quaternions", where, found, allowed, "is it quaternions, all four components?"))
        return quat
    if (off > NORM_ROUNDING).any():
        found = f"lengths off by up to {off.max():.2g}; made 1"
        findings.append(Finding("INFO", "quaternions", where, found))
    return quat
