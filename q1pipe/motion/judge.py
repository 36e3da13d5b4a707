"""Forward kinematics over all bodies as the judge of a file: which reading of its numbers puts every body in its place?

A file that was written with another convention fits exactly under that convention and under no other, so a reading
that fits is certain. A clip that has the root only cannot be judged; there the limits and the height of the robot say
what little can be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from q1pipe import rotations
from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, MotionError, error, warn
from q1pipe.motion.arrange import LONGEST_GAP, Stored
from q1pipe.motion.clip import forward_kinematics
from q1pipe.motion.raw import Trajectory, runs_of, setting, spans
from q1pipe.robot import Robot

Array = NDArray[np.floating]
Ints = NDArray[np.intp]

LOOKED_AT = 32  # frames that choose between readings; all frames are compared with the chosen one
FITS = 0.005  # m, mean over bodies, of a reading other than the plain one
MAX_TURN = 0.1  # rad, mean over frames, of each body
WXYZ, XYZW = [0, 1, 2, 3], [3, 0, 1, 2]
SCALES = {1.0: "m", 100.0: "cm", 1000.0: "mm"}
TILT_DOUBT = 10.0  # degrees
LAST_SECOND = 1.0  # s
OUTSIDE, MOST_OUTSIDE = 0.3, 0.3  # rad beyond a limit; share of the joints
LOWEST_ROOT = 0.03  # × standing height: a root lower than that is not in centimetres either


@dataclass(frozen=True, eq=False)
class _Reading:
    """One way to read the numbers.

    Attributes:
        said: what is unusual about it, one line each.
        quat: components of the file's quaternions that are w, x, y, z.
        columns: (J,) column of each of the robot's joints.
        joint_unit: rad per number.
    """

    said: tuple[str, ...]
    quat: list[int]
    columns: Ints
    joint_unit: float


@dataclass(frozen=True, eq=False)
class _Fit:
    """How well a reading fits: distance of each compared body, (B,) m, NaN where the file has no row for it."""

    reading: _Reading
    layout: str
    scale: float
    row_of: Ints  # (B,) row of the file for each body, -1: none
    root_row: int
    gap: Array
    turn: Array

    def good(self, cfg: MotionCfg) -> bool:
        """Whether it explains the file."""
        plain = not self.reading.said and not self.layout and self.scale == 1
        close = plain or np.nanmean(self.gap) <= FITS
        return bool(close and np.nanmax(self.gap) <= cfg.max_body_error and np.nanmax(self.turn) <= MAX_TURN)


def explain(stored: Stored, robot: Robot, cfg: MotionCfg, path: Path) -> tuple[Trajectory, Stored, list[Finding]]:
    """The motion that a file means.

    Returns:
        The root's and joints' trajectory in SI units; the stored velocities with columns and rows as the trajectory's;
        a WARN for whatever had to be read in another way.

    Raises:
        MotionError: no reading puts the bodies where the file says they are.
    """
    if stored.body_pos is None or stored.body_quat is None:
        return _root_only(stored, robot, path)
    best = _best_fit(stored, robot, cfg)
    if not best.good(cfg):
        raise MotionError(_misfit(best, stored, robot, cfg, path))
    reading, where = best.reading, f"{path}: body_pos_w"
    findings = [warn(code, f"{path}: {field}", said) for code, field, said in map(_split, reading.said)]
    findings += _layout_findings(best, stored, robot, where)
    if best.scale != 1:
        top = np.nanmax(np.abs(stored.body_pos))
        unit = SCALES[best.scale]
        findings.append(warn("units", where, f"in {unit} (up to {top:.4g}); divided by {best.scale:g}"))
    trajectory = Trajectory(
        fps=stored.fps,
        root_pos=stored.body_pos[:, best.root_row] / best.scale,
        root_quat=rotations.continuous(stored.body_quat[:, best.root_row][:, reading.quat]),
        joint_pos=stored.joint_pos[:, reading.columns] * reading.joint_unit,
    )
    trajectory = _with_lost_root(best, trajectory, stored, robot)
    findings += _every_frame(best, trajectory, stored, robot, cfg, path)
    return trajectory, _matched(best, stored), findings


def _split(said: str) -> tuple[str, str, str]:
    code, field, text = said.split("|")
    return code, field, text


def _best_fit(stored: Stored, robot: Robot, cfg: MotionCfg) -> _Fit:
    """The fit with the fewest surprises that explains the file; where none does, the plain one."""
    frames = np.unique(np.linspace(0, len(stored.joint_pos) - 1, LOOKED_AT).round().astype(int))
    assert stored.body_pos is not None
    assert stored.body_quat is not None
    pos, quat = stored.body_pos[frames], stored.body_quat[frames]
    plain = None
    for reading in _readings(stored, robot):
        for root_row in _root_rows(stored, robot, reading):
            for fit in _layouts(reading, root_row, stored, robot, pos, quat, stored.joint_pos[frames]):
                plain = plain or fit
                if fit.good(cfg):
                    return fit
    assert plain is not None
    return plain


def _readings(stored: Stored, robot: Robot) -> Iterator[_Reading]:
    """Conventions of joints and quaternions, the usual ones first."""
    own = np.arange(len(robot.joint_names))
    joints: list[tuple[tuple[str, ...], Ints, float]] = [((), own, 1.0)]
    most = np.nanmax(np.abs(stored.joint_pos), initial=0)
    degrees = f"units|joint_pos|in degrees (up to {most:.4g}); converted to rad"
    joints.append(((degrees,), own, np.pi / 180))
    if not stored.named_joints:
        if (breadth := breadth_first_joints(robot)) is not None:
            moved = (breadth != own).sum()
            text = f"columns are in breadth-first (Isaac/PhysX) order, {moved} of {len(own)} moved; put in model order"
            joints.append(((f"joint-order|joint_pos|{text}",), np.argsort(breadth), 1.0))
        if (swapped := swapped_sides(robot.joint_names)) is not None:
            text = f"left and right are swapped, {(swapped != own).sum()} of {len(own)} columns; swapped back"
            joints.append(((f"swapped-sides|joint_pos|{text}",), swapped, 1.0))
    xyzw = "quaternion-order|body_quat_w|quaternions are x, y, z, w; read so"
    for quat, said in ((WXYZ, ()), (XYZW, (xyzw,))):
        for unusual, columns, unit in joints:
            yield _Reading((*unusual, *said), quat, columns, unit)


def _root_rows(stored: Stored, robot: Robot, reading: _Reading) -> list[int]:
    """Rows that may be the root's: the first, after the world's where there is one, or any."""
    assert stored.body_pos is not None
    count = stored.body_pos.shape[1]
    if stored.rows is not None:
        return [int(np.flatnonzero(stored.rows == robot.root - 1)[0])]
    usual = [row for row in (robot.root - 1, robot.root) if row < count]
    return usual if reading.said else [*usual, *(row for row in range(count) if row not in usual)]


def _layouts(
    reading: _Reading, root_row: int, stored: Stored, robot: Robot, pos: Array, quat: Array, joints: Array
) -> Iterator[_Fit]:
    """Fits of the possible orders of the rows. pos (F, R, 3), quat (F, R, 4), joints (F, J) as in the file."""
    bodies, count = len(robot.body_names), pos.shape[1]
    quat = quat[..., reading.quat]
    quat = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    known = np.isfinite(pos[:, root_row]).all(-1) & np.isfinite(quat[:, root_row]).all(-1)
    if not known.any():
        return
    pos, quat, joints = pos[known], quat[known], joints[known]
    joints = joints[:, reading.columns] * reading.joint_unit
    fk_pos, fk_quat = forward_kinematics(robot, robot.qpos(np.zeros((len(pos), 3)), quat[:, root_row], joints))
    rows = pos - pos[:, root_row, None]
    size = np.nanmean(np.linalg.norm(rows, axis=-1)) / max(np.linalg.norm(fk_pos, axis=-1).mean(), 1e-9)
    scale = min(SCALES, key=lambda s: abs(np.log(max(size, 1e-9) / s)))
    rows = rows / scale
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.linalg.norm(fk_pos[:, :, None] - rows[:, None], axis=-1)  # (F, B, R)
        turns = rotations.angle_between(fk_quat[:, :, None], quat[:, None])
        gap, turn = _mean(gaps), _mean(turns)  # (B, R)

    def fit(layout: str, row_of: Ints) -> _Fit:
        has = row_of >= 0
        at = np.where(has, row_of, 0)
        each = np.arange(bodies)
        return _Fit(
            reading,
            layout,
            scale,
            row_of,
            root_row,
            np.where(has, gap[each, at], np.nan),
            np.where(has, turn[each, at], np.nan),
        )

    if stored.rows is not None:
        row_of = np.full(bodies, -1)
        row_of[stored.rows] = np.arange(count)
        yield fit("", row_of)
        return
    own = np.arange(bodies)
    if count == bodies and root_row == robot.root - 1:
        yield fit("", own)
        yield fit("breadth-first", np.argsort(breadth_first(robot)))
    if count == bodies + 1 and root_row == robot.root and not np.nan_to_num(pos[:, 0]).any():
        yield fit("world", own + 1)
        yield fit("world breadth-first", np.argsort(breadth_first(robot)) + 1)
    cost = np.nan_to_num(gap + 1e-3 * turn, nan=1e3, posinf=1e3)
    chosen = np.full(bodies, -1)
    found, at = linear_sum_assignment(cost)
    chosen[found] = at
    chosen[robot.root - 1] = root_row
    yield fit("match", chosen)


def _mean(values: Array) -> Array:
    """Mean over the first axis of what is known; infinite where nothing is."""
    known = np.isfinite(values)
    return np.where(
        known.any(axis=0), np.where(known, values, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), np.inf
    )


def _layout_findings(fit: _Fit, stored: Stored, robot: Robot, where: str) -> list[Finding]:
    """What is to be said about rows that are not the robot's bodies in model order."""
    assert stored.body_pos is not None
    count, bodies = stored.body_pos.shape[1], len(robot.body_names)
    findings = []
    if fit.layout.startswith("world"):
        findings.append(warn("world-row", where, "row 0 is the world, at the origin; dropped"))
    moved = (fit.row_of - (count > bodies) != np.arange(bodies)).sum()
    if fit.layout.endswith("breadth-first"):
        found = f"bodies are in breadth-first (Isaac/PhysX) order, {moved} of {bodies} rows moved; put in model order"
        findings.append(warn("body-order", where, found))
    elif fit.layout == "match" and count == bodies:
        found = f"bodies are in another order, {moved} of {bodies} rows moved; matched by forward kinematics"
        findings.append(warn("body-order", where, found))
    elif count != bodies and not fit.layout.startswith("world"):
        found = f"{count} body rows, robot has {bodies}; rebuilt by forward kinematics"
        findings.append(warn("body-rows", where, found))
    return findings


