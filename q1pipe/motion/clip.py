"""A motion clip in its one normalised form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.files import replacing
from q1pipe.robot import Robot

Floats = NDArray[np.float32]
Array = NDArray[np.floating]

ARRAYS = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")


@dataclass(frozen=True, eq=False)
class Clip:
    """T frames of J joints and B bodies (all but the world, model order: row = body id - 1), float32.

    Attributes:
        fps: frames per second.
        joint_pos: (T, J) rad.
        joint_vel: (T, J) rad/s.
        body_pos_w: (T, B, 3) m, link origins.
        body_quat_w: (T, B, 4) wxyz.
        body_lin_vel_w: (T, B, 3) m/s of the link origins, world frame.
        body_ang_vel_w: (T, B, 3) rad/s, world frame.
        joint_names: J names.
        body_names: B names.
        jumps: frames after which the motion goes on elsewhere. No episode crosses them.
    """

    fps: float
    joint_pos: Floats
    joint_vel: Floats
    body_pos_w: Floats
    body_quat_w: Floats
    body_lin_vel_w: Floats
    body_ang_vel_w: Floats
    joint_names: tuple[str, ...]
    body_names: tuple[str, ...]
    jumps: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        """T."""
        return len(self.joint_pos)

    @property
    def seconds(self) -> float:
        """Duration, from the first frame to the last."""
        return (self.frames - 1) / self.fps

    def opening(self) -> Clip:
        """The clip up to its first jump: what is played from frame 0, by evaluation and on the robot."""
        if not self.jumps:
            return self
        first = slice(0, self.jumps[0] + 1)
        return replace(self, jumps=(), **{name: getattr(self, name)[first] for name in ARRAYS})

    @classmethod
    def load(cls, path: Path) -> Clip:
        """Read a file that `save` wrote."""
        with np.load(path, allow_pickle=False) as data:
            return cls(
                fps=float(data["fps"][0]),
                joint_names=tuple(data["joint_names"].tolist()),
                body_names=tuple(data["body_names"].tolist()),
                jumps=tuple(data["jumps"].tolist()) if "jumps" in data else (),
                **{name: data[name] for name in ARRAYS},
            )

    def save(self, path: Path) -> None:
        """Write an npz that every tool of the field reads, whole or not at all."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ARRAYS}
        if self.jumps:  # a key of our own, so only where it says something
            arrays["jumps"] = np.array(self.jumps)
        with replacing(path) as temporary, temporary.open("wb") as f:
            np.savez_compressed(
                f,
                fps=np.array([self.fps], np.float32),
                joint_names=np.array(self.joint_names),
                body_names=np.array(self.body_names),
                **arrays,
            )


def from_poses(
    robot: Robot, fps: float, root_pos: Array, root_quat: Array, joint_pos: Array, jumps: tuple[int, ...] = ()
) -> Clip:
    """A clip from root and joint trajectories: forward kinematics for all bodies, central differences for velocities.

    Args:
        robot: the robot that moves.
        fps: frames per second.
        root_pos: (T, 3) m.
        root_quat: (T, 4) wxyz.
        joint_pos: (T, J) rad.
        jumps: frames after which the motion goes on elsewhere; no velocity is taken across.
    """
    body_pos, body_quat = forward_kinematics(robot, robot.qpos(root_pos, root_quat, joint_pos))
    body_quat = rotations.continuous(body_quat)
    return Clip(
        fps=float(fps),
        joint_pos=joint_pos.astype(np.float32),
        joint_vel=differentiate(joint_pos, fps, jumps).astype(np.float32),
        body_pos_w=body_pos.astype(np.float32),
        body_quat_w=body_quat.astype(np.float32),
        body_lin_vel_w=differentiate(body_pos, fps, jumps).astype(np.float32),
        body_ang_vel_w=angular_velocity(body_quat, fps, jumps).astype(np.float32),
        joint_names=robot.joint_names,
        body_names=robot.body_names,
        jumps=jumps,
    )


def forward_kinematics(robot: Robot, qpos: Array) -> tuple[Array, Array]:
    """World poses of all bodies: (T, nq) -> (T, B, 3) m, (T, B, 4) wxyz."""
    data = mujoco.MjData(robot.model)
    pos, quat = np.empty((len(qpos), robot.model.nbody - 1, 3)), np.empty((len(qpos), robot.model.nbody - 1, 4))
    for t, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_kinematics(robot.model, data)
        pos[t], quat[t] = data.xpos[1:], data.xquat[1:]
    return pos, quat


def stepping(robot: Robot, fps: float, physics_hz: float) -> tuple[mujoco.MjModel, int]:
    """The model with a physics step that divides a frame, whatever its MJCF says, and how many steps a frame has."""
    model = robot.model.__copy__()
    substeps = max(1, round(physics_hz / fps))
    model.opt.timestep = 1 / (fps * substeps)
    return model, substeps


def parts(frames: int, jumps: Sequence[int]) -> list[slice]:
    """The stretches of a motion between its jumps."""
    edges = [0, *(k + 1 for k in jumps), frames]
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def differentiate(values: Array, fps: float, jumps: Sequence[int] = ()) -> Array:
    """Central differences along axis 0, one-sided at the ends and at jumps; zeros for a single frame.

    (T, ...) -> (T, ...) per s.
    """
    return np.concatenate([_gradient(values[part], fps) for part in parts(len(values), jumps)])


def _gradient(values: Array, fps: float) -> Array:
    return np.gradient(values, 1 / fps, axis=0) if len(values) > 1 else np.zeros_like(values)


def angular_velocity(quat: Array, fps: float, jumps: Sequence[int] = ()) -> Array:
    """World-frame angular velocity, as `differentiate`. (T, ..., 4) -> (T, ..., 3) rad/s."""
    frames = np.arange(len(quat))
    before, after = np.maximum(frames - 1, 0), np.minimum(frames + 1, len(quat) - 1)
    for k in jumps:
        after[k], before[k + 1] = k, k + 1
    steps = np.maximum(after - before, 1).reshape(-1, *[1] * (quat.ndim - 1))
    return rotations.log(rotations.mul(quat[after], rotations.conj(quat[before]))) * fps / steps
