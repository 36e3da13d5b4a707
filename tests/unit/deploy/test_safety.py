"""Each rule of the audit by hand: two steps of one robot, then one thing wrong."""

import numpy as np
import pytest

from q1pipe.config import SafetyCfg
from q1pipe.deploy.safety import audit, commands_per_target

QUIET = (0.5, "left_knee_joint")


@pytest.fixture
def trace(robot):
    """Three steps of two robots in the middle of every joint's range, at rest."""
    middle = robot.limits.mean(axis=1)
    still = np.tile(middle, (3, 2, 1))
    return {
        "running": np.ones((3, 2), bool),
        "ctrl": still.copy(),
        "joint_pos": still.copy(),
        "joint_vel": 0 * still,
        "joint_pos_before": still.copy(),
        "joint_vel_before": 0 * still,
    }


@pytest.fixture
def rules(robot, exported):
    def run(trace, damped=QUIET, contract=None, **cfg):
        rows = audit(robot, contract or exported.contract(), trace, damped, SafetyCfg(**cfg))
        return {row["rule"]: row for row in rows}

    return run


def failed(rows):
    return {name: (row["worst"], round(row["value"], 6)) for name, row in rows.items() if not row["passed"]}


def test_a_robot_at_rest_passes_everything(rules, trace):
    rows = rules(trace)
    assert failed(rows) == {}
    assert len(rows) == 10
    assert rows["joint speed after the damping command (5)"]["value"] == 0.5


def test_ten_commands_between_targets(exported):
    assert commands_per_target(exported.contract(), SafetyCfg()) == 10
    assert commands_per_target(exported.contract(), SafetyCfg(command_hz=1000)) == 20


def test_change_of_a_command(rules, trace):
    """2.1 rad between two targets is 0.21 rad from one of ten commands to the next; at 1000 Hz half of it."""
    trace["ctrl"][2, 1, 3] += 2.1
    trace["joint_pos_before"][2, 1, 3] += 2.0  # it is where it was told to be: no torque
    assert failed(rules(trace, max_target_beyond=9)) == {"command change at 500 Hz": ("left_knee_joint", 0.21)}
    assert failed(rules(trace, max_target_beyond=9, command_hz=1000)) == {}


def test_first_target_is_compared_with_the_measured_pose(rules, trace):
    trace["ctrl"][0, 0, 12] += 0.6
    trace["joint_vel_before"][0, 0, 12] = 0.6 * 78.95683521 / 5.026548246  # damping takes the torque of it
    rows = rules(trace)
    assert failed(rows) == {"first target from the measured pose": ("waist_yaw_joint", 0.6)}
    trace["ctrl"][1:, 0, 12] += 0.6  # it stays there: the only change is the first, in ten commands
    trace["joint_pos_before"][1:, 0, 12] += 0.6
    assert rules(trace)["command change at 500 Hz"]["value"] == pytest.approx(0.06)
    trace["ctrl"][1:, 0, 12] -= 0.6
    trace["joint_pos_before"][1:, 0, 12] -= 0.6
    trace["ctrl"][0], trace["ctrl"][1] = trace["ctrl"][1].copy(), trace["ctrl"][0].copy()
    trace["joint_vel_before"] = trace["joint_vel_before"][[1, 0, 2]]
    assert failed(rules(trace)) == {}


def test_torque_is_what_is_asked_for_at_the_step_s_beginning(rules, trace):
    """Stiffness 78.96: 0.42 rad ask for 33.2 of 33 N·m, in one of six steps."""
    trace["ctrl"][1, 0, 0] += 0.42
    assert failed(rules(trace)) == {"steps that ask for more than the torque limit": ("left_hip_pitch_joint", 0.166667)}
    trace["ctrl"][1, 0, 0] -= 0.01
    assert failed(rules(trace)) == {}


def test_speed(rules, trace):
    trace["joint_vel"][1, 1, 21] = -20.5
    assert failed(rules(trace)) == {"joint speed": ("right_elbow_joint", 20.5)}


def test_limits(rules, trace, robot):
    low, high = robot.limits[5]
    trace["joint_pos"][0, 0, 5] = high + 0.06
    assert failed(rules(trace)) == {
        "beyond hard limits": ("left_ankle_roll_joint", 0.06),
        "steps beyond soft limits": ("left_ankle_roll_joint", 0.166667),
    }
    trace["joint_pos"][0, 0, 5] = low + 0.01
    assert set(failed(rules(trace))) == {"steps beyond soft limits"}


def test_targets_beyond_limits(rules, trace, robot):
    """0.3 rad in one of six steps is told; 0.45 rad, more than the joint's whole torque at its stop, is refused."""
    low, high = robot.limits[5]
    for beyond, target in ((0.3, low - 0.3), (0.45, high + 0.45)):
        trace["ctrl"][1, 0, 5] = target
        rows = rules(trace, max_saturation=1)
        row, share = rows["targets beyond hard limits"], rows["steps with a target beyond hard limits"]
        assert row["value"] == pytest.approx(beyond)
        assert row["worst"] == share["worst"] == "left_ankle_roll_joint"
        assert row["passed"] == (beyond < 0.4)
        assert share["value"] == pytest.approx(1 / 6)
        assert share["allowed"] is None
        assert share["passed"]
    assert rules(trace, max_saturation=1)["beyond hard limits"]["value"] == 0  # it is only aimed there
    assert robot.effort[5] / robot.stiffness[5] == pytest.approx(0.418, abs=1e-3)


def test_what_comes_after_the_end_of_an_episode_does_not_count(rules, trace):
    trace["joint_vel"][2, 1], trace["running"][2, 1] = np.nan, False
    assert failed(rules(trace)) == {}
    trace["running"][2, 1] = True
    assert "joint speed" in failed(rules(trace))


def test_damping_command(rules, trace):
    assert failed(rules(trace, damped=(25.0, "left_elbow_joint"))) == {
        "joint speed after the damping command (5)": ("left_elbow_joint", 25)
    }
