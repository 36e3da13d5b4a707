"""Following a sketch: what comes out is carried by contacts, close to the sketch, and the same for the same seed."""

import numpy as np
import pytest

from q1pipe.motion.clip import from_poses
from q1pipe.motion.follow import follow, smooth
from q1pipe.motion.followability import followability


@pytest.fixture(scope="module")
def sketch(robot):
    """Twenty frames of a stand that bends its knees, drawn 4 cm above the floor."""
    t = np.linspace(0, 1, 20)[:, None]
    names = list(robot.joint_names)
    joints = np.tile(robot.default_joint_pos, (20, 1))
    for side in ("left", "right"):
        for stem, by in (("hip_pitch", -0.2), ("knee", 0.4), ("ankle_pitch", -0.2)):
            joints[:, names.index(f"{side}_{stem}_joint")] += (by * t)[:, 0]
    pos = np.tile([0, 0, robot.default_root_height + 0.04], (20, 1))
    return robot.qpos(pos, np.tile([1.0, 0, 0, 0], (20, 1)), joints)


def test_a_hovering_sketch_comes_down_and_carries_itself(robot, sketch, monkeypatch):
    monkeypatch.setattr("q1pipe.motion.follow.SAMPLES", 32)  # enough for a stand
    monkeypatch.setattr("q1pipe.motion.follow.ITERATIONS", 3)
    done, gap = follow(robot, sketch, 50, 200, seed=1)
    assert done.shape == sketch.shape
    assert gap.shape == (20,)
    assert gap.max() < 0.02

    def carried(qpos):
        return followability(robot, from_poses(robot, 50, qpos[:, :3], qpos[:, 3:7], qpos[:, robot.qpos_adr]), 0.01)

    assert carried(sketch).carried.min() > 0.5
    assert np.median(carried(done).carried) < 0.05
    knee = robot.qpos_adr[robot.joint_names.index("left_knee_joint")]
    assert done[-1, knee] - done[0, knee] > 0.2  # it still bends its knees

    again, _ = follow(robot, sketch, 50, 200, seed=1)
    np.testing.assert_array_equal(again, done)


def test_smoothing_keeps_rotations_and_constants(robot, sketch):
    flipped = sketch.copy()
    flipped[::2, 3:7] *= -1
    np.testing.assert_allclose(smooth(flipped, 2.0)[:, 3:7], sketch[:, 3:7] * np.sign(flipped[0, 3]), atol=1e-12)
    spike = np.zeros_like(sketch)
    spike[:, 3] = 1
    spike[10, 7] = 1.0
    assert smooth(spike, 2.0)[:, 7].sum() == pytest.approx(1, abs=1e-6)
    assert smooth(spike, 2.0)[10, 7] == pytest.approx(1 / (2 * np.sqrt(2 * np.pi)), rel=1e-2)
