"""Make a sketched motion physical: model-predictive control by sampling drives the simulated robot along it.

Keyframes are a drawing; physics need not be able to follow it (hands that float, a roll that nothing pushes). Here the
robot itself, under its own PD gains and torque limits, is steered along the drawing: at every knot, candidate offsets
to the PD targets are simulated over a short horizon (MPPI: weights exp(-cost), Williams et al. 2017), and the best
blend is executed. What it really did, smoothed, is the clip: it is carried by contacts alone because it happened.
A second pass follows the smoothed first one, which removes what smoothing broke, and measures how followable it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from q1pipe import rotations
from q1pipe.log import progress
from q1pipe.motion.clip import forward_kinematics, stepping
from q1pipe.robot import Robot

Array = NDArray[np.floating]

SAMPLES = 128
HORIZON = 0.8  # s
KNOT = 0.1  # s between knots of the offsets, and between plans
ITERATIONS = 5
SIGMA = 0.15  # rad, shrinks with each iteration
SHRINK = 0.7
SMOOTHING = 0.04  # s, standard deviation of the Gaussian that smooths what was done
SETTLE = 1.0  # s of rest in the first pose before the start

# Cost of one control step. Lengths in metres and angles in radians; weights chosen so that 2 cm, 0.15 rad or one
# self-collision weigh about the same.
W_BODY, W_ORIENTATION, W_TRUNK, W_PLACE = 25.0, 0.15, 0.15, 1.0
W_SPEED, W_TORQUE, W_COLLISION, W_LIMIT = 2e-4, 2e-5, 0.02, 1.0
W_OFFSET, W_ROUGHNESS = 0.02, 0.08
COLLISION_FORCE = 10.0  # N
NEW_STATE = mujoco.mjtStage.mjSTAGE_VEL  # of the derived fields


def follow(robot: Robot, qpos: Array, fps: float, physics_hz: float, seed: int = 0) -> tuple[Array, Array]:
    """What the simulated robot does when it is steered along a sketch.

    Args:
        robot: the robot.
        qpos: the sketch, (T, nq).
        fps: frames per second; one frame is one control step.
        physics_hz: physics steps per second, as in training.
        seed: of the sampling; the result is the same for the same seed, machine and MuJoCo.

    Returns:
        The motion, (T, nq), and how closely it could follow itself: the mean distance of the tracked bodies in the
        second pass from the first, per frame, (T,) m.
    """
    model, substeps = stepping(robot, fps, physics_hz)
    start = _settle(robot, model, qpos[0])
    sketch = qpos
    for what in ("following the drawing, plan", "following what was done, plan"):
        done = _Tracker(robot, model, substeps, sketch, fps, np.random.default_rng(seed)).run(start, what)
        gap = _tracking_gap(robot, done, sketch)
        sketch = smooth(done, fps * SMOOTHING)
    return sketch, gap


def smooth(qpos: Array, sigma: float) -> Array:
    """Gaussian smoothing along time, of orientations too. (T, nq), sigma in frames."""
    out = gaussian_filter1d(qpos, sigma, axis=0, mode="nearest")
    quat = gaussian_filter1d(rotations.continuous(qpos[:, 3:7]), sigma, axis=0, mode="nearest")
    out[:, 3:7] = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    return out


def _settle(robot: Robot, model: mujoco.MjModel, qpos: Array) -> Array:
    """The pose after a second of rest. (nq,)."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    data.ctrl[robot.actuator_ids] = qpos[robot.qpos_adr]
    for _ in range(round(SETTLE / model.opt.timestep)):
        mujoco.mj_step(model, data)
    return data.qpos.copy()


def _tracking_gap(robot: Robot, done: Array, sketch: Array) -> Array:
    rows = robot.tracked - 1
    gap = forward_kinematics(robot, done)[0][:, rows] - forward_kinematics(robot, sketch)[0][:, rows]
    return np.linalg.norm(gap, axis=-1).mean(axis=-1)


@dataclass(frozen=True)
class _State:
    """One simulation's state, enough to go on exactly."""

    qpos: Array
    qvel: Array
    warmstart: Array


class _Simulations:
    """n simulations with what the cost reads bound once."""

    def __init__(self, model: mujoco.MjModel, n: int):
        self.batch = Batch(model, n, persistent=True)
        self.qpos, self.qvel, self.ctrl = (self.batch.bind(k) for k in ("qpos", "qvel", "ctrl"))
        self.warmstart = self.batch.bind("qacc_warmstart")
        self.xpos, self.xquat = self.batch.bind("xpos"), self.batch.bind("xquat")
        self.torque, self.sensors = self.batch.bind("actuator_force"), self.batch.bind("sensordata")

    def load(self, state: _State) -> None:
        self.qpos[:], self.qvel[:], self.warmstart[:] = state.qpos, state.qvel, state.warmstart

    def step(self, substeps: int) -> None:
        self.batch.step(nstep=substeps, stage=NEW_STATE)


