from dataclasses import replace

import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.config import TrainCfg
from q1pipe.sim import kernels
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.physics import Physics
from q1pipe.sim.terminations import Cause
from tests.clips import base_clip
from tests.simulation import control_step


@pytest.fixture
def make(robot):
    """An environment after its reset, and the buffers it writes to."""

    def make(clip, cfg, mode="train", n=4):
        env = TrackingEnv(robot, clip, cfg, np.arange(n), mode)
        out = StepBuffers.zeros(n, env.layout)
        env.reset_all(out)
        return env, out

    return make


def following(env):
    """Actions whose targets are the joints of the reference that comes."""
    return ((env.view.ahead.joint_pos - env.robot.default_joint_pos) / env.robot.action_scale).astype(np.float32)


def column(env, out, name):
    return out.rows[:, env.layout.slices[name]]


def holding(env, out):
    """The actions whose targets are the joints as the encoders read them."""
    return column(env, out, "joint_pos") / env.robot.action_scale.astype(np.float32)


def test_an_episode_starts_at_the_reference(make, clip, still):
    env, out = make(clip, still, "nominal")
    assert (env.episodes.frame == 0).all()
    assert env.view.state.joint_pos == pytest.approx(np.tile(clip.joint_pos[0], (4, 1)), abs=1e-6)
    held = (clip.joint_pos[0] - env.robot.default_joint_pos) / env.robot.action_scale
    assert column(env, out, "last_action") == pytest.approx(np.tile(held, (4, 1)), abs=1e-5)
    assert not out.rows[:, env.layout.reward_col :].any()
    assert (column(env, out, "reference_joint_pos") == clip.joint_pos[1]).all()  # what the first action is scored on


def test_the_order_of_a_step(make, clip, still, robot):
    """Action, physics, frame + 1, comparison with the new state, observation one frame ahead."""
    env, out = make(clip, still, "nominal")
    twin = Physics(robot, still, 4)
    twin.load(env.physics.save())
    default, scale = robot.default_joint_pos.astype(np.float32), robot.action_scale.astype(np.float32)
    rng = np.random.default_rng(0)
    previous = holding(env, out)
    for t in range(1, 4):
        shown = column(env, out, "reference_joint_pos").copy()
        action = rng.uniform(-1, 1, (4, 22)).astype(np.float32)
        env.step(action, out)
        control_step(twin, default + scale * action)

        assert out.frame.tolist() == [t] * 4
        assert (env.view.ref.joint_pos == clip.joint_pos[t]).all()
        assert (shown == clip.joint_pos[t]).all()  # the policy saw the frame that it is scored on
        assert (column(env, out, "reference_joint_pos") == clip.joint_pos[t + 1]).all()
        assert (column(env, out, "joint_vel") == twin.state.joint_vel).all()
        assert (column(env, out, "last_action") == action).all()

        anchor = robot.tracked_anchor
        error = clip.body_pos_w[t, robot.anchor - 1] - twin.state.body_pos_w[:, anchor]
        assert out.terms[:, 0] == pytest.approx(0.5 * np.exp(-np.square(error).sum(1) / 0.09), rel=1e-4)
        turn = rotations.yaw(
            rotations.mul(
                twin.state.body_quat_w[:, anchor], rotations.conj(clip.body_quat_w[t : t + 1, robot.anchor - 1])
            )
        )
        rel = rotations.mul(turn[:, None], clip.body_quat_w[t, robot.tracked - 1][None])
        assert env.view.rel_quat_w == pytest.approx(rel, abs=1e-6)  # with the robot's state of the same step
        assert out.terms[:, 6] == pytest.approx(-0.1 * np.square(action - previous).sum(1), rel=1e-4)
        assert out.rows[:, env.layout.reward_col] == pytest.approx(out.terms.sum(1))
        previous = action


