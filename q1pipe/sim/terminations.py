"""Why episodes end. A cause is a number, the first that holds in this order.

Terminations (the value of what would follow is zero): anchor_z, tilt, body_z, sim_unstable.
Truncations (bootstrapped with the value of the true final observation): motion_end, time_out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import TerminationCfg
from q1pipe.robot import Robot
from q1pipe.sim.reference import Step

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]


class Cause(IntEnum):
    """Numbers of the causes, as the `cause` arrays hold them."""

    NONE = 0
    ANCHOR_Z = 1
    TILT = 2
    BODY_Z = 3
    SIM_UNSTABLE = 4
    MOTION_END = 5
    TIME_OUT = 6


def truncated(cause: NDArray[np.integer]) -> Bools:
    """Which episodes were only cut off: they could have gone on."""
    return cause >= Cause.MOTION_END


def failed(cause: NDArray[np.integer]) -> Bools:
    """Which episodes ended because something went wrong."""
    return (cause != Cause.NONE) & ~truncated(cause)


def anchor_z(s: Step, cfg: TerminationCfg) -> Bools:
    """|z_ref − z| of the anchor is above its limit."""
    value, limit = _anchor_error(s, cfg)
    return np.greater(value, limit)


def tilt(s: Step, cfg: TerminationCfg) -> Bools:
    """Gravity in the robot's anchor frame differs from gravity in the reference's: ‖Δg‖, or |Δg_z| with tilt_axis z.

    |Δg_z| is 0 between a robot on its back and one on its front; the vector sees it.
    """
    value, limit = _lean(s, cfg)
    return np.greater(value, limit)


def body_z(s: Step, cfg: TerminationCfg) -> Bools:
    """|z_rel − z| of a watched body is above its limit. `rel` keeps the reference's heights, so z_rel = z_ref."""
    values, limits = _height_errors(s, cfg)
    return np.any(np.greater(values, limits), axis=1)


TERMINATIONS: dict[Cause, Callable[[Step, TerminationCfg], Bools]] = {
    Cause.ANCHOR_Z: anchor_z,
    Cause.TILT: tilt,
    Cause.BODY_Z: body_z,
}


def worst(s: Step, cfg: TerminationCfg, cause: Cause) -> tuple[Floats, Floats]:
    """What a termination of TERMINATIONS looks at, and its limit, (n,) each; of several bodies, the worst."""
    if cause == Cause.BODY_Z:
        values, limits = _height_errors(s, cfg)
        at = (values / limits).argmax(axis=1)
        return values[np.arange(len(at)), at], limits[at].astype(np.float32)
    value, limit = _anchor_error(s, cfg) if cause == Cause.ANCHOR_Z else _lean(s, cfg)
    return value, np.full(len(value), limit, np.float32)


def _anchor_error(s: Step, cfg: TerminationCfg) -> tuple[Floats, np.float32]:
    error = s.ref.body_pos_w[:, s.anchor, 2] - s.state.body_pos_w[:, s.anchor, 2]
    return np.abs(error), np.float32(cfg.anchor_z) * length_scale(s.robot, cfg)


def _lean(s: Step, cfg: TerminationCfg) -> tuple[Floats, np.float32]:
    up, ref_up = (rotations.up(x.body_quat_w[:, s.anchor]) for x in (s.state, s.ref))
    error = ref_up - up  # gravity is minus up
    return np.abs(error[:, 2]) if cfg.tilt_axis == "z" else np.sqrt(np.square(error).sum(axis=1)), np.float32(cfg.tilt)


def _height_errors(s: Step, cfg: TerminationCfg) -> tuple[Floats, Floats]:
    limits = np.array(list(cfg.body_z.values()), np.float32) * length_scale(s.robot, cfg)
    return np.abs(s.ref.watched_z - s.state.watched_z), limits  # (n, K), (K,)


def length_scale(robot: Robot, cfg: TerminationCfg) -> np.float32:
    """Factor of the lengths in the config: this robot's standing height over that of the robot they were made for."""
    return np.float32(robot.standing_height / cfg.reference_height)


def causes(s: Step, cfg: TerminationCfg, motion_end: Bools, time_out: Bools) -> NDArray[np.int8]:
    """The cause of each environment's end, (n,) int8, 0 where it goes on.

    A simulation that broke is `sim_unstable` whatever else holds: its state means nothing.
    """
    result = np.where(motion_end, Cause.MOTION_END, np.where(time_out, Cause.TIME_OUT, Cause.NONE)).astype(np.int8)
    for cause, function in reversed(TERMINATIONS.items()):
        result[function(s, cfg)] = cause
    result[s.unstable] = Cause.SIM_UNSTABLE
    return result


def describe(robot: Robot, cfg: TerminationCfg) -> list[tuple[str, str]]:
    """The table for people: (cause, when) in order, with the lengths of this robot."""
    scale = float(length_scale(robot, cfg))
    gravity = "|Δg_z|" if cfg.tilt_axis == "z" else "‖Δg‖"
    bodies = ", ".join(f"{name} {limit * scale:.3f}" for name, limit in cfg.body_z.items())
    return [
        ("anchor_z", f"|Δz| of {robot.cfg.anchor} > {cfg.anchor_z * scale:.3f} m"),
        ("tilt", f"{gravity} > {cfg.tilt:g}"),
        ("body_z", f"|Δz| in m > {bodies}"),
        ("sim_unstable", "the physics engine warned, or a value is not finite"),
        ("motion_end", "the last frame was scored, or the last before a jump (truncation)"),
        ("time_out", "the episode is long enough (truncation)"),
    ]
