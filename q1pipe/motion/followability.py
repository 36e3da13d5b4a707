"""Can physics follow a clip at all? Measures that take a second and save hours of training.

Support: how far the centre of mass hangs outside the polygon of what touches the floor. Carried: the part of the wrench
on the root that inverse dynamics asks for and the contacts cannot give. Replay: plain PD tracking without a policy,
from the first frame; where each body loses the reference, and how far pelvis and torso turn – does the joint motion
cause the body motion? Besides, per frame: joint speed, joint torque by inverse dynamics, robot in robot, feet that
slide. The score is the share of the frames that break no limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.spatial import ConvexHull, QhullError

from q1pipe import rotations
from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, warn
from q1pipe.log import progress
from q1pipe.motion.clip import Clip, differentiate, parts, stepping
from q1pipe.motion.raw import spans
from q1pipe.robot import Robot

Array = NDArray[np.floating]

FRICTION_EDGES = 4  # of the pyramid that stands for the friction cone
SPREAD = 0.03  # weight of even contact forces against an exact root wrench
STANDS = 0.2  # × body weight that a foot must carry to count as standing on it
ON_FEET = 0.7  # × body weight on all feet: the robot is on its feet
MOMENT_ARM = 0.25  # × standing height: what a moment is divided by to compare it with a force
LOST = 0.15  # × standing height: a body further than this from the reference has lost it


@dataclass(frozen=True, eq=False)
class Followability:
    """Curves over the T frames of a clip.

    Attributes:
        com_speed: (T,) m/s.
        support_gap: (T,) m, how far the centre of mass projects outside the support polygon; 0 inside, inf in the air.
        carried: (T,) × body weight, the root wrench that no contact supplies.
        contacts: (T,) number of bodies that touch the floor.
        joint_speed: (T,) rad/s, of the fastest joint.
        torque: (T,) × its torque limit, of the joint that needs most of it.
        self_penetration: (T,) m, how deep the robot is in itself.
        skating: (T,) m/s, along the floor, of a foot that touches it.
    """

    com_speed: Array
    support_gap: Array
    carried: Array
    contacts: Array
    joint_speed: Array
    torque: Array
    self_penetration: Array
    skating: Array


@dataclass(frozen=True)
class Replay:
    """Plain PD tracking at some multiple of the robot's gains.

    Attributes:
        gain: multiple of the robot's own gains.
        lost: tracked body -> first frame at which it is too far from the reference; without those that never are.
        turned: body name -> largest turn of gravity in its frame away from the first frame, degrees, in the replay.
        turned_reference: the same in the clip.
    """

    gain: float
    lost: dict[str, int]
    turned: dict[str, float]
    turned_reference: dict[str, float]


def followability(robot: Robot, clip: Clip, contact_distance: float) -> Followability:
    """Support and carried wrench of each frame.

    Args:
        robot: the robot.
        clip: its motion.
        contact_distance: a geom this close to the floor touches it, m.
    """
    model = robot.model.__copy__()
    model.geom_margin[robot.floor] = contact_distance  # contacts are then listed from this distance on
    data = mujoco.MjData(model)
    qpos = clip_qpos(robot, clip)
    qvel = np.zeros((clip.frames, model.nv))
    for part in parts(clip.frames, clip.jumps):
        for t in range(part.start + 1, part.stop):
            mujoco.mj_differentiatePos(model, qvel[t], 1 / clip.fps, qpos[t - 1], qpos[t])
        qvel[part] = (qvel[part] + np.concatenate([qvel[part][1:], qvel[part][-1:]])) / 2  # central differences
    qacc = differentiate(qvel, clip.fps, clip.jumps)

    com = np.zeros((clip.frames, 3))
    gap, carried, contacts, torque, inside, skating = np.zeros((6, clip.frames))
    for t in progress(range(clip.frames), clip.frames, "balance and contacts, frame"):
        data.qpos[:], data.qvel[:] = qpos[t], qvel[t]
        mujoco.mj_forward(model, data)
        com[t] = data.subtree_com[robot.root]
        listed = data.contact[: data.ncon]
        floor = [c for c in listed if robot.floor in c.geom]
        points = np.array([c.pos for c in floor]).reshape(-1, 3)
        bodies = np.array([model.geom_bodyid[c.geom].max() for c in floor], int)
        gap[t] = distance_outside(com[t, :2], points[:, :2])
        contacts[t] = len(set(bodies))
        carried[t], torque[t], load = _dynamics(robot, model, data, qacc[t], floor, bodies)
        inside[t] = max((-c.dist for c in listed if robot.floor not in c.geom), default=0.0)
        skating[t] = _slide(robot, clip, t, points, bodies, load)
    return Followability(
        com_speed=np.linalg.norm(differentiate(com, clip.fps, clip.jumps), axis=-1),
        support_gap=gap,
        carried=carried,
        contacts=contacts,
        joint_speed=np.abs(clip.joint_vel).max(axis=1),
        torque=torque,
        self_penetration=np.maximum(inside, 0),
        skating=skating,
    )


def broken(curves: Followability, cfg: MotionCfg) -> dict[str, NDArray[np.bool_]]:
    """Which frames break which limit: name of the limit's curve -> (T,)."""
    return {
        "support_gap": (curves.com_speed < cfg.slow_com_speed) & (curves.support_gap > cfg.max_support_gap),
        "carried": curves.carried > cfg.max_carried,
        "joint_speed": curves.joint_speed > cfg.max_joint_speed,
        "torque": curves.torque > cfg.max_torque,
        "self_penetration": curves.self_penetration > cfg.max_self_penetration,
        "skating": curves.skating > cfg.max_skating,
    }


