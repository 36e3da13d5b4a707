"""Stage 6: the clip, and what sim2sim measured, as videos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg, VideoCfg
from q1pipe.metrics import tracking_errors
from q1pipe.motion.clip import Clip
from q1pipe.motion.followability import clip_qpos
from q1pipe.provenance import file_sha
from q1pipe.report.opengl import Choice
from q1pipe.report.still import printable
from q1pipe.report.video import Files, Shot, film
from q1pipe.robot import Robot
from q1pipe.sim.kernels import rewards
from q1pipe.sim.physics import Physics
from q1pipe.sim.reference import Reference, RobotConstants, Step, relative
from q1pipe.sim.rewards import REWARD_TERMS, Weights

Array = NDArray[np.floating]

CHUNK = 512  # poses that are looked at at once


def reference(motion: Path, files: Files, name: str, opengl: Choice, settings: Mapping[str, Any]) -> None:
    """Draw every frame of a clip.

    Args:
        motion: motion.npz.
        files: what to write.
        name: of the motion.
        opengl: what can be drawn with.
        settings: sections ``robot``, ``video``.

    Raises:
        Q1Error: see `film`.
    """
    cfg: VideoCfg = settings["video"]
    robot, clip, sha = Robot.load(settings["robot"]), Clip.load(motion), file_sha(motion)

    seconds = np.arange(clip.frames) / clip.fps

    def lines(row: int, speed: float) -> list[str]:
        return [f"t {seconds[row]:.2f} s   frame {row}/{clip.frames - 1}", f"{_named('reference', name)} {sha}"]

    plain = cfg.model_copy(update={"ghost": "none", "slow_motion": 0.0})
    shot = Shot(f"{name}, reference", clip_qpos(robot, clip), clip.fps, seconds, None, lines)
    film(robot, shot, files, plain, opengl)


def policy(
    trajectory: Path,
    onnx: Path,
    motion: Path,
    train_json: Path,
    files: Files,
    name: str,
    opengl: Choice,
    settings: Mapping[str, Any],
) -> None:
    """Draw what sim2sim measured, with the reference beside it.

    Args:
        trajectory: trajectory.npz.
        onnx: policy.onnx, which moved it.
        motion: motion.npz.
        train_json: train.json.
        files: what to write.
        name: of the motion.
        opengl: what can be drawn with.
        settings: sections ``robot``, ``video``; of ``train`` its rewards and terminations, control rate and substeps.

    Raises:
        Q1Error: see `film`.
    """
    cfg: VideoCfg = settings["video"]
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion).opening()
    trained = json.loads(train_json.read_text(encoding="utf-8"))
    measured = Trajectory.load(trajectory, robot)
    error, reward = score(robot, clip, measured, settings["train"])
    who = f"{_named('motion', name)} {file_sha(motion)}  ·  policy {file_sha(onnx)}"
    who += f"  ·  trained on {printable(trained['device'])}"

    seconds = measured.frame / clip.fps

    def lines(row: int, speed: float) -> list[str]:
        slow = f"   slow ×{speed:g}" if speed < 1 else ""
        frame = measured.frame[row]
        now = f"t {seconds[row]:.2f} s   frame {frame}/{clip.frames - 1}   error {1e3 * error[row]:.0f} mm"
        return [f"{now}   reward {reward[row]:.2f}{slow}", who]

    ghost = clip_qpos(robot, clip)[measured.frame]
    film(robot, Shot(f"{name}, policy", measured.qpos, measured.fps, seconds, ghost, lines), files, cfg, opengl)


class Trajectory(NamedTuple):
    """What was measured: a row per control step, at its end. J joints in the robot's order.

    Attributes:
        fps: rows per second.
        frame: (T,) of the reference.
        qpos: (T, nq).
        qvel: (T, nv).
        target: (T, J) rad.
    """

    fps: float
    frame: NDArray[np.intp]
    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    target: NDArray[np.float64]

    @classmethod
    def load(cls, path: Path, robot: Robot) -> Trajectory:
        """Read trajectory.npz of sim2sim, up to where the simulation broke, if it did."""
        with np.load(path, allow_pickle=False) as data:
            order = [data["joint_names"].tolist().index(joint) for joint in robot.joint_names]
            whole = np.isfinite(data["qpos"]).all(axis=1) & np.isfinite(data["qvel"]).all(axis=1)
            rows = slice(len(whole) if whole.all() else int(whole.argmin()))
            qpos, qvel, target = (data[name][rows].astype(float) for name in ("qpos", "qvel", "ctrl"))
            return cls(float(data["fps"][0]), data["frame"][rows].astype(np.intp), qpos, qvel, target[:, order])


def score(robot: Robot, clip: Clip, measured: Trajectory, cfg: TrainCfg) -> tuple[Array, Array]:
    """Tracking error (r_mpkpe, m) and reward of each row, (T,) each, by the training's own terms.

    The reward's contact term takes the forces that hold in the row's state; the training's are half a step older. The
    action before the first row is not recorded: its change costs nothing here.
    """
    reference, frames = Reference(clip, robot, cfg), len(measured.frame)
    constants, weights = RobotConstants.of(robot), Weights.of(cfg.reward)
    action = ((measured.target - robot.default_joint_pos) / robot.action_scale).astype(np.float32)
    before = np.concatenate([action[:1], action[:-1]])
    contact = _self_contact(robot, measured)
    ends = np.array([robot.tracked.tolist().index(b) for b in robot.end_effectors])
    error, terms = np.empty(frames), np.zeros((frames, len(REWARD_TERMS)), np.float32)
    for start in range(0, frames, CHUNK):
        rows = slice(start, start + CHUNK)
        ids = np.arange(len(measured.frame[rows]))
        physics = Physics(robot, cfg, len(ids))
        physics.qpos[:], physics.qvel[:] = measured.qpos[rows], measured.qvel[rows]
        physics.forward(ids)
        state, ref = physics.state._replace(self_contact=contact[rows]), reference.at(measured.frame[rows])
        rel_pos, rel_quat = relative(ref, state, robot.tracked_anchor)
        zero = np.zeros_like(action[rows])
        step = Step(constants, state, ref, rel_pos, rel_quat, ref, action[rows], before[rows], zero, physics.unstable)
        rewards(step, weights, terms[rows])
        bodies = state.body_pos_w, state.body_quat_w, ref.body_pos_w, rel_pos, rel_quat
        error[rows] = tracking_errors(*bodies, state.joint_vel, ref.joint_vel, ends)["r_mpkpe"]
    return error, terms.sum(axis=1)


def _self_contact(robot: Robot, measured: Trajectory) -> NDArray[np.float32]:
    """Largest robot–robot contact force in each row's state, (T,) N."""
    data, force = mujoco.MjData(robot.model), np.zeros(len(measured.frame), np.float32)
    for row in range(len(force)):
        data.qpos[:], data.qvel[:] = measured.qpos[row], measured.qvel[row]
        data.ctrl[robot.actuator_ids] = measured.target[row]
        mujoco.mj_forward(robot.model, data)
        force[row] = np.linalg.norm(data.sensordata[robot.self_collision])
    return force


def _named(kind: str, name: str) -> str:
    """The motion's name where the caption's font has its script."""
    return f"{kind} {shown}" if (shown := printable(name)) else kind