def test_lengths_and_returns_add_up(make, standing, still):
    env, out = make(standing, still, "nominal")
    total = np.zeros(4)
    for t in range(1, 6):
        env.step(np.zeros((4, 22), np.float32), out)
        total += out.rows[:, env.layout.reward_col]
        assert out.ep_len.tolist() == [t] * 4
        assert out.ep_ret == pytest.approx(total, rel=1e-5)
    assert total == pytest.approx(25, rel=0.02)  # it stands


def test_the_end_of_the_motion_is_a_truncation_with_its_true_observation(make, robot, still):
    clip = base_clip(robot, 6)
    env, out = make(clip, still.model_copy(update={"reset": still.reset.model_copy(update={"from_start": 1.0})}))
    env.episodes.limit[:] = 500
    for _ in range(4):
        env.step(following(env), out)
        assert not out.cause.any()
    twin = Physics(robot, still, 4)
    twin.load(env.physics.save())
    action = np.full((4, 22), 0.1, np.float32)
    env.step(action, out)
    assert out.cause.tolist() == [Cause.MOTION_END] * 4
    assert out.frame.tolist() == [5] * 4
    assert out.ep_len.tolist() == [5] * 4
    assert out.rows[:, env.layout.truncated_col].tolist() == [1] * 4
    assert out.rows[:, env.layout.terminated_col].tolist() == [0] * 4

    control_step(twin, robot.default_joint_pos.astype(np.float32) + robot.action_scale.astype(np.float32) * action)
    final = {name: out.final_obs[:, columns] for name, columns in env.layout.slices.items()}
    assert final["joint_vel"] == pytest.approx(twin.state.joint_vel, abs=0.3)  # but for the domain
    assert np.abs(final["joint_vel"]).max() > 1
    assert (final["last_action"] == action).all()
    assert (final["reference_joint_pos"] == clip.joint_pos[5]).all()  # there is no frame after the last

    assert env.episodes.frame.tolist() == [0] * 4  # and the row is the next episode's
    assert column(env, out, "last_action") == pytest.approx(holding(env, out), abs=1e-5)
    assert (column(env, out, "reference_joint_pos") == clip.joint_pos[1]).all()
    env.step(following(env), out)
    assert out.ep_len.tolist() == [1] * 4


def test_no_episode_crosses_a_jump(make, clip, still):
    """A jump after frame 99: what comes to it is cut off there, with its true observation; nothing starts at it."""
    jumping = replace(clip, jumps=(99,))
    env, out = make(jumping, still.model_copy(update={"reset": still.reset.model_copy(update={"from_start": 0.0})}))
    env.episodes.limit[:] = 500
    env.reset_all(out, np.array([97, 98, 100, 150]))
    env.step(following(env), out)
    assert out.cause.tolist() == [Cause.NONE, Cause.MOTION_END, Cause.NONE, Cause.NONE]
    assert out.frame.tolist() == [98, 99, 101, 151]
    assert out.rows[:, env.layout.truncated_col].tolist() == [0, 1, 0, 0]
    shown = out.final_obs[1, env.layout.slices["reference_joint_pos"]]
    assert (shown == clip.joint_pos[99]).all()  # nothing follows that belongs to it
    env.step(following(env), out)
    assert out.cause[0] == Cause.MOTION_END
    # every frame of a bin is drawn, but for the one that a jump follows
    env, out = make(jumping, env.cfg, n=2000)
    assert set(range(95, 105)) - set(env.episodes.frame.tolist()) == {99}


def test_evaluation_of_a_clip_that_jumps_is_that_of_its_opening(make, standing, still):
    whole, out = make(replace(standing, jumps=(20,)), still, "nominal")
    opening, of_opening = make(replace(standing, jumps=(20,)).opening(), still, "nominal")
    for _ in range(22):
        whole.step(following(whole), out)
        opening.step(following(opening), of_opening)
        assert (out.rows == of_opening.rows).all()
    assert out.cause.tolist() == [Cause.MOTION_END] * 4
    assert out.ep_len.tolist() == [20] * 4
    assert whole.episodes.frame.tolist() == [20] * 4


