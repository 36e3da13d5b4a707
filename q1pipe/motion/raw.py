"""What a motion file says before anything is judged, and a motion of the robot after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Finding, MotionError, error

Array = NDArray[np.floating]

FPS_RANGE = (5.0, 500.0)
UNBELIEVABLE = 1e6  # m, rad, 1/s: a number beyond it is as good as none

# How many joints known robots have, for a person who has the wrong clip in hand.
KNOWN_ROBOTS = {
    12: "a pair of legs",
    19: "Unitree H1",
    20: "Booster T1 or Berkeley Humanoid",
    21: "Unitree H1 with waist, or the DeepMind CMU subset",
    22: "PrimeBot Q1",
    23: "Unitree G1 with locked wrists, or Booster T1 with waist",
    27: "Unitree H1-2, or G1 with a locked waist",
    29: "Unitree G1",
    31: "Fourier GR-1",
    32: "Fourier GR-1",
}


@dataclass(frozen=True, eq=False)
class RawMotion:
    """A motion file by one set of names, as it was found: T frames, J columns of joints, R rows of bodies.

    Attributes:
        fps: frames per second; None: the file does not say.
        arrays: any of joint_pos, joint_vel (T, J); root_pos (T, 3), root_quat (T, 4) wxyz; body_pos_w,
            body_lin_vel_w, body_ang_vel_w (T, R, 3), body_quat_w (T, R, 4). Shapes are not checked yet.
        joint_names: names of the columns, where the file has them.
        body_names: names of the rows, where the file has them.
        doubtful_quat: the order that the root's quaternion was read in (xyzw or wxyz), where only a convention says so.
    """

    fps: float | None
    arrays: dict[str, Array]
    joint_names: tuple[str, ...] | None = None
    body_names: tuple[str, ...] | None = None
    doubtful_quat: str = ""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """All that a motion of a robot is made of: forward kinematics gives the rest.

    Attributes:
        fps: frames per second.
        root_pos: (T, 3) m.
        root_quat: (T, 4) wxyz.
        joint_pos: (T, J) rad.
        jumps: frames after which the motion goes on elsewhere.
    """

    fps: float
    root_pos: Array
    root_quat: Array
    joint_pos: Array
    jumps: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        """T."""
        return len(self.joint_pos)


def setting(path: Path, key: str, value: object) -> str:
    """What to write into the configuration for one motion: ``set motions.wave.motion.fps: 30``."""
    return f"set motions.{path.stem}.motion.{key}: {value}"


def spans(frames: Iterable[int], limit: int = 5) -> str:
    """Frames as runs, the first few and how many more: ``50–52, 60 and 3 more``."""
    runs = [f"{a}–{b}" if b > a else f"{a}" for a, b in runs_of(frames)]
    more = f" and {len(runs) - limit} more" if len(runs) > limit else ""
    return ", ".join(runs[:limit]) + more


def runs_of(frames: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers in a sorted sequence."""
    numbers = np.asarray(list(frames), int)
    if not len(numbers):
        return []
    ends = np.flatnonzero(np.diff(numbers) > 1)
    return list(
        zip(
            numbers[np.concatenate([[0], ends + 1])].tolist(),
            numbers[np.concatenate([ends, [len(numbers) - 1]])].tolist(),
            strict=True,
        )
    )


def one_fps(value: object, where: str) -> float:
    """A frame rate from whatever a file holds: a number, text of one, an array of one element.

    Raises:
        MotionError: it is not one number in FPS_RANGE.
    """
    try:
        array = np.asarray(value)
        fps = float(array.reshape(())) if array.size == 1 else float("nan")
    except (TypeError, ValueError):
        fps = float("nan")
    if not FPS_RANGE[0] <= fps <= FPS_RANGE[1]:
        raise MotionError(bad_fps(value, where))
    return fps


def bad_fps(value: object, where: str) -> Finding:
    """The finding for a frame rate that is none."""
    found = f"{np.asarray(value).tolist()!r:.60}"
    return error("fps", where, found, f"one number, {FPS_RANGE[0]:g} to {FPS_RANGE[1]:g}", "is it frames per second?")
