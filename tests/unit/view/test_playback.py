"""The clock, the errors and contacts that are shown, and dumps; none of it needs viser."""

from pathlib import Path

import numpy as np
import pytest

from q1pipe.config import EvaluateCfg, RobotCfg, TrainCfg
from q1pipe.deploy.sim2sim import Judge, Limits
from q1pipe.errors import Q1Error
from q1pipe.robot import Robot
from q1pipe.view.playback import Clock, Touch, dumped, tracking
from tests.clips import standing_clip


@pytest.fixture(scope="module")
def robot() -> Robot:
    return Robot.load(RobotCfg())


def standing(robot: Robot) -> np.ndarray:
    return robot.qpos(np.array([0, 0, robot.default_root_height]), np.array([1.0, 0, 0, 0]), robot.default_joint_pos)


def test_clock_goes_on_at_its_speed_and_begins_anew() -> None:
    clock = Clock(fps=10, moments=20)
    clock.tick(0.55)
    assert clock.row == 5
    clock.speed = 0.5
    clock.tick(1.0)
    assert clock.row == 10
    clock.speed = 1.0
    clock.tick(1.0)  # 2.05 s of 2
    assert clock.row == 0
    clock.playing = False
    clock.tick(1.0)
    assert clock.row == 0
    clock.seek(19)
    assert clock.row == 19


def test_every_moment_can_be_sought() -> None:
    clock = Clock(fps=50, moments=350)
    for row in range(350):
        clock.seek(row)
        assert clock.row == row


def test_tracking_error_is_the_distance_from_the_reference_brought_to_the_robot(robot: Robot) -> None:
    clip = standing_clip(robot, 5)
    judge = Judge(robot, clip, Limits(TrainCfg().termination, EvaluateCfg()))
    pos, quat, still = clip.body_pos_w[2].astype(float), clip.body_quat_w[2].astype(float), np.zeros(22)
    assert tracking(judge, pos, quat, still, 2) == pytest.approx(0, abs=1e-6)
    assert tracking(judge, pos + [1, -2, 0], quat, still, 2) == pytest.approx(0, abs=1e-6)
    assert tracking(judge, pos + [0, 0, 0.03], quat, still, 2) == pytest.approx(0.03, abs=1e-6)


def test_a_standing_robot_touches_the_floor_with_its_feet_and_a_lifted_one_does_not(robot: Robot) -> None:
    touch, qpos = Touch(robot), standing(robot)
    points = touch.points(qpos)
    assert len(points) >= 6
    np.testing.assert_allclose(points[:, 2], 0, atol=0.006)
    assert points[:, 1].min() < -0.02
    assert points[:, 1].max() > 0.02  # both feet
    qpos[2] += 0.05
    assert touch.points(qpos).shape == (0, 3)


def test_a_dump_is_played_until_its_numbers_go_bad(robot: Robot, tmp_path: Path) -> None:
    qpos = np.tile(standing(robot), (6, 2, 1))
    qpos[:, 1, 0] = np.arange(6)
    qpos[4, 1, 9] = np.nan
    dump = tmp_path / "diverged_7.npz"
    np.savez(dump, qpos=qpos, env_ids=np.array([3, 12]), iteration=7, quantity="qvel")
    first, second = dumped(dump, robot, 50.0)
    assert (first.moments, second.moments) == (6, 4)
    assert first.title == "environment 3, iteration 7, bad: qvel"
    assert second.title == "environment 12, iteration 7, bad: qvel; not finite after step 4"
    np.testing.assert_allclose(second.policy.pos[:, robot.root - 1, 0], [0, 1, 2, 3])


def test_another_file_is_not_taken_for_a_dump(robot: Robot, tmp_path: Path) -> None:
    standing_clip(robot, 5).save(tmp_path / "motion.npz")
    with pytest.raises(Q1Error, match=r"holds .*diverged_\*.npz of a training run"):
        dumped(tmp_path / "motion.npz", robot, 50.0)