def test_final_observations_are_written_only_where_truncated(make, clip, still):
    env, out = make(clip, still)
    out.final_obs[:] = -7
    env.episodes.frame[2] = clip.frames - 2
    env.step(np.zeros((4, 22), np.float32), out)
    assert out.cause[2] != Cause.NONE
    truncated = out.rows[:, env.layout.truncated_col] > 0
    assert (out.final_obs[~truncated] == -7).all()
    assert (out.final_obs[truncated] != -7).all()


def test_ten_seconds_are_a_truncation(make, standing, still):
    from_start = still.reset.model_copy(update={"from_start": 1.0})
    env, out = make(standing, still.model_copy(update={"episode_seconds": 0.1, "reset": from_start}))  # 5 steps
    first = env.episodes.limit.copy()
    assert set(first) <= {1, 2, 3, 4, 5}
    ends = [[] for _ in range(4)]
    for t in range(1, 16):
        env.step(np.zeros((4, 22), np.float32), out)
        for i in np.flatnonzero(out.cause == Cause.TIME_OUT):
            ends[i].append(t)
    for i in range(4):  # the first is cut short so that they do not all end at once
        assert ends[i] == list(range(first[i], 16, 5))


def test_terminated_episodes_begin_anew(make, clip, cfg):
    env, out = make(clip, cfg)
    env.physics.qpos[1, 2] += 2  # thrown up
    env.step(following(env), out)
    assert out.cause[1] == Cause.ANCHOR_Z
    assert out.rows[1, env.layout.terminated_col :].tolist() == [1, 0]
    assert env.episodes.number.tolist() == [0, 1, 0, 0]
    assert env.episodes.length[1] == 0
    assert env.physics.state.body_pos_w[1, 0, 2] < 1
    assert env.episodes.action[1] == pytest.approx(holding(env, out)[1], abs=1e-5)


def test_broken_physics_ends_the_episode_and_is_counted(make, clip, cfg):
    env, out = make(clip, cfg)
    env.physics.qvel[2, 9] = np.nan
    env.step(following(env), out)
    assert out.cause[2] == Cause.SIM_UNSTABLE
    assert not out.terms[2].any()
    assert out.rows[2, env.layout.reward_col :].tolist() == [0, 1, 0]
    assert np.isfinite(out.rows).all()
    env.step(following(env), out)
    assert out.cause[2] != Cause.SIM_UNSTABLE


@pytest.mark.parametrize("mode", ["nominal", "disturbed"])
def test_evaluation_leaves_ended_episodes_alone(make, clip, cfg, mode):
    env, out = make(clip, cfg, mode)
    assert env.episodes.frame.tolist() == [0] * 4
    env.physics.qpos[1, 2] += 2
    for _ in range(3):
        env.step(following(env), out)
    assert out.cause[1] == Cause.ANCHOR_Z
    assert out.ep_len.tolist() == [3, 1, 3, 3]
    assert env.physics.state.body_pos_w[1, 0, 2] > 1
    assert out.frame.tolist() == [3] * 4
    ep_ret = out.ep_ret[1]
    env.step(following(env), out)
    assert out.ep_ret[1] == ep_ret


def test_evaluation_sees_the_whole_motion(make, standing, still):
    env, out = make(standing, still.model_copy(update={"episode_seconds": 0.1}), "nominal")
    for _ in range(standing.frames - 1):
        env.step(np.zeros((4, 22), np.float32), out)
    assert out.cause.tolist() == [Cause.MOTION_END] * 4
    final = out.final_obs.copy()
    env.step(np.ones((4, 22), np.float32), out)
    assert (out.final_obs == final).all()
    assert out.frame.tolist() == [standing.frames - 1] * 4
    assert env.touches_floor().shape == (4, 23)