def score(curves: Followability, cfg: MotionCfg) -> float:
    """Share of the frames that break no limit, 0 to 1."""
    return float(1 - np.any(list(broken(curves, cfg).values()), axis=0).mean())


def judge(curves: Followability, cfg: MotionCfg, where: str) -> list[Finding]:
    """WARN findings about what physics cannot follow, with the frames."""
    findings = []
    bad = broken(curves, cfg)
    over = np.flatnonzero(bad["support_gap"])
    if len(over):
        found = (
            f"centre of mass up to {curves.support_gap[over].max():.3f} m outside what touches the floor, while slow"
        )
        found += f", in {len(over)} frames: {spans(over)}"
        allowed = f"{cfg.max_support_gap:g} m below {cfg.slow_com_speed:g} m/s"
        findings.append(warn("support", where, found, allowed, "physics may not follow; look at these frames"))
    if carried_95(curves) > cfg.max_carried:
        found = f"{carried_95(curves):.2f} of the body weight is carried by nothing (95 % of the frames have less)"
        action = "is the clip off the floor, or faster than gravity?"
        findings.append(warn("carried", where, found, f"{cfg.max_carried:g}", action))
    if score(curves, cfg) < cfg.min_score:
        found = f"{100 * score(curves, cfg):.0f} % of the frames break no limit; "
        found += "; ".join(
            f"{name}: {frames.sum()} frames, {spans(np.flatnonzero(frames))}"
            for name, frames in bad.items()
            if frames.any()
        )
        findings.append(warn("score", where, found, f"{100 * cfg.min_score:.0f} %", "look at these frames"))
    return findings


def verdict(curves: Followability, plain: Replay, cfg: MotionCfg) -> str:
    """The measures in one line."""
    lost = min(plain.lost.values(), default=None)
    return (
        f"support gap {1e3 * slow_gap(curves, cfg):.0f} mm while slow; "
        f"carried by nothing {carried_95(curves):.2f} × weight; "
        f"plain PD {'follows to the end' if lost is None else f'loses it at frame {lost}'}"
    )


def slow_gap(curves: Followability, cfg: MotionCfg) -> float:
    """Largest support gap while the centre of mass is slow, m."""
    return float(np.max(curves.support_gap, where=curves.com_speed < cfg.slow_com_speed, initial=0))


