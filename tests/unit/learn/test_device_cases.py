"""Which device is chosen, in every case of the table in docs/ascend.md; devices compute in real probes."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from q1pipe.config import Settings
from q1pipe.errors import Q1Error
from q1pipe.learn import device
from tests.unit.learn.device_cases import BROKEN, CASES, CUDA, DOCS, HANGS, NOTHING, ONE, TWO, Case, with_table

CLEAN = {k: v for k, v in os.environ.items() if k not in device.VARIABLES}
CARDS = {ONE: "1", TWO: "2"}


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str, str | None], device.Probe]:
    """What probes have said: a process each, so the same question is asked once."""
    return {}


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict
) -> dict[str, str]:
    """Variables that make this machine the one of the case."""
    name = request.param
    if (name == CUDA) != torch.cuda.is_available():
        pytest.skip("no CUDA device here" if name == CUDA else "describes a machine without CUDA")
    environ = dict(CLEAN)
    if name in BROKEN:
        (tmp_path / "torch_npu").mkdir()
        (tmp_path / "torch_npu/__init__.py").write_text(BROKEN[name])
        environ["PYTHONPATH"] = str(tmp_path)
    elif name in CARDS:
        environ |= {"PYTHONPATH": request.getfixturevalue("standin"), "STANDIN_NPU_CARDS": CARDS[name]}
    if name not in (NOTHING, CUDA):
        monkeypatch.syspath_prepend(environ["PYTHONPATH"])
    probe = device.probe

    def once(asked: str, timeout: float, environ: dict[str, str]) -> device.Probe:
        # the CPU's answer is everybody's; what a card says depends on what is hidden
        key = ("", asked, None) if asked == "cpu" else (name, asked, environ.get("ASCEND_RT_VISIBLE_DEVICES"))
        if key not in answers:
            answers[key] = probe(asked, timeout, environ)
        return answers[key]

    monkeypatch.setattr(device, "probe", once)
    return environ


@pytest.mark.parametrize(("machine", "case"), [(c.machine, c) for c in CASES], indirect=["machine"], ids=str)
def test_device(machine: dict[str, str], case: Case) -> None:
    def decide() -> dict[str, Any]:
        wish = {"device": case.asked, "timeout": 4.0 if case.machine == HANGS else 120.0}
        record = device.look(Settings({"device": wish}).of("any").device, machine | case.variables)
        device.require(record)
        return record

    if not case.device:
        with pytest.raises(Q1Error) as e:
            decide()
        assert case.says in str(e.value)
        assert all(f.level == "ERROR" for f in e.value.findings)
        return
    record = decide()
    assert record["device"] == case.device
    warnings = " ".join(f["found"] for f in record["findings"])
    assert case.says in (warnings if case.warns else record["why"])
    assert case.warns or not warnings
    assert record["variables"] == case.variables
    assert record["tried"][-1]["ok"]
    # A run takes any card of a kind that was asked for, but not another than the very one
    wish = case.variables.get("PRIMEBOT_DEVICE", "") if case.asked == "auto" else case.asked
    assert record["cards"] == (1 if ":" in wish else record["tried"][-1]["cards"])


def test_docs_have_the_cases() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == with_table(text), "python -m tests.unit.learn.device_cases"
