"""The real torch_npu on a machine without CANN, where it cannot work: nothing else suffers, and it is said why."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.workflow.project import TINY, copy

pytestmark = pytest.mark.slow
SERIES = torch.__version__.partition("+")[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the torch_npu of the installed torch."""
    if Path("/usr/local/Ascend").exists():
        pytest.skip("CANN is here: torch_npu works")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, f"torch_npu=={SERIES}"], capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"no torch_npu {SERIES} for {platform.machine()} to be had: {done.stderr.strip()[-200:]}")
    return str(folder)


def test_it_kills_torch_unless_told_not_to_load_by_itself(site: str) -> None:
    environ = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"} | {"PYTHONPATH": site}
    done = subprocess.run([sys.executable, "-c", "import torch"], env=environ, capture_output=True, text=True)
    assert done.returncode != 0
    assert "torch_npu" in done.stderr


def test_auto_runs_the_whole_workflow_on_the_cpu_and_says_why(site: str, tmp_path: Path) -> None:
    project = copy(tmp_path / "project")
    wish = tmp_path / "auto.yaml"
    wish.write_text(TINY.read_text(encoding="utf-8").replace("  device: cpu", "  device: auto"), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "results/getUp/eval.json", "--cores", "2", "--configfile", str(wish)]
    done = subprocess.run(
        command,
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": site},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    assert (project.folder / "results/getUp/eval.json").exists()
    record = json.loads((project.folder / "results/device.json").read_text())
    assert record["device"] == "cpu"
    assert record["versions"]["torch_npu"] == SERIES
    (finding,) = (f for f in record["findings"] if f["code"] == "device-unusable")
    assert "libhccl.so" in finding["found"]
    assert "source /usr/local/Ascend/ascend-toolkit/set_env.sh" in finding["action"]
    assert "libhccl.so" in record["why"]


def test_npu_stops_within_a_minute_naming_library_and_script(site: str) -> None:
    command = [sys.executable, "-m", "q1pipe", "device", "--settings", json.dumps({"device": {"device": "npu:0"}})]
    environ = {**os.environ, "PYTHONPATH": site}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "libhccl.so: cannot open shared object file" in done.stderr
    assert "source /usr/local/Ascend/ascend-toolkit/set_env.sh" in done.stderr
    assert "Traceback" not in done.stderr