def carried_95(curves: Followability) -> float:
    """What 95 % of the frames stay below, × weight."""
    return float(np.percentile(curves.carried, 95))


def touching_floor(robot: Robot, clip: Clip, distance: float) -> NDArray[np.bool_]:
    """Which bodies have a geom within a distance (m) of the floor in each frame, (T, B), all bodies but the world."""
    data = mujoco.MjData(robot.model)
    touching = np.zeros((clip.frames, len(robot.body_names)), bool)
    rows = robot.model.geom_bodyid[robot.geoms] - 1
    for t, q in enumerate(clip_qpos(robot, clip)):
        data.qpos[:] = q
        mujoco.mj_kinematics(robot.model, data)
        touching[t, rows[robot.lowest(data) <= distance]] = True
    return touching


def distance_outside(point: Array, polygon: Array) -> float:
    """Distance of a point from the convex hull of others in the plane; 0 inside, inf without any. (2,), (N, 2)."""
    if len(polygon) == 0:
        return float("inf")
    try:
        hull = ConvexHull(polygon)
        if (hull.equations[:, :2] @ point + hull.equations[:, 2] <= 0).all():
            return 0.0
        corners = polygon[hull.vertices]
    except (QhullError, ValueError):  # fewer than three points, or all on a line: the ends of that line
        direction = polygon[np.linalg.norm(polygon - polygon[0], axis=1).argmax()] - polygon[0]
        along = polygon @ direction
        corners = polygon[[along.argmin(), along.argmax()]]
    start, edge = corners, np.roll(corners, -1, axis=0) - corners
    along = np.clip(((point - start) * edge).sum(1) / np.maximum((edge**2).sum(1), 1e-12), 0, 1)
    return float(np.linalg.norm(start + along[:, None] * edge - point, axis=1).min())


def _dynamics(
    robot: Robot, model: mujoco.MjModel, data: mujoco.MjData, qacc: Array, floor: list, bodies: NDArray[np.integer]
) -> tuple[float, float, Array]:
    """What the pose and its acceleration ask for.

    Returns:
        Root wrench that contacts within their friction cannot supply, × body weight (moments by MOMENT_ARM); the
        largest joint torque, × its limit, with the contact forces spread as evenly as they can be; the upward force of
        each contact, × body weight, (contacts,).
    """
    needed = np.zeros(model.nv)
    mujoco.mj_mulM(model, data, needed, qacc)
    needed += data.qfrc_bias
    wrench, torque = needed[:6].copy(), needed - data.qfrc_passive
    # the free joint's rotational dofs are in the root's frame, its moments about the root's origin
    arm = MOMENT_ARM * robot.standing_height
    wrench[3:] = data.xmat[robot.root].reshape(3, 3) @ wrench[3:] / arm
    wrench /= robot.weight
    missing, load = float(np.linalg.norm(wrench)), np.zeros(0)
    if floor:
        forces = np.array([_friction_edges(contact) for contact in floor])  # (contacts, edges, 3)
        points = np.array([contact.pos for contact in floor])
        moments = np.cross(points[:, None] - data.xpos[robot.root], forces) / arm
        columns = np.concatenate([forces, moments], axis=-1).reshape(-1, 6).T
        missing = float(nnls(columns, wrench)[1])
        even = np.concatenate([columns, SPREAD * np.eye(columns.shape[1])])
        size = nnls(even, np.concatenate([wrench, np.zeros(columns.shape[1])]))[0]
        at = (forces * size.reshape(len(floor), -1, 1)).sum(axis=1) * robot.weight  # (contacts, 3) N
        load, jacobian = at[:, 2] / robot.weight, np.zeros((3, model.nv))
        for point, body, force in zip(points, bodies, at, strict=True):
            mujoco.mj_jac(model, data, jacobian, None, point, body)
            torque -= jacobian.T @ force
    return missing, float((np.abs(torque[robot.qvel_adr]) / robot.effort).max()), load


