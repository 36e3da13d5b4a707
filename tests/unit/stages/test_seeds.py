"""Several seeds: each is trained into its own files, the best is published, and the spread is kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from q1pipe.config import Settings, TrainCfg
from q1pipe.errors import ConfigError, error
from q1pipe.learn.trainer import DivergedError
from q1pipe.report.page import seed_spread
from q1pipe.stages import seeds

SCORES = {3: 10.0, 1: 30.0, 2: 20.0}


def run(folder: Path, cfg: TrainCfg, diverging: tuple[int, ...] = ()) -> list[TrainCfg]:
    """Publish into a folder; the settings of each training."""
    trained = []

    def train(policy: Path, history: Path, out_json: Path, settings: Mapping[str, Any]) -> None:
        one: TrainCfg = settings["train"]
        trained.append(one)
        if one.seed in diverging:
            raise DivergedError({}, error("not-finite", "x", "y"))
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text(f"policy {one.seed}")
        history.write_text(f"history {one.seed}")
        best = {"score": SCORES[one.seed], "success": 0.5, "finish": 0.25, "finish_disturbed": 0.1 * one.seed}
        record = {"fingerprint": f"run{one.seed}", "best_model": {**best, "mean_rew": 3.0, "ep_len": 9}}
        out_json.write_text(json.dumps(record))

    files = (folder / "policy.pt", folder / "train.csv", folder / "train.json")
    seeds.run(*files, {"train": cfg, "robot": None}, train)
    return trained


def test_best_seed_is_published_and_all_are_told(tmp_path: Path) -> None:
    trained = run(tmp_path, TrainCfg(seeds=(3, 1, 2)))
    assert [(one.seed, one.seeds) for one in trained] == [(3, ()), (1, ()), (2, ())]
    assert (tmp_path / "policy.pt").read_text() == "policy 1"
    assert (tmp_path / "train.csv").read_text() == "history 1"
    record = json.loads((tmp_path / "train.json").read_text())
    assert record["fingerprint"] == "run1"
    assert [(one["seed"], one["score"]) for one in record["seeds"]] == [(3, 10.0), (1, 30.0), (2, 20.0)]
    spread = seed_spread(record["seeds"])
    assert spread["score"] == "10 – 30"
    assert spread["finish_disturbed"] == "10.0 % – 30.0 %"


def test_a_seed_that_diverges_does_not_take_the_others_along(tmp_path: Path) -> None:
    run(tmp_path, TrainCfg(seeds=(3, 1, 2)), diverging=(1,))
    record = json.loads((tmp_path / "train.json").read_text())
    assert record["fingerprint"] == "run2"
    assert [one["seed"] for one in record["seeds"]] == [3, 2]
    with pytest.raises(DivergedError):
        run(tmp_path, TrainCfg(seeds=(3, 1)), diverging=(3, 1))


def test_one_seed_is_trained_as_ever(tmp_path: Path) -> None:
    (one,) = run(tmp_path, TrainCfg(seed=2))
    assert one == TrainCfg(seed=2)
    assert "seeds" not in json.loads((tmp_path / "train.json").read_text())
    assert not (tmp_path / "seeds").exists()


def test_seeds_are_different() -> None:
    with pytest.raises(ConfigError, match=r"train.seeds — \[1, 1\] — are different numbers"):
        Settings({"train": {"seeds": [1, 1]}})
