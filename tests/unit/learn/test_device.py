"""What the choice of a device goes by, on a machine without NPU and CUDA; the choice itself: test_device_cases.py."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from q1pipe.config import DeviceCfg
from q1pipe.errors import DeviceError
from q1pipe.learn import device

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="describes a machine without CUDA")
NONE = {k: v for k, v in os.environ.items() if k not in device.VARIABLES}


def choose(asked: str = "auto", timeout: float = 60.0, **variables: str) -> dict:
    record = device.look(DeviceCfg(device=asked, timeout=timeout), {**NONE, **variables})
    device.require(record)
    return record


def fake_torch_npu(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> dict[str, str]:
    """Put a torch_npu with an entry point that torch would load on the path; gives the variables for a subprocess."""
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu/__init__.py").write_text(code)
    info = folder / "torch_npu-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    monkeypatch.syspath_prepend(str(folder))
    return {"PYTHONPATH": str(folder)}


PROCESS_TABLE = """\
| npu-smi 24.1.rc2.2               Version: 24.1.rc2.2                                           |
| 0     910B2C              | OK            | 97.2        46                0    / 0             |
| 0                         | 0000:5A:00.0  | 0           0    / 0          60334/ 65536         |
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 0       0                 | 4711          | python3                  | 57021                   |"""
NO_CANN = 'raise ImportError("libhccl.so: cannot open shared object file")'


def test_record_says_what_was_tried():
    record = choose()
    assert (record["device"], record["requested"], record["cards"]) == ("cpu", "auto", 0)
    assert [p["device"] for p in record["tried"]] == ["npu:0", "cuda:0", "cpu"]
    assert [p["ok"] for p in record["tried"]] == [False, False, True]
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert record["smi"]["state"] == "absent"


def test_broken_torch_npu_does_not_break_importing_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    variables = {**NONE, **fake_torch_npu(tmp_path, monkeypatch, NO_CANN)}
    variables.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    root = Path(device.__file__).parents[2]
    variables["PYTHONPATH"] += os.pathsep + str(root)
    subprocess.run([sys.executable, "-c", "import q1pipe.learn.ppo"], env=variables, check=True)


def test_use_computes_in_this_process():
    assert device.use("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="does not compute in this process"):
        device.use("cuda:0")


def test_wrong_results_are_noticed(monkeypatch: pytest.MonkeyPatch):
    right = torch.tanh
    calls = iter([True, False])
    monkeypatch.setattr(torch, "tanh", lambda x: right(x) * (1.05 if next(calls) else 1))
    with pytest.raises(DeviceError, match=r"tanh\(a @ b\) differs from the CPU's by 0.0"):
        device.use("cpu")


@pytest.mark.parametrize(
    ("torch_version", "torch_npu", "cann", "found"),
    [
        ("2.7.1", "2.7.1.post4", "9.1.0", []),
        ("2.7.1", "2.7.1.post8", "9.1.RC1", []),
        ("2.13.0+cpu", None, None, []),
        ("2.14.0", "2.14.0", "10.0.0", []),  # newer than the table
        ("2.13.0", "2.7.1.post4", None, ["torch and torch_npu of one version — pip install torch==2.7.1"]),
        ("2.7.1", "2.7.1.post2", "9.1.0", ["CANN 8.5 — install CANN 8.5, or torch_npu 2.7.1.post8"]),
        ("2.9.0", "2.7.1", "9.0.0", ["one version", "CANN 8.3 — install CANN 8.3, or torch_npu 2.9.0.post2"]),
    ],
)
def test_series(torch_version: str, torch_npu: str | None, cann: str | None, found: list[str]):
    findings = device.series({"torch": torch_version, "torch_npu": torch_npu, "cann": cann})
    assert len(findings) == len(found)
    for finding, part in zip(findings, found, strict=True):
        assert part in str(finding)


def test_cann_version(tmp_path: Path):
    (tmp_path / "version.info").write_text("Version=9.1.RC1\n")
    assert device.cann_version({"ASCEND_TOOLKIT_HOME": str(tmp_path)}) == "9.1.RC1"
    assert device.cann_version({"ASCEND_TOOLKIT_HOME": str(tmp_path / "none")}) is None


def test_driver_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver/version.info").write_text("Version=25.0.rc1.1\nascendhal_version=7.35.23\n")
    (tmp_path / "nvidia").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC\n")
    monkeypatch.setattr(device, "ASCEND", tmp_path)
    monkeypatch.setattr(device, "NVIDIA", tmp_path / "nvidia")
    found = device.versions(NONE)
    assert (found["npu_driver"], found["cuda_driver"]) == ("25.0.rc1.1", "535.104.05")


def test_a_device_that_takes_long_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    variables = {**NONE, **fake_torch_npu(tmp_path, monkeypatch, "import time\ntime.sleep(60)")}
    monkeypatch.setattr(device, "PROGRESS_SECONDS", 0.25)
    monkeypatch.setattr(logging.getLogger("q1pipe"), "propagate", True)
    with caplog.at_level(logging.INFO, "q1pipe"):
        assert device.probe("npu", 0.6, variables).why == "did not answer within 0.6 s"
    assert caplog.messages == [f"npu:0: no answer yet, {waited} s of 0.6" for waited in (0.25, 0.5)]


def test_a_card_without_torch_npu_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "davinci0").touch()
    monkeypatch.setattr(device, "DEVICE_FILES", tmp_path)
    (finding,) = choose()["findings"]
    assert (finding["level"], finding["code"]) == ("WARN", "device-unusable")
    assert "pip install torch_npu==" in finding["action"]


def test_a_crowded_card_is_said(standin: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """60 of 64 GB are in use by an orphan: who it is, comes from npu-smi."""
    monkeypatch.syspath_prepend(standin)
    (tmp_path / "npu-smi").write_text(f"#!/bin/sh\ncat <<'EOF'\n{PROCESS_TABLE}\nEOF\n")
    (tmp_path / "npu-smi").chmod(0o755)
    more = {"STANDIN_NPU_MEMORY": str(64 << 30), "STANDIN_NPU_USED": str(60 << 30)}
    record = choose(**more, PYTHONPATH=standin, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert record["memory"] == {"free": 4 << 30, "total": 64 << 30}
    assert record["name"] == "stand-in NPU 0"
    found = [f["found"] for f in record["findings"] if f["code"] == "device-memory"]
    assert found == ["60.0 of 64.0 GB are in use by others: process 4711 python3, 57021 MB"]
