"""Stage 5: the policy as ONNX with its contract, proof that it computes the same, and what sim2sim compares with."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import EvaluateCfg, ExportCfg, TrainCfg
from q1pipe.deploy import contract as contracts
from q1pipe.deploy import folder, parity
from q1pipe.deploy.contract import Contract
from q1pipe.deploy.export import REFERENCE, save_policy, save_with_reference
from q1pipe.errors import Q1Error
from q1pipe.files import replacing, write_json
from q1pipe.learn import checkpoint
from q1pipe.learn.policy import Policy
from q1pipe.log import progress
from q1pipe.motion.clip import Clip
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.observations import ACTOR_TERMS
from q1pipe.sim.terminations import Cause
from q1pipe.stages.same_run import same_run
from q1pipe.version import VERSION

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]


def run(
    policy: Path,
    train_json: Path,
    motion: Path,
    onnx: Path,
    onnx_with_reference: Path,
    recording: Path,
    deploy_dir: Path,
    out_json: Path,
    name: str,
    settings: Mapping[str, Any],
) -> None:
    """Export a policy, compare the file with it, record a trajectory, and fill the deploy folder.

    Args:
        policy: policy.pt.
        train_json: train.json of the same run.
        motion: motion.npz.
        onnx: policy.onnx.
        onnx_with_reference: policy_with_reference.onnx, the form of BeyondMimic's controllers.
        recording: recording.npz, a trajectory of the training's simulation and the states that episodes start in.
        deploy_dir: the deploy folder.
        out_json: export.json, written last.
        name: of the motion.
        settings: sections ``robot``, ``train``, ``export``, and of ``evaluate`` its episodes and seed.

    Raises:
        Q1Error: the files are not of one run, or the exported policy does not compute what the policy computes.
    """
    cfg: ExportCfg = settings["export"]
    evaluate: EvaluateCfg = settings["evaluate"]
    train: TrainCfg = settings["train"].model_copy(update={"seed": evaluate.seed})
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion).opening()
    content, trained = checkpoint.load(policy), json.loads(train_json.read_text(encoding="utf-8"))
    same_run(content["meta"], trained, robot, motion, policy)
    actor = Policy.from_record(content["policy"])
    torch.set_num_threads(1)

    contract = describe(robot, clip, train, content, motion, name)
    save_policy(onnx, actor, contract)
    rows = [robot.body_names.index(n) for n in contract.body_names]
    reference = {k: getattr(clip, k)[:, rows] if k.startswith("body") else getattr(clip, k) for k in REFERENCE}
    save_with_reference(onnx_with_reference, actor, contract, reference)

    trajectory, pool = record(actor, robot, clip, train, cfg.episodes)
    observations = {"real": _spread(pool["observation"], cfg.rows), "random": random_rows(actor, cfg.rows, train.seed)}
    with torch.no_grad():
        actions = {k: actor(torch.from_numpy(x)).numpy() for k, x in observations.items()}
    compared = parity.compare([onnx, onnx_with_reference], observations, actions)
    for d in compared:
        log.info("%-26s %4d %-6s observations: largest difference %.2e", d.file, d.count, d.rows, d.largest)
    found = {
        "parity": [{**vars(d), "joint": contract.joint_names[d.joint]} for d in compared],
        "allowed": cfg.max_difference,
        "fingerprint": contract.fingerprint,
        "metadata": contract.metadata(),
    }
    if findings := parity.findings(compared, contract.joint_names, cfg.max_difference):
        write_json(out_json, {**found, "findings": [f.record() for f in findings]})
        raise Q1Error(*findings)

    starts = start_states(robot, clip, train, evaluate.episodes)
    with replacing(recording) as temporary, open(temporary, "wb") as f:
        np.savez_compressed(f, **trajectory, **starts)  # type: ignore[arg-type]
    folder.write(deploy_dir, onnx, motion, robot, contract, {k: _spread(v, cfg.golden_rows) for k, v in pool.items()})
    write_json(
        out_json,
        {
            **found,
            "recorded_steps": len(trajectory["action"]),
            "hashes": {p.name: file_sha(p) for p in (policy, motion, onnx, onnx_with_reference, recording)},
        },
    )
    log.info("%s: %d -> %d, %s", onnx, contract.observation_size, len(contract.joint_names), contract.run_path)


def describe(robot: Robot, clip: Clip, cfg: TrainCfg, content: Mapping[str, Any], motion: Path, name: str) -> Contract:
    """The contract of a policy.

    Args:
        robot: that it was trained for.
        clip: that it follows.
        cfg: settings of the training.
        content: of policy.pt.
        motion: motion.npz.
        name: of the motion.
    """
    model, layout, start = robot.model, [], 0
    for term in ACTOR_TERMS:
        noise = float(getattr(cfg.noise, term.noise)) if term.noise else 0.0
        layout.append({"name": term.name, "start": start, "size": term.width(robot), "noise": noise, "history": 1})
        start += term.width(robot)
    site, record = model.site(robot.cfg.imu), content["policy"]
    default, scale = np.array(record["default_joint_pos"]), np.array(record["action_scale"])
    example = np.round(np.linspace(-1, 1, len(default)), 3)
    names = contracts.observation_names(layout)
    return Contract(
        run_path=f"{name}/{content['meta']['fingerprint']}",
        joint_names=robot.joint_names,
        joint_stiffness=robot.stiffness,
        joint_damping=robot.damping,
        default_joint_pos=default,
        command_names=("motion",),
        observation_names=names,
        observation_history_lengths=(1,) * len(names),
        action_scale=scale,
        anchor_body_name=robot.cfg.anchor,
        body_names=robot.cfg.tracked,
        format=contracts.FORMAT,
        robot=model.names.split(b"\0")[0].decode(),
        robot_sha=robot.sha,
        joint_effort_limits=robot.effort,
        joint_lower_limits=robot.limits[:, 0],
        joint_upper_limits=robot.limits[:, 1],
        control_dt=1 / cfg.control_hz,
        sim_dt=1 / (cfg.control_hz * cfg.substeps),
        decimation=cfg.substeps,
        observation_layout=layout,
        action_semantics=contracts.SEMANTICS,
        action_example={"action": example.tolist(), "target": (default + scale * example).tolist()},
        root_body_name=robot.cfg.root,
        end_effector_names=robot.cfg.end_effectors,
        imu_to_anchor=contracts.chain(model, site.id, robot.anchor),
        quaternion_order="wxyz",
        motion=name,
        motion_sha256=contracts.sha256(motion),
        motion_fps=clip.fps,
        motion_frames=clip.frames,
        iteration=int(content["evaluation"]["iteration"]),
        fingerprint=content["meta"]["fingerprint"],
        versions={**content["meta"]["versions"], "q1pipe": VERSION, "onnx": version("onnx")},
    )


def record(
    actor: Policy, robot: Robot, clip: Clip, cfg: TrainCfg, episodes: int
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Play nominal episodes in the training's simulation.

    Returns:
        The first episode step by step, for `openloop.replay`; and all steps of all episodes by what was measured,
        observed, done and aimed at, a row per step, for parity and the golden vectors.
    """
    env = TrackingEnv(robot, clip, cfg, np.arange(episodes), "nominal")
    out, layout = StepBuffers.zeros(episodes, env.layout), env.layout
    warmstart = env.physics.batch.bind("qacc_warmstart")
    imu_site = robot.model.site(robot.cfg.imu)
    imu_quat = env.physics.batch.bind("xquat")  # (n, nbody, 4)
    env.reset_all(out)
    states: list[tuple[NDArray[Any], ...]] = []
    actions: list[NDArray[np.float32]] = []
    rows: list[dict[str, NDArray[Any]]] = []

    def look() -> None:
        state = (env.physics.qpos[0], env.physics.qvel[0], warmstart[0], env.episodes.frame[0], out.rows[0])
        states.append(tuple(np.array(x) for x in (*state[:4], state[4][: layout.actor_dim])))

    look()
    for _ in progress(range(1, clip.frames), clip.frames - 1, "recording, frame"):
        running = env.episodes.cause == Cause.NONE
        if not running.any():
            break
        observation = out.rows[:, : layout.actor_dim].copy()
        with torch.no_grad():
            action = actor(torch.from_numpy(observation)).numpy()
        rows.append(
            {
                "frame": np.minimum(env.episodes.frame + 1, clip.frames - 1)[running],
                "imu_quat": rotations.mul(imu_quat[:, imu_site.bodyid[0]], imu_site.quat)[running],
                "gyro": observation[running, layout.slices["base_ang_vel"]],
                "joint_pos": env.physics.qpos[running][:, robot.qpos_adr],
                "joint_vel": env.physics.qvel[running][:, robot.qvel_adr],
                "last_action": observation[running, layout.slices["last_action"]],
                "observation": observation[running],
                "action": action[running],
                "target": (robot.default_joint_pos + robot.action_scale * action)[running].astype(np.float32),
            }
        )
        first_runs = running[0]
        env.step(action, out)
        if first_runs:
            actions.append(action[0])
            look()
    names = ("qpos", "qvel", "warmstart", "frame", "observation")
    trajectory = {name: np.stack(values) for name, values in zip(names, zip(*states, strict=True), strict=True)}
    pool = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return {**trajectory, "action": np.stack(actions), "mujoco": version("mujoco")}, pool


def start_states(robot: Robot, clip: Clip, cfg: TrainCfg, episodes: int) -> dict[str, NDArray[np.float64]]:
    """The states that evaluate's nominal episodes start in, so that sim2sim's start there too."""
    env = TrackingEnv(robot, clip, cfg, np.arange(episodes), "nominal")
    env.reset_all(StepBuffers.zeros(episodes, env.layout))
    return {"start_qpos": env.physics.qpos.copy(), "start_qvel": env.physics.qvel.copy()}


def random_rows(actor: Policy, count: int, seed: int) -> Floats:
    """Observations (count, D) with three times the spread of those of the training."""
    mean, spread = actor.normalizer.mean.numpy(), actor.normalizer.var.sqrt().numpy()
    noise = np.random.default_rng(seed).standard_normal((count, len(mean)))
    return (mean + 3 * spread * noise).astype(np.float32)


def _spread(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """At most count rows, evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int))]
