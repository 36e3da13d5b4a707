"""The shipped clip is what the documentation says of it, and its keyframes still make such a clip."""

from pathlib import Path

import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.config import MotionCfg, RobotCfg
from q1pipe.motion.clip import Clip
from q1pipe.motion.compose import compose_file
from q1pipe.motion.followability import followability, score, touching_floor
from q1pipe.motion.intake import take_in

CONFIG = Path(__file__).parents[3] / "config"


def requirements(robot, path):
    """What must hold of a get-up that is worth training on."""
    taken = take_in(path, robot, MotionCfg(max_body_error=1e-4, strict=True), 50)
    clip = taken.clip
    assert taken.findings == []
    assert (clip.frames, taken.fps) == (350, 50)

    down = np.array([0, 0, -1], np.float32)
    gravity = rotations.rotate_inv(clip.body_quat_w[:, robot.anchor - 1], down)
    np.testing.assert_allclose(gravity[0], [-1, 0, 0], atol=0.1)  # on the back: gravity points out of it
    np.testing.assert_allclose(gravity[-1], [0, 0, -1], atol=0.1)  # upright
    assert gravity[:, 0].max() > 0.95  # on the front in between: it rolled over
    np.testing.assert_allclose(clip.joint_pos[-1], robot.default_joint_pos, atol=0.1)
    on_floor = touching_floor(robot, clip, MotionCfg().contact_distance)
    last = {name for name, touches in zip(robot.body_names, on_floor[-1], strict=True) if touches}
    assert last == {"left_ankle_roll_link", "right_ankle_roll_link"}
    hands = [robot.body_names.index(f"{side}_elbow_link") for side in ("left", "right")]
    assert on_floor[150:250, hands].any(axis=1).all()  # it pushes up on them
    assert on_floor.any(axis=1).all()  # never in the air

    curves = followability(robot, clip, MotionCfg().contact_distance)
    slow = curves.com_speed < MotionCfg().slow_com_speed
    assert slow.sum() > 250
    assert curves.support_gap[slow].max() <= MotionCfg().max_support_gap
    assert curves.carried.max() < 0.3
    assert np.percentile(curves.carried, 95) < 0.02
    assert score(curves, MotionCfg()) == 1


def test_shipped_clip(robot):
    requirements(robot, CONFIG / "getUp.npz")


@pytest.mark.slow
def test_keyframes_make_such_a_clip(robot, tmp_path):
    findings = compose_file(CONFIG / "keyframes/getUp.yaml", tmp_path / "getUp.npz", RobotCfg())
    assert [f.code for f in findings] == ["follow", "followability"]
    requirements(robot, tmp_path / "getUp.npz")
    # the search has a seed; another processor may round otherwise, and a get-up is sensitive, so no bit equality
    made, shipped = Clip.load(tmp_path / "getUp.npz"), Clip.load(CONFIG / "getUp.npz")
    gap = np.linalg.norm(made.body_pos_w - shipped.body_pos_w, axis=-1)
    assert gap.mean() < 0.1
