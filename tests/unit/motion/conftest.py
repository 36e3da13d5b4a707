"""BASE, the clip that is made from the robot itself, and what is done with files of it."""

from pathlib import Path

import numpy as np
import pytest

from q1pipe.config import MotionCfg
from q1pipe.errors import MotionError
from q1pipe.motion.intake import Intake, take_in
from tests.clips import base_clip
from tests.corruptions import arrays_of


@pytest.fixture(scope="session")
def base(robot):
    return base_clip(robot)


@pytest.fixture
def arrays(base):
    """BASE as the file that everyone writes; copied, to be spoiled."""
    return {key: value.copy() for key, value in arrays_of(base).items()}


@pytest.fixture
def intake(robot, tmp_path):
    """Take in arrays, written to wave.npz, or a file; at 50 Hz unless told."""

    def run(source, rate=50.0, **cfg) -> Intake:
        if isinstance(source, dict):
            path = tmp_path / "wave.npz"
            np.savez(path, **source)
            source = path
        return take_in(Path(source), robot, MotionCfg(**cfg), rate)

    return run


@pytest.fixture
def refused(intake):
    """The lines of the refusal of what is taken in."""

    def run(source, **cfg) -> str:
        with pytest.raises(MotionError) as caught:
            intake(source, **cfg)
        return str(caught.value)

    return run


def lines(taken: Intake, code: str) -> list[str]:
    """The findings of one kind."""
    return [str(f) for f in taken.findings if f.code == code]


def deviation(clip, base) -> tuple[float, float]:
    """Largest difference from BASE: m of a body, rad of a joint or a body."""
    n = min(clip.frames, base.frames)
    a, b = clip.body_quat_w[:n].astype(float), base.body_quat_w[:n].astype(float)
    chord = np.minimum(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))
    joints = np.abs(clip.joint_pos[:n] - base.joint_pos[:n]).max()
    return float(np.abs(clip.body_pos_w[:n] - base.body_pos_w[:n]).max()), float(max(2 * chord.max(), joints))


def same(clip, base, metres=1e-5, radians=1e-5):
    """Assert that a clip is BASE."""
    assert abs(clip.frames - base.frames) <= 1
    off = deviation(clip, base)
    assert off[0] <= metres, off
    assert off[1] <= radians, off
