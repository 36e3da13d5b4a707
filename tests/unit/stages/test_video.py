"""The caption's numbers: those of the training's own terms, on the states that were measured."""

import numpy as np
import pytest

from q1pipe.config import RandomizationCfg, TrainCfg
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.rewards import REWARD_TERMS
from q1pipe.stages import video
from q1pipe.stages.video import Trajectory, score
from tests.clips import standing_clip


def test_error_and_reward_are_those_of_the_simulation_that_was_recorded(robot: Robot, monkeypatch) -> None:
    """Standing under small random actions: what the environment says of each step must come out of its states."""
    monkeypatch.setattr(video, "CHUNK", 7)  # also across the seams
    clip, cfg = standing_clip(robot, 21), TrainCfg(randomization=RandomizationCfg(push=0))
    env = TrackingEnv(robot, clip, cfg, np.arange(1), "nominal")
    out = StepBuffers.zeros(1, env.layout)
    env.reset_all(out)
    rng = np.random.default_rng(0)
    rows, rewards, errors = [], [], []
    for frame in range(1, clip.frames):
        env.step(rng.normal(0, 0.3, (1, len(robot.joint_names))).astype(np.float32), out)
        physics, view = env.physics, env.view
        rows.append((frame, physics.qpos[0].copy(), physics.qvel[0].copy(), physics.ctrl[0, robot.actuator_ids].copy()))
        rewards.append(out.terms[0].copy())
        errors.append(np.linalg.norm(view.rel_pos_w[0] - view.state.body_pos_w[0], axis=-1).mean())
    frames, qpos, qvel, target = (np.array(x) for x in zip(*rows, strict=True))
    error, reward = score(robot, clip, Trajectory(50.0, frames, qpos, qvel, target), cfg)
    np.testing.assert_allclose(error, errors, atol=1e-6)
    contact = list(REWARD_TERMS).index("self_collision")
    assert not np.array(rewards)[:, contact].any()  # standing, nothing touches
    np.testing.assert_allclose(reward[1:], np.sum(rewards, axis=1)[1:], atol=1e-4)
    change = list(REWARD_TERMS).index("action_rate")
    assert reward[0] == pytest.approx(np.sum(rewards[0]) - rewards[0][change], abs=1e-4)
    assert np.ptp(reward) > 0.05


def test_a_trajectory_ends_where_the_simulation_broke(robot: Robot, tmp_path) -> None:
    qpos = np.zeros((5, robot.model.nq))
    qpos[3, 2] = np.nan
    names = list(reversed(robot.joint_names))  # a policy may have an order of its own
    np.savez(
        tmp_path / "t.npz",
        fps=np.array([50.0]),
        frame=np.arange(1, 6),
        qpos=qpos,
        qvel=np.zeros((5, robot.model.nv)),
        ctrl=np.tile(np.arange(len(names)), (5, 1)),
        joint_names=np.array(names),
    )
    measured = Trajectory.load(tmp_path / "t.npz", robot)
    assert measured.frame.tolist() == [1, 2, 3]
    assert measured.target[0].tolist() == list(reversed(range(len(names))))
