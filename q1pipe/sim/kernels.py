"""The formulas of a control step, compiled: all that is done for each environment beside its physics.

Array by array, numpy took a sixth of collection: after each step of the physics nothing of it is in the processor's
caches, and every call costs some 10 µs before it does anything. Here each environment is worked out by itself, so its
results depend neither on the others nor on their number. Arithmetic is float64, but for actions and targets, which
are float32 on the robot.

What the columns are called is in the tables of `observations`, `rewards` and `terminations`; kernels write them in the
order of these tables.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from q1pipe.sim import draws, kinematics, turns
from q1pipe.sim.compiled import compiled

if TYPE_CHECKING:
    from q1pipe.sim.env import Episodes, StepBuffers
    from q1pipe.sim.physics import RobotState
    from q1pipe.sim.randomization import Ranges
    from q1pipe.sim.reference import ReferenceFrames, RobotConstants, Starts, Step
    from q1pipe.sim.rewards import Weights
    from q1pipe.sim.terminations import Limits

Array = NDArray[Any]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ids = NDArray[np.intp]


class Simulated(NamedTuple):
    """The arrays of `mujoco.batch.Batch` that a state is read from, float64, by MuJoCo's names."""

    qpos: Array
    qvel: Array
    xpos: Array
    xquat: Array
    cvel: Array
    subtree_com: Array
    sensordata: Array
    actuator_force: Array


class Places(NamedTuple):
    """Where in them.

    Attributes:
        qpos_adr: (J,) of the joints, in qpos.
        qvel_adr: (J,) of the joints, in qvel.
        actuators: (J,) ids.
        tracked: (Bt,) body ids.
        watched: (K,) body ids.
        root: body id.
        gyro: first of 3 in sensordata.
        imu: body id of what the gyroscope is mounted on.
        imu_quat: (4,) of the gyroscope in the body's frame.
        self_contact: first of 3 in sensordata.
    """

    qpos_adr: Ids
    qvel_adr: Ids
    actuators: Ids
    tracked: Ids
    watched: Ids
    root: int
    gyro: int
    imu: int
    imu_quat: Array
    self_contact: int


class Task(NamedTuple):
    """What a step needs beside the robots' states, in one piece: every array that is handed over costs half a µs.

    Attributes:
        simulated: the simulations.
        places: in them.
        warning: MuJoCo's, (n, kinds, 2), which ends in the numbers of its warnings so far.
        before: (n,) how many there were before the step.
        table: of `reference.Reference`.
        following: (T,) the frame after each one.
        weights: of the rewards.
        limits: of the terminations.
        ranges: of resets and pushes.
        env_ids: (n,) global numbers of the environments.
        episodes: where the environments are in them.
        time_limit: control steps of an episode.
        starts: what resets take from the clip.
        states: MuJoCo's, (n, nstate), whose parts are `qpos`, `qvel` and all else that the next step depends on.
        fresh: (nstate) before anything happened.
        tree: of the robot.
        geoms: of the robot.
    """

    simulated: Simulated
    places: Places
    warning: Array
    before: Array
    table: Floats
    following: Ids
    weights: Weights
    limits: Limits
    ranges: Ranges
    env_ids: Ids
    episodes: Episodes
    time_limit: int
    starts: Starts
    states: Array
    fresh: Array
    tree: kinematics.Tree
    geoms: kinematics.Geoms


@compiled
def read(simulated: Simulated, places: Places, ids: Ids, state: RobotState) -> None:
    """Read some robots, by their rows (k,), after a `forward`.

    It computes no accelerations: contact forces and torques there are some other simulation's, and stay as they were.
    """
    for i in ids:
        _read(simulated, places, i, state)


