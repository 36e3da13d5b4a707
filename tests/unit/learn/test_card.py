"""The lock of a card: held by one process, gone with it, and any free card will do where one kind was asked for."""

import logging
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from q1pipe.learn import card
from q1pipe.stopping import Stopped

ROOT = Path(__file__).parents[3]
ONE = {"device": "npu:0", "cards": 1}
TWO = {"device": "npu:0", "cards": 2}


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(card.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    return tmp_path / "q1pipe-cards"


def give_up(seconds: float) -> None:
    raise Stopped(15)


@pytest.mark.parametrize(
    ("device", "variables", "expected"),
    [
        ("npu:1", {}, "npu-1"),
        ("npu", {}, "npu-0"),
        ("npu:1", {"ASCEND_RT_VISIBLE_DEVICES": "4,6"}, "npu-6"),
        ("npu:0", {"ASCEND_RT_VISIBLE_DEVICES": "6"}, "npu-6"),
        ("npu:0", {"CUDA_VISIBLE_DEVICES": "3"}, "npu-0"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "cuda-GPU-8932f937"),
    ],
)
def test_physical_card(device: str, variables: dict[str, str], expected: str) -> None:
    assert card.physical(device, variables) == expected


def test_one_run_per_card(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("q1pipe").propagate = True
    with card.lease(ONE, "training in results/wave") as device:
        assert device == "npu:0"
        with pytest.raises(Stopped), card.lease(ONE, "another", give_up):
            pass
        assert "WARN [card-in-use] npu:0" in caplog.text
        assert "training in results/wave (process" in caplog.text
    with card.lease(ONE, "another", give_up) as device:
        assert device == "npu:0"


def test_the_free_one_of_several_is_taken() -> None:
    with card.lease(TWO, "a") as first, card.lease(TWO, "b", give_up) as second:
        assert (first, second) == ("npu:0", "npu:1")
        with pytest.raises(Stopped), card.lease(TWO, "c", give_up):
            pass


def test_the_same_card_under_another_number_is_the_same_card(monkeypatch: pytest.MonkeyPatch) -> None:
    with card.lease({"device": "npu:1", "cards": 1}, "a"):
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
        with pytest.raises(Stopped), card.lease(ONE, "b", give_up):
            pass


def test_waiting_ends_when_the_card_is_free() -> None:
    waits, held = [], ExitStack()
    held.enter_context(card.lease(ONE, "a"))

    def pause(seconds: float) -> None:
        waits.append(seconds)
        held.close()

    with card.lease(ONE, "b", pause) as device:
        assert device == "npu:0"
    assert waits == [card.LOOK_SECONDS]


def test_the_processor_is_everybodys(locks: Path) -> None:
    with card.lease({"device": "cpu"}, "a") as first, card.lease({"device": "cpu"}, "b", give_up) as second:
        assert first == second == "cpu"
    assert not locks.exists()


def test_a_killed_process_leaves_nothing_behind(tmp_path: Path) -> None:
    code = f"""
import tempfile, time
tempfile.tempdir = {str(tmp_path)!r}
from q1pipe.learn import card
with card.lease({ONE!r}, "killed"):
    print("held", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    with pytest.raises(Stopped), card.lease(ONE, "b", give_up):
        pass
    process.kill()
    process.wait()
    with card.lease(ONE, "b", give_up) as device:
        assert device == "npu:0"
