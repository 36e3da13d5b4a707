"""Lines of progress."""

import logging

import pytest

from q1pipe import log
from q1pipe.config import PolicyCfg, TrainCfg
from q1pipe.learn.policy import Policy, Shape
from q1pipe.learn.trainer import Progress
from q1pipe.log import progress
from q1pipe.motion.follow import follow
from q1pipe.motion.followability import clip_qpos, followability, replay
from q1pipe.robot import Robot
from q1pipe.sim.observations import Layout
from q1pipe.stages import export, motion
from tests.clips import standing_clip


def test_progress_says_how_far_and_how_long_at_most_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of the eight items takes 4 s; none is done when the first begins."""
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(log.time, "monotonic", lambda: next(clock) - 4.0)
    monkeypatch.setattr(logging.getLogger("q1pipe"), "propagate", True)
    with caplog.at_level(logging.INFO, "q1pipe"):
        assert list(progress("abcdefgh", 8, "frame")) == list("abcdefgh")
    assert [record.getMessage() for record in caplog.records] == [
        "frame 2/8 25%  36 s left",  # the clock begins one reading before the first item: 12 s for two
        "frame 5/8 62%  14 s left",
    ]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Lines, where ten seconds are none."""
    monkeypatch.setattr(log, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(logging.getLogger("q1pipe"), "propagate", True)
    caplog.set_level(logging.INFO, "q1pipe")
    return caplog


def begin(said: pytest.LogCaptureFixture) -> set[str]:
    """What lines begin with, up to the numbers."""
    return {message.partition("/")[0].rpartition(" ")[0] for message in said.messages}


def test_judging_a_clip_says_how_far_it_is(
    robot: Robot, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motion, "CHUNK", 5)
    clip = standing_clip(robot, frames=12)
    followability(robot, clip, 0.01)
    replay(robot, clip, 200, 2.0)
    motion.check_terminations(robot, clip, TrainCfg(), "x")
    assert begin(said) == {
        "balance and contacts, frame",
        "plain PD at 2 × the gains, frame",
        "terminations, stretch of 5 frames",
    }


def test_following_a_drawing_says_how_far_it_is(
    robot: Robot, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("q1pipe.motion.follow.SAMPLES", 2)
    monkeypatch.setattr("q1pipe.motion.follow.ITERATIONS", 1)
    done, _ = follow(robot, clip_qpos(robot, standing_clip(robot, frames=12)), 50, 200)
    assert len(done) == 12
    # plans for 5 frames each: before the first, the sixth and the eleventh
    lines = [message.partition("%")[0] for message in said.messages]
    assert lines == [f"following {w}, plan {n}" for w in ("the drawing", "what was done") for n in ("1/3 33", "2/3 66")]


def test_recording_for_the_export_says_how_far_it_is(robot: Robot, said: pytest.LogCaptureFixture) -> None:
    layout = Layout.of(robot)
    shape = Shape(layout.actor_dim, layout.critic_dim, len(robot.joint_names), layout.reference_joint_pos.start)
    policy = Policy(shape, PolicyCfg(hidden=(4,)), robot.default_joint_pos.tolist(), robot.action_scale.tolist())
    export.record(policy, robot, standing_clip(robot, frames=5), TrainCfg(), 1)
    assert [message.partition("%")[0] for message in said.messages] == [
        f"recording, frame {n}/4 {25 * n}" for n in (1, 2, 3)
    ]


def test_training_says_iteration_reward_speed_and_time_left(
    said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 110.0, 112.0, 130.0])
    monkeypatch.setattr("q1pipe.learn.trainer.time.monotonic", lambda: next(clock))
    progress = Progress(done=20, last=300)
    row = {"mean_rew": 3.214, "ep_ret": 350.06, "sps": 7312.0}
    for iteration in (30, 32, 40):  # the second comes after two seconds
        progress.line(iteration, row)
    assert said.messages == [
        "train 30/300 10%  reward 3.21  return 350.1  7.3k steps/s  4 min left",  # 10 s for 10, 270 to come
        "train 40/300 13%  reward 3.21  return 350.1  7.3k steps/s  6 min left",  # 30 s for 20, 260 to come
    ]