@compiled
def read_step(
    simulated: Simulated, places: Places, warning: Array, before: Array, state: RobotState, broken: Bools
) -> None:
    """Read all robots after a step.

    Args:
        simulated: what to read.
        places: where.
        warning: MuJoCo's, as in `Task`.
        before: as in `Task`.
        state: all of it is written.
        broken: (n,) written: had a new warning, or has a value that is not finite.
    """
    for i in range(len(broken)):
        _read(simulated, places, i, state)
        force, total = 0.0, 0.0
        for c in range(3):
            force += simulated.sensordata[i, places.self_contact + c] ** 2
        state.self_contact[i] = math.sqrt(force)
        for j in range(len(places.actuators)):
            state.torque[i, j] = simulated.actuator_force[i, places.actuators[j]]
        for q in simulated.qpos[i]:
            total += q
        for v in simulated.qvel[i]:
            total += v
        broken[i] = _warnings(warning[i]) > before[i] or not math.isfinite(total)


@compiled
def _read_joints(places: Places, qpos: Array, qvel: Array, i: int, state: RobotState) -> None:
    """Read what is in qpos (nq,) and qvel (nv,) themselves."""
    for j in range(len(places.qpos_adr)):
        state.joint_pos[i, j] = qpos[places.qpos_adr[j]]
        state.joint_vel[i, j] = qvel[places.qvel_adr[j]]
    for c in range(4):
        state.root_quat_w[i, c] = qpos[3 + c]
    for c in range(3):
        state.root_lin_vel_w[i, c] = qvel[c]


@compiled
def _show(pose: kinematics.Pose, places: Places, qpos: Array, qvel: Array, i: int, state: RobotState) -> None:
    """Write what observations show of a robot that was put where it is; no velocities of bodies, no forces."""
    _read_joints(places, qpos, qvel, i, state)
    seen = _by_gyroscope(places, pose.quat, turns.vector(pose.spin[places.imu]))
    for c in range(3):
        state.gyro[i, c] = seen[c]
    for b in range(len(places.tracked)):
        for c in range(3):
            state.body_pos_w[i, b, c] = pose.pos[places.tracked[b], c]
        for c in range(4):
            state.body_quat_w[i, b, c] = pose.quat[places.tracked[b], c]
    for k in range(len(places.watched)):
        state.watched_z[i, k] = pose.pos[places.watched[k], 2]


@compiled
def _by_gyroscope(places: Places, quat: Array, spin: turns.Vector) -> turns.Vector:
    """An angular velocity in the world, rad/s, as the gyroscope sees it, from the bodies' orientations (B, 4)."""
    mounted = turns.mul(turns.of(quat[places.imu]), turns.of(places.imu_quat))
    return turns.rotate(turns.conj(mounted), spin)


@compiled
def _read(simulated: Simulated, places: Places, i: int, state: RobotState) -> None:
    """`read` one robot."""
    _read_joints(places, simulated.qpos[i], simulated.qvel[i], i, state)
    com = simulated.subtree_com[i, places.root]
    for c in range(3):
        state.gyro[i, c] = simulated.sensordata[i, places.gyro + c]
    for b in range(len(places.tracked)):
        body = places.tracked[b]
        position, twist = simulated.xpos[i, body], simulated.cvel[i, body]
        for c in range(4):
            state.body_quat_w[i, b, c] = simulated.xquat[i, body, c]
        # cvel is (angular, linear) in world axes, linear at the robot's centre of mass: move it to the link
        moved = turns.cross(turns.vector(twist), turns.difference(position, com))
        for c in range(3):
            state.body_pos_w[i, b, c] = position[c]
            state.body_ang_vel_w[i, b, c] = twist[c]
            state.body_lin_vel_w[i, b, c] = twist[3 + c] + moved[c]
    for k in range(len(places.watched)):
        state.watched_z[i, k] = simulated.xpos[i, places.watched[k], 2]


@compiled
def count(warning: Array, out: Array) -> None:
    """Write the number of MuJoCo's warnings so far, (n,), from (n, kinds, 2), which ends in them."""
    for i in range(len(out)):
        out[i] = _warnings(warning[i])


