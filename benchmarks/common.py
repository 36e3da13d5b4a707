"""What the benchmarks share: the laptop settings and the normalised clip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from q1pipe import cores
from q1pipe.config import Layer, Sections, Settings, of_file
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.stages import train

ROOT = Path(__file__).resolve().parent.parent
MOTION = "getUp"


def full(**changes: object) -> Sections:
    """The settings of `config/config.yaml`, with some of `train` changed."""
    return _settings(["config.yaml"], changes)


def laptop(**changes: object) -> Sections:
    """The settings of `--configfile config/laptop.yaml`, with some of `train` changed."""
    return _settings(["config.yaml", "laptop.yaml"], changes)


def _settings(names: list[str], changes: dict[str, object]) -> Sections:
    files = [of_file(ROOT / "config" / name) for name in names]
    return Settings([*files, Layer("benchmark", {"train": changes})]).of(MOTION)


def get_up(sections: Sections) -> Clip:
    """The shipped clip at the control rate."""
    from q1pipe.motion.intake import take_in  # of another stage: training does not load it either

    source = ROOT / "config" / f"{MOTION}.npz"
    return take_in(source, Robot.load(sections.robot), sections.motion, sections.train.control_hz).clip


def prepare(folder: Path, sections: Sections) -> None:
    """What the stages before training leave in a folder."""
    from q1pipe.stages import device

    folder.mkdir(parents=True, exist_ok=True)
    get_up(sections).save(folder / "motion.npz")
    device.run(folder / "device.json", {"device": sections.device})


def train_run(folder: Path, sections: Sections, workers: int) -> dict[str, Any]:
    """train.json of a training run in a folder that is prepared; it goes on where it is."""
    motion, chosen = folder / "motion.npz", folder / "device.json"
    settings = {"robot": sections.robot, "train": sections.train, "device": sections.device}
    outputs = (folder / "policy.pt", folder / "train.csv", folder / "train.json")
    train.run(motion, chosen, chosen, folder / "runs", *outputs, workers, cores.available(), settings)
    return json.loads(outputs[-1].read_text(encoding="utf-8"))
