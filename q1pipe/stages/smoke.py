"""Stage 3: the real training code for a moment, before hours are spent on it."""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from q1pipe.config import SmokeCfg, TrainCfg, workers_for
from q1pipe.errors import Finding, Q1Error, error, first, warn
from q1pipe.files import write_json
from q1pipe.learn.buffer import bytes_needed
from q1pipe.learn.card import lease
from q1pipe.learn.device import use, watched
from q1pipe.learn.history import numbers
from q1pipe.learn.trainer import Trainer
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.stages.train import provenance, shape_of, train
from q1pipe.stopping import Stopped, Stopping

log = logging.getLogger(__name__)


def run(motion: Path, report: Path, device: Path, out_json: Path, threads: int, settings: Mapping[str, Any]) -> None:
    """Train for a few iterations on few environments and look at what came out.

    Args:
        motion: motion.npz.
        report: motion.json; that the motion stage wrote it is what counts.
        device: device.json.
        out_json: smoke.json, written also when the run is refused.
        threads: cores to use.
        settings: sections ``robot``, ``train``, ``smoke``, ``device``.

    Raises:
        Q1Error: a loss is not finite, physics is unstable, it ran on another device than the one chosen, or episodes
            end as soon as they begin.
        SystemExit: 128 + signal number, when asked to stop.
    """
    cfg: SmokeCfg = settings["smoke"]
    chosen = json.loads(device.read_text(encoding="utf-8"))
    envs = min(cfg.num_envs, settings["train"].num_envs)
    budget = {"num_envs": envs, "num_workers": workers_for(envs, envs, threads)[0], "max_iterations": cfg.iterations}
    small: TrainCfg = settings["train"].model_copy(update=budget)
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion)
    meta = provenance(motion, robot, small, chosen)
    need = bytes_needed(settings["train"], shape_of(robot))  # of the long run, which comes next
    robot_cfg, purpose = settings["robot"], f"smoke run of {motion}"
    with tempfile.TemporaryDirectory(prefix="q1pipe-smoke-") as name, Stopping() as stop, watched() as seen:
        folder = Path(name)
        try:
            with lease(chosen, purpose, stop.sleep) as asked:
                torch_device = use(asked, need)
                trainer = train(robot_cfg, robot, motion, clip, small, threads, torch_device, folder, meta, None, stop)
        except Stopped as e:
            raise SystemExit(e.code) from None
        rows = numbers(folder / "train.csv")
    findings = judge(trainer, rows, asked, cfg, motion)
    if seen.operators:
        found = f"{len(seen.operators)} operators run on the CPU instead: {first(seen.operators)}"
        action = "update torch_npu and CANN, or report it: training is slower than it could be"
        log.warning(warn("fallback", asked, found, "operators that the device computes itself", action))
    record = {
        "device": str(trainer.device),
        "environments": small.num_envs,
        "workers": small.num_workers,
        "iterations": len(rows),
        "median_episode": float(np.median(trainer.lengths)) if trainer.lengths else None,
        "unstable_share": max(row["sim_unstable"] for row in rows),
        "steps_per_s": rows[-1]["sps"],
        "fallbacks": dict(seen.operators),
        "harmless_warnings": dict(seen.harmless),
        "rows": rows,
        "findings": [f.record() for f in findings],
        "versions": meta["versions"],
    }
    write_json(out_json, record)
    if findings:
        raise Q1Error(*findings)
    log.info("[DONE] device=%s", trainer.device)


def judge(trainer: Trainer, rows: list[dict[str, float]], device: str, cfg: SmokeCfg, motion: Path) -> list[Finding]:
    """What speaks against a long run."""
    findings = []
    if str(trainer.device) != device:
        findings.append(error("smoke-device", "device.json", f"asked for {device}, ran on {trainer.device}", device))
    always = [key for key in rows[-1] if key not in ("ep_ret", "ep_len")]  # these wait for an episode to end
    bad = [(key, row["iteration"]) for row in rows for key in always if not math.isfinite(row[key])]
    if bad or trainer.restored:
        found = f"{bad[0][0]} is not finite at iteration {bad[0][1]:.0f}" if bad else "numbers went bad on the way"
        findings.append(error("smoke-nan", "train.csv", found, "numbers"))
    unstable = max(row["sim_unstable"] for row in rows)
    if unstable > cfg.max_unstable:
        found = f"physics unstable in {unstable:.2%} of the steps"
        action = "look at the robot's gains and the clip's jumps"
        findings.append(error("smoke-unstable", str(motion), found, f"at most {cfg.max_unstable:.2%}", action))
    median = float(np.median(trainer.lengths)) if trainer.lengths else math.inf
    if median < cfg.min_median_episode:
        shares = {name: np.mean([row[f"end_{name}"] for row in rows]) for name in trainer.causes}
        main = max(shares, key=lambda name: shares[name])
        found = f"the median episode lasts {median:g} steps; {shares[main]:.0%} of them end by {main}"
        action = f"look at train.termination ({main}) and at the clip where episodes start"
        findings.append(
            error("smoke-terminations", str(motion), found, f"at least {cfg.min_median_episode} steps", action)
        )
    return findings
