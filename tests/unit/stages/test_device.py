"""What the device stage prints and writes."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from q1pipe.config import DeviceCfg
from q1pipe.errors import DeviceError
from q1pipe.stages import device

ROOT = Path(__file__).parents[3]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logger = logging.getLogger("q1pipe")
    logger.propagate = True
    logger.setLevel(logging.INFO)
    return caplog


def test_what_is_printed_is_what_is_written(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    device.run(tmp_path / "device.json", {"device": DeviceCfg(device="cpu")})
    record = json.loads((tmp_path / "device.json").read_text())
    assert record["device"] == "cpu"
    assert said.messages[: len(device.table(record))] == device.table(record)
    table = dict(line.split(maxsplit=1) for line in said.messages if line)
    assert table["chosen"].startswith("cpu (")
    assert table["why"] == "asked for by config: device.device"
    assert table["cpu"].startswith("computes; ")
    assert "torch_npu" in table["versions"]
    assert "cann" in table["versions"]
    assert "driver" in table["versions"]


def test_a_device_that_does_not_compute_is_refused_with_the_table(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DeviceError, match="npu:77 does not compute"):
        device.run(tmp_path / "device.json", {"device": DeviceCfg(device="npu:77")})
    assert "chosen     none" in said.messages
    assert not (tmp_path / "device.json").exists()


def test_command_of_a_person(standin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options: the settings of this folder, nothing written."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("device: {device: npu}")
    monkeypatch.setenv("PYTHONPATH", f"{standin}:{ROOT}")
    monkeypatch.delenv("PRIMEBOT_DEVICE", raising=False)
    monkeypatch.setenv("STANDIN_NPU_CARDS", "2")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    command = [sys.executable, "-m", "q1pipe", "device"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "chosen     npu:0 (stand-in NPU 0)" in done.stderr
    assert "npu:0      computes; stand-in NPU 0; 2 cards visible; 64.0 of 64.0 GB free" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["config"]
