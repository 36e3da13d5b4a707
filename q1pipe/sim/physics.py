"""The robots of one worker: `mujoco.batch.Batch` behind the few calls that the task makes.

After `control_step` every array belongs to the new state: the batch computes the position and velocity stages of the
new state as well. Only the contact sensor and the actuator forces need accelerations; they are those of the last
substep. The batch is not persistent: one MjData for all simulations of a thread stays in the processor's cache, which
saves more than computing these stages again at the start of the next substep costs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import Self

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import TrainCfg
from q1pipe.geometry import lowest_points
from q1pipe.robot import Robot

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]

POSITION, VELOCITY = int(mujoco.mjtStage.mjSTAGE_POS), int(mujoco.mjtStage.mjSTAGE_VEL)


@dataclass
class RobotState:
    """What the task reads of n robots, float32. J joints, Bt tracked bodies (``robot.tracked`` order).

    Attributes:
        joint_pos: (n, J) rad.
        joint_vel: (n, J) rad/s.
        root_quat_w: (n, 4) wxyz.
        root_lin_vel_w: (n, 3) m/s, of the root's origin.
        body_pos_w: (n, Bt, 3) m, link origins.
        body_quat_w: (n, Bt, 4) wxyz.
        body_lin_vel_w: (n, Bt, 3) m/s, of the link origins.
        body_ang_vel_w: (n, Bt, 3) rad/s.
        watched_z: (n, K) m, heights of the bodies that the height termination watches.
        gyro: (n, 3) rad/s, in the frame of the IMU.
        self_contact: (n,) N, largest robot–robot contact force of the last substep.
    """

    joint_pos: Floats
    joint_vel: Floats
    root_quat_w: Floats
    root_lin_vel_w: Floats
    body_pos_w: Floats
    body_quat_w: Floats
    body_lin_vel_w: Floats
    body_ang_vel_w: Floats
    watched_z: Floats
    gyro: Floats
    self_contact: Floats

    @classmethod
    def zeros(cls, robot: Robot, watched: int, num_envs: int) -> Self:
        """Room for num_envs robots."""
        j, b = len(robot.joint_names), len(robot.tracked)
        widths = [(j,), (j,), (4,), (3,), (b, 3), (b, 4), (b, 3), (b, 3), (watched,), (3,), ()]
        return cls(*(np.zeros((num_envs, *width), np.float32) for width in widths))

    def take(self, ids: Ids) -> Self:
        """A copy of some rows."""
        return type(self)(*(getattr(self, f.name)[ids] for f in fields(self)))


class Physics:
    """num_envs simulations of the robot, `substeps` physics steps per control step.

    Attributes:
        batch: the simulations; `expand` its model fields to make them differ.
        state: the robots' present state, written by `control_step` and `forward`.
        unstable: (n,) bool, simulations whose last control step was not physics: a warning, an error or a value that
            is not finite.
        torque: (n, J) N·m, joint torques that the actuators applied in the last substep of a control step.
    """

    def __init__(self, robot: Robot, cfg: TrainCfg, num_envs: int, nthread: int = 1):
        keep_warnings_out_of_the_cwd()
        model = copy.copy(robot.model)
        model.opt.timestep = 1 / (cfg.control_hz * cfg.substeps)
        # A robot on a floor is one island: looking for more costs 7 % of the time and changes no contact
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
        self.robot = robot
        self.num_envs = num_envs
        self.substeps = cfg.substeps
        self.batch = Batch(model, num_envs, nthread)
        self.qpos, self.qvel, self.ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._xpos, self._xquat = self.batch.bind("xpos"), self.batch.bind("xquat")
        self._cvel, self._com = self.batch.bind("cvel"), self.batch.bind("subtree_com")
        self._sensordata = self.batch.bind("sensordata")
        self._actuator_force = self.batch.bind("actuator_force")
        self.torque = np.zeros((num_envs, len(robot.actuator_ids)))
        self._watched = watched_bodies(robot, cfg)
        self._fresh = self.batch.state[0].copy()
        self._poses = Batch(model, num_envs, nthread)  # kinematics of states that are only thought about
        self._pose_qpos, self._pose_xpos, self._pose_xquat = (self._poses.bind(x) for x in ("qpos", "xpos", "xquat"))
        self.state = RobotState.zeros(robot, len(self._watched), num_envs)
        self.unstable = np.zeros(num_envs, bool)

    def control_step(self, target: Floats) -> None:
        """Hold the position targets (n, J) rad for one control step, then read the new state.

        A simulation that goes bad is marked in `unstable`. MuJoCo itself puts it back to the model's default pose and
        only counts a warning, so its state looks fine afterwards.
        """
        self.ctrl[:, self.robot.actuator_ids] = target
        warnings = self.batch.warning[:, :, 1].sum(axis=1)  # (n,) counts so far
        failed: Ids | slice = slice(0)
        try:
            self.batch.step(nstep=self.substeps, stage=VELOCITY)
        except SimulationError as e:
            failed = e.ids
        self.unstable = self.batch.warning[:, :, 1].sum(axis=1) > warnings
        self.unstable |= ~np.isfinite(self.qpos.sum(axis=1) + self.qvel.sum(axis=1))
        self.unstable[failed] = True
        self.torque = self._actuator_force[:, self.robot.actuator_ids]
        self._read(None)

    def write(self, ids: Ids, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        """Put simulations into a state as if new: nothing of what happened before is left. (k, nq), (k, nv).

        Derived arrays stay those of the old state until `forward`.
        """
        self.batch.state[ids] = self._fresh  # cheaper than Batch.reset, which clears all of an MjData
        self.qpos[ids], self.qvel[ids] = qpos, qvel

    def forward(self, ids: Ids) -> None:
        """Compute and read what follows from qpos and qvel of some simulations, after a write to them."""
        self.batch.forward(ids, stage=VELOCITY)
        self._read(ids)

    def lift_out_of_floor(self, qpos: NDArray[np.float64]) -> None:
        """Raise robots in states (k, nq), k ≤ num_envs, whose lowest geom is below the floor until it touches it.

        Kinematics decide, not contacts: exact for primitives, and no solver is asked to undo a penetration, which
        would shoot the robot upward. The simulations stay as they are.
        """
        rows = np.arange(len(qpos))
        self._pose_qpos[rows] = qpos
        self._poses.forward(rows, stage=POSITION)
        heights = self._heights(self._pose_xpos[rows], self._pose_xquat[rows])
        qpos[:, 2] += np.maximum(0, -heights.min(axis=1))

    def geom_heights(self) -> NDArray[np.float64]:
        """Height of the lowest point of each collision geom above the floor, (n, G) m, ``robot.geoms`` order."""
        return self._heights(self._xpos, self._xquat)

    def _heights(self, xpos: NDArray[np.float64], xquat: NDArray[np.float64]) -> NDArray[np.float64]:
        """`geom_heights` of any body poses (k, nbody, 3) m and (k, nbody, 4)."""
        model, geoms = self.batch.model, self.robot.geoms
        body = model.geom_bodyid[geoms]
        quat = xquat[:, body]  # (k, G, 4)
        pos = xpos[:, body] + rotations.rotate(quat, model.geom_pos[geoms])
        mat = rotations.to_matrix(rotations.mul(quat, model.geom_quat[geoms]))
        return lowest_points(model, geoms, pos, mat) - model.geom_pos[self.robot.floor, 2]

    def touches_floor(self, distance: float) -> NDArray[np.bool_]:
        """Which bodies have a collision geom within a distance (m) of the floor, (n, B), all bodies but the world."""
        geom_body = self.batch.model.geom_bodyid[self.robot.geoms]  # (G,)
        of_body = geom_body[:, None] == np.arange(1, self.batch.model.nbody)  # (G, B)
        return (self.geom_heights() <= distance) @ of_body

    def save(self) -> NDArray[np.float64]:
        """Everything that the next step depends on, (n, nstate)."""
        return self.batch.state.copy()

    def load(self, state: NDArray[np.float64]) -> None:
        """Go on from a saved state, bit for bit."""
        self.batch.state[:] = state
        self.forward(np.arange(self.num_envs))

    def _read(self, ids: Ids | None) -> None:
        """Copy the bound float64 arrays of all or some simulations into `state`."""
        rows = slice(None) if ids is None else ids
        robot, state = self.robot, self.state
        qpos, qvel, xpos = self.qpos[rows], self.qvel[rows], self._xpos[rows]
        state.joint_pos[rows] = qpos.take(robot.qpos_adr, axis=1)
        state.joint_vel[rows] = qvel.take(robot.qvel_adr, axis=1)
        state.root_quat_w[rows] = qpos[:, 3:7]
        state.root_lin_vel_w[rows] = qvel[:, :3]
        state.body_pos_w[rows] = position = xpos.take(robot.tracked, axis=1)
        state.body_quat_w[rows] = self._xquat[rows].take(robot.tracked, axis=1)
        # cvel is (angular, linear) in world axes, the linear part at the robot's centre of mass: move it to the link
        twist = self._cvel[rows].take(robot.tracked, axis=1)
        arm = position - self._com[rows, robot.root][:, None]
        state.body_ang_vel_w[rows] = twist[..., :3]
        state.body_lin_vel_w[rows] = twist[..., 3:] + rotations.cross(twist[..., :3], arm)
        state.watched_z[rows] = xpos[..., 2].take(self._watched, axis=1)
        sensors = self._sensordata[rows]
        state.gyro[rows] = sensors[:, robot.gyro]
        if ids is None:  # of a step: a `forward` computes no accelerations, and leaves some other simulation's there
            state.self_contact[:] = np.sqrt(np.square(sensors[:, robot.self_collision]).sum(axis=1))


def watched_bodies(robot: Robot, cfg: TrainCfg) -> Ids:
    """Ids of the bodies that the height termination watches.

    Raises:
        RobotError: the robot has no such bodies.
    """
    return robot.bodies(cfg.termination.body_z, "config: train.termination.body_z")


def keep_warnings_out_of_the_cwd() -> None:
    """Stop MuJoCo from writing MUJOCO_LOG.TXT: `Physics` reads the warning counters. A handler that is set stays."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda message: None)
