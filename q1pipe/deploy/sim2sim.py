"""The exported policy in a simulation that shares nothing with the training but MuJoCo and the robot's MJCF.

It knows policy.onnx with its metadata, the motion, and the model; its controller is the very file that goes onto the
robot (`run_policy`). `openloop` compares it with what the training recorded; here the loop is closed: from lying, in
the world of the training and in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import EvaluateCfg, Sim2simCfg, TerminationCfg
from q1pipe.deploy.contract import Contract
from q1pipe.deploy.run_policy import Controller
from q1pipe.deploy.worlds import NOMINAL, Simulation, State, World, touching
from q1pipe.log import progress
from q1pipe.metrics import EpisodeMeans, tracking_errors
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot

Array = NDArray[Any]
Bools = NDArray[np.bool_]

ROBOT_TOUCH, REFERENCE_TOUCH = 0.002, 0.02  # m, as in evaluate: the clip gets the benefit of the doubt
DOWN = np.array([0.0, 0.0, -1.0])


def widths(robot: Robot) -> dict[str, int]:
    """The observation terms that `run_policy.Controller` builds -> their sizes."""
    j = len(robot.joint_names)
    return {
        "reference_joint_pos": j,
        "reference_joint_vel": j,
        "anchor_ori": 6,
        "base_ang_vel": 3,
        "joint_pos": j,
        "joint_vel": j,
        "last_action": j,
    }


@dataclass(eq=False)
class Outcome:
    """What the episodes of one world gave.

    Attributes:
        world: which.
        success: (n,) reached the end of the clip.
        held: (n,) and held its final pose, where success.
        ep_len: (n,) control steps.
        ends: cause of the end -> episodes.
        means: metric -> mean of each episode, (n,).
        torque_peak: (n,) largest share of a joint's torque limit.
        trace: of the nominal world: arrays by name, (T, n, …), a row per control step.
    """

    world: World
    success: Bools
    held: Bools
    ep_len: NDArray[np.int64]
    ends: dict[str, int]
    means: dict[str, Array]
    torque_peak: Array
    trace: dict[str, Array] = field(default_factory=dict)

    def summary(self) -> dict[str, float]:
        """Plain numbers by the names of `metrics.DEFINITIONS`."""
        return {
            "episodes": len(self.success),
            "success_rate": float(self.success.mean()),
            "finish_rate": float((self.success & self.held).mean()),
            "ep_len": float(self.ep_len.mean()),
            **{name: float(value.mean()) for name, value in self.means.items()},
            "torque_peak": float(self.torque_peak.mean()),
        }


@dataclass(frozen=True)
class Limits:
    """What ends an episode, and what counts as holding the final pose."""

    termination: TerminationCfg
    evaluate: EvaluateCfg


class Judge:
    """Compares robots with the clip: terminations, final pose, metrics. Nothing of it is the training's."""

    def __init__(self, robot: Robot, clip: Clip, limits: Limits):
        self.robot, self.clip, self.limits = robot, clip, limits
        self.scale = robot.standing_height / limits.termination.reference_height
        self.watched = robot.bodies(limits.termination.body_z, "config: train.termination.body_z") - 1
        self.tracked, self.anchor = robot.tracked - 1, robot.anchor - 1
        self.ends = np.array([robot.tracked.tolist().index(b) for b in robot.end_effectors])
        self.pos, self.quat = clip.body_pos_w.astype(float), clip.body_quat_w.astype(float)
        self.on_floor = touching(robot, self.pos, self.quat, REFERENCE_TOUCH)  # (T, B)
        self.last = clip.frames - max(1, round(limits.evaluate.hold_seconds * clip.fps))

    def ended(self, state: State, frame: int) -> dict[str, Bools]:
        """Cause -> (n,) where it holds, in order."""
        cfg, anchor = self.limits.termination, self.anchor
        height = np.abs(state.pos_w[..., 2] - self.pos[frame, :, 2])  # (n, B)
        lean = self._gravity(state.quat_w[:, anchor]) - self._gravity(self.quat[frame, anchor])
        limits = np.array(list(cfg.body_z.values())) * self.scale
        return {
            "anchor_z": height[:, anchor] > cfg.anchor_z * self.scale,
            "tilt": (np.abs(lean[:, 2]) if cfg.tilt_axis == "z" else np.linalg.norm(lean, axis=1)) > cfg.tilt,
            "body_z": (height[:, self.watched] > limits).any(axis=1),
        }

    def holds(self, state: State, frame: int, on_floor: Bools) -> Bools:
        """(n,) as high and upright as the reference, on the floor only with bodies that are there in the clip."""
        cfg, anchor = self.limits.evaluate, self.anchor
        high = state.pos_w[:, anchor, 2] >= cfg.hold_height * self.pos[frame, anchor, 2]
        cosine = self._gravity(state.quat_w[:, anchor]) @ self._gravity(self.quat[frame, anchor])
        elsewhere = (on_floor & ~self.on_floor[frame]).any(axis=1)
        return high & (cosine >= np.cos(np.radians(cfg.hold_tilt))) & ~elsewhere

    def errors(self, state: State, frame: int) -> dict[str, Array]:
        """The tracking metrics of one step, name -> (n,)."""
        pos, quat = self.pos[frame], self.quat[frame]
        at, turned = state.pos_w[:, self.anchor], state.quat_w[:, self.anchor]
        heading = rotations.yaw(rotations.mul(turned, rotations.conj(quat[self.anchor])))  # (n, 4)
        origin = np.concatenate([at[:, :2], np.full((len(at), 1), pos[self.anchor, 2])], axis=1)
        rel_pos = origin[:, None] + rotations.rotate(heading[:, None], pos[self.tracked] - pos[self.anchor])
        return tracking_errors(
            state.pos_w[:, self.tracked],
            state.quat_w[:, self.tracked],
            pos[self.tracked],
            rel_pos,
            rotations.mul(heading[:, None], quat[self.tracked]),
            state.joint_vel,
            self.clip.joint_vel[frame],
            self.ends,
        )

    @staticmethod
    def _gravity(quat: Array) -> Array:
        return rotations.rotate_inv(quat, DOWN)


