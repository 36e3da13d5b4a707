"""Stage 4: train a policy in a run folder that outlives interruptions, and publish it."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from q1pipe.config import EvaluateCfg, RobotCfg, TrainCfg
from q1pipe.errors import Q1Error, error
from q1pipe.files import publish, replacing, write_json
from q1pipe.learn import checkpoint
from q1pipe.learn.buffer import bytes_needed
from q1pipe.learn.card import lease
from q1pipe.learn.device import use
from q1pipe.learn.history import numbers
from q1pipe.learn.policy import Critic, Policy, Shape
from q1pipe.learn.trainer import BEST, DivergedError, Evaluate, Trainer
from q1pipe.log import LogFile
from q1pipe.motion.clip import Clip
from q1pipe.provenance import code_of, file_sha
from q1pipe.robot import Robot
from q1pipe.runfolder import BUDGET, STOP, locked
from q1pipe.sim import observations, rewards, terminations
from q1pipe.sim.env import Mode, TrackingEnv
from q1pipe.sim.observations import Layout
from q1pipe.sim.rewards import REWARD_TERMS
from q1pipe.sim.sampler import AdaptiveSampler
from q1pipe.sim.terminations import Cause
from q1pipe.sim.workers import WorkerPool
from q1pipe.stages import dump
from q1pipe.stages.episodes import Episodes, play
from q1pipe.stopping import Stopped, Stopping

log = logging.getLogger(__name__)

JUDGE_SEED = 100_000  # added to the run's: other worlds and starts than the training environments have
PUBLISHED = {"mean_rew": 2.24, "ep_ret": 153.7, "ep_len": 68.0}  # end of the published 3000-iteration run
POINTS = ("iteration", "env_steps", "mean_rew", "ep_ret", "ep_len", "wall_s")


def run(
    motion: Path,
    device: Path,
    smoke: Path,
    runs_dir: Path,
    policy: Path,
    history: Path,
    out_json: Path,
    workers: int,
    threads: int,
    settings: Mapping[str, Any],
    launcher: int | None = None,
    pinned: Path | None = None,
) -> None:
    """Train, or go on, or publish what is finished.

    Args:
        motion: motion.npz.
        device: device.json.
        smoke: smoke.json; that it exists is what counts.
        runs_dir: folder of run folders.
        policy: policy.pt, the best model.
        history: train.csv, copy of the run folder's.
        out_json: train.json, written last.
        workers: physics processes, a divisor of num_envs.
        threads: cores that the learner may use, while the workers wait for it.
        settings: sections ``robot``, ``train``, ``device``.
        launcher: id of the process to leave with; see `Stopping`.
        pinned: JSON of `code_of` by stage: the run counts as made by this code, whatever the code is (`pin_code`).

    Raises:
        Q1Error: another process trains in the same folder, training diverged, a worker failed, or the disk is full.
        SystemExit: 128 + signal number, when asked to stop; everything is saved.
    """
    robot_cfg: RobotCfg = settings["robot"]
    cfg: TrainCfg = settings["train"].model_copy(update={"num_workers": workers})
    robot, clip = Robot.load(robot_cfg), Clip.load(motion)
    chosen = json.loads(device.read_text(encoding="utf-8"))
    code = json.loads(pinned.read_text(encoding="utf-8")).get(__name__) if pinned else None
    meta = provenance(motion, robot, cfg, chosen, code)
    folder = runs_dir / meta["fingerprint"]
    stop = Stopping(folder / STOP, launcher)
    with full_disk_said(folder), locked(folder), logged(folder / "train.log"), stop:
        newest = checkpoint.newest(folder)
        if not newest or newest[1]["iteration"] < cfg.max_iterations:
            try:
                with lease(chosen, f"training in {folder}", stop.sleep) as name:
                    meta["device"] = name
                    with stop.interruptible():
                        write_args(folder / "args.yaml", robot, cfg, meta)
                        torch_device = use(name, bytes_needed(cfg, shape_of(robot)))
                        evaluate = judge(robot, clip, cfg, threads, torch_device)
                    train(robot_cfg, robot, motion, clip, cfg, threads, torch_device, folder, meta, evaluate, stop)
            except Stopped as e:
                last = checkpoint.newest(folder)
                log.warning("stopped; the same command goes on from %s", last[0].name if last else "the beginning")
                sys.exit(e.code)
            except DivergedError as e:
                kept = folder / f"diverged_{e.rollout['iteration']}.npz"
                with suppress(OSError):  # what went wrong matters more than a full disk
                    dump.write(kept, motion, robot, clip, cfg, e.rollout)
                    log.error("the %d environments concerned, to replay: %s", len(e.rollout["env_ids"]), kept)
                raise
        publish(folder / BEST, policy)
        publish(folder / "train.csv", history)
        write_json(out_json, summary(folder, meta))


def train(
    robot_cfg: RobotCfg,
    robot: Robot,
    motion: Path,
    clip: Clip,
    cfg: TrainCfg,
    threads: int,
    device: torch.device,
    folder: Path,
    meta: Mapping[str, Any],
    evaluate: Evaluate | None,
    stop: Stopping,
) -> Trainer:
    """Join simulation and learner and train in a run folder to max_iterations, or until asked to stop."""
    torch.set_num_threads(threads)  # the workers wait while the learner computes
    torch.manual_seed(cfg.seed)
    layout, shape = Layout.of(robot), shape_of(robot)
    policy = Policy(shape, cfg.policy, robot.default_joint_pos.tolist(), robot.action_scale.tolist()).to(device)
    critic = Critic(layout.critic_dim, cfg.policy.hidden).to(device)
    for line in tables(robot, cfg):
        log.info(line)
    log.info(
        "training on %s: %d environments in %d workers, %d iterations of %d steps, in %s",
        *(device, cfg.num_envs, cfg.num_workers, cfg.max_iterations, cfg.steps_per_env, folder),
    )
    with stop.interruptible():
        acts = device.type == "cpu" and cfg.half_batches is None
        halves = not acts if cfg.half_batches is None else cfg.half_batches
        parts, steps = min(2, cfg.num_envs) if halves else 1, cfg.steps_per_env
        pool = WorkerPool(robot_cfg, motion, cfg, cfg.num_workers, horizon=steps, parts=parts, acts=acts)
    with pool:
        trainer = Trainer(
            pool,
            AdaptiveSampler(clip.frames, cfg.control_hz, cfg.reset),
            policy,
            critic,
            cfg,
            layout.noise(cfg.noise),
            folder,
            terms=tuple(REWARD_TERMS),
            causes=[cause.name.lower() for cause in Cause if cause],
            meta=meta,
            evaluate=evaluate,
            stop=stop,
        )
        trainer.run()
    return trainer


def shape_of(robot: Robot) -> Shape:
    """What networks for a robot are built for."""
    layout = Layout.of(robot)
    return Shape(layout.actor_dim, layout.critic_dim, len(robot.joint_names), layout.reference_joint_pos.start)


def judge(robot: Robot, clip: Clip, cfg: TrainCfg, threads: int, device: torch.device) -> Evaluate:
    """What tells which model is the best: deterministic policies from frame 0, in the same episodes every time.

    Half the score is undisturbed, half under noise, randomisation and pushes: a policy masters the first long before
    the second. Worlds and starts are none of training's. Finishing is by the default limits of `evaluate`, whatever
    the verdict will go by: its settings must not change what training leaves behind.
    """
    clip = clip.opening()
    limits, cfg = EvaluateCfg(), cfg.model_copy(update={"seed": cfg.seed + JUDGE_SEED})
    modes: tuple[Mode, ...] = ("nominal", "disturbed")
    envs = {mode: TrackingEnv(robot, clip, cfg, np.arange(cfg.best_episodes), mode, threads) for mode in modes}
    noise_seed = {"nominal": None, "disturbed": cfg.seed}

    def evaluate(policy: Policy) -> dict[str, float]:
        played = {mode: play(policy, env, clip, limits, device, noise_seed[mode]) for mode, env in envs.items()}
        result = {mode: episodes.summary() for mode, episodes in played.items()}
        return {
            "score": sum(score(episodes) for episodes in played.values()) / len(played),
            "success": result["nominal"]["success_rate"],
            "finish": result["nominal"]["finish_rate"],
            "finish_disturbed": result["disturbed"]["finish_rate"],
            **{name: result["nominal"][name] for name in ("mean_rew", "ep_ret", "ep_len")},
        }

    return evaluate


def score(episodes: Episodes) -> float:
    """Mean return, less half of what an episode that does not hold the clip's final pose got, or lost.

    By the return alone, one that stays on its knees costs next to nothing; where some do, more fall in other worlds.
    """
    lost = np.where(episodes.finish, 0, np.abs(episodes.ep_ret) / 2)
    return float(np.mean(episodes.ep_ret - lost, dtype=np.float64))


def provenance(
    motion: Path, robot: Robot, cfg: TrainCfg, device: Mapping[str, Any], code: list[str] | None = None
) -> dict[str, Any]:
    """What a run is made of; the fingerprint covers all of it that decides what it computes.

    Args:
        motion: motion.npz.
        robot: model and names.
        cfg: settings; `BUDGET` is not covered.
        device: device.json, not covered.
        code: that counts, where it is pinned; else what is here.
    """
    settled = cfg.model_dump(mode="json", exclude=BUDGET)
    made_of = {
        "motion": file_sha(motion),
        "robot": robot.sha,
        "robot_settings": robot.cfg.model_dump(mode="json", exclude={"xml"}),
        "train": settled,
        "code": code or list(code_of(__name__)),
    }
    text = json.dumps(made_of, sort_keys=True, separators=(",", ":"))
    packages = ("torch", "mujoco", "numpy")
    return {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:12],
        "motion_sha": made_of["motion"],
        "robot": robot.cfg.model_dump(mode="json"),
        "robot_sha": robot.sha,
        "train": cfg.model_dump(mode="json"),
        "code": made_of["code"],
        "device": device["device"],
        "device_name": device["name"],
        "versions": {name: version(name) for name in packages},
    }


def tables(robot: Robot, cfg: TrainCfg) -> list[str]:
    """The task as text: observation, reward and termination terms of this run."""
    layout = Layout.of(robot)
    lines = [f"observation: actor {layout.actor_dim}, critic {layout.critic_dim}"]
    lines += [
        f"  {name:20} {width:4d}  {f'± {noise:g}' if noise else '':7} {who}"
        for who, name, width, noise in observations.describe(layout, cfg.noise)
    ]
    lines += ["reward: weight, σ"]
    lines += [
        f"  {name:20} {weight:+6.2f}  {f'{sigma:g}' if sigma else ''}".rstrip()
        for name, weight, sigma in rewards.describe(cfg.reward)
    ]
    lines += ["end of an episode:"]
    lines += [f"  {name:20} {when}" for name, when in terminations.describe(robot, cfg.termination)]
    return lines


def write_args(path: Path, robot: Robot, cfg: TrainCfg, meta: Mapping[str, Any]) -> None:
    """Write the resolved settings, versions, hashes and the term tables, for people."""
    record = {**meta, "robot": robot.cfg.model_dump(mode="json"), "tables": tables(robot, cfg)}
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")


def summary(folder: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    """train.json: key points of the curves, and what they took."""
    rows = numbers(folder / "train.csv")
    evaluations = numbers(folder / "eval.csv")
    last = rows[-1]
    best_row = max(rows, key=lambda row: np.nan_to_num(row["ep_ret"], nan=-np.inf))  # none ended yet: no return
    points = {"first": rows[0], "last": last, "best": best_row}
    busy = sum(row["collect_s"] + row["update_s"] for row in rows)
    best = checkpoint.load(folder / BEST)["evaluation"]
    return {
        "fingerprint": meta["fingerprint"],
        "iterations": int(last["iteration"]),
        "env_steps": int(last["env_steps"]),
        "wall_s": last["wall_s"],
        "device": meta["device"],
        "device_name": meta["device_name"],
        "device_hours": last["wall_s"] / 3600,
        "env_steps_per_s": last["env_steps"] / busy,
        "curves": {name: {key: row[key] for key in POINTS} for name, row in points.items()},
        "best_model": best,
        "evaluations": evaluations,
        "published_run": PUBLISHED,
        "passed_published_after": {key: passed(rows, key, value) for key, value in PUBLISHED.items()},
        "code": meta["code"],
        "hashes": {"motion": meta["motion_sha"], "robot": meta["robot_sha"]},
        "versions": meta["versions"],
    }


def passed(rows: list[dict[str, float]], key: str, value: float) -> dict[str, float] | None:
    """Environment steps and wall time at the iteration from which on `key` stays at or above a value; else none."""
    below = [i for i, row in enumerate(rows) if not row[key] >= value]  # NaN is below
    start = below[-1] + 1 if below else 0
    return {"env_steps": int(rows[start]["env_steps"]), "wall_s": rows[start]["wall_s"]} if start < len(rows) else None


@contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """Say as a finding that there is no room where nothing can be done without: at the start and at the end."""
    try:
        yield
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        action = "make room; the same command goes on"
        raise Q1Error(error("disk", str(e.filename or folder), str(e.strerror), "room on the disk", action)) from None


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Append what is logged to a file that spans all attempts."""
    handler, logger = LogFile(path, "a"), logging.getLogger("q1pipe")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