def test_what_each_mode_randomises(make, clip, cfg, robot):
    seen = {mode: make(clip, cfg, mode)[0] for mode in ("train", "nominal", "disturbed")}
    assert {mode: bool(env.encoder_offset.any()) for mode, env in seen.items()} == {
        "train": True,
        "nominal": False,
        "disturbed": True,
    }
    friction = {mode: env.physics.batch.get_model(1).geom_friction for mode, env in seen.items()}
    assert (friction["nominal"] == robot.model.geom_friction).all()
    assert (friction["disturbed"] != robot.model.geom_friction).any()
    assert np.ptp(seen["nominal"].physics.qpos[:, 0]) > 0  # reset noise
    pushes = {"train": 4, "nominal": 0, "disturbed": 4}
    for mode, env in seen.items():
        env.episodes.until_push[:] = 1
        env.step(env.episodes.action, StepBuffers.zeros(4, env.layout))
        assert env.episodes.pushes.sum() == pushes[mode], mode
        assert (env.episodes.until_push == 1).all() == (mode == "nominal")


def test_the_encoders_offset_is_read_and_acted_on(make, standing, still, robot):
    cfg = still.model_copy(update={"randomization": still.randomization.model_copy(update={"joint_zero": 0.2})})
    env, out = make(standing, cfg, "disturbed")
    offset = env.encoder_offset
    assert np.abs(offset).max() > 0.15
    env.step(np.ones((4, 22), np.float32), out)
    read = column(env, out, "joint_pos") + robot.default_joint_pos
    assert read - env.physics.state.joint_pos == pytest.approx(offset, abs=1e-6)
    # where the controller believes it sends the joint, in its own readings, is default + scale · action
    ctrl = env.physics.ctrl[:, robot.actuator_ids]
    assert ctrl + offset == pytest.approx(np.tile(robot.default_joint_pos + robot.action_scale, (4, 1)), abs=1e-6)


def test_pushes_come_after_the_reward_and_before_the_observation(make, standing, still):
    often = still.randomization.model_copy(update={"push_interval": (0.06, 0.06), "joint_zero": 0})
    kicks = still.reset.model_copy(update={"vel_xy": 3.0})
    calm = still.randomization.model_copy(update={"push": 0.0, "joint_zero": 0})
    pushed, out = make(standing, still.model_copy(update={"randomization": often, "reset": kicks}), "disturbed")
    alone, ref = make(standing, still.model_copy(update={"randomization": calm}), "disturbed")
    alone.load(pushed.save(), ref)
    zero = np.zeros((4, 22), np.float32)
    for t in range(1, 5):
        pushed.step(zero, out)
        alone.step(zero, ref)
        if t < 3:
            assert (out.rows == ref.rows).all()
        if t == 3:
            assert (out.terms == ref.terms).all()
            change = column(pushed, out, "base_lin_vel") - column(alone, ref, "base_lin_vel")
            assert (np.abs(change).max(axis=1) > 0.1).all()
            assert pushed.episodes.pushes.tolist() == [1] * 4
    assert (out.terms != ref.terms).any()


def test_resets_never_start_in_the_floor(make, clip, cfg):
    env, _ = make(clip, cfg, n=64)
    assert env.physics.geom_heights().min() > -1e-6


def test_beginning_some_leaves_the_others(make, clip, still):
    """And raises only what is in the floor: a clip that lies in it, and one that is far above it."""
    for height, lowest in ((-0.3, 0.0), (2.0, 1.5)):
        pos = clip.body_pos_w + np.float32([0, 0, height])
        env, out = make(replace(clip, body_pos_w=pos), still)
        for _ in range(3):
            env.step(following(env), out)
        before = env.save()
        kernels.begin(env._task, env.view, np.array([1]), np.array([50]))
        assert (env.physics.save()[[0, 2, 3]] == before["physics"][[0, 2, 3]]).all()
        assert env.physics.batch.time[1] == 0
        assert (env.episodes.frame[[0, 2, 3]] == before["frame"][[0, 2, 3]]).all()
        assert env.episodes.frame[1] == 50
        shown = env.view.state.body_pos_w[1].copy()
        env.physics.forward(np.arange(4))
        assert env.view.state.body_pos_w[1] == pytest.approx(shown, abs=1e-6)
        reached = env.physics.geom_heights()[1].min()
        assert reached == pytest.approx(0, abs=1e-9) if lowest == 0 else reached > lowest


