import mujoco
import numpy as np
import pytest

from q1pipe.sim.physics import Physics, RobotState
from tests.simulation import control_step, put


@pytest.fixture
def physics(robot, cfg):
    return Physics(robot, cfg, 3)


def stand(physics, height=0.0):
    """Put every robot upright in the default pose, some height above the floor."""
    robot, n = physics.robot, physics.num_envs
    root_pos = np.tile([0, 0, robot.default_root_height + height], (n, 1))
    qpos = robot.qpos(root_pos, np.tile([1.0, 0, 0, 0], (n, 1)), np.tile(robot.default_joint_pos, (n, 1)))
    put(physics, qpos, 0)
    physics.forward(np.arange(n))


def shake(physics, steps, seed=0):
    rng = np.random.default_rng(seed)
    default = physics.robot.default_joint_pos
    for _ in range(steps):
        noise = rng.uniform(-0.3, 0.3, (physics.num_envs, len(default)))
        control_step(physics, (default + noise).astype(np.float32))


def test_the_state_is_that_of_the_newest_positions_and_velocities(physics, robot):
    stand(physics)
    shake(physics, 7)
    state, model = physics.state, robot.model
    for i in range(physics.num_envs):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = physics.qpos[i], physics.qvel[i]
        mujoco.mj_forward(model, data)
        assert np.abs(data.qvel).max() > 0.5
        assert state.body_pos_w[i] == pytest.approx(data.xpos[robot.tracked], abs=1e-6)
        assert state.body_quat_w[i] == pytest.approx(data.xquat[robot.tracked], abs=1e-6)
        for row, body in enumerate(robot.tracked):
            velocity = np.empty(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
            assert state.body_ang_vel_w[i, row] == pytest.approx(velocity[:3], abs=1e-5)
            assert state.body_lin_vel_w[i, row] == pytest.approx(velocity[3:], abs=1e-5)
        assert state.gyro[i] == pytest.approx(data.sensordata[robot.gyro], abs=1e-5)
        assert state.joint_pos[i] == pytest.approx(data.qpos[robot.qpos_adr], abs=1e-6)
        assert state.joint_vel[i] == pytest.approx(data.qvel[robot.qvel_adr], abs=1e-5)
        assert state.root_lin_vel_w[i] == pytest.approx(state.body_lin_vel_w[i, 0], abs=1e-5)


def test_the_gyroscope_and_the_free_joint_are_in_the_body_frame(physics, robot, about):
    stand(physics, height=1)
    physics.qpos[0, 3:7] = about("y", 90)  # the body's x points down
    physics.qvel[0, 3:6] = [0, 0, 2]  # about the body's z, which is the world's x
    physics.forward(np.array([0]))
    assert physics.state.gyro[0] == pytest.approx([0, 0, 2], abs=1e-6)
    assert physics.state.body_ang_vel_w[0, 0] == pytest.approx([2, 0, 0], abs=1e-6)


def test_a_control_step_is_four_substeps_of_five_ms(physics):
    stand(physics)
    shake(physics, 3)
    assert physics.batch.time == pytest.approx([0.06] * 3)
    assert physics.batch.model.opt.timestep == pytest.approx(0.005)


def test_targets_go_to_the_actuators_of_their_joints(physics, robot):
    stand(physics, height=1)
    target = np.tile(robot.default_joint_pos, (3, 1)).astype(np.float32)
    target[1, 3] += 0.3
    for _ in range(15):
        control_step(physics, target)
    moved = physics.state.joint_pos - physics.state.joint_pos[0]
    assert np.abs(moved[1]).argmax() == 3
    assert moved[1, 3] == pytest.approx(0.3, abs=0.1)
    assert not moved[2].any()


def test_torque_is_what_the_actuators_gave(physics, robot):
    stand(physics)
    control_step(physics, np.tile(robot.default_joint_pos + 3, (3, 1)).astype(np.float32))
    assert physics.state.torque.shape == (3, len(robot.joint_names))
    assert physics.state.torque[0] == pytest.approx(robot.effort)


def test_self_contact_is_the_force_between_parts_of_the_robot(physics, robot):
    stand(physics, height=1)
    shake(physics, 1)
    assert not physics.state.self_contact.any()
    target = robot.default_joint_pos.copy()
    target[robot.joint_names.index("left_hip_roll_joint")] = -0.5
    target[robot.joint_names.index("right_hip_roll_joint")] = 0.5
    for _ in range(25):
        control_step(physics, np.tile(target, (3, 1)).astype(np.float32))
    assert (physics.state.self_contact > 10).all()


def test_a_new_simulation_has_nothing_of_the_past(physics, robot):
    def fall():
        stand(physics)
        shake(physics, 5, seed=1)
        return physics.save()

    first = fall()
    shake(physics, 20, seed=2)
    assert (fall() == first).all()


def test_a_loaded_state_goes_on_bit_for_bit(robot, cfg, physics):
    stand(physics)
    shake(physics, 10)
    saved = physics.save()
    seen = RobotState(*(x.copy() for x in physics.state))
    shake(physics, 10, seed=5)

    other = Physics(robot, cfg, 3)
    other.load(saved)
    for name, array in seen._asdict().items():
        if name not in ("self_contact", "torque"):  # they belong to the step before
            assert (getattr(other.state, name) == array).all(), name
    shake(other, 10, seed=5)
    assert (other.save() == physics.save()).all()
    for name, array in physics.state._asdict().items():
        assert (getattr(other.state, name) == array).all(), name


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e12])
def test_broken_physics_is_noticed_although_mujoco_hides_it(physics, bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stand(physics)
    physics.qvel[1, 8] = bad
    shake(physics, 1)
    assert physics.unstable.tolist() == [False, True, False]
    assert np.isfinite(physics.state.body_pos_w).all()  # MuJoCo reset it
    shake(physics, 1)
    assert not physics.unstable.any()
    assert list(tmp_path.iterdir()) == []  # no MUJOCO_LOG.TXT


def test_actions_that_are_no_numbers_are_noticed(physics, robot):
    stand(physics)
    target = np.tile(robot.default_joint_pos, (3, 1)).astype(np.float32)
    target[2, 0] = np.nan
    control_step(physics, target)
    assert physics.unstable.tolist() == [False, False, True]


def test_geom_heights_are_those_of_mujocos_geoms(physics, robot):
    stand(physics)
    shake(physics, 5)
    data = physics.batch.get_data(1)
    mujoco.mj_kinematics(physics.batch.model, data)
    assert physics.geom_heights()[1] == pytest.approx(robot.lowest(data), abs=1e-9)


def test_standing_feet_touch_the_floor_and_nothing_else(physics, robot):
    stand(physics)
    for _ in range(25):
        control_step(physics, np.tile(robot.default_joint_pos, (3, 1)).astype(np.float32))
    touching = physics.touches_floor(0.002)
    assert touching.shape == (3, len(robot.body_names))
    for row in touching:
        assert [robot.body_names[i] for i in np.flatnonzero(row)] == ["left_ankle_roll_link", "right_ankle_roll_link"]
    stand(physics, height=0.1)
    assert not physics.touches_floor(0.002).any()
