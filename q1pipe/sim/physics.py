"""The robots of one worker: `mujoco.batch.Batch` behind the few calls that the task makes.

After `control_step` every array belongs to the new state: the batch computes the position and velocity stages of the
new state as well. Only the contact sensor and the actuator forces need accelerations; they are those of the last
substep. The batch is not persistent: one MjData for all simulations of a thread stays in the processor's cache, which
saves more than computing these stages again at the start of the next substep costs.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, Self

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.robot import GYRO, Robot
from q1pipe.sim import kernels, kinematics

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]

NOBODY: Ids = np.zeros(0, np.intp)
VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)


class RobotState(NamedTuple):
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
        torque: (n, J) N·m, joint torques that the actuators applied in the last substep.
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
    torque: Floats

    @classmethod
    def zeros(cls, robot: Robot, watched: int, num_envs: int) -> Self:
        """Room for num_envs robots."""
        j, b = len(robot.joint_names), len(robot.tracked)
        widths = [(j,), (j,), (4,), (3,), (b, 3), (b, 4), (b, 3), (b, 3), (watched,), (3,), (), (j,)]
        return cls(*(np.zeros((num_envs, *width), np.float32) for width in widths))


class Physics:
    """num_envs simulations of the robot, `substeps` physics steps per control step.

    Attributes:
        batch: the simulations; `expand` its model fields to make them differ.
        state: the robots' present state, written by `kernels.read_step`, `kernels.begin` and `forward`.
        simulated: what the state is read from.
        places: where in it.
        geoms: what of the robot collides.
        fresh: (nstate) a simulation's `Batch.state` before anything happened; to write it is cheaper than Batch.reset,
            which clears all of an MjData.
        warnings: (n,) how many MuJoCo had given before a step, which `kernels.count` writes.
        unstable: (n,) bool, simulations whose last control step was not physics: a warning, an error or a value that
            is not finite.
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
        self.ctrl = self.batch.bind("ctrl")
        self.simulated = kernels.Simulated(*(self.batch.bind(name) for name in kernels.Simulated._fields))
        self.qpos, self.qvel = self.simulated.qpos, self.simulated.qvel
        watched, imu = watched_bodies(robot, cfg), model.sensor(GYRO).objid[0]
        self.places = kernels.Places(
            robot.qpos_adr,
            robot.qvel_adr,
            robot.actuator_ids,
            robot.tracked,
            watched,
            robot.root,
            robot.gyro.start,
            int(model.site_bodyid[imu]),
            model.site_quat[imu],
            robot.self_collision.start,
        )
        self.geoms = kinematics.Geoms.of(robot)
        self.fresh = self.batch.state[0].copy()
        self.state = RobotState.zeros(robot, len(watched), num_envs)
        self.unstable = np.zeros(num_envs, bool)
        self.warnings = np.zeros(num_envs, np.int64)

    def control_step(self) -> Ids:
        """Hold the targets in `ctrl` for one control step, which `kernels.read_step` reads; returns who failed, (k,).

        MuJoCo itself puts a simulation that goes bad back to the model's default pose and only counts a warning, so its
        state looks fine afterwards.
        """
        try:
            self.batch.step(nstep=self.substeps, stage=VELOCITY)
        except SimulationError as e:
            return e.ids.astype(np.intp)
        return NOBODY

    def forward(self, ids: Ids) -> None:
        """Compute and read what follows from qpos and qvel of some simulations, after a write to them."""
        self.batch.forward(ids, stage=VELOCITY)
        kernels.read(self.simulated, self.places, ids, self.state)

    def geom_heights(self) -> NDArray[np.float64]:
        """Height of the lowest point of each collision geom above the floor, (n, G) m, ``robot.geoms`` order."""
        heights = np.empty((self.num_envs, len(self.robot.geoms)))
        kinematics.heights(self.simulated.xpos, self.simulated.xquat, self.geoms, heights)
        return heights

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