def _with_lost_root(fit: _Fit, trajectory: Trajectory, stored: Stored, robot: Robot) -> Trajectory:
    """Where the file lost its root, put it where another body says that it is."""
    frames = np.flatnonzero(stored.lost_root)
    assert stored.body_pos is not None
    assert stored.body_quat is not None
    if not len(frames):
        return trajectory
    others = np.flatnonzero((fit.row_of >= 0) & (np.arange(len(fit.row_of)) != robot.root - 1))
    rows, each = fit.row_of[others], np.arange(len(frames))
    pos = stored.body_pos[frames][:, rows] / fit.scale  # (F, others, 3)
    quat = stored.body_quat[frames][:, rows][..., fit.reading.quat]
    known = np.isfinite(pos).all(axis=-1) & np.isfinite(quat).all(axis=-1)
    chosen = known.argmax(axis=1)  # a body that is known
    origin = robot.qpos(np.zeros(3), np.array([1.0, 0, 0, 0]), trajectory.joint_pos[frames])
    arm, turn = (x[each, others[chosen]] for x in forward_kinematics(robot, origin))  # seen from the root
    root_pos, root_quat = trajectory.root_pos.copy(), trajectory.root_quat.copy()
    there, at = known.any(axis=1), quat[each, chosen]
    found = rotations.mul(at / np.linalg.norm(at, axis=-1, keepdims=True), rotations.conj(turn))
    root_quat[frames[there]] = found[there]
    root_pos[frames[there]] = (pos[each, chosen] - rotations.rotate(found, arm))[there]
    return replace(trajectory, root_pos=root_pos, root_quat=rotations.continuous(root_quat))


