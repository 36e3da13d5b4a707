"""Stage 5: many deterministic episodes from lying, undisturbed and disturbed; with export and sim2sim, the verdict."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from q1pipe.config import EvaluateCfg, Sim2simCfg, TrainCfg
from q1pipe.errors import Q1Error, error
from q1pipe.files import write_json
from q1pipe.learn import checkpoint
from q1pipe.learn.policy import Policy
from q1pipe.metrics import DEFINITIONS, gate
from q1pipe.motion.clip import Clip
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.sim.env import Mode, TrackingEnv
from q1pipe.sim.rewards import REWARD_TERMS
from q1pipe.sim.terminations import Cause
from q1pipe.stages.episodes import Episodes, play
from q1pipe.stages.same_run import same_run
from q1pipe.stages.versions import differing, installed

log = logging.getLogger(__name__)


def run(
    policy: Path,
    train_json: Path,
    motion: Path,
    export_json: Path,
    sim2sim_json: Path,
    out_json: Path,
    threads: int,
    settings: Mapping[str, Any],
) -> None:
    """Evaluate a policy and write `eval.json`, the verdict of stage 5. A failed gate is in the file, and not an error.

    Args:
        policy: policy.pt.
        train_json: train.json of the same run.
        motion: motion.npz.
        export_json: export.json, of parity.
        sim2sim_json: sim2sim.json, of the exported policy in other worlds, and of safety.
        out_json: the verdict.
        threads: cores for the physics; the result does not depend on it.
        settings: sections ``robot``, ``train``, ``evaluate``, and of ``sim2sim`` its max_gap.

    Raises:
        Q1Error: policy, motion, robot, export and sim2sim are not of one run.
    """
    cfg: EvaluateCfg = settings["evaluate"]
    train: TrainCfg = settings["train"].model_copy(update={"seed": cfg.seed})
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion).opening()
    content, trained = checkpoint.load(policy), json.loads(train_json.read_text(encoding="utf-8"))
    same_run(content["meta"], trained, robot, motion, policy)
    exported, simulated = (json.loads(p.read_text(encoding="utf-8")) for p in (export_json, sim2sim_json))
    _same_export(policy, exported, simulated, sim2sim_json)
    actor = Policy.from_record(content["policy"])
    torch.set_num_threads(threads)
    sets: dict[str, Episodes] = {}
    modes: tuple[Mode, ...] = ("nominal", "disturbed")
    for mode in modes:
        env = TrackingEnv(robot, clip, train, np.arange(cfg.episodes), mode, threads)
        noise_seed = cfg.seed if mode == "disturbed" else None
        sets[mode] = play(actor, env, clip, cfg, torch.device("cpu"), noise_seed)
    results = {mode: _record(episodes) for mode, episodes in sets.items()}
    verdict = [
        *gates(cfg, {mode: episodes.summary() for mode, episodes in sets.items()}),
        *deploy_gates(exported, simulated, sets["nominal"].success, settings["sim2sim"]),
    ]
    all_passed = all(gate["passed"] for gate in verdict)
    trained_with, here = content["meta"]["versions"], installed("torch", "mujoco", "numpy")
    doubts = differing(trained_with, here, "evaluate")
    for finding in doubts:
        log.warning(finding)
    write_json(
        out_json,
        {
            "verdict": "pass" if all_passed else "fail",
            "gates": verdict,
            "findings": [*(f.record() for f in doubts), *simulated["findings"]],
            **results,
            "parity": exported["parity"],
            "sim2sim": {key: simulated[key] for key in ("verdict", "worlds", "open_loop")},
            "safety": simulated["safety"],
            "definitions": DEFINITIONS,
            "sets": {
                "nominal": "starts lying at frame 0 with reset noise; no observation noise, randomisation or pushes",
                "disturbed": "the same with the observation noise, randomisation and pushes of training",
            },
            "policy": {key: content["evaluation"][key] for key in ("iteration", "env_steps", "wall_s")},
            "fingerprint": content["meta"]["fingerprint"],
            "hashes": {"motion": file_sha(motion), "robot": robot.sha, "policy": file_sha(policy)},
            "onnx": exported["hashes"]["policy.onnx"],
            "versions": {"trained": trained_with, "evaluated": here},
            "trained_on": content["meta"]["device"],
        },
    )
    for line in verdict:
        passed = "pass" if line["passed"] else "FAIL"
        log.info("%s  %-56s %8.3g  (%s)", passed, line["name"], line["value"], line["allowed"])
    log.info("verdict: %s, %s", "PASS" if all_passed else "FAIL", out_json)


def gates(cfg: EvaluateCfg, summaries: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Each gate with the number behind it: name, value, allowed, passed."""
    bounds = [
        ("nominal", "success_rate", cfg.min_success),
        ("nominal", "finish_rate", cfg.min_finish),
        ("disturbed", "finish_rate", cfg.min_finish_disturbed),
        ("nominal", "mean_rew", cfg.min_reward),
    ]
    return [
        gate(f"{mode}.{key}", summaries[mode][key], f">= {bound:g}", summaries[mode][key] >= bound)
        for mode, key, bound in bounds
    ]


def deploy_gates(
    exported: Mapping[str, Any], simulated: Mapping[str, Any], success: NDArray[np.bool_], cfg: Sim2simCfg
) -> list[dict[str, Any]]:
    """The gates of export, sim2sim and safety, each with the number behind it.

    Args:
        exported: export.json.
        simulated: sim2sim.json.
        success: (n,) of evaluate's nominal episodes; sim2sim's nominal ones start in the same states.
        cfg: how far the two may be apart.
    """
    # JSON has no infinity: what is null there was not finite
    rules = [rule for rule in simulated["safety"]["rules"] if rule["allowed"] is not None]
    safety = [{**r, "value": float("inf") if r["value"] is None else r["value"]} for r in rules]
    gap = abs(float(success.mean()) - float(np.mean(simulated["nominal_success"])))
    return [
        *(
            gate(
                f"parity.{d['file']}.{d['rows']}",
                d["largest"],
                f"<= {exported['allowed']:g}",
                d["largest"] <= exported["allowed"],
            )
            for d in exported["parity"]
        ),
        *({**gate, "name": f"sim2sim.{gate['name']}"} for gate in simulated["gates"]),
        gate("sim2sim.nominal.gap_to_evaluate", gap, f"<= {cfg.max_gap:g}", gap <= cfg.max_gap),
        *(
            gate(f"safety.{r['rule']}", r["value"], f"<= {r['allowed']:g} {r['unit']}".strip(), r["passed"])
            for r in safety
        ),
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


def _same_export(policy: Path, exported: Mapping[str, Any], simulated: Mapping[str, Any], where: Path) -> None:
    """Export and sim2sim must be of this policy.

    Raises:
        Q1Error: they are not.
    """
    chain = {
        "policy.pt": (file_sha(policy), exported["hashes"]["policy.pt"]),
        "policy.onnx": (exported["hashes"]["policy.onnx"], simulated["hashes"]["policy.onnx"]),
    }
    findings = [
        error(
            "mixed-run", str(where), f"made with another {name}: {theirs}, here it is {here}", "one run", "run it again"
        )
        for name, (here, theirs) in chain.items()
        if here != theirs
    ]
    if findings:
        raise Q1Error(*findings)
