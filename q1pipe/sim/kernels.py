"""The formulas of a control step, compiled: all that is done for each environment beside its physics.

Array by array, numpy took a sixth of collection: after each step of the physics nothing of it is in the processor's
caches, and every call costs some 10 µs before it does anything. Here each environment is worked out by itself, so its
results depend neither on the others nor on their number. Arithmetic is float64, but for actions and targets, which
are float32 on the robot.

What the columns are called is in the tables of `observations`, `rewards` and `terminations`; kernels write them in the
order of these tables. `rotations` has the same quaternion formulas for arrays; they are wxyz, of unit length.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


# Of all that kernels are made of: numba looks at the file of a kernel alone, not at those of what it calls, and takes
# the fields of a NamedTuple for what they were
_SOURCES = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call; kept in __pycache__, or the user's cache, where one of them can be written to."""
    function.__qualname__ += f"-{_SOURCES}"  # part of the name of the file that it is kept in
    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "no locator available": each process compiles for itself
        return njit(error_model="numpy")(function)


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
        self_contact: first of 3 in sensordata.
    """

    qpos_adr: Ids
    qvel_adr: Ids
    actuators: Ids
    tracked: Ids
    watched: Ids
    root: int
    gyro: int
    self_contact: int


@compiled
def read(simulated: Simulated, places: Places, ids: Ids, stepped: bool, state: RobotState) -> None:
    """Read some robots, by their rows (k,).

    Contact forces and torques are read after a step only: a `forward` computes no accelerations, and leaves some other
    simulation's there.
    """
    for i in ids:
        qpos, qvel, com = simulated.qpos[i], simulated.qvel[i], simulated.subtree_com[i, places.root]
        for j in range(len(places.qpos_adr)):
            state.joint_pos[i, j] = qpos[places.qpos_adr[j]]
            state.joint_vel[i, j] = qvel[places.qvel_adr[j]]
        for c in range(4):
            state.root_quat_w[i, c] = qpos[3 + c]
        for c in range(3):
            state.root_lin_vel_w[i, c] = qvel[c]
            state.gyro[i, c] = simulated.sensordata[i, places.gyro + c]
        for b in range(len(places.tracked)):
            body = places.tracked[b]
            position, twist = simulated.xpos[i, body], simulated.cvel[i, body]
            for c in range(4):
                state.body_quat_w[i, b, c] = simulated.xquat[i, body, c]
            # cvel is (angular, linear) in world axes, linear at the robot's centre of mass: move it to the link
            moved = _cross(_vector(twist), _difference(position, com))
            for c in range(3):
                state.body_pos_w[i, b, c] = position[c]
                state.body_ang_vel_w[i, b, c] = twist[c]
                state.body_lin_vel_w[i, b, c] = twist[3 + c] + moved[c]
        for k in range(len(places.watched)):
            state.watched_z[i, k] = simulated.xpos[i, places.watched[k], 2]
        if stepped:
            force = 0.0
            for c in range(3):
                force += simulated.sensordata[i, places.self_contact + c] ** 2
            state.self_contact[i] = math.sqrt(force)
            for j in range(len(places.actuators)):
                state.torque[i, j] = simulated.actuator_force[i, places.actuators[j]]


@compiled
def count(warning: Array, out: Array) -> None:
    """Write the number of MuJoCo's warnings so far, (n,), from (n, kinds, 2), which ends in them."""
    for i in range(len(out)):
        out[i] = 0
        for kind in range(warning.shape[1]):
            out[i] += warning[i, kind, 1]


@compiled
def broken(simulated: Simulated, warning: Array, before: Array, out: Bools) -> None:
    """Write which simulations had a warning more than before (n,), or have a value that is not finite, (n,)."""
    for i in range(len(out)):
        total, warnings = 0.0, 0
        for q in simulated.qpos[i]:
            total += q
        for v in simulated.qvel[i]:
            total += v
        for kind in range(warning.shape[1]):
            warnings += warning[i, kind, 1]
        out[i] = warnings > before[i] or not math.isfinite(total)


class Geoms(NamedTuple):
    """Collision geoms: each the sum of a ball, a box and an ellipsoid, any of which may be flat, and of a mesh.

    Attributes:
        body: (G,) body ids.
        pos: (G, 3) m in the body's frame.
        quat: (G, 4).
        ball: (G,) m, radius.
        box: (G, 3) m, half sizes.
        ellipsoid: (G, 3) m, half axes.
        first_vertex: (G,) of the mesh's vertices.
        vertex_count: (G,) of them; 0: it has no mesh.
        vertices: (V, 3) m in the mesh's frame.
        floor: m, height of the floor.
    """

    body: Ids
    pos: Array
    quat: Array
    ball: Array
    box: Array
    ellipsoid: Array
    first_vertex: Ids
    vertex_count: Ids
    vertices: Array
    floor: float


