"""Everything random in the simulation: domain randomisation, resets and pushes.

Random numbers are counted, not streamed: each is a hash of (seed, purpose, environment, count, column), so what an
environment draws depends neither on the other environments nor on how they are spread over workers, and there is no
generator state to save.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.sim import draws
from q1pipe.sim.draws import Purpose
from q1pipe.sim.physics import Ids, Physics

Array = NDArray[np.float64]


class Ranges(NamedTuple):
    """What the config says of resets and pushes, for `kernels`.

    Attributes:
        seed: of the run.
        from_start: share of the episodes that start at frame 0.
        xy: ± m.
        z_from: m above the reference.
        z_to: m.
        roll_pitch: ± rad.
        yaw: ± rad.
        joint: ± rad.
        velocity: (6,) ± m/s and rad/s of the root, world axes.
        push: how strong pushes are, × velocity; 0: there are none.
        push_from: s from one to the next.
        push_to: s.
        control_hz: control steps per second.
    """

    seed: np.uint64
    from_start: float
    xy: float
    z_from: float
    z_to: float
    roll_pitch: float
    yaw: float
    joint: float
    velocity: Array
    push: float
    push_from: float
    push_to: float
    control_hz: float

    @classmethod
    def of(cls, cfg: TrainCfg, push: float) -> Self:
        """From the config, with pushes of a strength."""
        r = cfg.reset
        velocity = np.array([r.vel_xy, r.vel_xy, r.vel_z, r.vel_roll_pitch, r.vel_roll_pitch, r.vel_yaw])
        return cls(
            word(cfg.seed),
            r.from_start,
            r.xy,
            *r.z,
            r.roll_pitch,
            r.yaw,
            r.joint,
            velocity,
            push,
            *cfg.randomization.push_interval,
            cfg.control_hz,
        )


def uniform(seed: int, purpose: Purpose, env_ids: Ids, count: NDArray[np.integer], width: int) -> Array:
    """Uniform numbers in [0, 1), (n, width): the same for the same arguments, whatever else is drawn.

    Args:
        seed: of the run.
        purpose: what for.
        env_ids: global numbers of the environments, (n,).
        count: how often each environment has drawn for this purpose, (n,).
        width: numbers per environment.
    """
    out = np.empty((len(env_ids), width))
    draws.uniform(word(seed), purpose, env_ids, count, out)
    return out


def word(seed: int) -> np.uint64:
    """A seed, negative ones too, as 64 bits."""
    return np.array([seed], np.int64).astype(np.uint64)[0]


def _within(u: Array, limits: tuple[float, float]) -> Array:
    """Map [0, 1) to [low, high)."""
    return limits[0] + u * (limits[1] - limits[0])


def _around(u: Array, half: float | Array) -> Array:
    """Map [0, 1) to ± half."""
    return (2 * u - 1) * half


def randomize_domain(physics: Physics, cfg: TrainCfg, env_ids: Ids) -> Array:
    """Make the simulations differ, once: friction of the feet, centre of mass of the anchor body.

    Returns:
        The encoder offset of each joint, (n, J) rad.
    """
    robot, batch, ranges = physics.robot, physics.batch, cfg.randomization
    u = uniform(cfg.seed, Purpose.DOMAIN, env_ids, np.zeros(len(env_ids), np.intp), 4 + len(robot.joint_names))

    feet = np.flatnonzero(np.isin(batch.model.geom_bodyid, robot.feet))
    batch.expand("geom_friction")[:, feet, 0] = _within(u[:, :1], ranges.foot_friction)
    # MuJoCo takes the larger friction of two geoms, so the floor's would hide a slippery foot's: let the feet decide
    batch.expand("geom_priority")[:, feet] = batch.model.geom_priority[robot.floor] + 1

    batch.expand("body_ipos")[:, robot.anchor] += _around(u[:, 1:4], np.array(ranges.torso_com))
    batch.set_const()

    return _around(u[:, 4:], ranges.joint_zero)


def time_limits(cfg: TrainCfg, env_ids: Ids, steps: int) -> NDArray[np.intp]:
    """Control steps after which each environment's first episode times out, 1..steps.

    As if the run had begun at another time in each environment, so that time-outs do not come all at once.
    """
    u = uniform(cfg.seed, Purpose.FIRST_LIMIT, env_ids, np.zeros(len(env_ids), np.intp), 1)[:, 0]
    return 1 + (u * steps).astype(np.intp)
