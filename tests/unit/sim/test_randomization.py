import mujoco
import numpy as np
import pytest

from q1pipe import rotations
from q1pipe.config import RobotCfg, TerminationCfg, TrainCfg
from q1pipe.robot import Robot
from q1pipe.sim import kernels
from q1pipe.sim.draws import Purpose
from q1pipe.sim.env import Episodes
from q1pipe.sim.kernels import Cause, start_frames
from q1pipe.sim.physics import Physics, RobotState
from q1pipe.sim.randomization import (
    Ranges,
    randomize_domain,
    time_limits,
    uniform,
)
from q1pipe.sim.reference import Reference, RobotConstants
from tests.simulation import control_step, put

MANY = np.arange(4000)


@pytest.fixture
def cfg():
    return TrainCfg(seed=3)


@pytest.fixture
def reference(robot, clip, cfg):
    return Reference(clip, robot, cfg)


def draws(n=2000, width=5, seed=1, purpose=Purpose.RESET, count=0):
    return uniform(seed, purpose, np.arange(n), np.full(n, count), width)


def test_numbers_are_uniform():
    u = draws()
    assert u.shape == (2000, 5)
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, 20, (0, 1))[0]
    assert counts == pytest.approx(500, rel=0.2)
    assert np.abs(np.corrcoef(u.T) - np.eye(5)).max() < 0.08


def test_numbers_depend_on_every_part_of_their_key():
    u = draws()
    others = [draws(seed=2), draws(purpose=Purpose.PUSH), draws(count=1), np.roll(u, 1, axis=0), np.roll(u, 1, axis=1)]
    for other in others:
        assert np.abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 0.03


def test_numbers_do_not_depend_on_the_company():
    u = draws()
    some = np.array([1500, 3, 77])
    assert (uniform(1, Purpose.RESET, some, np.zeros(3, int), 2) == u[some, :2]).all()


def test_negative_and_large_seeds():
    u = [draws(seed=s)[0, 0] for s in (-1, 0, 1, 2**62)]
    assert len(set(u)) == 4


def test_domain(robot, cfg):
    physics = Physics(robot, cfg, 200)
    offset = randomize_domain(physics, cfg, np.arange(200))
    model, batch = robot.model, physics.batch
    feet = [g for g in range(model.ngeom) if model.geom_bodyid[g] in robot.feet]
    others = [g for g in range(model.ngeom) if g not in feet]
    friction = batch.expand("geom_friction")
    assert (friction[:, feet, 0] == friction[:, feet[:1], 0]).all()
    assert friction[:, feet[0], 0].min() == pytest.approx(0.3, abs=0.03)
    assert friction[:, feet[0], 0].max() == pytest.approx(1.2, abs=0.03)
    assert (friction[:, others] == model.geom_friction[others]).all()
    shift = batch.expand("body_ipos") - model.body_ipos
    assert not np.delete(shift, robot.anchor, axis=1).any()
    extent = np.abs(shift[:, robot.anchor]).max(axis=0)
    assert (extent <= [0.025, 0.05, 0.05]).all()
    assert extent == pytest.approx([0.025, 0.05, 0.05], rel=0.05)
    assert np.abs(offset).max() == pytest.approx(0.01, rel=0.01)
    weights = [batch.get_model(i).dof_invweight0 for i in range(5)]
    assert np.ptp(weights, axis=0).any()  # what follows from where the masses are follows


def test_a_centre_of_mass_that_was_compiled_away_moves_too(cfg):
    """A body whose only geom is at its origin: MuJoCo skips the offset of such a body."""
    body = "left_ankle_pitch_link"
    robot = Robot.load(RobotCfg(anchor=body, tracked=("pelvis", body), end_effectors=(body,)))
    assert robot.model.body_sameframe[robot.anchor] == mujoco.mjtSameFrame.mjSAMEFRAME_BODY
    physics = Physics(robot, cfg.model_copy(update={"termination": TerminationCfg(body_z={})}), 5)
    xipos, xpos = physics.batch.bind("xipos"), physics.batch.bind("xpos")
    randomize_domain(physics, cfg, np.arange(5))
    physics.qpos[:, 3:7] = [1, 0, 0, 0]
    physics.qpos[:, 7:] = 0
    physics.forward(np.arange(5))
    shift = physics.batch.expand("body_ipos")[:, robot.anchor]
    assert np.abs(shift).max() > 0.02
    assert (xipos - xpos)[:, robot.anchor] == pytest.approx(shift, abs=1e-9)


