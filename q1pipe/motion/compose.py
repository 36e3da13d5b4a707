"""Keyframes to clip: poses at a few times become a motion that touches the floor and does not slip.

The YAML (config/keyframes/getUp.yaml is one):

    fps: 50
    follow: 0          # optional: make it physical (motion/follow.py), with this seed
    keys:
      - {t: 0.0, pitch: -90, spin: 0, joints: {shoulder_roll: 0.2}}
      - …

Root orientation = R_y(pitch) · R_z(spin) · R_x(roll), degrees: pitch -90 is on the back, spin 180 turns it on the
front. Joint names may leave out `_joint`; without `left_` or `right_` (or `l_`, `r_`) they mean both sides, roll and
yaw mirrored.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated

import mujoco
import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import uniform_filter1d
from scipy.spatial.transform import Rotation

from q1pipe.config import MotionCfg, RobotCfg, TrainCfg
from q1pipe.errors import Finding, MotionError, error
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.motion.follow import follow
from q1pipe.motion.followability import followability, judge, replay, verdict
from q1pipe.motion.raw import FPS_RANGE
from q1pipe.robot import Robot

Array = NDArray[np.floating]

HEIGHT_WINDOW = 0.18  # s, moving average of the root height: the lowest geom changes in jumps
CONTACT = 0.012  # m from the floor that counts as planted
LONGEST = 3600.0  # s
PHYSICS_HZ = TrainCfg().control_hz * TrainCfg().substeps  # composing knows of no configuration


class Key(BaseModel):
    """One pose of a keyframe file."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    t: Annotated[float, Field(ge=0, le=LONGEST, description="s")]
    pitch: float = Field(0.0, description="degrees")
    spin: float = Field(0.0, description="degrees")
    roll: float = Field(0.0, description="degrees")
    joints: dict[str, float] = Field({}, description="rad; joints that are not named are 0")


