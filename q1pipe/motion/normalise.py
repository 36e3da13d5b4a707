"""From raw arrays to the normalised clip: forward kinematics as judge, control rate, recomputed velocities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import interp1d
from scipy.spatial.transform import Rotation, Slerp

from q1pipe.errors import Finding, MotionError, error, warn
from q1pipe.motion.clip import Clip, forward_kinematics, from_poses
from q1pipe.motion.formats import RawMotion
from q1pipe.robot import Robot

Array = NDArray[np.floating]

MAX_NORM_ERROR = 0.05  # of quaternions


def check_kinematics(robot: Robot, raw: RawMotion, max_error: float, path: Path) -> None:
    """Set root and joints of every frame and compare every body's position with the file's.

    Raises:
        MotionError: bodies are elsewhere (they are in another order, the joints are, or the clip is of another robot).
    """
    norm = np.linalg.norm(raw.body_quat_w, axis=-1)
    if (np.abs(norm - 1) > MAX_NORM_ERROR).any():
        frame = int(np.abs(norm - 1).max(axis=-1).argmax())
        raise MotionError(
            error("quaternions", f"{path}: body_quat_w", f"length {norm[frame].min():.3g} in frame {frame}", "length 1")
        )
    root = robot.root - 1
    qpos = robot.qpos(raw.body_pos_w[:, root], raw.body_quat_w[:, root], raw.joint_pos)
    pos, _ = forward_kinematics(robot, qpos)
    gap = np.linalg.norm(pos - raw.body_pos_w, axis=-1).mean(axis=0)  # (B,)
    if gap.max() <= max_error:
        return
    worst = np.argsort(-gap)[:5]
    raise MotionError(
        error(
            "kinematics",
            f"{path}: body_pos_w",
            f"{(gap > max_error).sum()} of {len(gap)} bodies are not where root and joints put them: "
            + ", ".join(f"{robot.body_names[b]} {gap[b]:.3f} m" for b in worst),
            f"within {max_error:g} m on average",
            "bodies or joints may be in another order (add body_names and joint_names), quaternions not wxyz, "
            "or the clip made for another robot",
        )
    )


def normalise(robot: Robot, raw: RawMotion, rate: float) -> Clip:
    """The clip at the control rate: linear joints and positions, slerp; velocities by central differences.

    Keeps the duration to within one frame.
    """
    root = robot.root - 1
    pos, quat, joints = raw.body_pos_w[:, root], raw.body_quat_w[:, root], raw.joint_pos
    if abs(raw.fps - rate) > 1e-6 * rate:
        t = np.arange(len(joints)) / raw.fps
        new = np.arange(int(np.floor(t[-1] * rate + 1e-6)) + 1) / rate
        pos, joints = (interp1d(t, x, axis=0)(np.minimum(new, t[-1])) for x in (pos, joints))
        turns = Slerp(t, Rotation.from_quat(quat, scalar_first=True))
        quat = turns(np.minimum(new, t[-1])).as_quat(scalar_first=True)
    quat = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    return from_poses(robot, rate, pos, quat, joints)


def check_limits(robot: Robot, clip: Clip, where: str) -> list[Finding]:
    """WARN for joints that leave their ranges, which training punishes and the robot cannot do."""
    findings = []
    for low, high, kind in ((*robot.limits.T, "joint range"), (*robot.soft_limits.T, "soft limits")):
        beyond = np.maximum(low - clip.joint_pos, clip.joint_pos - high).max(axis=0)  # (J,)
        over = np.flatnonzero(beyond > 1e-3)
        if len(over):
            names = ", ".join(f"{robot.joint_names[j]} by {beyond[j]:.3f} rad" for j in over[:5])
            findings.append(warn("limits", f"{where}: joint_pos", f"{len(over)} joints leave their {kind}: {names}"))
            break
    return findings
