import numpy as np
import pytest

from q1pipe.config import RewardCfg
from q1pipe.sim import kernels, rewards
from q1pipe.sim.rewards import REWARD_TERMS, Weights

CFG = RewardCfg()


def value(name, step, cfg=CFG):
    column = REWARD_TERMS.index(name)
    return float(total(step, cfg)[0, column] / Weights.of(cfg).weight[column])


def total(step, cfg=CFG):
    out = np.zeros((len(step.action), 9), np.float32)
    kernels.rewards(step, Weights.of(cfg), out)
    return out


def test_names_order_and_weights():
    assert rewards.describe(CFG) == [
        ("root_pos", 0.5, 0.3),
        ("root_ori", 0.5, 0.4),
        ("body_pos", 1.0, 0.3),
        ("body_ori", 1.0, 0.4),
        ("body_lin_vel", 1.0, 1.0),
        ("body_ang_vel", 1.0, 3.14),
        ("action_rate", -0.1, None),
        ("joint_limit", -10.0, None),
        ("self_collision", -10.0, None),
    ]


def test_perfect_tracking_is_worth_five(make_step):
    step = make_step()
    assert total(step).tolist() == [[0.5, 0.5, 1, 1, 1, 1, 0, 0, 0]]


def test_root_pos_is_the_anchors_world_error(make_step):
    step = make_step()
    step.ref.body_pos_w[0, step.robot.anchor] = [0.3, 0, 0]  # one σ
    step.ref.body_pos_w[0, step.robot.anchor - 1] = [9, 9, 9]  # another body does not count
    assert value("root_pos", step) == pytest.approx(np.exp(-1))
    step.state.body_pos_w[0, step.robot.anchor] = [0.3, 0.4, 0.3]  # ‖(0, −0.4, −0.3)‖² = 0.25
    assert value("root_pos", step) == pytest.approx(np.exp(-0.25 / 0.09), rel=1e-5)


def test_root_ori_is_the_anchors_angle(make_step, about):
    step = make_step()
    step.ref.body_quat_w[0, step.robot.anchor] = -about("y", 30)  # q and −q are the same orientation
    step.state.body_quat_w[0, step.robot.anchor] = about("y", -15)
    assert value("root_ori", step) == pytest.approx(np.exp(-((np.pi / 4 / 0.4) ** 2)), rel=1e-4)


def test_body_pos_averages_squares_over_bodies_against_rel(make_step):
    step = make_step()
    step.ref.body_pos_w[:] = 7  # the world reference does not count
    step.rel_pos_w[0, 0] = [0, 0, 0.3]
    step.rel_pos_w[0, 5] = [0, 0.6, 0]
    # (0.09 + 0.36) / 12 bodies / 0.09
    assert value("body_pos", step) == pytest.approx(np.exp(-5 / 12), rel=1e-5)


def test_body_ori_averages_squared_angles_over_bodies_against_rel(make_step, about):
    step = make_step()
    step.rel_quat_w[0, 2] = about("x", 90)
    assert value("body_ori", step) == pytest.approx(np.exp(-((np.pi / 2) ** 2) / 12 / 0.16), rel=1e-4)


def test_body_lin_vel_is_in_the_world(make_step):
    step = make_step()
    step.ref.body_lin_vel_w[0, :, 0] = 2  # every body, 2 m/s
    assert value("body_lin_vel", step) == pytest.approx(np.exp(-4), rel=1e-5)
    step.state.body_lin_vel_w[0, :, 0] = 2
    assert value("body_lin_vel", step) == 1


def test_body_ang_vel(make_step):
    step = make_step()
    step.state.body_ang_vel_w[0, 3] = [0, 3.14, 0]
    assert value("body_ang_vel", step) == pytest.approx(np.exp(-1 / 12), rel=1e-5)


def test_action_rate_sums_squares(make_step):
    step = make_step()
    step.action[0, :2] = [1, -2]
    step.previous_action[0, :2] = [0, 1]
    assert value("action_rate", step) == 10
    assert total(step)[0, 6] == -1


def test_joint_limit_sums_what_is_beyond_the_soft_limits(make_step, robot):
    step = make_step()
    low, high = robot.soft_limits.T
    step.state.joint_pos[0] = (low + high) / 2
    assert value("joint_limit", step) == 0
    step.state.joint_pos[0, 0] = high[0] + 0.2
    step.state.joint_pos[0, 7] = low[7] - 0.1
    assert value("joint_limit", step) == pytest.approx(0.3, abs=1e-6)
    assert total(step)[0, 7] == pytest.approx(-3, abs=1e-5)


def test_self_collision_is_one_above_ten_newton(make_step):
    step = make_step(2)
    step.state.self_contact[:] = [10, 10.1]
    assert total(step)[:, 8].tolist() == [0, -10]


def test_weights_come_from_the_config(make_step):
    cfg = RewardCfg(body_pos={"sigma": 0.1, "weight": 3}, action_rate=-1)
    step = make_step()
    step.rel_pos_w[0, :, 0] = 0.1
    step.action[0, 0] = 1
    out = total(step, cfg)[0]
    assert out[2] == pytest.approx(3 * np.exp(-1), rel=1e-5)
    assert out[6] == -1


def test_broken_physics_earns_nothing(make_step):
    step = make_step(2)
    step.unstable[1] = True
    step.state.body_pos_w[1] = np.nan
    assert total(step).sum(axis=1).tolist() == [5, 0]