def test_pushes_and_new_episodes_are_shown_as_mujoco_computes_them(make, clip, cfg):
    """Also of a robot that was raised out of the floor."""
    randomization = cfg.randomization.model_copy(update={"push_interval": (0.02, 0.04)})
    env, out = make(clip, cfg.model_copy(update={"randomization": randomization}), n=64)
    began = raised = 0
    for _ in range(40):
        env.step(following(env), out)
        new = (out.cause != Cause.NONE).nonzero()[0]
        shown = out.rows.copy()
        env.physics.forward(np.arange(64))
        heights = env.physics.geom_heights().min(axis=1)[new]
        assert (heights > -1e-9).all()
        kernels.observe(env.view, np.arange(64), out.rows)
        assert out.rows == pytest.approx(shown, abs=2e-5)
        began, raised = began + len(new), raised + (heights < 1e-9).sum()
    assert env.episodes.pushes.all()
    assert began > raised > 5


def test_starts_follow_the_distribution(make, clip, cfg):
    env, out = make(clip, cfg, n=64)
    env.bin_probs[:] = [0, 0, 0, 1]
    env.physics.qpos[:, 2] += 2
    env.step(following(env), out)
    starts = env.episodes.frame
    assert ((starts == 0) | (starts >= 149)).all()
    assert (starts >= 149).sum() > 32


@pytest.mark.parametrize("frames", [2, 3, 10])
def test_short_clips(make, robot, cfg, frames):
    env, out = make(base_clip(robot, frames), cfg)
    for _ in range(5):
        env.step(following(env), out)
        assert np.isfinite(out.rows).all()
        if frames == 2:
            assert (out.ep_len == 1).all()
            assert (out.cause != Cause.NONE).all()


def test_reset_all_is_always_the_same(make, clip, cfg):
    env, out = make(clip, cfg)
    first = out.rows.copy()
    for _ in range(10):
        env.step(following(env), out)
    env.reset_all(out)
    assert (out.rows == first).all()


def test_a_loaded_environment_goes_on_bit_for_bit(make, clip, cfg):
    busy = cfg.model_copy(
        update={
            "episode_seconds": 0.3,
            "randomization": cfg.randomization.model_copy(update={"push_interval": (0.06, 0.1)}),
        }
    )
    env, out = make(clip, busy)
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 4, 22)).astype(np.float32)
    for t in range(15):
        env.step(actions[t], out)
    saved = {name: array.copy() for name, array in env.save().items()}
    seen = out.rows[:, : env.layout.critic_dim].copy()

    other, theirs = make(clip, busy)
    other.load(saved, theirs)
    assert (theirs.rows[:, : env.layout.critic_dim] == seen).all()
    ends = 0
    for t in range(15, 30):
        env.step(actions[t], out)
        other.step(actions[t], theirs)
        for name, array in out._asdict().items():
            if name != "final_obs":
                assert (getattr(theirs, name) == array).all(), (t, name)
        ends += (out.cause > 0).sum()
    assert ends
    assert env.episodes.pushes.min() > 1


def test_rows_do_not_depend_on_the_company(robot, clip):
    cfg = TrainCfg(num_envs=6, num_workers=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 6, 22)).astype(np.float32)

    def rows(ids):
        env = TrackingEnv(robot, clip, cfg, ids)
        out = StepBuffers.zeros(len(ids), env.layout)
        env.reset_all(out)
        for a in actions:
            env.step(a[ids], out)
        return out.rows

    together = rows(np.arange(6))
    assert (rows(np.array([1, 4])) == together[[1, 4]]).all()
    assert (rows(np.array([5])) == together[[5]]).all()