@compiled
def _warnings(warning: Array) -> Any:
    """`count` of one simulation, (kinds, 2)."""
    total = 0
    for kind in range(len(warning)):
        total += warning[kind, 1]
    return total


@compiled
def aim(actions: Floats, s: Step, actuators: Ids, ctrl: Array, warning: Array, before: Array) -> None:
    """Before a step of the physics: take actions (n, J) as the last ones, and write the position targets they mean.

    Args:
        actions: float32, as on the robot; so is the arithmetic of targets.
        s: `action` and `previous_action` are written.
        actuators: (J,) ids.
        ctrl: MuJoCo's, (n, nu), written, rad.
        warning: MuJoCo's, as in `Task`.
        before: written, as in `Task`.
    """
    robot = s.robot
    count(warning, before)
    for i in range(len(actions)):
        for j in range(actions.shape[1]):
            s.previous_action[i, j] = s.action[i, j]
            s.action[i, j] = actions[i, j]
            target = robot.default_joint_pos[j] + robot.action_scale[j] * actions[i, j] - s.joint_zero[i, j]
            ctrl[i, actuators[j]] = target


@compiled
def settle(task: Task, s: Step, failed: Ids, renew: bool, bin_probs: Array, out: StepBuffers) -> None:
    """All that follows a step of the physics.

    In one piece, without a return to Python in between, which is in no cache any more after a step of the physics.

    Args:
        task: `episodes` and what is simulated go on.
        s: as in `judge`; the state is read first.
        failed: which simulations MuJoCo could not step, (m,).
        renew: whether episodes that ended begin anew.
        bin_probs: (bins,) distribution of where they do.
        out: written.
    """
    e = task.episodes
    read_step(task.simulated, task.places, task.warning, task.before, s.state, s.unstable)
    for i in failed:
        s.unstable[i] = True
    cut = judge(s, task.table, task.following, e, task.weights, task.limits, out)
    observe(s, cut, out.final_obs)
    ended = disturb(task.simulated, task.places, s.state, task.ranges, task.env_ids, renew, e)
    for i in ended:
        e.number[i] += 1
    begin(task, s, ended, start_frames(task.ranges, task.env_ids, e, ended, bin_probs, task.starts.at))
    observe(s, np.arange(len(s.action)), out.rows)


@compiled
def judge(
    s: Step, table: Floats, following: Ids, e: Episodes, weights: Weights, limits: Limits, out: StepBuffers
) -> Ids:
    """Go on by a frame, compare, find who has come to an end, reward; returns who was only cut off there, (k,).

    Args:
        s: the robots' new state; its `ref` is the frame that they have come to. `rel` and `ahead` are written.
        table: of `reference.Reference`.
        following: (T,) the frame after each one.
        e: where the environments are in their episodes; goes on by a step.
        weights: of the rewards.
        limits: of the terminations.
        out: all but the observations is written.
    """
    n, reward_col = len(e.frame), out.final_obs.shape[1]
    at_end, late, running = np.empty(n, np.bool_), np.empty(n, np.bool_), np.empty(n, np.bool_)
    cause, ids, cut = np.empty(n, np.int8), np.empty(n, np.intp), 0
    for i in range(n):
        running[i] = e.cause[i] == Cause.NONE
        e.frame[i] = following[e.frame[i]]
        at_end[i] = following[e.frame[i]] == e.frame[i]  # of the motion, or of a part of it that ends by a jump
        e.length[i] += running[i]
        late[i] = e.length[i] >= e.limit[i]
    look_up(table, following[e.frame], np.arange(n), s.ahead)
    relative(s.ref, s.state, s.robot.anchor, s.rel_pos_w, s.rel_quat_w)
    causes(s, limits, at_end, late, cause)
    rewards(s, weights, out.terms)
    for i in range(n):
        reward = np.float32(0)
        for term in range(out.terms.shape[1]):
            reward += out.terms[i, term]
        if running[i]:
            e.cause[i] = cause[i]
            e.total[i] += reward
        truncated = e.cause[i] >= Cause.MOTION_END
        if truncated and running[i]:
            ids[cut] = i
            cut += 1
        out.rows[i, reward_col] = reward
        out.rows[i, reward_col + 1] = e.cause[i] != Cause.NONE and not truncated
        out.rows[i, reward_col + 2] = truncated
        out.cause[i], out.frame[i], out.ep_len[i], out.ep_ret[i] = e.cause[i], e.frame[i], e.length[i], e.total[i]
    return ids[:cut]