class Keyframes(BaseModel):
    """A keyframe file."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    fps: Annotated[float, Field(ge=FPS_RANGE[0], le=FPS_RANGE[1])] = 50.0
    follow: int | None = Field(None, description="seed of the physical refinement; none: the drawing as it is")
    keys: Annotated[list[Key], Field(min_length=2)]


def compose_file(keyframes: Path, out: Path, cfg: RobotCfg) -> list[Finding]:
    """Compose a keyframe file into an npz clip.

    Returns:
        What a person should know: whether physics can follow the clip, and where not.

    Raises:
        MotionError: the file is not a keyframe file, or names joints the robot lacks.
    """
    robot, cfg_motion = Robot.load(cfg), MotionCfg()
    clip, findings = compose(keyframes, robot)
    clip.save(out)
    curves = followability(robot, clip, cfg_motion.contact_distance)
    plain = replay(robot, clip, PHYSICS_HZ, 1.0)
    findings.append(Finding("INFO", "followability", str(out), verdict(curves, plain, cfg_motion)))
    return findings + judge(curves, cfg_motion, str(out))


def compose(keyframes: Path, robot: Robot) -> tuple[Clip, list[Finding]]:
    """The clip of a keyframe file, and how closely physics followed it, where the file asks for that.

    Raises:
        MotionError: the file is not a keyframe file, or names joints the robot lacks.
    """
    frames = read(keyframes)
    qpos = sketch(robot, frames, str(keyframes))
    findings = []
    if frames.follow is not None:
        qpos, gap = follow(robot, qpos, frames.fps, PHYSICS_HZ, frames.follow)
        worst = int(gap.argmax())
        found = f"physics follows the clip to {1e3 * gap.mean():.0f} mm on average"
        found += f", {1e3 * gap[worst]:.0f} mm at frame {worst}"
        findings.append(Finding("INFO", "follow", str(keyframes), found))
    return to_clip(robot, frames.fps, qpos), findings


def to_clip(robot: Robot, fps: float, qpos: Array) -> Clip:
    """A clip from generalised positions. (T, nq)."""
    return from_poses(robot, fps, qpos[:, :3], qpos[:, 3:7], qpos[:, robot.qpos_adr])


def read(path: Path) -> Keyframes:
    """Read and check a keyframe file.

    Raises:
        MotionError: every problem of the file in one go.
    """
    try:
        frames = Keyframes.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as e:
        raise MotionError(
            *(
                error(
                    "keyframes",
                    f"{path}: {'.'.join(map(str, p['loc']))}",
                    f"{json.dumps(p['input'], default=str)}",
                    p["msg"],
                )
                for p in e.errors()
            )
        ) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as e:
        raise MotionError(error("keyframes", str(path), f"{e}"[:300], "a readable YAML file")) from None
    times = [key.t for key in frames.keys]
    if times != sorted(set(times)):
        raise MotionError(error("keyframes", f"{path}: t", str(times), "increasing times", "sort the keys"))
    return frames


def sketch(robot: Robot, frames: Keyframes, where: str) -> Array:
    """The drawing: shape-preserving interpolation, lowest geom on the floor, planted geoms do not slip. -> (T, nq)."""
    times = np.array([key.t for key in frames.keys])
    t = np.arange(round(times[-1] * frames.fps) + 1) / frames.fps
    joints = PchipInterpolator(times, [joint_vector(robot, key.joints, where) for key in frames.keys])(t)
    turns = PchipInterpolator(times, [[key.pitch, key.spin, key.roll] for key in frames.keys])(t)
    quat = Rotation.from_euler("YZX", turns, degrees=True).as_quat(scalar_first=True)
    qpos = robot.qpos(np.zeros((len(t), 3)), quat, joints)
    _stand_on_floor(robot, qpos, frames.fps)
    return qpos


def joint_vector(robot: Robot, values: dict[str, float], where: str) -> Array:
    """Joint angles by name, stems for both sides. -> (J,) rad."""
    out = np.zeros(len(robot.joint_names))
    stems = [name.removesuffix("_joint") for name in robot.joint_names]
    for key, value in values.items():
        key = key.removesuffix("_joint")
        key = {"l_": "left_", "r_": "right_"}.get(key[:2], key[:2]) + key[2:]
        hits = [i for i, s in enumerate(stems) if key in (s, s.removeprefix("left_"), s.removeprefix("right_"))]
        if not hits:
            known = sorted({s.removeprefix("left_").removeprefix("right_") for s in stems})
            close = difflib.get_close_matches(key, [*known, *stems], 1)
            raise MotionError(
                error(
                    "keyframes",
                    f"{where}: joints",
                    f"no joint {key!r}",
                    f"one of {', '.join(known)}, with left_ or right_ for one side",
                    f"did you mean {close[0]}?" if close else "",
                )
            )
        for i in hits:
            mirrored = key != stems[i] and stems[i].startswith("right_") and ("roll" in key or "yaw" in key)
            out[i] = -value if mirrored else value
    return out


def _stand_on_floor(robot: Robot, qpos: Array, fps: float) -> None:
    """Set the root position in place: height from the lowest geom, x and y so that what touches the floor stays."""
    data = mujoco.MjData(robot.model)

    def place(q: Array) -> Array:
        data.qpos[:] = q
        mujoco.mj_kinematics(robot.model, data)
        return robot.lowest(data)

    height = np.array([-place(q).min() for q in qpos])
    qpos[:, 2] = uniform_filter1d(height, max(1, round(HEIGHT_WINDOW * fps)), mode="nearest")
    before = None
    for i, q in enumerate(qpos):
        q[:2] = qpos[max(i - 1, 0), :2]
        low = place(q)
        pos, mat = data.geom_xpos[robot.geoms], data.geom_xmat[robot.geoms].reshape(-1, 3, 3)
        if before is not None:
            pos_0, mat_0, low_0 = before
            planted = (low < CONTACT) & (low_0 < CONTACT)
            if planted.any():
                # where the material points that touched the floor a frame ago are now
                touch = pos_0 * [1, 1, 0] + low_0[:, None] * [0, 0, 1]
                local = np.einsum("gji,gj->gi", mat_0, touch - pos_0)
                slip = (pos + np.einsum("gij,gj->gi", mat, local) - touch)[planted, :2].mean(axis=0)
                q[:2] -= slip
                pos = pos - [*slip, 0]
        before = pos.copy(), mat.copy(), low
