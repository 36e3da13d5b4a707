"""`q1pipe bench`: what it measures on a small run, and the estimate by hand."""

import json
from pathlib import Path

import pytest

from q1pipe.config import Settings, TrainCfg
from q1pipe.errors import ConfigError
from q1pipe.stages import bench
from q1pipe.stages.bench import Bench

CLIP = Path(__file__).parents[3] / "config" / "getUp.npz"


@pytest.fixture
def sections():
    small = {"num_envs": 8, "num_workers": 1, "policy": {"hidden": [16]}}
    return Settings({"train": small, "device": {"device": "cpu"}}).of("getUp")


def test_a_small_run_is_measured(sections, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WARMUP", 1)
    monkeypatch.setattr(bench, "ITERATIONS", 2)
    record = bench.run(CLIP, sections, [2], 1, tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text()) == record
    (found,) = record["workers"]
    assert record["recommended_workers"] == found["workers"] == 2
    assert 0 < found["loop_of_raw"] < found["collection_of_raw"]
    assert min(found[part] for part in ("raw", "inference", "update")) > 0
    assert (found["acts"], found["copies"]) == (True, 0)
    assert len(bench.tables(record)) == 3


def test_workers_that_do_not_fit_are_named(sections):
    with pytest.raises(ConfigError, match="3 — divisors of train.num_envs, 8"):
        bench.run(CLIP, sections, [2, 3], 1, None)


def test_the_estimate_by_hand():
    cfg = TrainCfg(num_envs=64, steps_per_env=10)
    # A worker's own work: 0.1 s whatever it does, and 0.8 s for all environments.
    one = Bench(1, False, raw=4.0, own=0.9, inference=0.2, copies=0.1, collect=5.2, update=1.0, rest=0.1, **RATIOS)
    two = Bench(2, False, raw=2.0, own=0.5, inference=0.2, copies=0.1, collect=2.9, update=1.0, rest=0.1, **RATIOS)
    (four, eight) = bench.estimate([one, two], cfg)[:2]
    # four: physics 1.0 + own 0.1 + 0.2 + waiting 0.1 + copies 0.1 + rest 0.1 + inference 0.2 + update 1.0
    assert four == {
        "cores": 4,
        "steps_per_s": pytest.approx(640 / 2.8),
        "steps_per_s_with_card": pytest.approx(640 / (1.6 + 1.2 / 10)),
    }
    assert eight["steps_per_s"] == pytest.approx(640 / 2.2)
    # Where the workers act, inference is work of theirs: 0.1 s whatever it does, and 0.9 s for all environments
    spread = Bench(1, True, raw=4.0, own=0.9, inference=0.1, copies=0.0, collect=5.1, update=1.0, rest=0.1, **RATIOS)
    more = Bench(2, True, raw=2.0, own=0.5, inference=0.05, copies=0.0, collect=2.65, update=1.0, rest=0.1, **RATIOS)
    # four: physics 1.0 + 0.1 + 0.225 + waiting 0.1 + rest 0.1 + update 1.0
    assert bench.estimate([spread, more], cfg)[0]["steps_per_s"] == pytest.approx(640 / 2.525)


RATIOS = {"collection_of_raw": 0.8, "loop_of_raw": 0.6}
