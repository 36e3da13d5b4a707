"""The real trainer on an NPU that is none: what it copies, what it asks of the device, what it leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from q1pipe.learn.device import VARIABLES

ROOT = Path(__file__).parents[3]
STEPS = 6  # control steps of an iteration of the runs
UPDATES = 5 * 4  # mini-batches of an iteration

# What an iteration copies besides its control steps
TO_DEVICE = {"final observations of truncated episodes, with their indices": 1}
TO_HOST = {
    "KL of each mini-batch but the first, which the learning rate follows": UPDATES - 1,
    "means of the losses, for the log": 1,
    "mean standard deviation, for the log": 1,
    "state after the iteration, to go on from: policy, critic, optimiser": 3,
}

# What torch_npu 2.13 says itself that it computes on the CPU, or is known for
FALLING_BACK = {
    *("_logcumsumexp", "logcumsumexp", "logit", "logit_backward", "_fused_adam_", "_fused_adamw_", "unfold_backward"),
    *("_masked_softmax", "_transform_bias_rescale_qkv", "_sparse_csr_prod", "_sparse_csr_sum", "cummax", "cummin"),
    *("linalg_eigh", "linalg_svd", "linalg_qr", "linalg_cholesky_ex", "histc", "unique_dim", "_unique2", "multinomial"),
}
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero"}


def run(names: str, device: str, path: str = "", **variables: str) -> dict[str, Any]:
    """Let `runs` do something in a process of its own."""
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES or k == "CUDA_VISIBLE_DEVICES" and not path}
    environ = {**clean, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT)])), **variables}
    command = [sys.executable, "-m", "tests.standin_npu.runs", names, device]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=420)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def npu(standin: str) -> dict[str, Any]:
    """Everything on the stand-in, in one process: most of the time is torch's start."""
    names = "behaviour,warned,copies,halves,devices,smoked,memory"
    return run(names, "npu:0", standin, STANDIN_NPU_ANNOUNCE="aten::_logcumsumexp,aten::randperm")


@pytest.fixture(scope="module", params=["npu:0", "cuda:0"])
def copies(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "npu:0":
        return request.getfixturevalue("npu")["copies"]
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return run("copies", "cuda:0")["copies"]


def test_stand_in_computes_and_counts(npu: dict[str, Any]) -> None:
    found = npu["behaviour"]
    assert found["values"] == [3, 3, 3, 6]
    assert found["counts"] == {"host_to_device": 1, "device_to_host": 2, "on_device": 0, "waits": 0}
    assert found["operators"] == ["aten::_local_scalar_dense", "aten::add", "aten::mul", "aten::sum"]
    assert found["again"]


def test_stand_in_refuses_what_an_npu_refuses(npu: dict[str, Any]) -> None:
    found = npu["behaviour"]
    assert "same device" in found["mixed"]
    assert found["number"] == "done: [2.0, 2.0, 2.0]"
    assert found["float64"] == found["float64 from numpy"] == "float64 is not supported on the NPU"
    assert "Invalid device ID: npu:7" in found["another card"]
    assert "RNG state" in found["format"]  # of its own kind, as a real device's


@pytest.mark.parametrize(("way", "parts"), [("whole", 1), ("halves", 2)])
def test_a_control_step_is_two_copies(copies: dict[str, Any], way: str, parts: int) -> None:
    """One to the device, one back, of each part; and nothing else is read from the device on the way."""
    assert len(copies[way]) == 2
    for iteration in copies[way]:
        assert iteration["collect"] == {"host_to_device": parts * STEPS, "device_to_host": parts * STEPS}


@pytest.mark.parametrize("way", ["whole", "halves"])
def test_what_an_iteration_copies_after_its_steps(copies: dict[str, Any], way: str) -> None:
    for iteration in copies[way]:
        assert iteration["rest"]["host_to_device"] == sum(TO_DEVICE.values())
        assert iteration["rest"]["device_to_host"] == sum(TO_HOST.values())


def test_both_ways_of_counting_agree(npu: dict[str, Any]) -> None:
    """So that the same test on CUDA, where only one of them works, counts right."""
    for way in ("whole", "halves"):
        for iteration in npu["copies"][way]:
            for phase in ("collect", "whole"):
                assert iteration[phase] == iteration[f"{phase}, natively"]


def test_hot_loop_needs_no_operator_that_an_npu_lacks_and_never_waits(npu: dict[str, Any]) -> None:
    for way in ("whole", "halves"):
        for iteration in npu["copies"][way]:
            collect, whole = (
                {name.removeprefix("aten::") for name in iteration[f"{phase}, operators"]}
                for phase in ("collect", "whole")
            )
            assert {"addmm", "elu", "normal_", "uniform_"} <= collect
            assert {"mm", "elu_backward", "randperm"} <= whole
            assert not collect & WAITING
            assert whole & WAITING == {"_local_scalar_dense"}
            assert not whole & FALLING_BACK


def test_halves_in_turn_are_bit_identical_to_the_plain_loop(npu: dict[str, Any]) -> None:
    rows = npu["halves"]
    assert len(rows["plain"]) == 2
    assert rows["in turn"] == rows["plain"]
    assert rows["three workers"] == rows["plain"]  # of nine environments: halves of four and five
    assert rows["resumed"] == rows["plain"]  # with as many workers as environments


def test_a_run_changes_its_device(npu: dict[str, Any]) -> None:
    """npu, cpu, npu: each iteration says where it was; checkpoints are the CPU's."""
    found = npu["devices"]
    assert [row["device"] for row in found["rows"]] == ["npu:0"] * 2 + ["cpu"] * 2 + ["npu:0"] * 2
    assert [row["iteration"] for row in found["rows"]] == [str(i) for i in range(1, 7)]
    assert found["kinds"] == ["cpu"]
    assert found["of"] == "npu"


def test_memory_is_estimated_from_above_and_a_small_one_gets_smaller_mini_batches(npu: dict[str, Any]) -> None:
    found = npu["memory"]
    assert 1 < found["need"] / found["peak"] < 4
    assert ["out of memory" in message for message in found["messages"]] == [True]
    assert found["mini_batches"] == 2
    (error,) = found["little"]
    assert "ERROR [device-memory] npu:0 — half a mini-batch is too much as well" in error
    assert "q1pipe stop" in error


def test_fallbacks_are_named_and_harmless_warnings_only_counted(npu: dict[str, Any]) -> None:
    found = npu["warned"]
    assert found["operators"] == {"aten::_logcumsumexp": 2}
    assert found["harmless"] == {"padding size": 1, "owner mismatch": 1}
    assert found["shown"] == ["something else"]


def test_smoke_names_the_operators_that_fall_back(npu: dict[str, Any]) -> None:
    found = npu["smoked"]
    assert found["device"] == "npu:0"
    assert found["fallbacks"] == {"aten::randperm": 2}  # once per iteration
    assert found["harmless_warnings"] == {}
