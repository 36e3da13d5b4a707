"""Stage 4 over several seeds: one run for each, the best is published, and what the others came to is kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from q1pipe.config import TrainCfg
from q1pipe.errors import warn
from q1pipe.files import publish, write_json
from q1pipe.learn.trainer import DivergedError

log = logging.getLogger(__name__)

Train = Callable[[Path, Path, Path, Mapping[str, Any]], None]  # policy.pt, train.csv, train.json, sections
TOLD = ("score", "success", "finish", "finish_disturbed", "mean_rew")  # of each seed's best model


def run(policy: Path, history: Path, out_json: Path, settings: Mapping[str, Any], train: Train) -> None:
    """Train with ``train.seed``; or, where there are ``train.seeds``, with each in turn, and publish the best.

    What is finished is found again, so that a further seed costs one run.

    Args:
        policy: policy.pt, of the seed whose best model scores highest.
        history: train.csv of the same seed.
        out_json: train.json of the same seed, with `seeds`: what each came to.
        settings: sections, of which ``train`` names the seeds.
        train: trains one seed and writes its three files.

    Raises:
        DivergedError: all seeds did.
    """
    cfg: TrainCfg = settings["train"]
    if not cfg.seeds:
        train(policy, history, out_json, settings)
        return
    records: list[tuple[int, tuple[Path, Path, Path], dict[str, Any]]] = []
    for seed in cfg.seeds:
        folder = policy.parent / "seeds" / str(seed)
        files = folder / policy.name, folder / history.name, folder / out_json.name
        one = cfg.model_copy(update={"seed": seed, "seeds": ()})
        try:
            train(*files, {**settings, "train": one})
        except DivergedError as e:
            if not records and seed == cfg.seeds[-1]:
                raise
            log.warning(warn("seed", f"seed {seed}", "it diverged", action="the others count"))
            for finding in e.findings:
                log.warning(finding)
            continue
        records.append((seed, files, json.loads(files[2].read_text(encoding="utf-8"))))
    told = [
        {"seed": seed, "fingerprint": record["fingerprint"], **{key: record["best_model"][key] for key in TOLD}}
        for seed, _, record in records
    ]
    best = max(range(len(told)), key=lambda i: told[i]["score"])
    scores = ", ".join(f"{one['seed']}: {one['score']:.1f}" for one in told)
    seed, (its_policy, its_history, _), record = records[best]
    log.info("seed %d is the best by its score (%s)", seed, scores)
    publish(its_policy, policy)
    publish(its_history, history)
    write_json(out_json, {**record, "seeds": told})
