"""What the benchmarks share: the laptop settings and the normalised clip."""

from __future__ import annotations

from pathlib import Path

import yaml

from q1pipe.config import Sections, Settings, merged
from q1pipe.motion.clip import Clip
from q1pipe.motion.intake import take_in
from q1pipe.robot import Robot

ROOT = Path(__file__).resolve().parent.parent
MOTION = "getUp"


def laptop(**train: object) -> Sections:
    """The settings of `--configfile config/laptop.yaml`, with some of `train` changed."""
    files = [yaml.safe_load((ROOT / "config" / name).read_text("utf-8")) for name in ("config.yaml", "laptop.yaml")]
    return Settings(merged(*files, {"train": train})).of(MOTION)


def get_up(sections: Sections) -> Clip:
    """The shipped clip at the control rate."""
    source = ROOT / "config" / f"{MOTION}.npz"
    return take_in(source, Robot.load(sections.robot), sections.motion, sections.train.control_hz).clip
