import numpy as np
import pytest

from q1pipe.config import TerminationCfg
from q1pipe.sim import terminations
from q1pipe.sim.terminations import Cause, Limits, causes, failed, truncated

CFG = TerminationCfg()
NO = np.zeros(1, bool)
YES = np.ones(1, bool)


@pytest.fixture
def cause(robot):
    """The cause of a step's end."""

    def cause(step, cfg=CFG, end=NO, late=NO):
        return Cause(causes(step, Limits.of(robot, cfg), end, late)[0])

    return cause


def test_lengths_scale_with_the_robots_height(robot):
    assert terminations.length_scale(robot, CFG) == pytest.approx(robot.standing_height / 1.32)


def test_nothing_ends_on_the_reference(make_step, cause):
    assert cause(make_step()) == Cause.NONE


@pytest.mark.parametrize("sign", [1, -1])
def test_anchor_height(make_step, robot, sign, cause):
    step = make_step()
    limit = 0.25 * robot.standing_height / 1.32
    step.state.body_pos_w[0, step.robot.anchor] = [5, 5, sign * (limit - 0.001)]  # x, y do not count
    assert cause(step) == Cause.NONE
    step.state.body_pos_w[0, step.robot.anchor, 2] = sign * (limit + 0.001)
    assert cause(step) == Cause.ANCHOR_Z


def test_tilt_sees_the_wrong_side(make_step, about, cause):
    step = make_step()
    step.ref.body_quat_w[0, step.robot.anchor] = about("y", 90)  # prone
    step.state.body_quat_w[0, step.robot.anchor] = about("y", -90)  # supine
    assert cause(step) == Cause.TILT
    assert cause(step, TerminationCfg(tilt_axis="z", tilt=0.8)) == Cause.NONE


def test_tilt_is_the_length_of_the_difference(make_step, about, cause):
    step = make_step()
    # ‖Δg‖ = 2 sin(angle / 2): 1.0 at 60°; heading does not count
    step.state.body_quat_w[0, step.robot.anchor] = about("x", 59)
    step.ref.body_quat_w[0, step.robot.anchor] = about("z", 120)
    assert cause(step) == Cause.NONE
    step.state.body_quat_w[0, step.robot.anchor] = about("x", 61)
    assert cause(step) == Cause.TILT


def test_tilt_z_form(make_step, about, cause):
    cfg = TerminationCfg(tilt_axis="z", tilt=0.8)
    step = make_step()
    step.state.body_quat_w[0, step.robot.anchor] = about("x", np.degrees(np.arccos(0.21)))  # |Δg_z| = 0.79
    assert cause(step, cfg) == Cause.NONE
    step.state.body_quat_w[0, step.robot.anchor] = about("x", np.degrees(np.arccos(0.19)))
    assert cause(step, cfg) == Cause.TILT


def test_each_watched_body_has_its_own_limit(make_step, robot, cause):
    step = make_step()
    scale = robot.standing_height / 1.32
    for column, limit in enumerate(CFG.body_z.values()):
        step.state.watched_z[:] = 0
        step.state.watched_z[0, column] = -limit * scale - 0.001
        assert cause(step) == Cause.BODY_Z
        step.state.watched_z[0, column] = limit * scale - 0.001
        assert cause(step) == Cause.NONE


def test_ends_of_motion_and_time_are_truncations(make_step, cause):
    step = make_step()
    assert cause(step, end=YES, late=YES) == Cause.MOTION_END
    assert cause(step, late=YES) == Cause.TIME_OUT
    every = np.array(list(Cause))
    assert [Cause(c).name for c in every[truncated(every)]] == ["MOTION_END", "TIME_OUT"]
    assert [Cause(c).name for c in every[failed(every)]] == ["ANCHOR_Z", "TILT", "BODY_Z", "SIM_UNSTABLE"]


def test_order(make_step, about, cause):
    step = make_step()
    step.state.watched_z[0, 0] = 1
    assert cause(step, end=YES) == Cause.BODY_Z
    step.state.body_quat_w[0, step.robot.anchor] = about("x", 90)
    assert cause(step, end=YES) == Cause.TILT
    step.state.body_pos_w[0, step.robot.anchor, 2] = 1
    assert cause(step, end=YES) == Cause.ANCHOR_Z


def test_broken_physics_hides_every_other_cause(make_step, cause):
    step = make_step()
    step.unstable[0] = True
    step.state.body_pos_w[0, step.robot.anchor, 2] = 1
    assert cause(step, end=YES) == Cause.SIM_UNSTABLE


def test_the_table_names_every_cause(robot):
    assert [name for name, _ in terminations.describe(robot, CFG)] == [c.name.lower() for c in Cause if c]
