from dataclasses import replace

import numpy as np
import pytest

from q1pipe.config import TrainCfg
from q1pipe.sim.reference import Reference, relative


def test_a_lookup_is_the_clip_at_the_frame(robot, clip, cfg):
    reference = Reference(clip, robot, cfg)
    frames = np.array([0, 17, 199, 17])
    ref = reference.at(frames)
    rows = robot.tracked - 1
    assert (ref.joint_pos == clip.joint_pos[frames]).all()
    assert (ref.joint_vel == clip.joint_vel[frames]).all()
    assert (ref.body_pos_w == clip.body_pos_w[frames][:, rows]).all()
    assert (ref.body_quat_w == clip.body_quat_w[frames][:, rows]).all()
    assert (ref.body_lin_vel_w == clip.body_lin_vel_w[frames][:, rows]).all()
    assert (ref.body_ang_vel_w == clip.body_ang_vel_w[frames][:, rows]).all()
    watched = [robot.body_names.index(name) for name in cfg.termination.body_z]
    assert (ref.watched_z == clip.body_pos_w[frames][:, watched, 2]).all()
    assert ref.body_pos_w.dtype == np.float32


def test_a_frame_follows_another_but_for_the_last_before_a_jump_and_of_all(robot, clip, cfg):
    reference = Reference(replace(clip, jumps=(0, 50)), robot, cfg)
    assert reference.following[[0, 1, 49, 50, 51, 198, 199]].tolist() == [0, 2, 50, 50, 52, 199, 199]
    # nothing follows frames 0, 50, 199: episodes start before them, or after where there is no before
    assert reference.starts.at[[0, 1, 49, 50, 51, 198, 199]].tolist() == [1, 1, 49, 49, 51, 198, 198]
    assert Reference(clip, robot, cfg).starts.at[:199].tolist() == list(range(199))


def test_a_reference_of_the_arrays_of_another_is_the_same_and_copies_nothing(robot, clip, cfg):
    reference = Reference(replace(clip, jumps=(50,)), robot, cfg)
    other = Reference(reference.arrays, robot, cfg)
    assert np.shares_memory(other.starts.root, reference.starts.root)
    assert np.shares_memory(other.table, reference.table)
    frames = np.array([3, 120])
    assert (other.at(frames).body_quat_w == reference.at(frames).body_quat_w).all()
    assert (other.following == reference.following).all()


def test_the_root_is_the_root(robot, clip, cfg):
    reference = Reference(clip, robot, cfg)
    assert (reference.starts.root[:, :3] == clip.body_pos_w[:, robot.root - 1]).all()
    assert (reference.starts.root[:, 10:] == clip.body_ang_vel_w[:, robot.root - 1]).all()


def test_no_body_need_be_watched(robot, clip):
    cfg = TrainCfg(termination={"body_z": {}})
    assert Reference(clip, robot, cfg).at(np.arange(3)).watched_z.shape == (3, 0)


def test_rel_turns_and_moves_but_keeps_the_references_height(make_step, about):
    step = make_step()
    anchor = step.robot.anchor
    step.ref.body_pos_w[0, anchor] = [1, 0, 0.8]
    step.ref.body_pos_w[0, 3] = [1.5, 0, 0.2]  # half a metre ahead, 0.6 m lower
    step.state.body_pos_w[0, anchor] = [-2, 5, 0.7]
    step.state.body_quat_w[0, anchor] = about("z", 90)
    pos, quat = relative(step.ref, step.state, anchor)
    assert pos[0, anchor] == pytest.approx([-2, 5, 0.8], abs=1e-6)
    assert pos[0, 3] == pytest.approx([-2, 5.5, 0.2], abs=1e-6)
    assert quat[0, 3] == pytest.approx(about("z", 90), abs=1e-6)


def test_rel_ignores_roll_and_pitch_of_the_robot(make_step, about):
    step = make_step()
    step.state.body_quat_w[0, step.robot.anchor] = about("y", 40)
    step.ref.body_pos_w[0, 3] = [0.5, 0, 0]
    pos, quat = relative(step.ref, step.state, step.robot.anchor)
    assert pos[0, 3] == pytest.approx([0.5, 0, 0], abs=1e-6)
    assert quat[0, 3] == pytest.approx([1, 0, 0, 0], abs=1e-6)


def test_rel_takes_the_heading_between_the_anchors(make_step, about):
    step = make_step()
    step.ref.body_quat_w[0, step.robot.anchor] = about("z", 30)
    step.state.body_quat_w[0, step.robot.anchor] = about("z", -60)
    step.ref.body_quat_w[0, 5] = about("z", 100)
    _, quat = relative(step.ref, step.state, step.robot.anchor)
    assert quat[0, 5] == pytest.approx(about("z", 10), abs=1e-6)
