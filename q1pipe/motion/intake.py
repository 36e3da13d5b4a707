"""A motion file of any kind -> the normalised clip, and everything that is to be said about it, in one run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, MotionError, error
from q1pipe.motion.arrange import arrange
from q1pipe.motion.checks import (
    check_duplicates,
    check_jumps,
    check_limits,
    check_rate,
    clamp_limits,
    put_on_floor,
    turn_up,
)
from q1pipe.motion.clip import Clip, from_poses, parts
from q1pipe.motion.formats import read
from q1pipe.motion.judge import explain
from q1pipe.motion.raw import Trajectory
from q1pipe.motion.timing import retime
from q1pipe.robot import Robot

Array = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Intake:
    """A file that was taken in.

    Attributes:
        clip: the normalised clip.
        fps: of the file.
        floor: distance of the robot's lowest point from the floor, per frame of the file that is used, (T,) m.
        findings: WARN for each repair and doubt, INFO.
    """

    clip: Clip
    fps: float
    floor: Array
    findings: list[Finding]


def take_in(path: Path, robot: Robot, cfg: MotionCfg, rate: float | None) -> Intake:
    """Read, judge, repair, retime.

    Args:
        path: the user's file; it is not changed.
        robot: the robot that it is for.
        cfg: what config says about the motion.
        rate: frames per second of the clip; None: those of the file.

    Raises:
        MotionError: all that makes the file unusable; with the repairs, so that a person sees everything.
    """
    findings: list[Finding] = []
    try:
        raw, found = read(path, robot, cfg)
        findings += found
        stored, found = arrange(raw, robot, cfg, path)
        findings += found
        motion, stored, found = explain(stored, robot, cfg, path)
        findings += found
    except MotionError as e:
        raise MotionError(*findings, *e.findings) from None
    findings += check_duplicates(stored, motion, path)
    motion, found = check_rate(stored, motion, robot, cfg, path)
    findings += found
    motion, found = check_jumps(motion, robot, cfg, path)
    findings += found
    motion, found = turn_up(motion, robot, cfg, path)
    findings += found
    motion, found = clamp_limits(motion, robot, path)
    findings += found
    on_floor, found, floor = put_on_floor(motion, robot, cfg, path)
    if "up-axis" not in {f.code for f in findings if f.level == "ERROR"}:  # heights along another axis mean nothing
        findings += found
        motion = on_floor
    if cfg.strict:
        findings = [replace(f, level="ERROR") if f.level == "WARN" else f for f in findings]
    if any(f.level == "ERROR" for f in findings):
        raise MotionError(*findings)
    clip = to_clip(robot, retime(motion, robot, cfg, rate, path))
    shortest = min(part.stop - part.start for part in parts(clip.frames, clip.jumps))
    if shortest < 2:
        left = f"{shortest} frame {'between jumps' if clip.jumps else 'is left'} at {clip.fps:g} Hz"
        findings.append(error("frames", str(path), left, "at least 2", "use more of the file, or a lower speed"))
        raise MotionError(*findings)
    return Intake(clip, motion.fps, floor, findings + check_limits(robot, clip, str(path)))


def to_clip(robot: Robot, motion: Trajectory) -> Clip:
    """All arrays from the trajectory."""
    return from_poses(robot, motion.fps, motion.root_pos, motion.root_quat, motion.joint_pos, motion.jumps)