@compiled
def heights(simulated: Simulated, geoms: Geoms, out: Array) -> None:
    """Write the height of the lowest point of each geom above the floor, (n, G) m; as `geometry.lowest_points`."""
    for i in range(len(out)):
        for g in range(len(geoms.body)):
            out[i, g] = _height(simulated.xpos[i], simulated.xquat[i], geoms, g)


@compiled
def lift(simulated: Simulated, geoms: Geoms, ids: Ids) -> Ids:
    """Raise those of some robots (k,) whose lowest geom is below the floor until it touches it; returns who was."""
    raised = np.empty(len(ids), np.intp)
    k = 0
    for i in ids:
        lowest = 0.0
        for g in range(len(geoms.body)):
            lowest = min(lowest, _height(simulated.xpos[i], simulated.xquat[i], geoms, g))
        if lowest < 0:
            simulated.qpos[i, 2] -= lowest
            raised[k] = i
            k += 1
    return raised[:k]


@compiled
def _height(xpos: Array, xquat: Array, geoms: Geoms, g: int) -> Any:
    """Height of the lowest point of a geom above the floor, m, from body poses (nbody, 3) m and (nbody, 4)."""
    quat = _quaternion(xquat[geoms.body[g]])
    z = xpos[geoms.body[g], 2] + _rotate(quat, _vector(geoms.pos[g]))[2]
    up, box, ellipsoid = _up(_mul(quat, _quaternion(geoms.quat[g]))), geoms.box[g], geoms.ellipsoid[g]
    depth, flattened = geoms.ball[g], 0.0
    for c in range(3):
        depth += abs(up[c]) * box[c]
        flattened += (up[c] * ellipsoid[c]) ** 2
    depth += math.sqrt(flattened)
    if geoms.vertex_count[g]:
        reach = -math.inf
        for v in range(geoms.first_vertex[g], geoms.first_vertex[g] + geoms.vertex_count[g]):
            vertex = geoms.vertices[v]
            reach = max(reach, -up[0] * vertex[0] - up[1] * vertex[1] - up[2] * vertex[2])
        depth += reach
    return z - depth - geoms.floor


@compiled
def aim(actions: Floats, s: Step, target: Floats) -> None:
    """Take actions (n, J) as the last ones and write the position targets that they mean, (n, J) rad."""
    robot, joint_zero = s.robot, s.joint_zero
    for i in range(len(actions)):
        for j in range(actions.shape[1]):
            s.previous_action[i, j] = s.action[i, j]
            s.action[i, j] = actions[i, j]
            target[i, j] = robot.default_joint_pos[j] + robot.action_scale[j] * actions[i, j] - joint_zero[i, j]


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
def disturb(simulated: Simulated, ranges: Ranges, env_ids: Ids, renew: bool, e: Episodes) -> tuple[Ids, Ids]:
    """Push whom it is time to push; returns who was pushed or has come to an end, (k,), and the latter alone, (m,).

    Args:
        simulated: their `qvel` changes.
        ranges: no pushes if `ranges.push` is 0.
        env_ids: (n,) global numbers of the environments.
        renew: whether episodes that ended begin anew.
        e: where the environments are in their episodes; `until_push` and `pushes` change.
    """
    changed, ended = np.empty(len(env_ids), np.intp), np.empty(len(env_ids), np.intp)
    k = m = 0
    for i in range(len(env_ids)):
        due = False
        if ranges.push > 0:
            e.until_push[i] -= 1
            due = e.until_push[i] == 0 and e.cause[i] == Cause.NONE
        if due:
            push(simulated.qpos[i], simulated.qvel[i], ranges, env_ids[i], e.pushes[i])
            e.until_push[i] = _push_steps(_draw(_key(ranges.seed, Purpose.PUSH, env_ids[i], e.pushes[i]), 6), ranges)
            e.pushes[i] += 1
        over = renew and e.cause[i] != Cause.NONE
        if over:
            ended[m] = i
            m += 1
        if due or over:
            changed[k] = i
            k += 1
    return changed[:k], ended[:m]


