"""Other worlds: what differs from the one in which the policy was trained, as one table, and the physics of them all.

Worlds with the same time step, integrator and commands are simulated as one batch, so that the whole matrix is a few
loops. The floor stays level in the simulation: on a slope it is gravity that leans, and what is read is turned back to
the world in which gravity points down.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import Sim2simCfg
from q1pipe.deploy.contract import Contract
from q1pipe.geometry import lowest_points
from q1pipe.robot import Robot

Array = NDArray[np.floating]
Bools = NDArray[np.bool_]

NOMINAL = "nominal"
VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
FINE = 0.001  # s


@dataclass(frozen=True)
class World:
    """One world; every default is that of training.

    Attributes:
        name: short, for tables and gates.
        friction: coefficient of the floor with everything; None: the model's.
        mass: × every mass and inertia.
        strength: × stiffness, damping and torque limit of every joint.
        delay: control steps by which actions come late.
        noise: × the observation noise of training.
        push: m/s, speed given to the root now and then.
        slope: degrees of the floor.
        integrator: MuJoCo's name; empty: the model's.
        timestep: s; 0: that of training.
        ramp: targets move from one to the next in a straight line, as commands at a higher rate do.
    """

    name: str
    friction: float | None = None
    mass: float = 1
    strength: float = 1
    delay: int = 0
    noise: float = 0
    push: float = 0
    slope: float = 0
    integrator: str = ""
    timestep: float = 0
    ramp: bool = False

    @property
    def group(self) -> tuple[str, float, bool]:
        """Worlds of one group fit into one batch."""
        return self.integrator, self.timestep, self.ramp


def worlds(cfg: Sim2simCfg) -> list[World]:
    """The matrix, the nominal world first."""
    return [
        World(NOMINAL),
        World("1 ms steps", timestep=FINE),
        World("1 ms steps, Euler", timestep=FINE, integrator="EULER"),
        World("ramped targets, 1 ms", timestep=FINE, ramp=True),
        *(World(f"friction {f:g}", friction=f) for f in cfg.friction),
        *(World(f"mass {s:+.0%}", mass=1 + s) for s in (-cfg.mass, cfg.mass)),
        *(World(f"strength {s:+.0%}", strength=1 + s) for s in (-cfg.strength, cfg.strength)),
        *(World(f"delay {d} step{'s' * (d > 1)}", delay=d) for d in cfg.delay),
        World("observation noise", noise=cfg.noise),
        World(f"pushes {cfg.push:g} m/s", push=cfg.push),
        World(f"slope {cfg.tilt:g}°", slope=cfg.tilt),
    ]


@dataclass
class State:
    """What is read of n robots, float64, joints in the contract's order.

    Attributes:
        imu_quat: (n, 4) orientation of the IMU.
        gyro: (n, 3) rad/s, in its frame.
        joint_pos: (n, J) rad.
        joint_vel: (n, J) rad/s.
        pos_w: (n, B, 3) m, all bodies but the world.
        quat_w: (n, B, 4).
    """

    imu_quat: Array
    gyro: Array
    joint_pos: Array
    joint_vel: Array
    pos_w: Array
    quat_w: Array

    @property
    def measured(self) -> tuple[Array, Array, Array, Array]:
        """What the robot's sensors give, as `run_policy.Controller` takes it."""
        return self.imu_quat, self.gyro, self.joint_pos, self.joint_vel