def _every_frame(
    fit: _Fit, trajectory: Trajectory, stored: Stored, robot: Robot, cfg: MotionCfg, path: Path
) -> list[Finding]:
    """Compare all frames with the reading that fits most of them.

    Raises:
        MotionError: a body is elsewhere on average, or for longer than a glitch.
    """
    assert stored.body_pos is not None
    pos, _ = forward_kinematics(robot, robot.qpos(trajectory.root_pos, trajectory.root_quat, trajectory.joint_pos))
    has = np.flatnonzero(fit.row_of >= 0)
    gap = np.linalg.norm(pos[:, has] - stored.body_pos[:, fit.row_of[has]] / fit.scale, axis=-1)  # (T, compared)
    mean = _mean(gap)
    where = f"{path}: body_pos_w"
    if mean.max() > cfg.max_body_error:
        full = np.full(len(robot.body_names), np.nan)
        full[has] = mean
        raise MotionError(_elsewhere(full, robot, cfg, where))
    gap = np.nan_to_num(gap, nan=0.0)
    bad = np.flatnonzero(gap.max(axis=1) > 2 * cfg.max_body_error)
    if not len(bad):
        return []
    frame, body = np.unravel_index(gap.argmax(), gap.shape)
    name = robot.body_names[has[body]]
    found = f"{name} is {gap[frame, body]:.3f} m from where root and joints put it in frame {frame}; "
    found += f"{len(bad)} frames differ: {spans(bad)}"
    if max(b - a + 1 for a, b in runs_of(bad)) > LONGEST_GAP:
        action = "which of them is wrong? mend it, or cut with motion.frames"
        raise MotionError(error("kinematics", where, found, f"within {cfg.max_body_error:g} m", action))
    return [warn("kinematics", where, found, f"within {cfg.max_body_error:g} m", "rebuilt by forward kinematics")]