@compiled
def push(qpos: Array, qvel: Array, ranges: Ranges, env_id: int, count: int) -> None:
    """Kick the root of a robot, which was kicked so often before."""
    key, change = _key(ranges.seed, Purpose.PUSH, env_id, count), np.empty(6)
    for c in range(6):
        change[c] = ranges.push * _around(_draw(key, c), ranges.velocity[c])
    turn = _rotate(_conj(_quaternion(qpos[3:7])), _vector(change[3:]))  # world -> body frame
    for c in range(3):
        qvel[c] += change[c]
        qvel[3 + c] += turn[c]


@compiled
def first_push(ranges: Ranges, env_id: int, episode: int) -> Any:
    """Control steps from an episode's start to its first push."""
    return _push_steps(_draw(_key(ranges.seed, Purpose.FIRST_PUSH, env_id, episode), 0), ranges)


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
        key = _key(ranges.seed, Purpose.START, env_ids[i], e.number[i])
        if _draw(key, 0) >= ranges.from_start:
            out[k] = frame_in_bins(_draw(key, 1), _draw(key, 2), bin_probs, len(at))
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
    except where the reference itself is beyond them. A geom may still be below the floor: see
    `Physics.lift_out_of_floor`.
    """
    key, root, noise = _key(ranges.seed, Purpose.RESET, env_id, episode), reference.root[frame], np.empty(6)
    for c in range(2):
        qpos[c] = root[c] + _around(_draw(key, c), ranges.xy)
    qpos[2] = root[2] + ranges.z_from + _draw(key, 2) * (ranges.z_to - ranges.z_from)
    roll, pitch = (_around(_draw(key, 3), ranges.roll_pitch), _around(_draw(key, 4), ranges.roll_pitch))
    turn = _from_euler(roll, pitch, _around(_draw(key, 5), ranges.yaw))
    quat = _mul(turn, _quaternion(root[3:7]))
    for c in range(4):
        qpos[3 + c] = quat[c]
    for c in range(6):
        noise[c] = _around(_draw(key, 6 + c), ranges.velocity[c])
    angular = (root[10] + noise[3], root[11] + noise[4], root[12] + noise[5])
    turning = _rotate(_conj(quat), angular)  # world -> body frame
    for c in range(3):
        qvel[c] = root[7 + c] + noise[c]
        qvel[3 + c] = turning[c]
    for j in range(len(robot.qpos_adr)):
        q = np.float64(reference.joint_pos[frame, j])
        low, high = min(robot.soft_limits[j, 0], q), max(robot.soft_limits[j, 1], q)
        qpos[robot.qpos_adr[j]] = min(max(q + _around(_draw(key, 12 + j), ranges.joint), low), high)
        qvel[robot.qvel_adr[j]] = reference.joint_vel[frame, j]


@compiled
def begin(
    ranges: Ranges,
    reference: Starts,
    robot: RobotConstants,
    joint_zero: Floats,
    env_ids: Ids,
    ids: Ids,
    frames: Ids,
    e: Episodes,
    simulated: Simulated,
) -> None:
    """Put some environments (k,) at the start of an episode.

    Args:
        ranges: of the noise.
        reference: of the clip.
        robot: of it.
        joint_zero: (n, J) rad, encoder offset.
        env_ids: (n,) global numbers of the environments.
        ids: which begin, (k,).
        frames: (k,) reference frames that they begin at.
        e: where the environments are in their episodes; `number` is only read, `limit` is the caller's.
        simulated: `qpos` and `qvel` are written.
    """
    for k, i in enumerate(ids):
        qpos = simulated.qpos[i]
        reset_state(ranges, reference, robot, env_ids[i], e.number[i], frames[k], qpos, simulated.qvel[i])
        e.frame[i], e.length[i], e.total[i], e.cause[i] = frames[k], 0, 0, Cause.NONE
        e.until_push[i] = first_push(ranges, env_ids[i], e.number[i])
        for j in range(len(robot.qpos_adr)):
            # As if the robot had been held where it is: action 0 would be the default pose, far from a robot that lies
            measured = qpos[robot.qpos_adr[j]] + joint_zero[i, j]
            e.action[i, j] = (measured - robot.default_joint_pos[j]) / robot.action_scale[j]


@compiled
def uniform(seed: np.uint64, purpose: int, env_ids: Ids, count: Ids, out: Array) -> None:
    """Write uniform numbers in [0, 1), (n, width); see `randomization.uniform`."""
    for i in range(len(out)):
        key = _key(seed, purpose, env_ids[i], count[i])
        for column in range(out.shape[1]):
            out[i, column] = _draw(key, column)


_GOLDEN, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)


class Purpose(IntEnum):
    """What random numbers are for; numbers of different purposes are independent."""

    DOMAIN = 1
    START = 2
    RESET = 3
    FIRST_PUSH = 4
    PUSH = 5
    FIRST_LIMIT = 6


@compiled
def _key(seed: np.uint64, purpose: int, env_id: int, count: int) -> np.uint64:
    """What a series of numbers depends on, as one word."""
    key = _mix(seed + _GOLDEN * np.uint64(purpose))
    key = _mix(key + _GOLDEN * (np.uint64(env_id) + _ONE))
    return _mix(key + _GOLDEN * (np.uint64(count) + _ONE))


@compiled
def _draw(key: np.uint64, column: int) -> float:
    """A number of a series, in [0, 1)."""
    return np.float64(_mix(key + _GOLDEN * np.uint64(column + 1)) >> np.uint64(11)) * 2.0**-53


@compiled
def _mix(x: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64: a bijection that turns counters into noise. Overflow is meant."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _around(u: float, half: float) -> float:
    """Map [0, 1) to ± half."""
    return (2 * u - 1) * half


@compiled
def look_up(table: Floats, frames: Ids, ids: Ids, out: ReferenceFrames) -> None:
    """Write the reference of some environments (k,), each at its frame (n,), from a table (T, columns of out)."""
    for i in ids:
        row, at = table[frames[i]], 0
        at = _copy(row, at, out.joint_pos[i])
        at = _copy(row, at, out.joint_vel[i])
        at = _copy(row, at, out.body_pos_w[i].reshape(-1))
        at = _copy(row, at, out.body_quat_w[i].reshape(-1))
        at = _copy(row, at, out.body_lin_vel_w[i].reshape(-1))
        at = _copy(row, at, out.body_ang_vel_w[i].reshape(-1))
        at = _copy(row, at, out.watched_z[i])


@compiled
def _copy(row: Floats, at: int, out: Floats) -> int:
    """Copy columns of a row that begin somewhere; returns the next one."""
    for c in range(len(out)):
        out[c] = row[at + c]
    return at + len(out)


@compiled
def relative(ref: ReferenceFrames, state: RobotState, anchor: int, pos: Floats, quat: Floats) -> None:
    """Write the `rel` reference, (n, Bt, 3) m and (n, Bt, 4); see `reference.relative`."""
    for i in range(len(pos)):
        ref_anchor, ref_anchor_quat = ref.body_pos_w[i, anchor], _quaternion(ref.body_quat_w[i, anchor])
        robot_anchor, robot_anchor_quat = state.body_pos_w[i, anchor], _quaternion(state.body_quat_w[i, anchor])
        turn = _yaw(_mul(robot_anchor_quat, _conj(ref_anchor_quat)))
        for b in range(pos.shape[1]):
            x, y, z = _rotate(turn, _difference(ref.body_pos_w[i, b], ref_anchor))
            pos[i, b, 0] = robot_anchor[0] + x
            pos[i, b, 1] = robot_anchor[1] + y
            pos[i, b, 2] = ref_anchor[2] + z
            turned = _mul(turn, _quaternion(ref.body_quat_w[i, b]))
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
    up, ref_up = _up(_quaternion(state.body_quat_w[i, anchor])), _up(_quaternion(ref.body_quat_w[i, anchor]))
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
    """Write weight · value of each reward term, (n, 9), `rewards.REWARD_TERMS` order; see `rewards.reward_terms`."""
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
    return _squared(_difference(s.ref.body_pos_w[i, s.robot.anchor], s.state.body_pos_w[i, s.robot.anchor]))


@compiled
def _root_ori(s: Step, i: int) -> float:
    """angle² between the anchors, world."""
    a, b = s.ref.body_quat_w[i, s.robot.anchor], s.state.body_quat_w[i, s.robot.anchor]
    return _angle_between(_quaternion(a), _quaternion(b)) ** 2


@compiled
def _body_pos(s: Step, i: int) -> float:
    """Mean over bodies of ‖p_rel − p‖²."""
    return _mean_squared(s.rel_pos_w[i], s.state.body_pos_w[i])


@compiled
def _body_ori(s: Step, i: int) -> float:
    """Mean over bodies of angle(q_rel, q)²."""
    total, bodies = 0.0, s.rel_quat_w.shape[1]
    for b in range(bodies):
        total += _angle_between(_quaternion(s.rel_quat_w[i, b]), _quaternion(s.state.body_quat_w[i, b])) ** 2
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
        origin, quat = state.body_pos_w[i, anchor], _quaternion(state.body_quat_w[i, anchor])
        inverse = _conj(quat)
        for j in range(joints):
            to[j] = ahead.joint_pos[i, j]
            to[joints + j] = ahead.joint_vel[i, j]
        at = 2 * joints
        at = _put6(to, at, _six(_mul(inverse, _quaternion(ahead.body_quat_w[i, anchor]))))
        for c in range(3):
            to[at + c] = state.gyro[i, c]
        at += 3
        for j in range(joints):
            to[at + j] = state.joint_pos[i, j] + s.joint_zero[i, j] - s.robot.default_joint_pos[j]
            to[at + joints + j] = state.joint_vel[i, j]
            to[at + 2 * joints + j] = s.action[i, j]
        at += 3 * joints
        at = _put3(to, at, _rotate(inverse, _difference(ahead.body_pos_w[i, anchor], origin)))
        root, velocity = _quaternion(state.root_quat_w[i]), state.root_lin_vel_w[i]
        at = _put3(to, at, _rotate(_conj(root), _vector(velocity)))
        for b in range(state.body_pos_w.shape[1]):
            at = _put3(to, at, _rotate(inverse, _difference(state.body_pos_w[i, b], origin)))
        for b in range(state.body_quat_w.shape[1]):
            at = _put6(to, at, _six(_mul(inverse, _quaternion(state.body_quat_w[i, b]))))


@compiled
def _put3(to: Floats, at: int, v: Vector) -> int:
    """Write three columns; returns the next one."""
    to[at], to[at + 1], to[at + 2] = v
    return at + 3


@compiled
def _put6(to: Floats, at: int, v: tuple[float, ...]) -> int:
    """Write six columns; returns the next one."""
    to[at], to[at + 1], to[at + 2], to[at + 3], to[at + 4], to[at + 5] = v
    return at + 6


@compiled
def _quaternion(q: Floats) -> Quaternion:
    """A row of an array, (4)."""
    return np.float64(q[0]), np.float64(q[1]), np.float64(q[2]), np.float64(q[3])


@compiled
def _difference(a: Floats, b: Floats) -> Vector:
    """a − b of two rows, (3)."""
    return np.float64(a[0]) - b[0], np.float64(a[1]) - b[1], np.float64(a[2]) - b[2]


@compiled
def _vector(v: Array) -> Vector:
    """A row of an array, (3)."""
    return np.float64(v[0]), np.float64(v[1]), np.float64(v[2])


@compiled
def _squared(v: Vector) -> float:
    """‖v‖²."""
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2]


@compiled
def _mean_squared(a: Floats, b: Floats) -> float:
    """Mean over bodies of ‖a − b‖², (Bt, 3) each."""
    total = 0.0
    for body in range(len(a)):
        total += _squared(_difference(a[body], b[body]))
    return total / len(a)


@compiled
def _mul(a: Quaternion, b: Quaternion) -> Quaternion:
    """Hamilton product: first rotate by b, then by a."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


