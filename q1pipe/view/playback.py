"""What stages and training left, as poses that can be played; and the clock that plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.deploy.sim2sim import Judge
from q1pipe.deploy.worlds import State
from q1pipe.errors import Q1Error, error
from q1pipe.motion.clip import forward_kinematics
from q1pipe.robot import Robot
from q1pipe.view.live import Live

Array = NDArray[np.floating]
NEAR = 0.005  # m from the floor that counts as contact


class Poses(NamedTuple):
    """All bodies but the world: ``pos`` (T, B, 3) m, ``quat`` (T, B, 4)."""

    pos: Array
    quat: Array


@dataclass(frozen=True, eq=False)
class Recording:
    """T moments of a robot, of a reference, or of both.

    Attributes:
        title: what is seen.
        fps: moments per second.
        policy: what the robot did, if anything did.
        qpos: (T, nq) the same as generalised positions; empty without.
        reference: what it should have done, if that is known.
        error: (T,) m, mean distance of the tracked bodies from the reference (r_mpkpe); NaN where it is not known.
        load: (T, B) N, force of the floor on each body; empty where it is not known.
    """

    title: str
    fps: float
    policy: Poses | None
    qpos: Array
    reference: Poses | None
    error: Array
    load: Array

    @property
    def moments(self) -> int:
        """T."""
        return len(self.error)


@dataclass(frozen=True, eq=False)
class Shown:
    """All that a page shows.

    Attributes:
        robot: the robot.
        recordings: what can be played; several are environments of a dump.
        live: the policy, where there is one.
        notes: Markdown, such as the table of sim2sim.
    """

    robot: Robot
    recordings: Sequence[Recording]
    live: Live | None = None
    notes: str = ""


def stored(name: str, folder: Path, robot: Robot, judge: Judge) -> Recording:
    """The first nominal episode of sim2sim beside its reference; the clip alone before there is one.

    Args:
        name: of the motion.
        folder: ``results/{motion}``.
        robot: its robot.
        judge: of its clip.
    """
    clip = judge.clip
    reference = Poses(clip.body_pos_w, clip.body_quat_w)
    nothing = np.zeros((0, 0))
    trajectory = folder / "trajectory.npz"
    if not trajectory.exists():
        unknown = np.full(clip.frames, np.nan)
        return Recording(f"{name}: the clip", clip.fps, None, nothing, reference, unknown, nothing)
    with np.load(trajectory, allow_pickle=False) as data:
        rows = _whole(data["qpos"])
        qpos, frame = data["qpos"][rows].astype(float), data["frame"][rows]
        joints = data["joint_names"].tolist()
        if sorted(joints) != sorted(robot.joint_names):
            found = f"joints {', '.join(joints[:5])}, …, which the robot does not have"
            raise Q1Error(error("view", str(trajectory), found, "those of the MJCF", "use the robot of the training"))
        speed = data["qvel"][rows][:, robot.qvel_adr].astype(float)
        load, fps = data["contact_force"][rows], float(data["fps"][0])
    poses = Poses(*forward_kinematics(robot, qpos))
    distance = np.array([tracking(judge, poses.pos[t], poses.quat[t], speed[t], frame[t]) for t in range(len(qpos))])
    title = f"{name}: the policy in sim2sim, episode 1 of the nominal world"
    return Recording(title, fps, poses, qpos, Poses(*(x[frame] for x in reference)), distance, load)


def tracking(judge: Judge, pos: Array, quat: Array, joint_vel: Array, frame: int) -> float:
    """Tracking error (r_mpkpe) of one pose, m: (B, 3) m, (B, 4), (J,) rad/s in the robot's order."""
    nothing = np.zeros((1, 0))
    state = State(nothing, nothing, nothing, joint_vel[None], pos[None], quat[None])
    return float(judge.errors(state, frame)["r_mpkpe"][0])


def dumped(path: Path, robot: Robot, control_hz: float) -> list[Recording]:
    """The environments that training kept when numbers went bad, up to where each robot's did.

    Args:
        path: ``diverged_{iteration}.npz`` of a run folder.
        robot: of that run.
        control_hz: of that run.

    Raises:
        Q1Error: it is another kind of file, or of another robot.
    """
    nothing = np.zeros((0, 0))
    with np.load(path, allow_pickle=False) as data:
        wanted = {"qpos", "env_ids", "iteration", "quantity"}
        if not wanted <= set(data.files) or data["qpos"].shape[2:] != (robot.model.nq,):
            found = f"holds {', '.join(data.files[:5])}"
            allowed = "diverged_*.npz of a training run, in its run folder"
            raise Q1Error(
                error("view", str(path), found, allowed, "q1pipe sheet and q1pipe check look at motion files")
            )
        qpos, ids = data["qpos"].astype(float), data["env_ids"].tolist()
        about = f"iteration {int(data['iteration'])}, bad: {data['quantity']}"
    recordings = []
    for i, env in enumerate(ids):
        mine = qpos[_whole(qpos[:, i]), i]
        poses, unknown = Poses(*forward_kinematics(robot, mine)), np.full(len(mine), np.nan)
        title = f"environment {env}, {about}" + (
            "" if len(mine) == len(qpos) else f"; not finite after step {len(mine)}"
        )
        recordings.append(Recording(title, control_hz, poses, mine, None, unknown, nothing))
    return recordings


def _whole(qpos: Array) -> slice:
    """The rows before the first that is not finite, at least one."""
    bad = np.flatnonzero(~np.isfinite(qpos).all(axis=1))
    return slice(max(1, int(bad[0])) if len(bad) else len(qpos))


class Touch:
    """Where a robot touches the floor."""

    def __init__(self, robot: Robot):
        self.model = robot.model.__copy__()
        self.model.geom_margin[robot.floor] = NEAR  # contacts are then listed from this distance on
        self.data, self.floor = mujoco.MjData(self.model), robot.floor

    def points(self, qpos: Array) -> Array:
        """(k, 3) m, for a pose (nq,)."""
        self.data.qpos[:] = qpos
        mujoco.mj_fwdPosition(self.model, self.data)
        found = [c.pos.copy() for c in self.data.contact[: self.data.ncon] if self.floor in c.geom]
        return np.array(found).reshape(-1, 3)


@dataclass
class Clock:
    """What moment is shown.

    Attributes:
        fps: moments per second.
        moments: how many there are.
        time: s from the first.
        speed: × real time.
        playing: whether time goes on.
    """

    fps: float
    moments: int
    time: float = 0.0
    speed: float = 1.0
    playing: bool = True

    @property
    def row(self) -> int:
        """The moment shown, from 0."""
        return min(int(self.time * self.fps + 1e-6), self.moments - 1)

    def seek(self, row: int) -> None:
        """Show a moment."""
        self.time = row / self.fps

    def tick(self, seconds: float) -> None:
        """Let time pass, where it does."""
        if not self.playing:
            return
        end = self.moments / self.fps
        self.time += seconds * self.speed
        if self.time >= end:
            self.time = self.time % end
