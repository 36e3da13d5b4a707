"""Checkpoints survive damage, and only good ones exist."""

import logging
import os
from pathlib import Path

import pytest
import torch

from q1pipe.learn import checkpoint


def state(iteration: int) -> dict:
    return {"iteration": iteration, "w": torch.ones(1000), "lr": 1e-3, "nested": {"list": [1, 2.0, "x"]}}


def test_content_comes_back_with_weights_only(tmp_path: Path):
    checkpoint.save(tmp_path / "model_1.pt", state(1))
    content = torch.load(tmp_path / "model_1.pt", weights_only=True, map_location="cpu")
    assert content["nested"] == {"list": [1, 2.0, "x"]}
    assert torch.equal(content["w"], torch.ones(1000))
    assert os.listdir(tmp_path) == ["model_1.pt"]  # no temporary file is left


def test_newest_goes_by_number(tmp_path: Path):
    for i in (9950, 10000, 50):
        checkpoint.save(tmp_path / f"model_{i}.pt", state(i))
    (tmp_path / "model_best.pt").write_bytes(b"not a number")
    path, content = checkpoint.newest(tmp_path)
    assert (path.name, content["iteration"]) == ("model_10000.pt", 10000)


def test_nothing_there(tmp_path: Path):
    assert checkpoint.newest(tmp_path) is None


@pytest.mark.parametrize("damage", ["half", "empty", "text", "nan", "other"])
def test_damaged_is_put_aside_and_the_one_before_is_used(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture):
    logging.getLogger("q1pipe").propagate = True
    for i in (50, 100):
        checkpoint.save(tmp_path / f"model_{i}.pt", state(i))
    newest = tmp_path / "model_100.pt"
    good = newest.read_bytes()
    if damage == "nan":
        torch.save({**state(100), "w": torch.tensor([1.0, float("nan")])}, newest)
    elif damage == "other":
        torch.save(state(99), newest)
    else:
        newest.write_bytes({"half": good[: len(good) // 2], "empty": b"", "text": b"version https://git-lfs"}[damage])
    path, content = checkpoint.newest(tmp_path)
    assert (path.name, content["iteration"]) == ("model_50.pt", 50)
    assert sorted(os.listdir(tmp_path)) == ["model_100.pt.corrupt", "model_50.pt"]
    assert "WARN [checkpoint-damaged]" in caplog.text
    assert "model_100.pt" in caplog.text


def test_pickled_code_does_not_run(tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"iteration": 1, "x": Evil()}, tmp_path / "model_1.pt")
    assert checkpoint.newest(tmp_path) is None
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "bad", [torch.tensor([1.0, float("inf")]), float("nan"), {"deep": [torch.tensor(float("nan"))]}]
)
def test_what_is_not_finite_is_never_saved(tmp_path: Path, bad: object):
    checkpoint.save(tmp_path / "model_1.pt", state(1))
    with pytest.raises(ValueError, match=r"bad.* is not finite"):
        checkpoint.save(tmp_path / "model_2.pt", {**state(2), "bad": bad})
    assert os.listdir(tmp_path) == ["model_1.pt"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "model_1.pt"
    checkpoint.save(path, state(1))
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(path, {**state(1), "f": lambda: 0})
    assert checkpoint.load(path)["iteration"] == 1
    assert os.listdir(tmp_path) == ["model_1.pt"]