@compiled
def _conj(q: Quaternion) -> Quaternion:
    """Inverse rotation."""
    return q[0], -q[1], -q[2], -q[3]


@compiled
def _cross(a: Vector, b: Vector) -> Vector:
    """Vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@compiled
def _rotate(q: Quaternion, v: Vector) -> Vector:
    """Rotate v by q."""
    w, axis = q[0], (q[1], q[2], q[3])
    x, y, z = _cross(axis, v)
    t = (2 * x, 2 * y, 2 * z)
    x, y, z = _cross(axis, t)
    return v[0] + w * t[0] + x, v[1] + w * t[1] + y, v[2] + w * t[2] + z


@compiled
def _six(q: Quaternion) -> tuple[float, float, float, float, float, float]:
    """First two columns of the rotation matrix, row-major."""
    w, x, y, z = q
    return (
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
    )


@compiled
def _up(q: Quaternion) -> Vector:
    """World z in the rotated frame."""
    w, x, y, z = q
    return 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@compiled
def _yaw(q: Quaternion) -> Quaternion:
    """The rotation about world z that is in q."""
    w, x, y, z = q
    half = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)) / 2
    return math.cos(half), 0.0, 0.0, math.sin(half)


@compiled
def _from_euler(roll: float, pitch: float, yaw: float) -> Quaternion:
    """R_z(yaw) · R_y(pitch) · R_x(roll), rad."""
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


@compiled
def _angle_between(a: Quaternion, b: Quaternion) -> float:
    """Rotation angle from one orientation to the other, 0..π rad, from the chord between them on the unit sphere."""
    squared = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2 + (a[3] - b[3]) ** 2
    return 4 * math.asin(math.sqrt(max(0.0, min(squared, 4 - squared))) / 2)
