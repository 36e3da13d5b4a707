"""The thread budget, on folders as the kernel makes them, and on this process."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from q1pipe import cores
from q1pipe.cores import quota
from q1pipe.deploy.parity import session_of

V1 = "12:cpu,cpuacct:/docker/a1\n5:cpuset:/docker/a1\n1:name=systemd:/docker/a1\n"


def tree(folder: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        (folder / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mount" / name).write_text(text + "\n")
    (folder / "cgroup").write_text(cgroup)
    return folder / "cgroup", folder / "mount"


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "max 100000"}, math.inf),
        ("0::/user/job7\n", {"user/job7/cpu.max": "max 100000", "user/cpu.max": "350000 100000"}, 3.5),
        ("0::/host/path\n", {"cpu.max": "50000 100000"}, 0.5),  # in a container that shows itself as the top
        (V1, {"cpu/docker/a1/cpu.cfs_quota_us": "300000", "cpu/docker/a1/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 1.5),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("5:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense"}, math.inf),
    ],
)
def test_quota_of_a_cgroup(tmp_path: Path, cgroup: str, files: dict[str, str], expected: float):
    assert quota(*tree(tmp_path, cgroup, files)) == expected


def test_no_cgroups_no_limit(tmp_path: Path):
    assert quota(tmp_path / "nothing", tmp_path) == math.inf


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_affinity_counts():
    one = min(os.sched_getaffinity(0))
    script = f"import os; os.sched_setaffinity(0, [{one}]); from q1pipe import cores; print(cores.available())"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "1"


def test_never_less_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cgroup, mount = tree(tmp_path, "0::/\n", {"cpu.max": "50000 100000"})
    monkeypatch.setattr(cores.quota, "__defaults__", (cgroup, mount))
    assert cores.available() == 1


def test_onnxruntime_starts_no_threads_of_its_own():
    """onnxruntime #8313: by itself it starts a thread for each core of the host, and binds it to one."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = session_of(model.SerializeToString()).get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
