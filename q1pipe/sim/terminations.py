"""Why episodes end. A cause is a number, the first that holds in this order.

Terminations (the value of what would follow is zero): anchor_z, tilt, body_z, sim_unstable.
Truncations (bootstrapped with the value of the true final observation): motion_end, time_out.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TerminationCfg
from q1pipe.robot import Robot
from q1pipe.sim import kernels
from q1pipe.sim.kernels import Cause
from q1pipe.sim.reference import Step

Bools = NDArray[np.bool_]


def truncated(cause: NDArray[np.integer]) -> Bools:
    """Which episodes were only cut off: they could have gone on."""
    return cause >= Cause.MOTION_END


def failed(cause: NDArray[np.integer]) -> Bools:
    """Which episodes ended because something went wrong."""
    return (cause != Cause.NONE) & ~truncated(cause)


DEPARTURES = (Cause.ANCHOR_Z, Cause.TILT, Cause.BODY_Z)  # what ends an episode for being far from the reference


class Limits(NamedTuple):
    """What the config says of the departures, for a robot.

    Attributes:
        values: (2 + K,) above which an episode ends.
        tilt_z: tilt is |Δg_z|.
    """

    values: NDArray[np.float64]
    tilt_z: bool

    @classmethod
    def of(cls, robot: Robot, cfg: TerminationCfg) -> Self:
        """From the config."""
        scale = length_scale(robot, cfg)
        heights = [limit * scale for limit in cfg.body_z.values()]
        return cls(np.array([cfg.anchor_z * scale, cfg.tilt, *heights]), cfg.tilt_axis == "z")


def departures(s: Step, limits: Limits) -> NDArray[np.float64]:
    """How far robots are from the reference, (n, 2 + K).

    anchor_z: |z_ref − z| of the anchor. tilt: ‖Δg‖ of gravity as the anchors see it, or |Δg_z| with tilt_axis z, which
    is 0 between a robot on its back and one on its front; the vector sees it. body_z: |z_rel − z| of each watched
    body; `rel` keeps the reference's heights, so z_rel = z_ref.
    """
    values = np.empty((len(s.unstable), len(limits.values)))
    kernels.departures(s, limits.tilt_z, values)
    return values


def worst(s: Step, limits: Limits, cause: Cause) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What one of DEPARTURES looks at, and its limit, (n,) each; of several bodies, the worst."""
    columns = slice(2, None) if cause == Cause.BODY_Z else slice(cause - 1, cause)
    values, most = departures(s, limits)[:, columns], limits.values[columns]
    at = (values / most).argmax(axis=1)
    return values[np.arange(len(at)), at], most[at]


def length_scale(robot: Robot, cfg: TerminationCfg) -> float:
    """Factor of the lengths in the config: this robot's standing height over that of the robot they were made for."""
    return robot.standing_height / cfg.reference_height


def causes(s: Step, limits: Limits, motion_end: Bools, time_out: Bools) -> NDArray[np.int8]:
    """The cause of each environment's end, (n,) int8, 0 where it goes on.

    A simulation that broke is `sim_unstable` whatever else holds: its state means nothing.
    """
    result = np.empty(len(motion_end), np.int8)
    kernels.causes(s, limits, motion_end, time_out, result)
    return result


def describe(robot: Robot, cfg: TerminationCfg) -> list[tuple[str, str]]:
    """The table for people: (cause, when) in order, with the lengths of this robot."""
    scale = length_scale(robot, cfg)
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
