"""Where another choice of the device would come out: PRIMEBOT_DEVICE then and now."""

import json
from pathlib import Path
from typing import Any

import pytest

from q1pipe.config import DeviceCfg
from q1pipe.learn import device
from q1pipe.learn.wish import tracked


def record(chosen: str, cards: int, seen: int, wish: str = "", automatic: bool = True) -> dict[str, Any]:
    """device.json of a run in which `auto` was asked for."""
    return {
        "device": chosen,
        "requested": "auto",
        "automatic": automatic,
        "cards": cards,
        "variables": {"PRIMEBOT_DEVICE": wish} if wish else {},
        "tried": [{"device": chosen, "cards": seen}],
    }


CPU, CARD, CARDS = record("cpu", 0, 0), record("npu:0", 1, 1), record("npu:0", 8, 8)
ONE_OF_8 = record("npu:0", 1, 8, wish="npu:0", automatic=False)
SET_CPU = record("cpu", 0, 0, wish="cpu", automatic=False)  # where there might be a card


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        (CPU, "", True),
        (CPU, "auto", True),
        (CPU, "cpu", True),
        (CPU, "npu:0", False),
        (CPU, "Ascend", False),  # the device stage says what is wrong with it
        (CARD, "npu", True),
        (CARD, "npu:0", True),
        (CARD, "npu:1", False),
        (CARD, "cpu", False),
        (CARDS, "npu", True),
        (CARDS, "npu:0", False),  # this card only, instead of whichever is free
        (ONE_OF_8, "npu:0", True),
        (ONE_OF_8, "npu", False),
        (ONE_OF_8, "", False),
        (SET_CPU, "cpu", True),
        (SET_CPU, "", False),
        (record("cpu", 0, 0, wish="cpu"), "", True),  # nothing else is there
    ],
)
def test_text_changes_where_the_choice_would(tmp_path: Path, then: dict, now: str, same: bool) -> None:
    path = tmp_path / "device.json"
    before = tracked("auto", path, then["variables"])  # as Snakemake noted it: no record yet
    path.write_text(json.dumps(then))
    assert (tracked("auto", path, {"PRIMEBOT_DEVICE": now}) == before) == same


def test_device_of_the_configuration_leaves_nothing_to_the_variable(tmp_path: Path) -> None:
    assert tracked("cpu", tmp_path / "device.json", {"PRIMEBOT_DEVICE": "npu:0"}) == "PRIMEBOT_DEVICE="


def test_record_that_cannot_be_read_or_is_of_another_setting_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    for text in ("{", json.dumps({"requested": "cpu"})):
        path.write_text(text)
        assert tracked("auto", path, {"PRIMEBOT_DEVICE": "npu:0"}) == "PRIMEBOT_DEVICE=npu:0"


@pytest.mark.parametrize(
    ("variables", "there", "automatic"),
    [
        ({}, ("cpu",), True),
        ({"PRIMEBOT_DEVICE": "cpu"}, ("cpu",), True),
        ({"PRIMEBOT_DEVICE": "cpu"}, ("npu", "cpu"), False),
        ({"PRIMEBOT_DEVICE": "cpu", "ASCEND_RT_VISIBLE_DEVICES": ""}, ("npu", "cpu"), True),  # hidden
        ({"PRIMEBOT_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "0"}, ("cpu",), False),  # would be cuda, or an error
    ],
)
def test_record_says_whether_the_variable_made_a_difference(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], there: tuple[str, ...], automatic: bool
) -> None:
    monkeypatch.setattr(device, "_absent", lambda d: "" if d.partition(":")[0] in there else "not here")
    monkeypatch.setattr(device, "probe", lambda d, *_: device.Probe(d, ok=d == "cpu"))
    assert device.look(DeviceCfg(), variables)["automatic"] is automatic