def test_the_domain_reaches_the_physics(robot, cfg):
    """A slippery foot slides where a rough one holds, and the centre of mass is where it was put."""
    physics = Physics(robot, cfg, 2)
    randomize_domain(physics, cfg, np.arange(2))
    feet = np.isin(robot.model.geom_bodyid, robot.feet)
    physics.batch.expand("geom_friction")[0, feet, 0] = 0.05
    physics.batch.expand("geom_friction")[1, feet, 0] = 1.2
    physics.batch.expand("body_ipos")[:, robot.anchor] = robot.model.body_ipos[robot.anchor] + [[0, 0, 0], [0, 0.05, 0]]
    physics.batch.set_const()
    pos = np.tile([0, 0, robot.default_root_height], (2, 1))
    qpos = robot.qpos(pos, np.tile([1.0, 0, 0, 0], (2, 1)), np.tile(robot.default_joint_pos, (2, 1)))
    qvel = np.zeros((2, robot.model.nv))
    com = physics.batch.bind("subtree_com")
    put(physics, qpos, qvel)
    physics.forward(np.arange(2))
    expected = 0.05 * robot.model.body_mass[robot.anchor] / robot.model.body_subtreemass[robot.root]
    assert (com[1] - com[0])[robot.root] == pytest.approx([0, expected, 0], abs=1e-9)
    qvel[:, 1] = 0.6
    put(physics, qpos, qvel)
    foot = list(robot.tracked).index(robot.feet[0])
    for _ in range(8):
        control_step(physics, np.tile(robot.default_joint_pos, (2, 1)).astype(np.float32))
    slipped = physics.state.body_pos_w[:, foot, 1] - physics.state.body_pos_w[0, foot, 1]
    assert slipped[1] < -0.02


def episodes(n, number):
    episodes = Episodes.zeros(n, 22)
    episodes.number[:] = number
    return episodes


def test_starts(cfg):
    probs, at = np.array([0, 0, 1.0, 0]), np.arange(201)
    frames = start_frames(Ranges.of(cfg, 1), MANY, episodes(4000, 0), MANY, probs, at)
    assert (frames == 0).mean() == pytest.approx(cfg.reset.from_start, abs=0.03)
    sampled = frames[frames > 0]
    assert sampled.min() == 100
    assert sampled.max() == 149
    again = start_frames(Ranges.of(cfg, 1), MANY, episodes(4000, 1), MANY, probs, at)
    assert (frames != again).mean() > 0.9
    some = start_frames(Ranges.of(cfg, 1), MANY, episodes(4000, 0), MANY[[17, 3]], probs, np.minimum(at, 120))
    assert some.tolist() == np.minimum(frames[[17, 3]], 120).tolist()  # nothing follows frame 121


def reset_states(robot, reference, cfg, env_ids, frames):
    """What `reset_state` writes for each environment's first episode."""
    qpos, qvel = np.zeros((len(frames), robot.model.nq)), np.zeros((len(frames), robot.model.nv))
    for i, env_id, frame in zip(range(len(frames)), env_ids, frames, strict=True):
        constants = RobotConstants.of(robot)
        kernels.reset_state(Ranges.of(cfg, 1), reference.starts, constants, env_id, 0, frame, qpos[i], qvel[i])
    return qpos, qvel


def test_resets_are_the_reference_plus_noise(robot, reference, cfg, clip):
    frames = np.full(4000, 120)
    qpos, qvel = reset_states(robot, reference, cfg, MANY, frames)

    def extent(values):
        return np.abs(values).max(axis=0)

    root = robot.root - 1
    position = qpos[:, :3] - clip.body_pos_w[120, root]
    assert extent(position[:, :2]) == pytest.approx(0.05, rel=0.01)
    assert position[:, 2].min() == pytest.approx(0, abs=1e-4)
    assert position[:, 2].max() == pytest.approx(0.01, abs=1e-4)

    turn = rotations.mul(qpos[:, 3:7], rotations.conj(clip.body_quat_w[120, root].astype(float)))
    assert np.linalg.norm(qpos[:, 3:7], axis=1) == pytest.approx(1, abs=1e-6)
    matrix = rotations.to_matrix(turn)
    roll, pitch = np.arctan2(matrix[:, 2, 1], matrix[:, 2, 2]), np.arcsin(-matrix[:, 2, 0])
    yaw = np.arctan2(matrix[:, 1, 0], matrix[:, 0, 0])
    assert extent(np.stack([roll, pitch, yaw], axis=1)) == pytest.approx([0.1, 0.1, 0.2], rel=0.01)

    linear = qvel[:, :3] - clip.body_lin_vel_w[120, root]
    assert extent(linear) == pytest.approx([0.5, 0.5, 0.2], rel=0.01)
    angular = rotations.rotate(qpos[:, 3:7], qvel[:, 3:6]) - clip.body_ang_vel_w[120, root]  # in the world
    assert extent(angular) == pytest.approx([0.52, 0.52, 0.78], rel=0.01)
    assert (qvel[:, robot.qvel_adr] == clip.joint_vel[120]).all()

    joints = qpos[:, robot.qpos_adr] - clip.joint_pos[120]
    assert extent(joints).max() == pytest.approx(0.1, rel=0.01)
    assert (np.abs(joints) <= 0.1 + 1e-9).all()


