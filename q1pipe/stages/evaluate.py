"""Stage 5: many deterministic episodes from lying, undisturbed and disturbed, and a verdict."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from q1pipe.config import EvaluateCfg, TrainCfg
from q1pipe.errors import Q1Error, error
from q1pipe.files import write_json
from q1pipe.learn import checkpoint
from q1pipe.learn.policy import Policy
from q1pipe.metrics import DEFINITIONS
from q1pipe.motion.clip import Clip
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.sim.env import Mode, TrackingEnv
from q1pipe.sim.rewards import REWARD_TERMS
from q1pipe.sim.terminations import Cause
from q1pipe.stages.episodes import Episodes, play

log = logging.getLogger(__name__)


def run(
    policy: Path, train_json: Path, motion: Path, out_json: Path, threads: int, settings: Mapping[str, Any]
) -> None:
    """Evaluate a policy and write `eval.json`. A failed gate is a verdict in the file, not an error.

    Args:
        policy: policy.pt.
        train_json: train.json of the same run.
        motion: motion.npz.
        out_json: the verdict.
        threads: cores for the physics; the result does not depend on it.
        settings: sections ``robot``, ``train``, ``evaluate``.

    Raises:
        Q1Error: policy, motion and robot are not of one run.
    """
    cfg: EvaluateCfg = settings["evaluate"]
    train: TrainCfg = settings["train"].model_copy(update={"seed": cfg.seed})
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion)
    content, trained = checkpoint.load(policy), json.loads(train_json.read_text(encoding="utf-8"))
    _same_run(content["meta"], trained, robot, motion, policy)
    actor = Policy.from_record(content["policy"])
    torch.set_num_threads(threads)
    sets: dict[str, Episodes] = {}
    modes: tuple[Mode, ...] = ("nominal", "disturbed")
    for mode in modes:
        env = TrackingEnv(robot, clip, train, np.arange(cfg.episodes), mode, threads)
        noise_seed = cfg.seed if mode == "disturbed" else None
        sets[mode] = play(actor, env, clip, cfg, torch.device("cpu"), noise_seed)
    results = {mode: _record(episodes) for mode, episodes in sets.items()}
    verdict = gates(cfg, {mode: episodes.summary() for mode, episodes in sets.items()})
    passed = all(gate["passed"] for gate in verdict)
    write_json(
        out_json,
        {
            "verdict": "pass" if passed else "fail",
            "gates": verdict,
            **results,
            "definitions": DEFINITIONS,
            "sets": {
                "nominal": "starts lying at frame 0 with reset noise; no observation noise, randomisation or pushes",
                "disturbed": "the same with the observation noise, randomisation and pushes of training",
            },
            "policy": {key: content["evaluation"][key] for key in ("iteration", "env_steps", "wall_s")},
            "fingerprint": content["meta"]["fingerprint"],
            "hashes": {"motion": file_sha(motion), "robot": robot.sha, "policy": file_sha(policy)},
            "versions": {"trained": content["meta"]["versions"], "evaluated": _versions()},
            "trained_on": content["meta"]["device"],
        },
    )
    for gate in verdict:
        log.info(
            "%s  %-28s %8.3f  (%s)", "pass" if gate["passed"] else "FAIL", gate["name"], gate["value"], gate["allowed"]
        )
    log.info("verdict: %s, %s", "PASS" if passed else "FAIL", out_json)


def gates(cfg: EvaluateCfg, summaries: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Each gate with the number behind it: name, value, allowed, passed."""
    bounds = [
        ("nominal", "success_rate", cfg.min_success),
        ("nominal", "finish_rate", cfg.min_finish),
        ("disturbed", "finish_rate", cfg.min_finish_disturbed),
        ("nominal", "mean_rew", cfg.min_reward),
    ]
    return [
        {
            "name": f"{mode}.{key}",
            "value": summaries[mode][key],
            "allowed": f">= {bound:g}",
            "passed": summaries[mode][key] >= bound,
        }
        for mode, key, bound in bounds
    ]


def _record(episodes: Episodes) -> dict[str, Any]:
    ends = {cause.name.lower(): int((episodes.cause == cause).sum()) for cause in Cause if cause}
    steps = episodes.ep_len.sum()
    return {
        "episodes": len(episodes.cause),
        **episodes.summary(),
        "reward_terms": dict(zip(REWARD_TERMS, (episodes.terms.sum(axis=0) / steps).tolist(), strict=True)),
        "ends": ends,
        "per_episode": {
            "success": episodes.success.tolist(),
            "finish": episodes.finish.tolist(),
            "ep_len": episodes.ep_len.tolist(),
            "ep_ret": episodes.ep_ret.tolist(),
            "mpkpe": episodes.means["mpkpe"].tolist(),
        },
    }


def _same_run(meta: Mapping[str, Any], trained: Mapping[str, Any], robot: Robot, motion: Path, policy: Path) -> None:
    """A folder can hold files of different runs after an interruption; a verdict on a mix is worth nothing."""
    pairs = {
        "fingerprint": (trained["fingerprint"], meta["fingerprint"]),
        "motion": (file_sha(motion), meta["motion_sha"]),
        "robot": (robot.sha, meta["robot_sha"]),
    }
    findings = [
        error(
            "mixed-run",
            str(policy),
            f"{name} of the policy is {of_policy}, here it is {here}",
            "one run",
            "train again",
        )
        for name, (here, of_policy) in pairs.items()
        if here != of_policy
    ]
    if findings:
        raise Q1Error(*findings)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "mujoco", "numpy")}
