import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.config import NoiseCfg
from q1pipe.sim import observations
from q1pipe.sim.kernels import observe
from q1pipe.sim.observations import Layout


@pytest.fixture
def layout(robot):
    return Layout.of(robot)


@pytest.fixture
def see(layout):
    """Observe one robot; a term's columns by name."""

    def see(step):
        out = np.full((1, layout.critic_dim), np.nan, np.float32)
        observe(step, np.array([0]), out)
        assert np.isfinite(out).all()
        return {name: out[0, columns] for name, columns in layout.slices.items()}

    return see


def test_widths(layout):
    assert layout.actor_dim == 119
    assert layout.critic_dim == 119 + 3 + 3 + 9 * 12
    widths = {name: c.stop - c.start for name, c in layout.slices.items()}
    assert widths == {
        "reference_joint_pos": 22,
        "reference_joint_vel": 22,
        "anchor_ori": 6,
        "base_ang_vel": 3,
        "joint_pos": 22,
        "joint_vel": 22,
        "last_action": 22,
        "anchor_pos": 3,
        "base_lin_vel": 3,
        "body_pos": 36,
        "body_ori": 72,
    }


def test_columns_follow_each_other(layout):
    ends = [0, *(c.stop for c in layout.slices.values())]
    assert [c.start for c in layout.slices.values()] == ends[:-1]
    assert (layout.reward_col, layout.terminated_col, layout.truncated_col) == (233, 234, 235)
    assert layout.row_dim == 236
    assert layout.reference_joint_pos == slice(0, 22)


def test_noise(layout):
    noise = layout.noise(NoiseCfg())
    assert noise.shape == (119,)
    assert noise[layout.slices["anchor_ori"]].tolist() == pytest.approx([0.05] * 6)
    assert noise[layout.slices["base_ang_vel"]].tolist() == pytest.approx([0.2] * 3)
    assert noise[layout.slices["joint_pos"]].tolist() == pytest.approx([0.01] * 22)
    assert noise[layout.slices["joint_vel"]].tolist() == pytest.approx([0.5] * 22)
    for name in ("reference_joint_pos", "reference_joint_vel", "last_action"):
        assert not noise[layout.slices[name]].any()


def test_describe(layout):
    rows = observations.describe(layout, NoiseCfg())
    assert sum(width for *_, width, _ in rows) == layout.critic_dim
    assert rows[2] == ("actor, critic", "anchor_ori", 6, 0.05)
    assert rows[-1] == ("critic", "body_ori", 72, 0.0)


def test_the_reference_is_the_frame_that_comes(make_step, see):
    step = make_step()
    step.ref.joint_pos[:] = step.ref.joint_vel[:] = 9
    step.ref.body_pos_w[:] = 9
    step.ahead.joint_pos[0] = np.arange(22)
    step.ahead.joint_vel[0] = -np.arange(22)
    seen = see(step)
    assert seen["reference_joint_pos"].tolist() == list(range(22))
    assert seen["reference_joint_vel"].tolist() == [-x for x in range(22)]
    assert seen["anchor_pos"].tolist() == [0, 0, 0]


def test_anchor_ori_is_the_reference_in_the_robots_frame(make_step, see, about):
    step = make_step()
    # both turned by the same heading; the reference then leans by 90° about its own x
    step.state.body_quat_w[0, step.robot.anchor] = about("z", 90)
    # z90 · x90: columns in the world are (0, 1, 0), (0, 0, 1), (1, 0, 0)
    step.ahead.body_quat_w[0, step.robot.anchor] = np.array([0.5, 0.5, 0.5, 0.5])
    # seen from the robot: R_x(90°) = [1 0 0; 0 0 -1; 0 1 0], its first two columns row by row
    assert see(step)["anchor_ori"] == pytest.approx([1, 0, 0, 0, 0, 1], abs=1e-6)


def test_anchor_pos_is_in_the_robots_frame(make_step, see, about):
    step = make_step()
    step.state.body_quat_w[0, step.robot.anchor] = about("z", 90)
    step.state.body_pos_w[0, step.robot.anchor] = [1, 1, 1]
    step.ahead.body_pos_w[0, step.robot.anchor] = [1, 3, 1.5]  # 2 m ahead of a robot that faces +y
    assert see(step)["anchor_pos"] == pytest.approx([2, 0, 0.5], abs=1e-6)


def test_velocities_of_the_base(make_step, see, about):
    step = make_step()
    step.state.gyro[0] = [1, 2, 3]
    step.state.root_quat_w[0] = about("z", 90)
    step.state.root_lin_vel_w[0] = [0, 2, 1]
    seen = see(step)
    assert seen["base_ang_vel"].tolist() == [1, 2, 3]
    assert seen["base_lin_vel"] == pytest.approx([2, 0, 1], abs=1e-6)


def test_joints_are_read_with_the_encoders_offset(make_step, see, robot):
    step = make_step()
    step.state.joint_pos[0] = robot.default_joint_pos + 0.25
    step.state.joint_vel[0] = 3
    step.joint_zero[0] = 0.01
    step.action[0] = 0.7
    step.previous_action[0] = 0.1
    seen = see(step)
    assert seen["joint_pos"] == pytest.approx([0.26] * 22, abs=1e-6)
    assert seen["joint_vel"].tolist() == [3] * 22
    assert seen["last_action"] == pytest.approx([0.7] * 22)


def test_bodies_are_seen_from_the_anchor(make_step, see, about):
    step = make_step()
    step.state.body_quat_w[0] = about("z", 90)
    step.state.body_pos_w[0] = [1, 1, 1]
    step.state.body_pos_w[0, 4] = [0, 1, 2]  # to the left of a robot that faces +y, and above
    step.state.body_quat_w[0, 4] = about("z", 180)
    seen = see(step)
    positions, orientations = seen["body_pos"].reshape(12, 3), seen["body_ori"].reshape(12, 6)
    assert positions[4] == pytest.approx([0, 1, 1], abs=1e-6)
    assert positions[step.robot.anchor] == pytest.approx([0, 0, 0], abs=1e-6)
    # R_z(90°) = [0 -1 0; 1 0 0; 0 0 1]
    assert orientations[4] == pytest.approx([0, -1, 1, 0, 0, 0], abs=1e-6)
    assert orientations[step.robot.anchor] == pytest.approx([1, 0, 0, 1, 0, 0], abs=1e-6)
    # a body that leans about the world's x, which is minus the y of a robot that faces +y: R_y(-90°)
    step.state.body_quat_w[0, 4] = rotations.mul(about("x", 90), about("z", 90))
    assert see(step)["body_ori"][24:30] == pytest.approx([0, 0, 0, 1, 1, 0], abs=1e-6)


def test_only_some_robots_are_observed(make_step, layout):
    step = make_step(3)
    step.state.joint_vel[:] = np.arange(3)[:, None]
    out = np.full((3, layout.row_dim), -1, np.float32)
    observe(step, np.array([2, 0]), out)
    assert out[:, layout.slices["joint_vel"]].tolist() == [[0] * 22, [-1] * 22, [2] * 22]
    assert (out[:, layout.critic_dim :] == -1).all()