def _matched(fit: _Fit, stored: Stored) -> Stored:
    """Stored velocities in the columns and rows of the reading, for the checks of velocities."""
    velocities = {}
    for name, array in stored.velocities.items():
        if name == "joint_vel":
            velocities[name] = array[:, fit.reading.columns]
        elif (fit.row_of >= 0).all() and fit.row_of.max() < array.shape[1]:
            velocities[name] = array[:, fit.row_of]
    return Stored(**{**vars(stored), "velocities": velocities})


def _misfit(fit: _Fit, stored: Stored, robot: Robot, cfg: MotionCfg, path: Path) -> Finding:
    assert stored.body_pos is not None
    count, bodies = stored.body_pos.shape[1], len(robot.body_names)
    if count != bodies and stored.rows is None:
        found = f"{count} body rows, robot has {bodies}, and root and joints do not put them where the file says"
        action = "is the clip for another robot? add body_names and joint_names"
        return error("body-rows", f"{path}: body_pos_w", found, f"{bodies} rows of bodies", action)
    if np.nanmax(fit.gap) <= cfg.max_body_error:
        worst = np.argsort(-np.nan_to_num(fit.turn))[:5]
        found = f"{(fit.turn > MAX_TURN).sum()} of {bodies} bodies are turned: "
        found += ", ".join(f"{robot.body_names[b]} {fit.turn[b]:.2f} rad" for b in worst)
        allowed = f"within {MAX_TURN:g} rad of what root and joints say"
        return error("kinematics", f"{path}: body_quat_w", found, allowed, "a joint or its body is wrong; export again")
    return _elsewhere(fit.gap, robot, cfg, f"{path}: body_pos_w")


def _elsewhere(gap: Array, robot: Robot, cfg: MotionCfg, where: str) -> Finding:
    worst = np.argsort(-np.nan_to_num(gap))[:5]
    found = f"{(gap > cfg.max_body_error).sum()} of {len(gap)} bodies are not where root and joints put them: "
    found += ", ".join(f"{robot.body_names[b]} {gap[b]:.3f} m" for b in worst)
    action = "no usual order of bodies, joints or quaternions explains it: is the clip for another robot?"
    allowed = f"within {cfg.max_body_error:g} m on average"
    return error("kinematics", where, found, allowed, action + " Add body_names and joint_names")