@compiled
def disturb(
    simulated: Simulated, places: Places, state: RobotState, ranges: Ranges, env_ids: Ids, renew: bool, e: Episodes
) -> Ids:
    """Push whom it is time to push; returns whose episode has come to an end and begins anew, (k,).

    Args:
        simulated: what is pushed.
        places: in it.
        state: what observations show of a push is written: velocity of the root, gyroscope.
        ranges: no pushes if `ranges.push` is 0.
        env_ids: (n,) global numbers of the environments.
        renew: whether episodes that ended begin anew.
        e: where the environments are in their episodes; `until_push` and `pushes` change.
    """
    ended, k = np.empty(len(env_ids), np.intp), 0
    for i in range(len(env_ids)):
        if ranges.push > 0:
            e.until_push[i] -= 1
            if e.until_push[i] == 0 and e.cause[i] == Cause.NONE:
                e.until_push[i] = _push(simulated, places, state, i, ranges, env_ids[i], e.pushes[i])
                e.pushes[i] += 1
        if renew and e.cause[i] != Cause.NONE:
            ended[k] = i
            k += 1
    return ended[:k]


@compiled
def _push(
    simulated: Simulated, places: Places, state: RobotState, i: int, ranges: Ranges, env_id: int, count: int
) -> Any:
    """Kick the root of a robot, which was kicked so often before; returns the control steps until the next time.

    The whole robot goes and turns with its root at first, the gyroscope as well: no need for a `forward`.
    """
    key, change = draws.key(ranges.seed, draws.Purpose.PUSH, env_id, count), np.empty(6)
    qpos, qvel = simulated.qpos[i], simulated.qvel[i]
    for c in range(6):
        change[c] = ranges.push * draws.around(draws.draw(key, c), ranges.velocity[c])
    turning = turns.vector(change[3:])
    root = turns.rotate(turns.conj(turns.of(qpos[3:7])), turning)  # world -> body frame
    seen = _by_gyroscope(places, simulated.xquat[i], turning)
    for c in range(3):
        qvel[c] += change[c]
        qvel[3 + c] += root[c]
        state.root_lin_vel_w[i, c] = qvel[c]
        state.gyro[i, c] += seen[c]
    return _push_steps(draws.draw(key, 6), ranges)


@compiled
def first_push(ranges: Ranges, env_id: int, episode: int) -> Any:
    """Control steps from an episode's start to its first push."""
    return _push_steps(draws.draw(draws.key(ranges.seed, draws.Purpose.FIRST_PUSH, env_id, episode), 0), ranges)


@compiled
def _push_steps(u: float, ranges: Ranges) -> Any:
    """Control steps to the next push, at least one, from a uniform number."""
    return max(np.intp(np.rint((ranges.push_from + u * (ranges.push_to - ranges.push_from)) * ranges.control_hz)), 1)


@compiled
def start_frames(ranges: Ranges, env_ids: Ids, e: Episodes, ids: Ids, bin_probs: Array, at: Ids) -> Ids:
    """Frames that the next episodes of some environments start at, (k,): for a fixed share 0, else from the bins.

    Args:
        ranges: the share.
        env_ids: (n,) global numbers of the environments.
        e: for the number of each one's episode.
        ids: which, (k,).
        bin_probs: (bins,) distribution; the last frame is never drawn.
        at: (T,) the start frame at or before each frame.
    """
    out = np.zeros(len(ids), np.intp)
    for k, i in enumerate(ids):
        key = draws.key(ranges.seed, draws.Purpose.START, env_ids[i], e.number[i])
        if draws.draw(key, 0) >= ranges.from_start:
            out[k] = frame_in_bins(draws.draw(key, 1), draws.draw(key, 2), bin_probs, len(at))
        out[k] = at[out[k]]
    return out


