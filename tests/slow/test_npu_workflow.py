"""The whole workflow on the stand-in NPU: found by itself, used, and said wherever a device is said."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from q1pipe.learn.device import VARIABLES
from tests.workflow.project import TINY, copy


@pytest.mark.slow
def test_an_npu_is_found_and_used(standin: str, tmp_path: Path) -> None:
    project = copy(tmp_path / "project")
    wish = tmp_path / "auto.yaml"
    wish.write_text(TINY.read_text(encoding="utf-8").replace("  device: cpu", "  device: auto"), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "results/getUp/eval.json", "--cores", "2", "--configfile", str(wish)]
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    done = subprocess.run(
        command,
        cwd=project.folder,
        env={**clean, "PYTHONPATH": standin, "STANDIN_NPU_CARDS": "2", "STANDIN_NPU_ANNOUNCE": "aten::randperm"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout
    results = project.folder / "results"
    read = {p.stem: json.loads(p.read_text()) for p in (results / "device.json", *(results / "getUp").glob("*.json"))}
    assert (read["device"]["device"], read["device"]["cards"]) == ("npu:0", 2)
    assert read["smoke"]["device"] == read["train"]["device"] == read["eval"]["trained_on"] == "npu:0"
    assert list(read["smoke"]["fallbacks"]) == ["aten::randperm"]
    assert "WARN [fallback] npu:0 — 1 operators run on the CPU instead: aten::randperm" in done.stdout
    with open(results / "getUp/train.csv", newline="") as f:
        assert {row["device"] for row in csv.DictReader(f)} == {"npu:0"}
