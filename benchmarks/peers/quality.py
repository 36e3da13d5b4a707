"""How well a trajectory tracks the clip, by one piece of code whoever made it."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from q1pipe.config import RewardCfg, TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.physics import RobotState
from q1pipe.sim.reference import Reference, relative


def quality(trajectory: Path, robot: Robot, clip: Clip) -> dict[str, float]:
    """Deterministic episodes from frame 0, judged.

    Whose step leads to frame t and whose to t − 1 differs between programs; each gets the better of both readings.

    Args:
        trajectory: npz with qpos (T-1, n, nq), or MuJoCo's state (time, qpos, qvel), after each step, and tracking
            (T-1, n): whether the episode still went on.
        robot: the model of both.
        clip: T frames.

    Returns:
        score: mean of the body position reward over all steps of all episodes, 0 after an episode's early end.
        r_mpkpe: m, mean distance of the tracked bodies from `rel` while it went on.
        finished: share of the episodes that went on to the end.
    """
    with np.load(trajectory) as data:
        qpos = data["qpos"] if "qpos" in data else data["state"][..., 1 : 1 + robot.model.nq]
        tracking = data["tracking"]
    state = poses(robot, qpos[tracking])
    step = np.broadcast_to(np.arange(len(tracking))[:, None], tracking.shape)[tracking]
    reference, (sigma, size) = Reference(clip, robot, TrainCfg()), (RewardCfg().body_pos.sigma, tracking.size)
    best = {"score": -1.0}
    for lag in (1, 0):
        rel, _ = relative(reference.at(step + lag), state, robot.tracked_anchor)
        squares = np.square(rel - state.body_pos_w).sum(axis=-1)  # (n, Bt)
        reading = {
            "score": float(np.exp(-squares.mean(axis=1) / sigma**2).sum() / size),
            "r_mpkpe": float(np.sqrt(squares).mean()),
            "finished": float(tracking[-1].mean()),
        }
        best = max(best, reading, key=lambda r: r["score"])
    return best


def poses(robot: Robot, qpos: np.ndarray) -> RobotState:
    """The tracked bodies of n robots, by forward kinematics; the rest of the state is 0. (n, nq)."""
    state, data = RobotState.zeros(robot, 0, len(qpos)), mujoco.MjData(robot.model)
    for i, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_kinematics(robot.model, data)
        state.body_pos_w[i], state.body_quat_w[i] = data.xpos[robot.tracked], data.xquat[robot.tracked]
    return state
