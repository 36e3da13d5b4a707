"""Is the motion that a file means a good one? Rates, velocities, jumps, axes, limits, floor; and certain repairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, error, warn
from q1pipe.geometry import lowest_points
from q1pipe.motion.arrange import Stored, fill
from q1pipe.motion.clip import Clip, angular_velocity, differentiate, forward_kinematics
from q1pipe.motion.raw import Trajectory, runs_of, setting, spans
from q1pipe.robot import Robot

Array = NDArray[np.floating]

SAME_RATE = 0.02  # of the ratio of stored velocities to differences
ALIKE = 0.98  # correlation of velocities that are the same but for a factor
MAX_DISAGREEMENT = 0.2  # of stored velocities, × the size of the differences
STILL = 0.02  # rad/s or m/s, root mean square: too slow to tell anything from velocities
LOOKED_AT = 3000  # frames in a row that velocities are compared in
JUMPS = {"root": 3.0, "turn of the root": 15.0, "joint": 15.0}  # m/s, rad/s: slower steps are motion
JUMP_RATIO = 5.0  # × the steps around it
NEIGHBOURS = 4  # steps on each side
DUPLICATES = 3  # frames
SLIGHT = 0.1  # rad beyond a limit that is clamped
TOUCH = 1e-3  # rad beyond a limit that is rounding
FLOOR_OFFSET = 0.01  # m
PENETRATION, DEEP = 0.02, 0.06  # m
CHUNK = 1000  # frames whose geoms are placed at once
CONSTANT, MOST = 0.05, 0.8  # m, share of the frames: the lowest point along an axis that may be up
UPRIGHT = np.cos(np.radians(45))


def check_rate(
    stored: Stored, motion: Trajectory, robot: Robot, cfg: MotionCfg, path: Path
) -> tuple[Trajectory, list[Finding]]:
    """Stored velocities against differences of the poses: they tell a wrong frame rate, or are wrong themselves.

    Velocities of the normalised clip come from the poses in any case.
    """
    if motion.frames < 3:
        return motion, []
    slopes, findings = {}, []
    for name, given, own in _velocity_pairs(stored, motion, robot):
        size = float(np.sqrt(np.mean(own**2)))
        known = np.isfinite(given).all(axis=1)
        if size < STILL or known.sum() < 3:
            continue
        speed = np.linalg.norm(own, axis=1)
        steady = known & (speed <= np.quantile(speed[known], 0.95))  # jumps are looked at elsewhere
        v, d = given[steady], own[steady]
        product, vv, dd = float((v * d).sum()), float((v * v).sum()), float((d * d).sum())
        where = f"{path}: {name}"
        if vv == 0:
            findings.append(warn("velocities", where, "all zero; recomputed from the poses"))
            continue
        slope, correlation = product / dd, product / np.sqrt(vv * dd)
        if correlation > ALIKE and slope > 0:
            slopes[name] = slope
        elif (off := float(np.sqrt(((v - d) ** 2).sum() / dd))) > MAX_DISAGREEMENT:
            found = f"differs from the poses' by {100 * off:.0f} % (correlation {correlation:.2f}); recomputed"
            findings.append(warn("velocities", where, found))
    if not slopes or all(abs(s - 1) <= SAME_RATE for s in slopes.values()):
        return motion, findings
    ratio = float(np.median(list(slopes.values())))
    if len(slopes) > 1 and max(slopes.values()) - min(slopes.values()) > SAME_RATE * ratio:
        for name, slope in slopes.items():  # they disagree among themselves: no frame rate makes all of them right
            if abs(slope - 1) > SAME_RATE:
                findings.append(warn("velocities", f"{path}: {name}", f"{slope:.3f} × the poses'; recomputed"))
        return motion, findings
    implied = motion.fps * ratio
    found = f"velocities imply {implied:.1f} fps, file says {motion.fps:g}"
    where = f"{path}: fps"
    if cfg.trust == "velocity":
        return replace(motion, fps=round(implied, 2)), [*findings, warn("fps", where, found, "", f"{implied:.2f} used")]
    if cfg.trust == "fps" or cfg.fps is not None:
        return motion, [*findings, warn("fps", where, found, "", f"{motion.fps:g} used, velocities recomputed")]
    action = f"{setting(path, 'trust', 'velocity')}, or trust: fps"
    return motion, [*findings, error("fps", where, found, f"ratio 1 ± {SAME_RATE:g}, here {ratio:.3f}", action)]


def _velocity_pairs(stored: Stored, motion: Trajectory, robot: Robot) -> list[tuple[str, Array, Array]]:
    """Name, stored velocity and differences, both (T, n), of a stretch of the clip."""
    part = slice(0, LOOKED_AT)
    pairs = []
    if "joint_vel" in stored.velocities:
        own = differentiate(motion.joint_pos[part], motion.fps)
        pairs.append(("joint_vel", stored.velocities["joint_vel"][part], own))
    bodies = [name for name in ("body_lin_vel_w", "body_ang_vel_w") if name in stored.velocities]
    if bodies:
        qpos = robot.qpos(motion.root_pos[part], motion.root_quat[part], motion.joint_pos[part])
        pos, quat = forward_kinematics(robot, qpos)
        own_of = {"body_lin_vel_w": differentiate(pos, motion.fps)}
        own_of["body_ang_vel_w"] = angular_velocity(rotations.continuous(quat), motion.fps)
        for name in bodies:
            given = stored.velocities[name][part]
            if given.shape[1] == pos.shape[1]:
                pairs.append((name, given.reshape(len(pos), -1), own_of[name].reshape(len(pos), -1)))
    return pairs


def check_duplicates(stored: Stored, motion: Trajectory, path: Path) -> list[Finding]:
    """WARN for runs of equal frames in the middle of a motion."""
    steps = np.abs(np.diff(np.concatenate([motion.root_pos, motion.joint_pos], axis=1), axis=0)).max(axis=1)
    speed = stored.velocities.get("joint_vel")
    found = []
    for a, b in runs_of(np.flatnonzero(steps < 1e-9)):
        around = np.concatenate([steps[max(a - 2, 0) : a], steps[b + 1 : b + 3]]) * motion.fps
        stored_speed = np.abs(speed[a + 1 : b + 1]) if speed is not None else np.zeros(1)
        moving = np.nanmax(stored_speed, initial=0) > 0.1 or (len(around) and around.min() > 1.0)
        if b - a + 1 >= DUPLICATES and moving:
            found.append((a, b + 1))
    if not found:
        return []
    frames = [f for a, b in found for f in range(a + 1, b + 1)]
    said = f"frames {spans(frames)} are copies of the one before, in the middle of a motion"
    return [warn("duplicates", str(path), said, "", "the robot is asked to stop dead; export them again")]


def check_jumps(motion: Trajectory, robot: Robot, cfg: MotionCfg, path: Path) -> tuple[Trajectory, list[Finding]]:
    """A single frame that is elsewhere is interpolated; a jump that lasts is an ERROR, or kept and marked."""
    if motion.frames < 2 * NEIGHBOURS:
        return motion, []
    quat = motion.root_quat / np.linalg.norm(motion.root_quat, axis=-1, keepdims=True)
    steps = {
        "root": np.linalg.norm(np.diff(motion.root_pos, axis=0), axis=1),
        "turn of the root": rotations.angle_between(quat[1:], quat[:-1]),
        "joint": np.abs(np.diff(motion.joint_pos, axis=0)).max(axis=1, initial=0),
    }
    findings: list[Finding] = []
    kept: set[int] = set()
    parts = {"root": motion.root_pos, "turn of the root": motion.root_quat, "joint": motion.joint_pos}
    for what, step in steps.items():
        jumps = _jumps(step, JUMPS[what] / motion.fps)
        single = [k for k in jumps if k + 1 in jumps and k - 1 not in jumps and _returns(parts[what], k)]
        lasting = [k for k in jumps if k not in single and k - 1 not in single]
        unit = "m/s" if what == "root" else "rad/s"
        limit = f"{JUMPS[what]:g} {unit} where the steps around are {JUMP_RATIO:g} times smaller"
        if single:
            bad = np.zeros(motion.frames, bool)
            bad[[k + 1 for k in single]] = True
            parts[what] = fill(parts[what], bad)
            found = (
                f"{_name(what, motion, robot, single[0])} jumps away and back at {step[single].max() * motion.fps:.1f}"
            )
            found += f" {unit} in frame {spans(np.flatnonzero(bad))}"
            findings.append(warn("outlier", str(path), found, limit, "interpolated"))
        if lasting:
            k = lasting[0]
            found = f"{_name(what, motion, robot, k)} jumps by {step[k]:.3g} {unit[:-2]} from frame {k} to {k + 1}, "
            found += f"{step[k] * motion.fps:.1f} {unit}; {len(lasting)} jumps: after frame {spans(lasting)}"
            if cfg.allow_jumps:
                kept.update(lasting)
                findings.append(warn("jump", str(path), found, limit, "kept; no episode crosses it"))
                continue
            action = f"split it: {setting(path, 'frames', f'[0, {k}]')}; or {setting(path, 'allow_jumps', 'true')}"
            findings.append(error("jump", str(path), found, limit, action))
    motion = replace(motion, root_pos=parts["root"], root_quat=parts["turn of the root"], joint_pos=parts["joint"])
    return replace(motion, jumps=tuple(sorted(kept))), findings


def _jumps(step: Array, least: float) -> list[int]:
    """Steps that are fast and far longer than those around them."""
    found = []
    for k in np.flatnonzero(step > least):
        a, b = max(k - 1 - NEIGHBOURS, 0), k + 2 + NEIGHBOURS
        around = np.concatenate([step[a : max(k - 1, 0)], step[k + 2 : b]])
        if len(around) and step[k] > JUMP_RATIO * np.quantile(around, 0.75):
            found.append(int(k))
    return found


def _returns(values: Array, k: int) -> bool:
    """Whether the value after next is back where this one was, as far as such a step is concerned."""
    return bool(np.abs(values[k + 2] - values[k]).max() < 0.5 * np.abs(values[k + 1] - values[k]).max())


def _name(what: str, motion: Trajectory, robot: Robot, k: int) -> str:
    if what == "joint":
        return robot.joint_names[int(np.abs(motion.joint_pos[k + 1] - motion.joint_pos[k]).argmax())]
    return f"{robot.body_names[robot.root - 1]}{' (turn)' if 'turn' in what else ''}"


def clamp_limits(motion: Trajectory, robot: Robot, path: Path) -> tuple[Trajectory, list[Finding]]:
    """Joints a little beyond their range are put back onto it; further beyond, they are named and left."""
    low, high = robot.limits.T
    beyond = np.maximum(low - motion.joint_pos, motion.joint_pos - high).max(axis=0)  # (J,)
    slightly = np.flatnonzero((beyond > TOUCH) & (beyond <= SLIGHT))
    if not len(slightly):
        return motion, []
    joints = motion.joint_pos.copy()
    joints[:, slightly] = np.clip(joints[:, slightly], low[slightly], high[slightly])
    names = ", ".join(f"{robot.joint_names[j]} by {beyond[j]:.3f} rad" for j in slightly)
    found = f"{len(slightly)} joints leave their range: {names}"
    finding = warn("limits", f"{path}: joint_pos", found, f"at most {TOUCH:g} rad", "clamped to the range")
    return replace(motion, joint_pos=joints), [finding]


def turn_up(motion: Trajectory, robot: Robot, cfg: MotionCfg, path: Path) -> tuple[Trajectory, list[Finding]]:
    """Z is up afterwards where config says that Y was; an ERROR where it looks so and config says nothing."""
    quarter = rotations.exp(np.array([np.pi / 2, 0, 0]))
    if cfg.up_axis == "y":
        found = f"Y is up ({setting(path, 'up_axis', 'y').removeprefix('set ')}); turned by 90° about x"
        return _turned(motion, quarter), [warn("up-axis", str(path), found)]
    if cfg.up_axis == "z":
        return motion, []
    some = np.unique(np.linspace(0, motion.frames - 1, 200).round().astype(int))
    look = replace(
        motion, root_pos=motion.root_pos[some], root_quat=motion.root_quat[some], joint_pos=motion.joint_pos[some]
    )
    as_is = _stands(look, robot)
    for turn, name in ((quarter, "Y"), (rotations.conj(quarter), "-Y")):
        if not as_is and _stands(_turned(look, turn), robot):
            found = f"looks {name}-up: turned by 90° about x, the robot stands on one floor and is upright"
            action = setting(path, "up_axis", "y") if name == "Y" else "turn it by -90° about x"
            return motion, [error("up-axis", str(path), found, "Z up", f"{action}; up_axis: z if it is right as it is")]
    return motion, []


def _turned(motion: Trajectory, quat: Array) -> Trajectory:
    pos = rotations.rotate(np.broadcast_to(quat, (motion.frames, 4)), motion.root_pos)
    return replace(motion, root_pos=pos, root_quat=rotations.mul(quat, motion.root_quat))


def _stands(motion: Trajectory, robot: Robot) -> bool:
    """Whether one floor carries the robot nearly always, and it is upright at the start or at the end."""
    low = lowest(motion, robot)
    carried = np.mean(np.abs(low - np.median(low)) < CONSTANT) >= MOST
    quat = motion.root_quat / np.linalg.norm(motion.root_quat, axis=-1, keepdims=True)
    up = rotations.rotate(quat, np.broadcast_to(np.array([0.0, 0.0, 1.0]), motion.root_pos.shape))[:, 2]
    part = max(1, motion.frames // 10)
    return bool(carried and max(up[:part].mean(), up[-part:].mean()) > UPRIGHT)


def lowest(motion: Trajectory, robot: Robot) -> Array:
    """Height of the robot's lowest point in each frame, (T,) m."""
    model, geoms = robot.model, robot.geoms
    body, local = model.geom_bodyid[geoms] - 1, model.geom_pos[geoms]
    out = np.empty(motion.frames)
    for start in range(0, motion.frames, CHUNK):
        part = slice(start, start + CHUNK)
        qpos = robot.qpos(motion.root_pos[part], motion.root_quat[part], motion.joint_pos[part])
        pos, quat = forward_kinematics(robot, qpos)
        turn = quat[:, body]
        at = pos[:, body] + rotations.rotate(turn, np.broadcast_to(local, turn[..., :3].shape))
        mat = rotations.to_matrix(rotations.mul(turn, np.broadcast_to(model.geom_quat[geoms], turn.shape)))
        out[part] = lowest_points(model, geoms, at, mat).min(axis=1)
    return out