def _root_only(stored: Stored, robot: Robot, path: Path) -> tuple[Trajectory, Stored, list[Finding]]:
    """A motion without bodies: units by the robot's limits and height, a doubt about the quaternion's order."""
    assert stored.root_pos is not None
    assert stored.root_quat is not None
    findings: list[Finding] = []
    joints, root = stored.joint_pos, stored.root_pos
    limited = np.isfinite(robot.limits).all(axis=1)
    low, high = robot.limits[limited].T

    def share_outside(values: Array) -> float:
        beyond = np.maximum(low - values[:, limited], values[:, limited] - high)
        return float((beyond.max(axis=0, initial=0) > OUTSIDE).mean()) if limited.any() else 0.0

    if share_outside(joints) > MOST_OUTSIDE and share_outside(joints * np.pi / 180) == 0:
        found = f"in degrees (up to {np.abs(joints).max():.4g}); converted to rad"
        findings.append(warn("units", f"{path}: joint_pos", found))
        joints = joints * np.pi / 180
    top, height = float(np.abs(root[:, 2]).max(initial=0)), robot.standing_height
    if top > 3 * height and LOWEST_ROOT * height < top / 100 < 2 * height:
        findings.append(warn("units", f"{path}: root_pos", f"in cm (height up to {top:.4g}); divided by 100"))
        root = root / 100
    quat = rotations.continuous(stored.root_quat)
    if stored.doubtful_quat:
        findings += _quat_doubt(stored, quat, path)
    kept = {k: v for k, v in stored.velocities.items() if k == "joint_vel"}
    trajectory = Trajectory(stored.fps, root, quat, joints)
    return trajectory, Stored(**{**vars(stored), "velocities": kept}), findings


def _quat_doubt(stored: Stored, quat: Array, path: Path) -> list[Finding]:
    """WARN when the end of the clip is more upright in the other order of the quaternion."""

    def tilt(order: list[int]) -> float:
        last = quat[-max(1, round(LAST_SECOND * stored.fps)) :][:, order]
        last = last / np.linalg.norm(last, axis=-1, keepdims=True)
        up = rotations.rotate(last, np.broadcast_to(np.array([0.0, 0.0, 1.0]), (len(last), 3)))
        return float(np.degrees(np.arccos(np.clip(up[:, 2], -1, 1))).mean())

    read, other = stored.doubtful_quat, "wxyz" if stored.doubtful_quat == "xyzw" else "xyzw"
    here, there = tilt(WXYZ), tilt([1, 2, 3, 0] if read == "xyzw" else [3, 0, 1, 2])
    if there >= here - TILT_DOUBT:
        return []
    found = f"read as {read}, the root is tilted by {here:.0f}° in the last second; as {other}, by {there:.0f}°"
    action = (
        f"if it is {other}: {setting(path, 'csv_quat', other)} for a CSV; else name it root_quat (wxyz) or root_rot"
    )
    return [warn("quaternion-order", f"{path}: root", found, "", action)]


def breadth_first(robot: Robot) -> Ints:
    """Rows of the bodies in breadth-first order: the k-th body of such a file is row result[k]. (B,)."""
    parents = robot.model.body_parentid
    order, queue = [], [b for b in range(1, robot.model.nbody) if parents[b] == 0]
    while queue:
        body = queue.pop(0)
        order.append(body - 1)
        queue += [b for b in range(1, robot.model.nbody) if parents[b] == body]
    return np.array(order, np.intp)


def breadth_first_joints(robot: Robot) -> Ints | None:
    """The robot's joints in breadth-first order of their bodies, (J,); None where that is the model's order."""
    body_of = [int(robot.model.joint(name).bodyid[0]) - 1 for name in robot.joint_names]
    rank = np.argsort(breadth_first(robot))
    order = np.argsort(rank[body_of], kind="stable")
    return None if (order == np.arange(len(order))).all() else order


def swapped_sides(names: tuple[str, ...]) -> Ints | None:
    """Index of the other side's joint for each, itself in the middle, (J,); None where sides have no names."""
    other = [n.replace("left", "\0").replace("right", "left").replace("\0", "right") for n in names]
    if set(other) != set(names) or list(names) == other:
        return None
    return np.array([names.index(n) for n in other], np.intp)