def test_reset_joints_stay_inside_the_soft_limits_unless_the_reference_does_not(robot, reference, cfg):
    low, high = robot.soft_limits.T
    joint_pos = np.stack([high, low - 0.01]).astype(np.float32)
    reference.starts = reference.starts._replace(joint_pos=joint_pos)
    n = 500
    for frame, inner, outer in ((0, np.minimum, high), (1, np.maximum, low - 0.01)):
        qpos, _ = reset_states(robot, reference, cfg, np.arange(n), np.full(n, frame))
        joints = qpos[:, robot.qpos_adr]
        assert inner(joints, outer) == pytest.approx(joints, abs=1e-6)
        assert np.abs(joints - outer).max() > 0.09


def test_without_noise_a_reset_is_the_reference(robot, reference, still, clip):
    qpos, qvel = reset_states(robot, reference, still, np.arange(2), np.array([0, 77]))
    physics = Physics(robot, still, 2)
    put(physics, qpos, qvel)
    physics.forward(np.arange(2))
    rows = robot.tracked - 1
    assert physics.state.body_pos_w == pytest.approx(clip.body_pos_w[[0, 77]][:, rows], abs=1e-5)
    # central differences against exact velocities
    assert physics.state.body_lin_vel_w[1] == pytest.approx(clip.body_lin_vel_w[77, rows], abs=0.03)
    assert physics.state.body_ang_vel_w[1] == pytest.approx(clip.body_ang_vel_w[77, rows], abs=0.08)


def test_pushes_add_velocity_in_the_world(robot, cfg):
    n = 1500
    physics = Physics(robot, cfg, n)
    ids = np.arange(n)
    qpos = np.tile(robot.model.qpos0, (n, 1))
    qpos[:, 3:7] = 0.5  # x -> y -> z -> x
    qvel = np.full((n, robot.model.nv), 0.25)
    put(physics, qpos, qvel)
    physics.forward(ids)
    before = RobotState(*(x.copy() for x in physics.state))
    e = episodes(n, 0)
    e.until_push[:] = 1
    e.until_push[0], e.cause[1] = 2, Cause.TILT  # not yet, not any more
    ended = kernels.disturb(physics.simulated, physics.places, physics.state, Ranges.of(cfg, 1), ids, False, e)
    assert not len(ended)
    changed = np.flatnonzero((physics.qvel != qvel).any(axis=1))
    assert changed.tolist() == ids[2:].tolist()
    assert e.until_push[:2].tolist() == [1, 0]
    assert e.pushes.tolist() == [0, 0] + [1] * (n - 2)
    steps = e.until_push[2:]
    change = physics.qvel - qvel
    assert not change[:2].any()
    assert not change[:, 6:].any()
    assert np.abs(change[:, :3]).max(axis=0) == pytest.approx([0.5, 0.5, 0.2], rel=0.01)
    in_world = rotations.rotate(physics.qpos[:, 3:7], change[:, 3:6])
    assert np.abs(in_world).max(axis=0) == pytest.approx([0.52, 0.52, 0.78], rel=0.01)
    assert 50 <= steps.min() <= 52
    assert 148 <= steps.max() <= 150

    shown = physics.state.root_lin_vel_w.copy(), physics.state.gyro.copy()  # at once
    assert (shown[1][2:] != before.gyro[2:]).all()
    physics.forward(ids)
    assert shown[0] == pytest.approx(physics.state.root_lin_vel_w, abs=1e-6)
    assert shown[1] == pytest.approx(physics.state.gyro, abs=1e-6)


def test_first_pushes_come_within_the_interval(cfg):
    steps = np.array([kernels.first_push(Ranges.of(cfg, 1), env_id, 0) for env_id in MANY])
    assert 50 <= steps.min() <= 52
    assert 148 <= steps.max() <= 150


def test_first_time_limits_are_spread(cfg):
    limits = time_limits(cfg, MANY, 500)
    assert limits.min() >= 1
    assert limits.max() <= 500
    assert limits.mean() == pytest.approx(250, rel=0.05)
