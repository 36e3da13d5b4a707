"""What goes wrong with motion files, each as a function of the arrays of a good one (see `arrays_of`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.motion.clip import ARRAYS, Clip
from q1pipe.robot import Robot

Arrays = dict[str, Any]
BODIES = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")


def arrays_of(clip: Clip) -> Arrays:
    """The file that everyone writes: no names, fps in a list of one."""
    return {"fps": np.array([clip.fps]), **{key: getattr(clip, key) for key in ARRAYS}}


def breadth_first(robot: Robot) -> list[int]:
    """Rows of the bodies, children queued from the pelvis."""
    parents = robot.model.body_parentid[1:] - 1
    order: list[int] = []
    queue = [0]
    while queue:
        order.append(queue.pop(0))
        queue += [b for b in range(len(parents)) if parents[b] == order[-1] and b]
    return order


def breadth_first_joints(robot: Robot) -> list[int]:
    """Columns of the joints, sorted by where their bodies are in that order."""
    body = {int(robot.model.joint(n).bodyid[0]) - 1: j for j, n in enumerate(robot.joint_names)}
    return [body[b] for b in breadth_first(robot) if b in body]


def other_side(robot: Robot) -> list[int]:
    """Left and right joint columns exchanged."""
    names = list(robot.joint_names)
    return [names.index(n.replace("left", "#").replace("right", "left").replace("#", "right")) for n in names]


def rows(a: Arrays, order: Any) -> Arrays:
    """Bodies in another order."""
    return {**a, **{key: a[key][:, order] for key in BODIES}}


def columns(a: Arrays, order: Any) -> Arrays:
    """Joints in another order."""
    return {**a, "joint_pos": a["joint_pos"][:, order], "joint_vel": a["joint_vel"][:, order]}


def with_world(a: Arrays) -> Arrays:
    """A row of zeros, and identity, in front."""
    zero = np.zeros_like(a["body_pos_w"][:, :1])
    unit = np.tile(np.float32([1, 0, 0, 0]), (len(zero), 1, 1))
    front = {"body_quat_w": unit}
    return {**a, **{key: np.concatenate([front.get(key, zero), a[key]], axis=1) for key in BODIES}}


def moved(a: Arrays, by: Any, frames: Any = slice(None)) -> Arrays:
    """The whole robot elsewhere in some frames, m."""
    pos = a["body_pos_w"].copy()
    pos[frames] += np.float32(by)
    return {**a, "body_pos_w": pos}


def y_up(a: Arrays) -> Arrays:
    """Turned by -90 degrees about x."""
    turn = rotations.exp(np.array([-np.pi / 2, 0, 0]))

    def each(v: NDArray) -> NDArray:
        return rotations.rotate(np.broadcast_to(turn, (*v.shape[:-1], 4)), v)

    turned = {key: each(a[key]) for key in ("body_pos_w", "body_lin_vel_w", "body_ang_vel_w")}
    return {**a, **turned, "body_quat_w": rotations.mul(turn, a["body_quat_w"].astype(float))}


def changed(a: Arrays, key: str, where: Any, value: Any) -> Arrays:
    """One array with other numbers in it."""
    array = a[key].copy()
    array[where] = value
    return {**a, key: array}


def negated(a: Arrays, seed: int, count: int = 20) -> Arrays:
    """The same rotations, other signs, in some frames."""
    frames = np.random.default_rng(seed).choice(len(a["body_quat_w"]), count, replace=False)
    return changed(a, "body_quat_w", frames, -a["body_quat_w"][frames])


def body_frame(a: Arrays) -> Arrays:
    """Angular velocity in each body's frame instead of the world's."""
    return {**a, "body_ang_vel_w": rotations.rotate_inv(a["body_quat_w"], a["body_ang_vel_w"])}


Corruption = Callable[[Arrays, Robot, np.random.Generator], Arrays]


def _inside(a: Arrays, rng: np.random.Generator, margin: int = 8) -> int:
    return int(rng.integers(margin, len(a["joint_pos"]) - margin))


def _gap(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    k, n = _inside(a, rng, 12), int(rng.integers(1, 6))
    return changed(a, "joint_pos", (slice(k, k + n), rng.integers(len(robot.joint_names))), np.nan)


def _long_gap(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    k = _inside(a, rng, 30)
    return changed(a, "joint_pos", (slice(k, k + 12), 3), np.inf)


def _lost_bodies(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    k = _inside(a, rng, 20)
    return changed(a, "body_pos_w", (slice(k, k + 15), slice(1, None)), np.nan)


def _offset_joint(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    j = rng.integers(len(robot.joint_names))
    return changed(a, "joint_pos", (slice(None), j), a["joint_pos"][:, j] + np.float32(rng.choice([-0.3, 0.3])))


def _negated_joint(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    j = int(np.argsort(np.ptp(a["joint_pos"], axis=0))[-1 - rng.integers(5)])
    return changed(a, "joint_pos", (slice(None), j), -a["joint_pos"][:, j])


def _jump(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    return moved(a, rng.choice([-1, 1], 3) * rng.uniform(0.2, 0.6, 3) * [1, 1, 0], slice(_inside(a, rng, 20), None))


def _twitch(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    k, j = _inside(a, rng, 12), rng.integers(len(robot.joint_names))
    return changed(a, "joint_pos", (k, j), a["joint_pos"][k, j] + np.float32(rng.choice([-1.5, 1.5])))


def _lost_root(key: str, longest: int) -> Corruption:
    def corrupt(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
        k, n = _inside(a, rng, 14), int(rng.integers(1, 6)) if longest == 5 else longest
        return changed(a, key, (slice(k, k + n), 0), rng.choice([np.nan, np.inf]))

    return corrupt


def _shuffled(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    return rows(a, rng.permutation(len(robot.body_names)))


def _fewer_rows(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    n = len(robot.body_names)
    return rows(a, np.delete(np.arange(n), rng.integers(1, n, size=rng.integers(1, 4))))


def _sunk_for_a_while(a: Arrays, robot: Robot, rng: np.random.Generator) -> Arrays:
    k = _inside(a, rng, 40)
    return moved(a, [0, 0, -0.12], slice(k, k + 30))


# Any one of these, applied to a good clip, must come back as the good clip or as an ERROR that names it.
SINGLE: dict[str, Corruption] = {
    "breadth-first bodies": lambda a, r, g: rows(a, breadth_first(r)),
    "breadth-first bodies and joints": lambda a, r, g: columns(rows(a, breadth_first(r)), breadth_first_joints(r)),
    "breadth-first joints": lambda a, r, g: columns(a, breadth_first_joints(r)),
    "bodies in any order": _shuffled,
    "world row": lambda a, r, g: with_world(a),
    "fewer rows": _fewer_rows,
    "xyzw": lambda a, r, g: {**a, "body_quat_w": a["body_quat_w"][..., [1, 2, 3, 0]]},
    "swapped sides": lambda a, r, g: columns(a, other_side(r)),
    "degrees": lambda a, r, g: {**a, "joint_pos": np.degrees(a["joint_pos"]), "joint_vel": np.degrees(a["joint_vel"])},
    "degrees without velocities": lambda a, r, g: {**a, "joint_pos": np.degrees(a["joint_pos"])},
    "centimetres": lambda a, r, g: {**a, "body_pos_w": 100 * a["body_pos_w"]},
    "millimetres": lambda a, r, g: {**a, "body_pos_w": 1000 * a["body_pos_w"]},
    "wrong fps": lambda a, r, g: {**a, "fps": float(g.choice([25, 30, 60, 100, 120]))},
    "no fps": lambda a, r, g: {k: v for k, v in a.items() if k != "fps"},
    "Y up": lambda a, r, g: y_up(a),
    "above the floor": lambda a, r, g: moved(a, [0, 0, g.uniform(0.02, 1.5)]),
    "in the floor": lambda a, r, g: moved(a, [0, 0, -g.uniform(0.02, 1.5)]),
    "in the floor for a while": _sunk_for_a_while,
    "jump": _jump,
    "twitch of a joint": _twitch,
    "NaN gap": _gap,
    "long gap": _long_gap,
    "lost bodies": _lost_bodies,
    "lost root": _lost_root("body_pos_w", 5),
    "lost orientation of the root": _lost_root("body_quat_w", 5),
    "root lost for long": _lost_root("body_pos_w", 8),
    "lost root at the start": lambda a, r, g: changed(a, "body_pos_w", (0, 0), np.nan),
    "world row and breadth-first bodies": lambda a, r, g: with_world(rows(a, breadth_first(r))),
    "flipped signs": lambda a, r, g: negated(a, int(g.integers(1000))),
    "long quaternions": lambda a, r, g: {**a, "body_quat_w": a["body_quat_w"] * np.float32(g.uniform(0.96, 1.04))},
    "zero quaternions": lambda a, r, g: {**a, "body_quat_w": 0 * a["body_quat_w"]},
    "zero velocities": lambda a, r, g: {**a, **{k: 0 * a[k] for k in a if k.endswith(("_vel", "_vel_w"))}},
    "body-frame angular velocity": lambda a, r, g: body_frame(a),
    "a joint off": _offset_joint,
    "a joint negated": _negated_joint,
    "a frame more": lambda a, r, g: {**a, "joint_pos": np.concatenate([a["joint_pos"], a["joint_pos"][-1:]])},
    "ten frames less": lambda a, r, g: {**a, "body_pos_w": a["body_pos_w"][:-10]},
    "a joint less": lambda a, r, g: {**a, "joint_pos": a["joint_pos"][:, 1:]},
    "another robot": lambda a, r, g: {**a, "joint_pos": a["joint_pos"][:, g.permutation(len(r.joint_names))]},
    "objects": lambda a, r, g: {**a, "joint_pos": a["joint_pos"].astype(object)},
    "text": lambda a, r, g: {**a, "joint_pos": a["joint_pos"].astype(str)},
}


def _copied(a: Arrays, robot: Robot, rng: np.random.Generator) -> tuple[Arrays, str, slice]:
    k, n = _inside(a, rng, 30), int(rng.integers(3, 6))
    span, poses = slice(k, k + n), ("joint_pos", "body_pos_w", "body_quat_w")
    return {**a, **{key: changed(a, key, span, a[key][k - 1])[key] for key in poses}}, "duplicates", span


def _vanished(a: Arrays, robot: Robot, rng: np.random.Generator) -> tuple[Arrays, str, slice]:
    k, n = _inside(a, rng, 14), int(rng.integers(1, 4))
    return changed(a, "body_pos_w", slice(k, k + n), np.inf), "not-finite", slice(k, k + n)


def _away_and_back(a: Arrays, robot: Robot, rng: np.random.Generator) -> tuple[Arrays, str, slice]:
    k = _inside(a, rng, 12)
    return moved(a, [rng.choice([-0.5, 0.5]), 0, 0], k), "outlier", slice(k, k + 1)


# What nothing in the file can undo exactly. It is passed on with a WARN of this code that names these frames, and all
# other frames as they were.
MARKED: dict[str, Callable[[Arrays, Robot, np.random.Generator], tuple[Arrays, str, slice]]] = {
    "copied frames": _copied,
    "frames without any body": _vanished,
    "a frame elsewhere": _away_and_back,
}
