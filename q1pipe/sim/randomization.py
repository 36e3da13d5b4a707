"""Everything random in the simulation: domain randomisation, resets and pushes.

Random numbers are counted, not streamed: each is a hash of (seed, purpose, environment, count, column), so what an
environment draws depends neither on the other environments nor on how they are spread over workers, and there is no
generator state to save.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import ResetCfg, TrainCfg
from q1pipe.robot import Robot
from q1pipe.sim.physics import Ids, Physics
from q1pipe.sim.reference import Reference
from q1pipe.sim.sampler import start_frames

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


class Purpose(IntEnum):
    """What random numbers are for; numbers of different purposes are independent."""

    DOMAIN = 1
    START = 2
    RESET = 3
    FIRST_PUSH = 4
    PUSH = 5
    FIRST_LIMIT = 6


def uniform(seed: int, purpose: Purpose, env_ids: Ids, count: NDArray[np.integer], width: int) -> Array:
    """Uniform numbers in [0, 1), (n, width): the same for the same arguments, whatever else is drawn.

    Args:
        seed: of the run.
        purpose: what for.
        env_ids: global numbers of the environments, (n,).
        count: how often each environment has drawn for this purpose, (n,).
        width: numbers per environment.
    """
    key = _mix(np.array([seed], np.int64).astype(np.uint64) + _GOLDEN * np.array([purpose], np.uint64))
    key = _mix(key + _GOLDEN * (env_ids.astype(np.uint64) + _ONE))
    key = _mix(key + _GOLDEN * (count.astype(np.uint64) + _ONE))
    words = _mix(key[:, None] + _GOLDEN * np.arange(1, width + 1, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GOLDEN, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)


def _mix(x: Words) -> Words:
    """The finaliser of SplitMix64: a bijection that turns counters into noise. Overflow is meant."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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


def sample_starts(
    cfg: TrainCfg, env_ids: Ids, episodes: NDArray[np.integer], bin_probs: Array, frames: int
) -> NDArray[np.intp]:
    """Start frames, (n,): a fixed share at frame 0, the others from the adaptive distribution over bins."""
    u = uniform(cfg.seed, Purpose.START, env_ids, episodes, 3)
    return np.where(u[:, 0] < cfg.reset.from_start, 0, start_frames(u[:, 1], u[:, 2], bin_probs, frames))


def reset_states(
    robot: Robot,
    reference: Reference,
    cfg: TrainCfg,
    env_ids: Ids,
    episodes: NDArray[np.integer],
    frames: NDArray[np.intp],
) -> tuple[Array, Array]:
    """The reference's state at a frame per environment, plus noise: qpos (n, nq), qvel (n, nv).

    Orientation noise turns the robot about the world's axes through its root. Joints stay inside their soft limits,
    except where the reference itself is beyond them. A geom may still be below the floor: see
    `Physics.lift_out_of_floor`.
    """
    noise = cfg.reset
    u = uniform(cfg.seed, Purpose.RESET, env_ids, episodes, 12 + len(robot.joint_names))
    qpos, qvel = np.zeros((len(frames), robot.model.nq)), np.zeros((len(frames), robot.model.nv))

    qpos[:, :3] = reference.root_pos_w[frames]
    qpos[:, 0:2] += _around(u[:, 0:2], noise.xy)
    qpos[:, 2] += _within(u[:, 2], noise.z)
    roll, pitch, yaw = _around(u[:, 3:6], np.array([noise.roll_pitch, noise.roll_pitch, noise.yaw])).T
    turn = rotations.from_euler(roll, pitch, yaw)
    qpos[:, 3:7] = quat = rotations.mul(turn, reference.root_quat_w[frames].astype(np.float64))

    linear, angular = _velocity_noise(u[:, 6:12], noise)
    qvel[:, 0:3] = reference.root_lin_vel_w[frames] + linear
    qvel[:, 3:6] = rotations.rotate_inv(quat, reference.root_ang_vel_w[frames] + angular)  # world -> body frame

    q = reference.joint_pos[frames].astype(np.float64)
    low, high = np.minimum(robot.soft_limits[:, 0], q), np.maximum(robot.soft_limits[:, 1], q)
    qpos[:, robot.qpos_adr] = np.clip(q + _around(u[:, 12:], noise.joint), low, high)
    qvel[:, robot.qvel_adr] = reference.joint_vel[frames]
    return qpos, qvel


def time_limits(cfg: TrainCfg, env_ids: Ids, steps: int) -> NDArray[np.intp]:
    """Control steps after which each environment's first episode times out, 1..steps.

    As if the run had begun at another time in each environment, so that time-outs do not come all at once.
    """
    u = uniform(cfg.seed, Purpose.FIRST_LIMIT, env_ids, np.zeros(len(env_ids), np.intp), 1)[:, 0]
    return 1 + (u * steps).astype(np.intp)


def steps_to_first_push(cfg: TrainCfg, env_ids: Ids, episodes: NDArray[np.integer]) -> NDArray[np.intp]:
    """Control steps from an episode's start to its first push, (n,)."""
    return _push_steps(uniform(cfg.seed, Purpose.FIRST_PUSH, env_ids, episodes, 1)[:, 0], cfg)


def push(physics: Physics, rows: Ids, cfg: TrainCfg, env_ids: Ids, counts: NDArray[np.integer]) -> NDArray[np.intp]:
    """Kick the roots of some robots. Needs a `forward` afterwards.

    Args:
        physics: the simulations.
        rows: which of them, (k,).
        cfg: ranges.
        env_ids: their environments' global numbers, (k,).
        counts: how often each of them was pushed before, (k,).

    Returns:
        Control steps until each one's next push, (k,).
    """
    u = uniform(cfg.seed, Purpose.PUSH, env_ids, counts, 7)
    linear, angular = _velocity_noise(u[:, :6], cfg.reset)
    scale = cfg.randomization.push
    physics.qvel[rows, 0:3] += scale * linear
    physics.qvel[rows, 3:6] += scale * rotations.rotate_inv(physics.qpos[rows, 3:7], angular)  # world -> body frame
    return _push_steps(u[:, 6], cfg)


def _push_steps(u: Array, cfg: TrainCfg) -> NDArray[np.intp]:
    """Control steps to the next push, at least one, from uniform numbers (n,)."""
    seconds = _within(u, cfg.randomization.push_interval)
    return np.maximum(np.rint(seconds * cfg.control_hz), 1).astype(np.intp)


def _velocity_noise(u: Array, cfg: ResetCfg) -> tuple[Array, Array]:
    """Noise of the root's velocity from uniform numbers (n, 6): linear (n, 3) m/s, angular (n, 3) rad/s, world axes."""
    half = [cfg.vel_xy, cfg.vel_xy, cfg.vel_z, cfg.vel_roll_pitch, cfg.vel_roll_pitch, cfg.vel_yaw]
    noise = _around(u, np.array(half))
    return noise[:, :3], noise[:, 3:]
