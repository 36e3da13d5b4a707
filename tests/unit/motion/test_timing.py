"""Frames, speed, mirror, lead-in and hold: what config does with time."""

import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.motion.checks import lowest
from q1pipe.motion.raw import Trajectory
from q1pipe.motion.timing import rest_orientation
from tests.unit.motion.conftest import same


def test_frames_of_the_file(intake, refused, arrays, base):
    clip = intake(arrays, frames=(50, 149)).clip
    assert clip.frames == 100
    np.testing.assert_allclose(clip.body_pos_w, base.body_pos_w[50:150], atol=1e-6)
    assert "frames [50, 200] of 200 — 0 to 199, both included" in refused(arrays, frames=(50, 200))


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed(intake, arrays, base, speed):
    clip = intake(arrays, speed=speed).clip
    assert clip.seconds == pytest.approx(base.seconds / speed, abs=0.021)
    k = 40
    np.testing.assert_allclose(clip.joint_pos[int(k / speed)], base.joint_pos[k], atol=1e-6)
    np.testing.assert_allclose(clip.joint_vel[int(k / speed)], speed * base.joint_vel[k], atol=0.05)


def test_mirror_is_a_reflection_and_its_own_inverse(intake, arrays, base, robot):
    clip = intake(arrays, mirror=True).clip
    names = list(robot.body_names)
    other = [names.index(n.replace("left", "#").replace("right", "left").replace("#", "right")) for n in names]
    np.testing.assert_allclose(clip.body_pos_w, base.body_pos_w[:, other] * [1, -1, 1], atol=1e-5)
    again = {"fps": 50, "joint_pos": clip.joint_pos, "body_pos_w": clip.body_pos_w, "body_quat_w": clip.body_quat_w}
    same(intake(again, mirror=True).clip, base)


def test_lead_in_begins_lying_flat_and_ends_where_the_motion_begins(intake, arrays, base, robot):
    clip = intake(arrays, lead_in=1.0, hold_out=0.5).clip
    assert clip.frames == 50 + 200 + 25
    np.testing.assert_allclose(clip.body_pos_w[50:250], base.body_pos_w, atol=1e-5)
    np.testing.assert_allclose(clip.joint_pos[0], robot.default_joint_pos, atol=1e-6)
    up = rotations.rotate_inv(clip.body_quat_w[0, 0], np.array([0, 0, 1], np.float32))
    np.testing.assert_allclose(up, [1, 0, 0], atol=1e-6)  # on its back
    np.testing.assert_allclose(clip.joint_pos[249:], clip.joint_pos[[249]].repeat(26, 0), atol=0)
    low = lowest(Trajectory(50, clip.body_pos_w[:, 0], clip.body_quat_w[:, 0], clip.joint_pos), robot)
    assert np.abs(low).max() < 1e-5
    # no step at the seam: the last blended frame is near the first of the motion
    assert np.abs(np.diff(clip.joint_pos, axis=0)).max() < 0.05
    standing = intake(arrays, frames=(180, 199), lead_in=1.0).clip
    np.testing.assert_allclose(standing.body_pos_w[0, 0, 2], robot.default_root_height, atol=1e-4)


def test_rest_is_the_nearest_side():
    identity = np.array([1.0, 0, 0, 0])
    tilted = rotations.exp(np.array([0.3, 0.2, 0.0]))
    np.testing.assert_allclose(rotations.yaw(rest_orientation(tilted)), rest_orientation(tilted), atol=1e-12)
    np.testing.assert_allclose(rest_orientation(identity), identity, atol=1e-12)
    front = rotations.exp(np.array([0, np.radians(75), 0.0]))  # nearly on its front: x down
    down = rotations.rotate(rest_orientation(front), np.array([1.0, 0, 0]))
    np.testing.assert_allclose(down, [0, 0, -1], atol=1e-12)