class _Tracker:
    """MPPI over knot offsets to the reference's joint angles."""

    def __init__(
        self,
        robot: Robot,
        model: mujoco.MjModel,
        substeps: int,
        qpos: Array,
        fps: float,
        rng: np.random.Generator,
    ):
        self.robot, self.model, self.substeps, self.rng = robot, model, substeps, rng
        self.pos, self.quat = forward_kinematics(robot, qpos)
        self.pos, self.quat = self.pos[:, robot.tracked - 1], self.quat[:, robot.tracked - 1]
        self.targets = qpos[:, robot.qpos_adr]
        self.horizon, self.knot = round(HORIZON * fps), round(KNOT * fps)
        self.knots = self.horizon // self.knot + 1
        self.offsets = np.zeros((self.knots, len(robot.joint_names)))
        self.blend = np.array(
            [
                np.interp(h / self.knot, range(self.knots), row)
                for h in range(self.horizon)
                for row in np.eye(self.knots)
            ]
        ).reshape(self.horizon, self.knots)
        self.sims = _Simulations(model, SAMPLES)

    def run(self, start: Array, what: str) -> Array:
        """Drive the robot along the whole reference, and say how far it is. (nq,) -> (T, nq)."""
        real = _Simulations(self.model, 1)
        real.qpos[0] = start
        done = [start]
        knots = range(0, len(self.targets) - 1, self.knot)
        for now in progress(knots, len(knots), what):
            self._plan(now, _State(real.qpos[0].copy(), real.qvel[0].copy(), real.warmstart[0].copy()))
            targets = self.targets[now + 1 : now + 1 + self.knot]
            for target, offset in zip(targets, self.blend @ self.offsets, strict=False):
                real.ctrl[0, self.robot.actuator_ids] = target + offset
                real.step(self.substeps)
                done.append(real.qpos[0].copy())
            self.offsets = np.concatenate([self.offsets[1:], SHRINK * self.offsets[-1:]])
        return np.array(done)

    def _plan(self, now: int, state: _State) -> None:
        joints = self.offsets.shape[1]
        best = self.offsets
        for i in range(ITERATIONS):
            noise = self.rng.standard_normal((SAMPLES, self.knots, joints)) * SIGMA * SHRINK**i
            # big and small moves, of all joints and of a few: single limbs are often what is missing
            noise *= self.rng.choice([0.3, 1.0], size=(SAMPLES, 1, 1))
            noise *= self.rng.random((SAMPLES, 1, joints)) < self.rng.choice([0.25, 1.0], size=(SAMPLES, 1, 1))
            candidates = self.offsets + noise
            candidates[0], candidates[1] = self.offsets, best
            cost = self._cost(now, candidates, state)
            best = candidates[cost.argmin()]
            above = cost - cost.min()
            scale = np.quantile(above, 1 / 8) / 2 + 1e-9
            weights = np.exp(-above / scale)
            self.offsets = np.tensordot(weights / weights.sum(), candidates, axes=1)

    def _cost(self, now: int, candidates: Array, state: _State) -> Array:
        """Mean cost over the horizon of each candidate, (n, knots, J) -> (n,)."""
        sims, tracked = self.sims, self.robot.tracked
        low, high = self.robot.soft_limits.T
        sims.load(state)
        offsets = np.einsum("hk,nkj->hnj", self.blend, candidates)
        cost = np.zeros(len(candidates))
        for h, offset in enumerate(offsets):
            frame = min(now + h + 1, len(self.targets) - 1)
            sims.ctrl[:, self.robot.actuator_ids] = self.targets[frame] + offset
            sims.step(self.substeps)
            gap = sims.xpos[:, tracked] - self.pos[frame]
            place = gap[:, :1, :2].copy()  # of the first tracked body; the rest is judged relative to it
            gap[..., :2] -= place
            turn = rotations.angle(rotations.mul(sims.xquat[:, tracked], rotations.conj(self.quat[frame])))
            step = W_BODY * (gap**2).sum(-1).mean(-1) + W_PLACE * (place**2).sum((-1, -2))
            step += W_ORIENTATION * (turn**2).mean(-1) + W_TRUNK * (turn[:, :2] ** 2).sum(-1)
            step += W_SPEED * (sims.qvel**2).sum(-1) + W_TORQUE * (sims.torque**2).sum(-1)
            joints = sims.qpos[:, self.robot.qpos_adr]
            beyond = np.maximum(0, np.maximum(low - joints, joints - high)).sum(-1)
            pressed = np.linalg.norm(sims.sensors[:, self.robot.self_collision], axis=-1) > COLLISION_FORCE
            cost += np.nan_to_num(step + W_COLLISION * pressed + W_LIMIT * beyond, nan=1e3, posinf=1e3)
        cost /= self.horizon
        cost += W_OFFSET * (candidates**2).mean((1, 2))
        return cost + W_ROUGHNESS * (np.diff(candidates, axis=1) ** 2).mean((1, 2))
