"""The work that UniLab and q1pipe share: UniLab's own G1 model, one clip, and q1pipe's settings for the same task."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from benchmarks.common import laptop
from benchmarks.peers.venvs import from_wheel
from q1pipe.config import load_settings
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.robot import Robot

FPS = 50
SIDES = ("left", "right")
ENDS = [f"{side}_{part}_link" for part in ("ankle_roll", "wrist_yaw") for side in SIDES]
TRACKED = ["pelvis", "torso_link"] + [
    f"{side}_{part}_link"
    for part in ("hip_roll", "knee", "ankle_roll", "shoulder_roll", "elbow", "wrist_yaw")
    for side in SIDES
]


def working_folder(python: Path, cache: Path) -> Path:
    """A folder as UniLab wants it: its package under src/, and in that the meshes, which its wheel lacks.

    Raises:
        NotInstallableError: mjlab, whose wheel has the meshes, cannot be had.
    """
    found = subprocess.run(
        [str(python), "-c", "import unilab; print(unilab.__file__)"], capture_output=True, text=True, check=True
    )
    package = Path(found.stdout.strip()).parent
    robot = package / "assets" / "robots" / "g1"
    if not (robot / "assets" / "head_link.STL").is_file():
        from_wheel("mjlab", "/unitree_g1/xmls/assets/", robot / "assets")
    texture = robot / "textures" / "floor.png"  # only that it is there is looked at: the flat scene has no use for it
    texture.parent.mkdir(exist_ok=True)
    texture.touch()
    folder = cache / "unilab-work"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    link = folder / "src" / "unilab"
    link.unlink(missing_ok=True)
    link.symlink_to(package)
    return folder


def settings_of(folder: Path, envs: int, steps: int, hidden: list[int], *, plain: bool) -> dict[str, Any]:
    """q1pipe's settings for UniLab's task: model, time step, limits, initial noise, disturbances.

    Args:
        folder: of `working_folder`.
        envs: environments.
        steps: of an iteration.
        hidden: layers.
        plain: the policy starts as UniLab's does (no skip connection, std 1), and all learn alike; else as
            config/laptop.yaml says.
    """
    robot = {
        "xml": str(folder / "src/unilab/assets/robots/g1/scene_flat.xml"),
        "tracked": TRACKED,
        "end_effectors": ENDS,
        "feet": ENDS[:2],
        "imu": "imu_in_torso",
    }
    height = Robot.load(load_settings(json.dumps({"robot": robot}))["robot"]).standing_height
    gone = {f"{side}_{part}_link": None for side in SIDES for part in ("elbow", "knee")}
    ours = laptop().train
    train = {
        "num_envs": envs,
        "num_workers": 2,
        "steps_per_env": steps,
        "max_iterations": 1_000_000,
        "substeps": 3,
        "policy": {"hidden": hidden, "skip": not plain, "init_std": 1.0 if plain else ours.policy.init_std},
        "ppo": {} if plain else ours.ppo.model_dump(),
        "termination": {
            "reference_height": height,  # the limits are for this robot
            "tilt": 0.8,
            "tilt_axis": "z",
            "body_z": {**dict.fromkeys(ENDS, 0.25), **gone},
        },
        "randomization": {"foot_friction": [0.6, 0.6], "torso_com": [0, 0, 0], "joint_zero": 0, "push": 0},
        "noise": dict.fromkeys(("anchor_ori", "base_ang_vel", "joint_pos", "joint_vel"), 0.0),
    }
    return {"robot": robot, "train": train}


def squat(robot: Robot, seconds: float = 10.0) -> Clip:
    """Squats while the arms swing and the waist turns, the soles flat on the floor."""
    t = np.arange(round(seconds * FPS)) / FPS
    deep = 0.35 * (1 - np.cos(np.pi * t))  # rad, of the hips and ankles; a squat takes 2 s
    sway = np.sin(2 * np.pi * t / 2.5) * np.clip(t, 0, 1)
    joint_pos = np.tile(robot.default_joint_pos, (len(t), 1))
    column = {name: i for i, name in enumerate(robot.joint_names)}
    for sign, side in zip((1, -1), SIDES, strict=True):
        joint_pos[:, column[f"{side}_hip_pitch_joint"]] -= deep
        joint_pos[:, column[f"{side}_knee_joint"]] += 2 * deep
        joint_pos[:, column[f"{side}_ankle_pitch_joint"]] -= deep
        joint_pos[:, column[f"{side}_shoulder_pitch_joint"]] += 0.6 * sign * sway
        joint_pos[:, column[f"{side}_elbow_joint"]] -= 0.5 * sway
    joint_pos[:, column["waist_yaw_joint"]] += 0.4 * sway
    data, foot = mujoco.MjData(robot.model), robot.feet[0]
    root = np.tile([0.0, 0.0, 1.0], (len(t), 1))
    upright = np.tile([1.0, 0, 0, 0], (len(t), 1))
    for k, qpos in enumerate(robot.qpos(root, upright, joint_pos)):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(robot.model, data)
        root[k, :2] -= data.xpos[foot, :2]  # the feet stay where they are
        root[k, 2] -= robot.lowest(data).min()
    root[:, :2] -= root[0, :2]
    return from_poses(robot, float(FPS), root, upright, joint_pos)


def save_for_unilab(clip: Clip, path: Path) -> None:
    """The clip as UniLab reads it: by body id, so with a row for the world."""

    def with_world(a: np.ndarray, row: list[float]) -> np.ndarray:
        return np.concatenate([np.tile(np.array(row, a.dtype), (clip.frames, 1, 1)), a], axis=1)

    np.savez(
        path,
        fps=np.array([clip.fps]),
        joint_pos=clip.joint_pos,
        joint_vel=clip.joint_vel,
        body_pos_w=with_world(clip.body_pos_w, [0, 0, 0]),
        body_quat_w=with_world(clip.body_quat_w, [1, 0, 0, 0]),
        body_lin_vel_w=with_world(clip.body_lin_vel_w, [0, 0, 0]),
        body_ang_vel_w=with_world(clip.body_ang_vel_w, [0, 0, 0]),
    )