def close_loop(
    judge: Judge,
    contract: Contract,
    controller: Controller,
    worlds: Sequence[World],
    starts: tuple[Array, Array],
    counts: Sequence[int],
    cfg: Sim2simCfg,
    threads: int,
) -> list[Outcome]:
    """Play episodes from frame 0 in worlds that make one group.

    Args:
        judge: what counts.
        contract: of the policy.
        controller: of the policy; starts anew.
        worlds: of one group.
        starts: qpos (N, nq) and qvel (N, nv) to start from; a world takes the first.
        counts: episodes of each world.
        cfg: pushes and seed.
        threads: cores.
    """
    robot, clip = judge.robot, judge.clip
    simulation = Simulation(robot, contract, worlds, counts, threads)
    first = np.concatenate([np.arange(count) for count in counts])
    state = simulation.start(starts[0][first], starts[1][first])
    rng = np.random.default_rng(cfg.seed)
    world, n = simulation.world, len(first)
    delay, push = (np.array([getattr(w, name) for w in worlds])[world] for name in ("delay", "push"))
    noise = np.array([w.noise for w in worlds])[world][:, None] * contract.noise()
    soft = robot.soft_limits[[robot.joint_names.index(name) for name in contract.joint_names]]
    push_every = max(1, round(cfg.push_interval / contract.control_dt))

    ended = np.zeros(n, bool)
    cause, held, ep_len = np.full(n, "motion_end", dtype="<U12"), np.ones(n, bool), np.zeros(n, int)
    means, torque_peak = EpisodeMeans(n), np.zeros(n)
    command = state.joint_pos.copy()
    late = [command] * (int(delay.max()) + 1)  # targets of the last steps, newest last; before the first: the pose
    last_action = controller.holding(state.measured[2])
    recorder = _Recorder(worlds, world, robot)
    what = f"{', '.join(w.name for w in worlds)}: frame"
    for frame in progress(range(1, clip.frames), clip.frames - 1, what):
        obs = controller.observe(*state.measured, frame, last_action)
        obs += (noise * rng.uniform(-1, 1, obs.shape)).astype(np.float32)
        action = controller.act(obs)
        late = [*late[1:], controller.target(action).astype(float)]
        previous, command = command, np.stack(late)[-1 - delay, np.arange(n)]
        before = state
        state = simulation.step(command, previous, np.flatnonzero(~ended))

        running = ~ended
        ep_len += running
        for name, holds in {**judge.ended(state, frame), "sim_unstable": simulation.unstable}.items():
            cause[holds & ~ended] = name
            ended |= holds
        effort = np.abs(simulation.torque) / contract.joint_effort_limits
        on_floor = simulation.touches_floor(ROBOT_TOUCH) if frame >= judge.last or recorder.on else None
        means.add(
            {
                **judge.errors(state, frame),
                "action_rate": np.square(action - last_action).sum(axis=1),
                "torque_use": effort.mean(axis=1),
                "soft_limit_use": ((state.joint_pos < soft[:, 0]) | (state.joint_pos > soft[:, 1]))
                .any(axis=1)
                .astype(float),
            },
            running,
        )
        torque_peak[running] = np.maximum(torque_peak, effort.max(axis=1))[running]
        if frame >= judge.last and on_floor is not None:
            held &= judge.holds(state, frame, on_floor)
        if recorder.on and on_floor is not None:
            recorder.add(simulation, before, state, command, running, on_floor)
        if ended.all():
            break
        last_action = action
        if push.any() and frame % push_every == 0:
            direction = rng.uniform(0, 2 * np.pi, n)
            simulation.kick(np.stack([np.cos(direction), np.sin(direction), 0 * push], axis=1) * push[:, None])
            state = simulation.read()
    result = means.result()
    outcomes = []
    for k, w in enumerate(worlds):
        mine = world == k
        causes = cause[mine].tolist()
        outcomes.append(
            Outcome(
                w,
                ~ended[mine],
                held[mine],
                ep_len[mine],
                {name: causes.count(name) for name in sorted(set(causes))},
                {name: values[mine] for name, values in result.items()},
                torque_peak[mine],
                recorder.arrays() if w.name == NOMINAL else {},
            )
        )
    return outcomes