@compiled
def frame_in_bins(u_bin: float, u_within: float, bin_probs: Array, frames: int) -> Any:
    """A frame from two uniform numbers: a bin by its probability, then evenly inside it; see `sampler.bin_of`."""
    bins, starts, total = len(bin_probs), max(frames - 1, 1), 0.0
    for p in bin_probs:
        total += p
    chosen, sum_so_far = 0, bin_probs[0]
    while chosen < bins - 1 and u_bin * total >= sum_so_far:
        chosen += 1
        sum_so_far += bin_probs[chosen]
    # the frames f of bin b are those with b <= f * bins / starts < b + 1
    first, after = -(-chosen * starts // bins), -(-(chosen + 1) * starts // bins)
    return min(first + np.intp(u_within * (after - first)), after - 1)


@compiled
def reset_state(
    ranges: Ranges,
    reference: Starts,
    robot: RobotConstants,
    env_id: int,
    episode: int,
    frame: int,
    qpos: Array,
    qvel: Array,
) -> None:
    """Write the reference's state at a frame, plus noise: qpos (nq,), qvel (nv,).

    Orientation noise turns the robot about the world's axes through its root. Joints stay inside their soft limits,
    except where the reference itself is beyond them. A geom may still be below the floor: see `begin`.
    """
    key, root, noise = draws.key(ranges.seed, draws.Purpose.RESET, env_id, episode), reference.root[frame], np.empty(6)
    for c in range(2):
        qpos[c] = root[c] + draws.around(draws.draw(key, c), ranges.xy)
    qpos[2] = root[2] + ranges.z_from + draws.draw(key, 2) * (ranges.z_to - ranges.z_from)
    roll, pitch = (
        draws.around(draws.draw(key, 3), ranges.roll_pitch),
        draws.around(draws.draw(key, 4), ranges.roll_pitch),
    )
    turn = turns.from_euler(roll, pitch, draws.around(draws.draw(key, 5), ranges.yaw))
    quat = turns.mul(turn, turns.of(root[3:7]))
    for c in range(4):
        qpos[3 + c] = quat[c]
    for c in range(6):
        noise[c] = draws.around(draws.draw(key, 6 + c), ranges.velocity[c])
    angular = (root[10] + noise[3], root[11] + noise[4], root[12] + noise[5])
    turning = turns.rotate(turns.conj(quat), angular)  # world -> body frame
    for c in range(3):
        qvel[c] = root[7 + c] + noise[c]
        qvel[3 + c] = turning[c]
    for j in range(len(robot.qpos_adr)):
        q = np.float64(reference.joint_pos[frame, j])
        low, high = min(robot.soft_limits[j, 0], q), max(robot.soft_limits[j, 1], q)
        qpos[robot.qpos_adr[j]] = min(max(q + draws.around(draws.draw(key, 12 + j), ranges.joint), low), high)
        qvel[robot.qvel_adr[j]] = reference.joint_vel[frame, j]


@compiled
def begin(task: Task, s: Step, ids: Ids, frames: Ids) -> None:
    """Put some environments (k,) at the start of an episode.

    A robot whose lowest geom would be below the floor is raised until it touches it: no solver is asked to undo a
    penetration, which would shoot the robot upward.

    Args:
        task: `states` and `episodes` are written, but for `number`.
        s: `ahead` and of the state what observations show are written.
        ids: which begin, (k,).
        frames: (k,) reference frames that they begin at.
    """
    e, ranges, robot = task.episodes, task.ranges, s.robot
    for k, i in enumerate(ids):
        qpos, qvel, env_id = task.simulated.qpos[i], task.simulated.qvel[i], task.env_ids[i]
        task.states[i] = task.fresh
        reset_state(ranges, task.starts, robot, env_id, e.number[i], frames[k], qpos, qvel)
        pose, lowest = kinematics.pose(task.tree, qpos, qvel), 0.0
        for g in range(len(task.geoms.body)):
            lowest = min(lowest, kinematics.height(pose.pos, pose.quat, task.geoms, g))
        qpos[2] -= lowest
        pose.pos[1:, 2] -= lowest
        _show(pose, task.places, qpos, qvel, i, s.state)
        e.frame[i], e.length[i], e.total[i], e.cause[i] = frames[k], 0, 0, Cause.NONE
        e.limit[i], e.until_push[i] = task.time_limit, first_push(ranges, env_id, e.number[i])
        for j in range(len(robot.qpos_adr)):
            # As if the robot had been held where it is: action 0 would be the default pose, far from a robot that lies
            measured = qpos[robot.qpos_adr[j]] + s.joint_zero[i, j]
            e.action[i, j] = (measured - robot.default_joint_pos[j]) / robot.action_scale[j]
    if len(ids):
        look_up(task.table, task.following[e.frame], ids, s.ahead)


@compiled
def look_up(table: Floats, frames: Ids, ids: Ids, out: ReferenceFrames) -> None:
    """Write the reference of some environments (k,), each at its frame (n,), from a table (T, columns of out)."""
    n = len(frames)
    pos, quat = out.body_pos_w.reshape(n, -1), out.body_quat_w.reshape(n, -1)
    lin_vel, ang_vel = out.body_lin_vel_w.reshape(n, -1), out.body_ang_vel_w.reshape(n, -1)
    for i in ids:
        row, at = table[frames[i]], 0
        at = _copy(row, at, out.joint_pos, i)
        at = _copy(row, at, out.joint_vel, i)
        at = _copy(row, at, pos, i)
        at = _copy(row, at, quat, i)
        at = _copy(row, at, lin_vel, i)
        at = _copy(row, at, ang_vel, i)
        at = _copy(row, at, out.watched_z, i)


@compiled
def _copy(row: Floats, at: int, out: Floats, i: int) -> int:
    """Copy columns of a row that begin somewhere into row i of out; returns the next one."""
    for c in range(out.shape[1]):
        out[i, c] = row[at + c]
    return at + out.shape[1]


@compiled
def relative(ref: ReferenceFrames, state: RobotState, anchor: int, pos: Floats, quat: Floats) -> None:
    """Write the `rel` reference, (n, Bt, 3) m and (n, Bt, 4); see `reference.relative`."""
    for i in range(len(pos)):
        ref_anchor, ref_anchor_quat = ref.body_pos_w[i, anchor], turns.of(ref.body_quat_w[i, anchor])
        robot_anchor, robot_anchor_quat = state.body_pos_w[i, anchor], turns.of(state.body_quat_w[i, anchor])
        turn = turns.yaw(turns.mul(robot_anchor_quat, turns.conj(ref_anchor_quat)))
        for b in range(pos.shape[1]):
            x, y, z = turns.rotate(turn, turns.difference(ref.body_pos_w[i, b], ref_anchor))
            pos[i, b, 0] = robot_anchor[0] + x
            pos[i, b, 1] = robot_anchor[1] + y
            pos[i, b, 2] = ref_anchor[2] + z
            turned = turns.mul(turn, turns.of(ref.body_quat_w[i, b]))
            for c in range(4):
                quat[i, b, c] = turned[c]


@compiled
def departures(s: Step, tilt_z: bool, out: Array) -> None:
    """Write how far robots are from the reference, (n, 2 + K); see `terminations.departures`."""
    for i in range(len(out)):
        _departure(s, i, tilt_z, out[i])


@compiled
def _departure(s: Step, i: int, tilt_z: bool, out: Array) -> None:
    """`departures` of one robot, (2 + K)."""
    state, ref, anchor = s.state, s.ref, s.robot.anchor
    out[0] = abs(ref.body_pos_w[i, anchor, 2] - state.body_pos_w[i, anchor, 2])
    up, ref_up = (
        turns.up(turns.of(state.body_quat_w[i, anchor])),
        turns.up(turns.of(ref.body_quat_w[i, anchor])),
    )
    x, y, z = ref_up[0] - up[0], ref_up[1] - up[1], ref_up[2] - up[2]  # gravity is minus up
    out[1] = abs(z) if tilt_z else math.sqrt(x * x + y * y + z * z)
    for k in range(state.watched_z.shape[1]):
        out[2 + k] = abs(ref.watched_z[i, k] - state.watched_z[i, k])


class Cause(IntEnum):
    """Numbers of the causes of an episode's end, as the `cause` arrays hold them; the first that holds counts."""

    NONE = 0
    ANCHOR_Z = 1
    TILT = 2
    BODY_Z = 3
    SIM_UNSTABLE = 4
    MOTION_END = 5
    TIME_OUT = 6


@compiled
def causes(s: Step, limits: Limits, motion_end: Bools, time_out: Bools, out: NDArray[np.int8]) -> None:
    """Write the cause of each environment's end, (n,); see `terminations.causes`."""
    values = np.empty(len(limits.values))
    for i in range(len(out)):
        _departure(s, i, limits.tilt_z, values)
        watched = False
        for k in range(2, len(values)):
            watched |= values[k] > limits.values[k]
        if s.unstable[i]:
            out[i] = Cause.SIM_UNSTABLE
        elif values[0] > limits.values[0]:
            out[i] = Cause.ANCHOR_Z
        elif values[1] > limits.values[1]:
            out[i] = Cause.TILT
        elif watched:
            out[i] = Cause.BODY_Z
        elif motion_end[i]:
            out[i] = Cause.MOTION_END
        else:
            out[i] = Cause.TIME_OUT if time_out[i] else Cause.NONE


@compiled
def rewards(s: Step, weights: Weights, out: Floats) -> None:
    """Write weight · value of each reward term, (n, 9), `rewards.REWARD_TERMS` order; 0 where the simulation broke."""
    for i in range(len(out)):
        values = (
            _root_pos(s, i),
            _root_ori(s, i),
            _body_pos(s, i),
            _body_ori(s, i),
            _body_lin_vel(s, i),
            _body_ang_vel(s, i),
        )
        for term in range(6):
            out[i, term] = weights.weight[term] * math.exp(-values[term] / weights.sigma[term] ** 2)
        out[i, 6] = weights.weight[6] * _action_rate(s, i)
        out[i, 7] = weights.weight[7] * _joint_limit(s, i)
        out[i, 8] = weights.weight[8] * (s.state.self_contact[i] > weights.contact_force)
        if s.unstable[i]:
            out[i] = 0


@compiled
def _root_pos(s: Step, i: int) -> float:
    """‖p_ref − p‖² of the anchor, world."""
    return turns.squared(turns.difference(s.ref.body_pos_w[i, s.robot.anchor], s.state.body_pos_w[i, s.robot.anchor]))


@compiled
def _root_ori(s: Step, i: int) -> float:
    """angle² between the anchors, world."""
    a, b = s.ref.body_quat_w[i, s.robot.anchor], s.state.body_quat_w[i, s.robot.anchor]
    return turns.angle_between(turns.of(a), turns.of(b)) ** 2


@compiled
def _body_pos(s: Step, i: int) -> float:
    """Mean over bodies of ‖p_rel − p‖²."""
    return _mean_squared(s.rel_pos_w[i], s.state.body_pos_w[i])


@compiled
def _body_ori(s: Step, i: int) -> float:
    """Mean over bodies of angle(q_rel, q)²."""
    total, bodies = 0.0, s.rel_quat_w.shape[1]
    for b in range(bodies):
        total += turns.angle_between(turns.of(s.rel_quat_w[i, b]), turns.of(s.state.body_quat_w[i, b])) ** 2
    return total / bodies


@compiled
def _body_lin_vel(s: Step, i: int) -> float:
    """Mean over bodies of ‖v_ref − v‖², link origins, world."""
    return _mean_squared(s.ref.body_lin_vel_w[i], s.state.body_lin_vel_w[i])


@compiled
def _body_ang_vel(s: Step, i: int) -> float:
    """Mean over bodies of ‖ω_ref − ω‖², world."""
    return _mean_squared(s.ref.body_ang_vel_w[i], s.state.body_ang_vel_w[i])


@compiled
def _action_rate(s: Step, i: int) -> float:
    """Σ (a_t − a_{t−1})², raw actions; before an episode's first step, the action that holds the robot where it is."""
    total = 0.0
    for j in range(s.action.shape[1]):
        total += (s.action[i, j] - s.previous_action[i, j]) ** 2
    return total


@compiled
def _joint_limit(s: Step, i: int) -> float:
    """Σ over joints of how far they are beyond their soft limits, rad."""
    total = 0.0
    for j in range(len(s.robot.soft_limits)):
        q = s.state.joint_pos[i, j]
        total += max(s.robot.soft_limits[j, 0] - q, 0.0) + max(q - s.robot.soft_limits[j, 1], 0.0)
    return total


@compiled
def observe(s: Step, ids: Ids, out: Floats) -> None:
    """Write what some environments (k,) show, into the first columns of their rows of out (n, critic_dim or more).

    The columns are those of `observations.ACTOR_TERMS` and `CRITIC_TERMS`, in order.
    """
    joints, anchor = s.action.shape[1], s.robot.anchor
    state, ahead = s.state, s.ahead
    for i in ids:
        to = out[i]
        origin, quat = state.body_pos_w[i, anchor], turns.of(state.body_quat_w[i, anchor])
        inverse = turns.conj(quat)
        for j in range(joints):
            to[j] = ahead.joint_pos[i, j]
            to[joints + j] = ahead.joint_vel[i, j]
        at = 2 * joints
        at = _put6(to, at, turns.six(turns.mul(inverse, turns.of(ahead.body_quat_w[i, anchor]))))
        for c in range(3):
            to[at + c] = state.gyro[i, c]
        at += 3
        for j in range(joints):
            to[at + j] = state.joint_pos[i, j] + s.joint_zero[i, j] - s.robot.default_joint_pos[j]
            to[at + joints + j] = state.joint_vel[i, j]
            to[at + 2 * joints + j] = s.action[i, j]
        at += 3 * joints
        at = _put3(to, at, turns.rotate(inverse, turns.difference(ahead.body_pos_w[i, anchor], origin)))
        root, velocity = turns.of(state.root_quat_w[i]), state.root_lin_vel_w[i]
        at = _put3(to, at, turns.rotate(turns.conj(root), turns.vector(velocity)))
        for b in range(state.body_pos_w.shape[1]):
            at = _put3(to, at, turns.rotate(inverse, turns.difference(state.body_pos_w[i, b], origin)))
        for b in range(state.body_quat_w.shape[1]):
            at = _put6(to, at, turns.six(turns.mul(inverse, turns.of(state.body_quat_w[i, b]))))


@compiled
def _put3(to: Floats, at: int, v: turns.Vector) -> int:
    """Write three columns; returns the next one."""
    to[at], to[at + 1], to[at + 2] = v
    return at + 3


@compiled
def _put6(to: Floats, at: int, v: tuple[float, ...]) -> int:
    """Write six columns; returns the next one."""
    to[at], to[at + 1], to[at + 2], to[at + 3], to[at + 4], to[at + 5] = v
    return at + 6


@compiled
def _mean_squared(a: Floats, b: Floats) -> float:
    """Mean over bodies of ‖a − b‖², (Bt, 3) each."""
    total = 0.0
    for body in range(len(a)):
        total += turns.squared(turns.difference(a[body], b[body]))
    return total / len(a)
