"""The choice of the device, on a machine without NPU and CUDA, and with broken torch_npu packages."""

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
    return device.choose(DeviceCfg(device=asked, timeout=timeout), {**NONE, **variables})


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


NO_CANN = 'raise ImportError("libhccl.so: cannot open shared object file")'


def test_auto_falls_to_cpu_and_says_why():
    record = choose()
    assert record["device"] == "cpu"
    assert "torch_npu is not installed" in record["why"]
    assert "cuda" in record["why"]
    assert record["findings"] == []
    assert [p["device"] for p in record["tried"]] == ["npu:0", "cuda:0", "cpu"]
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])


def test_variable_that_asks_for_the_cpu():
    record = choose(PRIMEBOT_DEVICE="cpu", CUDA_VISIBLE_DEVICES="0")
    assert (record["device"], record["why"]) == ("cpu", "asked for by PRIMEBOT_DEVICE=cpu")
    assert len(record["tried"]) == 1


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"PRIMEBOT_DEVICE": "cuda:0"}, "cuda:0"),
        ({"PRIMEBOT_DEVICE": "npu:3"}, "npu:3"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "cuda:0"),
        ({"ASCEND_RT_VISIBLE_DEVICES": "1,0"}, "npu:0"),
        ({"CUDA_VISIBLE_DEVICES": "", "ASCEND_RT_VISIBLE_DEVICES": "0"}, "npu:0"),
    ],
)
def test_ruling_variable_that_asks_for_what_does_not_compute(variables: dict[str, str], asked: str):
    with pytest.raises(DeviceError) as e:
        choose(**variables)
    text = str(e.value)
    ruling = next(f"{k}={v}" for k, v in variables.items() if v)
    assert ruling in text
    assert f"{asked} does not compute" in text
    assert "devices that compute here: cpu" in text


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_cuda_is_no_wish(hidden: str):
    assert choose(CUDA_VISIBLE_DEVICES=hidden)["device"] == "cpu"


@pytest.mark.parametrize("value", ["nonsense", "npu:abc", "Ascend", "cpu:0"])
def test_variable_that_is_no_device(value: str):
    with pytest.raises(DeviceError, match="is no device"):
        choose(PRIMEBOT_DEVICE=value)


@pytest.mark.parametrize("asked", ["npu:0", "cuda:9"])
def test_explicit_device_is_a_requirement(asked: str):
    with pytest.raises(DeviceError, match=f"{asked} does not compute"):
        choose(asked)


def test_explicit_device_overrides_the_variable_with_a_warning():
    record = choose("cpu", PRIMEBOT_DEVICE="npu:0")
    assert record["device"] == "cpu"
    assert "overrides PRIMEBOT_DEVICE=npu:0" in record["findings"][0]["found"]


def test_torch_npu_without_cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    variables = fake_torch_npu(tmp_path, monkeypatch, NO_CANN)
    record = choose(**variables)
    assert record["device"] == "cpu"
    (finding,) = record["findings"]
    assert (finding["level"], finding["code"]) == ("WARN", "device-unusable")
    assert "libhccl.so" in finding["found"]
    assert "set_env.sh" in finding["found"]
    with pytest.raises(DeviceError, match=r"libhccl\.so"):
        choose("npu", **variables)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os, sys; print('aclInit failed 500001', file=sys.stderr); os.abort()", "aclInit failed 500001"),
        ("import time; time.sleep(60)", "did not answer within"),
    ],
)
def test_driver_that_aborts_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str):
    variables = fake_torch_npu(tmp_path, monkeypatch, code)
    with pytest.raises(DeviceError, match=why):
        choose("npu", timeout=8.0, **variables)


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


def test_series():
    assert device.series({"torch": "2.7.1", "torch_npu": "2.7.1.post4", "cann": "9.1"}) == []
    assert device.series({"torch": "2.13.0+cpu", "torch_npu": None}) == []
    (finding,) = device.series({"torch": "2.13.0", "torch_npu": "2.7.1.post4", "cann": None})
    assert "torch 2.13.0 with torch_npu 2.7.1.post4" in finding.found


def test_cann_version(tmp_path: Path):
    (tmp_path / "version.info").write_text("Version=9.1.RC1\n")
    assert device.cann_version({"ASCEND_TOOLKIT_HOME": str(tmp_path)}) == "9.1.RC1"
    assert device.cann_version({"ASCEND_TOOLKIT_HOME": str(tmp_path / "none")}) is None