def _friction_edges(contact: mujoco.MjContact) -> list[Array]:
    """Edges of the pyramid of forces that a contact can give, each with a unit along the normal. (edges, 3)."""
    normal, frame = contact.frame[:3], contact.frame
    normal = normal if normal[2] > 0 else -normal
    turns = 2 * np.pi * np.arange(FRICTION_EDGES) / FRICTION_EDGES
    return [normal + contact.friction[0] * (np.cos(a) * frame[3:6] + np.sin(a) * frame[6:9]) for a in turns]


def _slide(robot: Robot, clip: Clip, t: int, points: Array, bodies: NDArray[np.integer], load: Array) -> float:
    """Speed along the floor of the fastest foot that stands on it, m/s.

    Of the foot's slowest point: a foot that rolls does not slide. Where the feet do not carry the robot – it lies, or
    crawls – they may be dragged; so may a foot that carries next to nothing.
    """
    fastest = 0.0
    if load[np.isin(bodies, robot.feet)].sum() < ON_FEET:
        return fastest
    for foot in robot.feet:
        of_foot = bodies == foot
        if load[of_foot].sum() > STANDS:
            arm = points[of_foot] - clip.body_pos_w[t, foot - 1]
            speed = clip.body_lin_vel_w[t, foot - 1] + np.cross(clip.body_ang_vel_w[t, foot - 1], arm)
            fastest = max(fastest, float(np.linalg.norm(speed[:, :2], axis=1).min()))
    return fastest


def replay(robot: Robot, clip: Clip, physics_hz: float, gain: float) -> Replay:
    """Track a clip by PD alone, at a multiple of the robot's gains, from its first frame.

    Args:
        robot: the robot.
        clip: its motion; one frame is one control step.
        physics_hz: physics steps per second, as in training.
        gain: × the robot's own gains.
    """
    model, substeps = stepping(robot, clip.fps, physics_hz)
    actuators = robot.actuator_ids
    model.actuator_gainprm[actuators, 0] *= gain
    model.actuator_biasprm[actuators, 1:3] *= gain
    data = mujoco.MjData(model)
    data.qpos[:] = clip_qpos(robot, clip)[0]
    pos, quat = np.empty((clip.frames, model.nbody, 3)), np.empty((clip.frames, model.nbody, 4))
    for t in progress(range(clip.frames), clip.frames, f"plain PD at {gain:g} × the gains, frame"):
        if t:
            data.ctrl[actuators] = clip.joint_pos[t]
            for _ in range(substeps):
                mujoco.mj_step(model, data)
        mujoco.mj_kinematics(model, data)
        pos[t], quat[t] = data.xpos, data.xquat
    far = np.linalg.norm(pos[:, robot.tracked] - clip.body_pos_w[:, robot.tracked - 1], axis=-1)
    far = far > LOST * robot.standing_height
    names = [robot.body_names[b - 1] for b in robot.tracked]
    trunk = (robot.root, robot.anchor)
    return Replay(
        gain=gain,
        lost={name: int(column.argmax()) for name, column in zip(names, far.T, strict=True) if column.any()},
        turned={robot.body_names[b - 1]: _turn(quat[:, b]) for b in trunk},
        turned_reference={robot.body_names[b - 1]: _turn(clip.body_quat_w[:, b - 1]) for b in trunk},
    )


def _turn(quat: Array) -> float:
    """Largest angle of gravity in a body's frame from where it was at first, degrees. (T, 4)."""
    down = rotations.rotate_inv(quat, np.broadcast_to(np.array([0.0, 0.0, -1.0]), (len(quat), 3)))
    return float(np.degrees(np.arccos(np.clip(down @ down[0], -1, 1))).max())


def clip_qpos(robot: Robot, clip: Clip) -> Array:
    """Generalised positions of each frame, (T, nq)."""
    root = robot.root - 1
    return robot.qpos(clip.body_pos_w[:, root], clip.body_quat_w[:, root], clip.joint_pos)
