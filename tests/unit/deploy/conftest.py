"""One small policy, exported once, and what a test needs to spoil it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from q1pipe.config import EvaluateCfg, ExportCfg, PolicyCfg, ResetCfg, RobotCfg, Sim2simCfg, TrainCfg
from q1pipe.deploy.contract import Contract
from q1pipe.deploy.run_policy import Controller
from q1pipe.learn import checkpoint
from q1pipe.learn.policy import Policy, Shape
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.provenance import file_sha
from q1pipe.sim.observations import Layout
from q1pipe.stages import export
from tests.clips import standing_clip

EPISODES = 4
SETTINGS = {
    "robot": RobotCfg(),
    "train": TrainCfg(num_envs=4, num_workers=1, reset=ResetCfg(roll_pitch=0.02, vel_xy=0.1, vel_roll_pitch=0.05)),
    "export": ExportCfg(episodes=EPISODES, golden_rows=20, rows=64),
    "evaluate": EvaluateCfg(episodes=EPISODES),
    "sim2sim": Sim2simCfg(episodes=2),
}


def waving_clip(robot: Any, frames: int = 60) -> Clip:
    """Standing, with arms that swing, left and right differently: every frame is another one."""
    stand = standing_clip(robot, frames)
    joints = stand.joint_pos.astype(float)
    for phase, name in enumerate(n for n in robot.joint_names if "shoulder_pitch" in n or "elbow" in n):
        joints[:, robot.joint_names.index(name)] -= 0.2 * np.sin(0.1 * np.arange(frames) + phase) + 0.1
    root = robot.root - 1
    return from_poses(
        robot, 50, stand.body_pos_w[:, root].astype(float), stand.body_quat_w[:, root].astype(float), joints
    )


def small_policy(robot: Any) -> Policy:
    """Near plain PD tracking, but with layers that look at everything and a normaliser that does something."""
    layout = Layout.of(robot)
    shape = Shape(layout.actor_dim, layout.critic_dim, len(robot.joint_names), layout.reference_joint_pos.start)
    torch.manual_seed(0)
    policy = Policy(shape, PolicyCfg(hidden=(16, 8)), robot.default_joint_pos.tolist(), robot.action_scale.tolist())
    torch.nn.init.normal_(policy.net[-1].weight, std=0.02)
    policy.normalizer.update(torch.randn(500, shape.actor))
    return policy.eval()


@dataclass(frozen=True)
class Exported:
    """What the export stage wrote for the small policy."""

    folder: Path
    policy: Policy

    @property
    def onnx(self) -> Path:
        return self.folder / "policy.onnx"

    @property
    def motion(self) -> Path:
        return self.folder / "motion.npz"

    def recording(self) -> dict[str, Any]:
        with np.load(self.folder / "recording.npz") as data:
            return dict(data)

    def metadata(self) -> dict[str, str]:
        return {p.key: p.value for p in onnx.load(self.onnx).metadata_props}

    def contract(self) -> Contract:
        return Contract.read(self.metadata(), str(self.onnx))

    def controller(self) -> Controller:
        return Controller(str(self.onnx), str(self.motion))

    def changed(self, path: Path, change: Any = None, **metadata: str | None) -> Path:
        """A copy of the model with other metadata (None removes a key), and otherwise changed."""
        model = onnx.load(self.onnx)
        values = {**self.metadata(), **metadata}
        del model.metadata_props[:]
        onnx.helper.set_model_props(model, {k: v for k, v in values.items() if v is not None})
        if change:
            change(model)
        onnx.save(model, path)
        return path


def write_run(folder: Path, robot: Any, clip: Any, policy: Policy) -> None:
    """policy.pt, train.json and motion.npz as training leaves them."""
    clip.save(folder / "motion.npz")
    versions = {"torch": "0", "mujoco": "0", "numpy": "0"}
    meta = {
        "fingerprint": "f" * 12,
        "motion_sha": file_sha(folder / "motion.npz"),
        "robot_sha": robot.sha,
        "versions": versions,
        "device": "cpu",
    }
    judged = {"iteration": 3, "env_steps": 300, "wall_s": 1.5}
    checkpoint.save(folder / "policy.pt", {"policy": policy.record(), "evaluation": judged, "meta": meta})
    (folder / "train.json").write_text(json.dumps({"fingerprint": meta["fingerprint"]}))


def run_export(folder: Path) -> None:
    names = ("policy.pt", "train.json", "motion.npz", "policy.onnx", "policy_with_reference.onnx", "recording.npz")
    export.run(*(folder / n for n in (*names, "deploy", "export.json")), "stand", SETTINGS)


@pytest.fixture(scope="session")
def exported(robot: Any, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder, policy = tmp_path_factory.mktemp("exported"), small_policy(robot)
    write_run(folder, robot, waving_clip(robot), policy)
    run_export(folder)
    return Exported(folder, policy)