def put_on_floor(
    motion: Trajectory, robot: Robot, cfg: MotionCfg, path: Path
) -> tuple[Trajectory, list[Finding], Array]:
    """A constant offset from the floor is taken out; what is in the floor for a while only is told.

    Returns:
        The motion, findings, and the distance of its lowest point from the floor, (T,) m.
    """
    low = lowest(motion, robot)
    hover, sink = float(np.quantile(low, 0.05)), float(np.median(low))
    offset = hover if hover > FLOOR_OFFSET else sink if sink < -FLOOR_OFFSET else 0.0
    findings, where = [], f"{path}: height"
    if offset:
        found = f"the whole clip is {abs(offset):.3f} m {'above' if offset > 0 else 'in'} the floor "
        found += f"(lowest point {low.min():.3f} to {low.max():.3f} m)"
        findings.append(warn("floor-offset", where, found, f"at most {FLOOR_OFFSET:g} m", f"moved by {-offset:+.3f} m"))
        motion, low = replace(motion, root_pos=motion.root_pos - [0, 0, offset]), low - offset
    inside = np.flatnonzero(low < -PENETRATION)
    if len(inside):
        deepest = -low.min()
        found = f"up to {deepest:.3f} m in the floor in {len(inside)} frames: {spans(inside)}"
        if deepest > DEEP and not cfg.allow_penetration:
            action = f"mend the heights, or {setting(path, 'allow_penetration', 'true')}"
            findings.append(error("penetration", where, found, f"at most {DEEP:g} m", action))
        else:
            findings.append(warn("penetration", where, found, f"at most {PENETRATION:g} m", "resets are lifted out"))
    return motion, findings, low


def check_limits(robot: Robot, clip: Clip, where: str) -> list[Finding]:
    """WARN for joints that leave their ranges, which training punishes and the robot cannot do."""
    for low, high, kind in ((*robot.limits.T, "joint range"), (*robot.soft_limits.T, "soft limits")):
        beyond = np.maximum(low - clip.joint_pos, clip.joint_pos - high).max(axis=0)  # (J,)
        over = np.flatnonzero(beyond > TOUCH)
        if len(over):
            names = ", ".join(f"{robot.joint_names[j]} by {beyond[j]:.3f} rad" for j in over[:5])
            return [warn("limits", f"{where}: joint_pos", f"{len(over)} joints leave their {kind}: {names}")]
    return []