class _Recorder:
    """The nominal world's episodes, step by step, for the safety audit and for pictures."""

    def __init__(self, worlds: Sequence[World], world: NDArray[np.intp], robot: Robot):
        names = [w.name for w in worlds]
        self.on = NOMINAL in names
        self.rows = np.flatnonzero(world == names.index(NOMINAL)) if self.on else world[:0]
        self.steps: list[dict[str, Array]] = []

    def add(
        self, simulation: Simulation, before: State, state: State, target: Array, running: Bools, on_floor: Bools
    ) -> None:
        """A control step: the pose that it began in, its target, and what came of it."""
        rows = self.rows
        step = {
            "qpos": simulation.qpos,
            "qvel": simulation.qvel,
            "ctrl": target,
            "torque": simulation.torque,
            "contact": on_floor,
            "running": running,
            "joint_pos_before": before.joint_pos,
            "joint_vel_before": before.joint_vel,
            "joint_pos": state.joint_pos,
            "joint_vel": state.joint_vel,
        }
        self.steps.append(
            {name: x[rows].astype(x.dtype if x.dtype == bool else np.float32) for name, x in step.items()}
        )

    def arrays(self) -> dict[str, Array]:
        """Name -> (T, n, …)."""
        return {name: np.stack([step[name] for step in self.steps]) for name in self.steps[0]}


def damped(
    robot: Robot, contract: Contract, qpos: Array, qvel: Array, damping: float, seconds: float, threads: int
) -> tuple[float, str]:
    """What the last command leads to, stiffness 0 and this damping: the highest joint speed after it, and whose.

    Args:
        robot: the model.
        contract: of the policy.
        qpos: (n, nq) states at the end.
        qvel: (n, nv).
        damping: N·m·s/rad.
        seconds: to watch.
        threads: cores.
    """
    model_free = Simulation(robot, contract, [World("damped")], [len(qpos)], threads)
    model_free.batch.expand("actuator_gainprm")[:, :, 0] = 0
    bias = model_free.batch.expand("actuator_biasprm")
    bias[:, :, 1], bias[:, :, 2] = 0, -damping
    model_free.start(qpos, qvel)
    fastest, joint = 0.0, contract.joint_names[0]
    zero = np.zeros((len(qpos), len(contract.joint_names)))
    for _ in range(round(seconds / contract.control_dt)):
        speed = np.abs(model_free.step(zero, zero).joint_vel).max(axis=0)
        if speed.max() > fastest:
            fastest, joint = float(speed.max()), contract.joint_names[int(speed.argmax())]
    return (float("inf") if model_free.unstable.any() else fastest), joint


def floor_forces(robot: Robot, contract: Contract, qpos: Array, qvel: Array, ctrl: Array) -> Array:
    """Normal force of the floor on each body but the world in each of T states, (T, B) N."""
    model, data = robot.model, mujoco.MjData(robot.model)
    actuators = robot.actuator_ids[[robot.joint_names.index(name) for name in contract.joint_names]]
    result, force = np.zeros((len(qpos), len(robot.body_names))), np.zeros(6)
    for t in range(len(qpos)):
        data.qpos[:], data.qvel[:], data.ctrl[actuators] = qpos[t], qvel[t], ctrl[t]
        mujoco.mj_forward(model, data)
        for i, contact in enumerate(data.contact[: data.ncon]):
            geoms = [g for g in contact.geom if g != robot.floor]
            if len(geoms) == 1:
                mujoco.mj_contactForce(model, data, i, force)
                result[t, model.geom_bodyid[geoms[0]] - 1] += force[0]
    return result