class Simulation:
    """n robots in worlds of one group.

    Attributes:
        world: (n,) number of the world of each robot.
        unstable: (n,) whose physics broke at any time.
        qpos: (n, nq) live.
        qvel: (n, nv) live.
    """

    def __init__(self, robot: Robot, contract: Contract, group: Sequence[World], counts: Sequence[int], threads: int):
        first = group[0]
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(lambda message: None)  # no MUJOCO_LOG.TXT: `unstable` counts them
        model = copy.copy(robot.model)
        model.opt.timestep = first.timestep or contract.sim_dt
        if first.integrator:
            model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{first.integrator}")
        self.robot, self.model = robot, model
        self.substeps = round(contract.control_dt / model.opt.timestep)
        self.ramp = first.ramp
        self.world = np.repeat(np.arange(len(group)), counts)
        n = len(self.world)
        self.batch = Batch(model, n, threads, persistent=True)
        self.qpos, self.qvel, self.ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self.warmstart = self.batch.bind("qacc_warmstart")
        self._xpos, self._xquat = self.batch.bind("xpos"), self.batch.bind("xquat")
        self._sensors, self._force = self.batch.bind("sensordata"), self.batch.bind("actuator_force")
        self.unstable = np.zeros(n, bool)
        rows = [robot.joint_names.index(name) for name in contract.joint_names]
        self._qpos, self._qvel, self._actuators = robot.qpos_adr[rows], robot.qvel_adr[rows], robot.actuator_ids[rows]
        site = model.site(robot.cfg.imu)
        self._imu_body, self._imu_quat = int(site.bodyid[0]), model.site_quat[site.id]
        self._upright = np.tile([1.0, 0, 0, 0], (n, 1))
        self._change(group)

    def _change(self, group: Sequence[World]) -> None:
        """Make the worlds differ, in what they differ."""
        batch, model, of = self.batch, self.model, self.world

        def values(name: str) -> Array:
            return np.array([getattr(world, name) for world in group], float)[of]

        if any(world.friction is not None for world in group):
            friction, floor = values("friction"), self.robot.floor
            given = np.isfinite(friction)
            batch.expand("geom_friction")[given, floor, 0] = friction[given]
            batch.expand("geom_priority")[given, floor] = (
                model.geom_priority.max() + 1
            )  # the floor's counts, not the larger
        if (mass := values("mass")).max() != mass.min() or mass[0] != 1:
            batch.expand("body_mass")[:] *= mass[:, None]
            batch.expand("body_inertia")[:] *= mass[:, None, None]
            batch.set_const()
        if (strength := values("strength")).max() != strength.min() or strength[0] != 1:
            for name in ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"):
                batch.expand(name)[:] *= strength[:, None, None]
        if (slope := np.radians(values("slope"))).any():
            direction = np.random.default_rng(0).uniform(0, 2 * np.pi, len(slope))
            lean = np.stack([np.cos(direction), np.sin(direction), np.zeros(len(slope))], axis=1) * slope[:, None]
            self._upright = rotations.exp(lean)  # from the simulation's frame to the world's
            batch.expand("opt.gravity")[:] = rotations.rotate_inv(self._upright, model.opt.gravity)

    def start(self, qpos: Array, qvel: Array, warmstart: Array | None = None) -> State:
        """Put the robots into a state, (n, nq), (n, nv), as if new."""
        self.batch.reset(stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self.qpos[:], self.qvel[:] = qpos, qvel
        if warmstart is not None:
            self.warmstart[:] = warmstart
        self.batch.forward(stage=VELOCITY)
        self.unstable[:] = False
        return self.read()

    def step(self, target: Array, previous: Array, ids: NDArray[np.intp] | None = None) -> State:
        """One control step.

        Args:
            target: (n, J) rad, position targets in the contract's order.
            previous: those of the step before.
            ids: which robots move; None: all.
        """
        warnings = self.batch.warning[:, :, 1].sum(axis=1)
        parts = self.substeps if self.ramp else 1
        failed: NDArray[np.intp] | slice = slice(0)
        for i in range(1, parts + 1):
            self.ctrl[:, self._actuators] = target if parts == 1 else previous + (target - previous) * (i / parts)
            try:
                self.batch.step(ids, nstep=self.substeps // parts, stage=VELOCITY)
            except SimulationError as e:
                failed = e.ids
        self.unstable |= self.batch.warning[:, :, 1].sum(axis=1) > warnings
        self.unstable |= ~np.isfinite(self.qpos.sum(axis=1) + self.qvel.sum(axis=1))
        self.unstable[failed] = True
        return self.read()

    def kick(self, velocity: Array) -> None:
        """Add to the velocity of the roots, (n, 3) m/s; the next step begins from it."""
        self.qvel[:, :3] += velocity
        self.batch.forward(stage=VELOCITY)

    @property
    def torque(self) -> Array:
        """Of the last physics step, (n, J) N·m, contract order."""
        return self._force[:, self._actuators]

    def read(self) -> State:
        """The present state, in the world's frame."""
        up = self._upright
        quat = rotations.mul(up[:, None], self._xquat[:, 1:])
        imu = rotations.mul(quat[:, self._imu_body - 1], self._imu_quat)
        return State(
            imu_quat=imu,
            gyro=self._sensors[:, self.robot.gyro].copy(),
            joint_pos=self.qpos[:, self._qpos],
            joint_vel=self.qvel[:, self._qvel],
            pos_w=rotations.rotate(up[:, None], self._xpos[:, 1:]),
            quat_w=quat,
        )

    def touches_floor(self, distance: float) -> Bools:
        """Which bodies have a geom within a distance (m) of the floor, (n, B), all bodies but the world."""
        return touching(self.robot, self._xpos[:, 1:], self._xquat[:, 1:], distance)


def touching(robot: Robot, pos: Array, quat: Array, distance: float) -> Bools:
    """Which bodies have a collision geom within a distance (m) of the floor, (n, B).

    Args:
        robot: whose bodies.
        pos: (n, B, 3) m, all bodies but the world, the floor level.
        quat: (n, B, 4).
        distance: m.
    """
    model, geoms = robot.model, robot.geoms
    body = model.geom_bodyid[geoms] - 1
    pos = pos[:, body] + rotations.rotate(quat[:, body], model.geom_pos[geoms])
    mat = rotations.to_matrix(rotations.mul(quat[:, body], model.geom_quat[geoms]))
    near = lowest_points(model, geoms, pos, mat) - model.geom_pos[robot.floor, 2] <= distance  # (n, G)
    return near @ (body[:, None] == np.arange(len(robot.body_names)))
