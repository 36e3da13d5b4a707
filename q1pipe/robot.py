"""The robot: any humanoid MJCF, completed to what the task needs, with everything addressed by name.

`Robot.load` adds what a bare MJCF lacks (floor, light, IMU site and gyroscope, self-collision sensor, position
actuators with derived gains) through `mujoco.MjSpec`, compiles it, and reads ids, gains, limits and the default pose
from the compiled model. The derived gains are whole_body_tracking's: reflected inertia (armature) -> stiffness ->
damping.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.config import RobotCfg
from q1pipe.errors import Finding, RobotError, error, first
from q1pipe.geometry import lowest_points
from q1pipe.provenance import mjcf_sha

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Array = NDArray[np.floating]

SHIPPED = "assets/q1/q1.xml"
SELF_COLLISION, GYRO, FLOOR = "q1pipe_self_collision", "q1pipe_gyro", "floor"


@dataclass(frozen=True, eq=False)
class Robot:
    """A compiled model and the numbers that the task reads from it. J joints (hinges), B bodies without the world.

    Attributes:
        cfg: the configuration it was made from.
        model: the completed model.
        sha: hash of the MJCF and the files it refers to, 12 hex digits.
        joint_names: J names, model order; the order of actions and of every ``joint_*`` array.
        body_names: B names, model order; row i is body id i + 1.
        qpos_adr: (J,) addresses in qpos; the root's pose is qpos[:7].
        qvel_adr: (J,) addresses in qvel; the root's velocity is qvel[:6].
        actuator_ids: (J,) the position actuator of each joint.
        root: body id of the floating base.
        anchor: body id of the anchor.
        tracked: (Bt,) body ids, configuration order.
        tracked_anchor: index of the anchor in ``tracked``.
        end_effectors: body ids.
        feet: body ids.
        geoms: ids of the robot's collision geoms.
        floor: geom id of the floor.
        default_joint_pos: (J,) rad.
        default_root_height: m.
        stiffness: (J,) N·m/rad.
        damping: (J,) N·m·s/rad.
        effort: (J,) N·m.
        action_scale: (J,) rad per unit of action.
        limits: (J, 2) rad.
        soft_limits: (J, 2) rad.
        standing_height: top of the head above the sole in the default pose, m.
        weight: N.
        self_collision: slice of sensordata, the largest robot–robot contact force, (3,) N.
        gyro: slice of sensordata, angular velocity of the IMU in its frame, (3,) rad/s.
    """

    cfg: RobotCfg
    model: mujoco.MjModel
    sha: str
    joint_names: tuple[str, ...]
    body_names: tuple[str, ...]
    qpos_adr: Ints
    qvel_adr: Ints
    actuator_ids: Ints
    root: int
    anchor: int
    tracked: Ints
    tracked_anchor: int
    end_effectors: Ints
    feet: Ints
    geoms: Ints
    floor: int
    default_joint_pos: Floats
    default_root_height: float
    stiffness: Floats
    damping: Floats
    effort: Floats
    action_scale: Floats
    limits: Floats
    soft_limits: Floats
    standing_height: float
    weight: float
    self_collision: slice
    gyro: slice

    @classmethod
    def load(cls, cfg: RobotCfg) -> Robot:
        """Compile the MJCF of a configuration and complete it.

        Raises:
            RobotError: the file is missing or does not compile, a name is not in it, or a gain cannot be derived.
        """
        path = mjcf_path(cfg)
        spec = _read(path)
        joints = _hinges(spec, path)
        _add_scene(spec, cfg, path)
        _add_actuators(spec, cfg, joints, path)
        try:
            model = spec.compile()
        except ValueError as e:
            raise RobotError(error("robot-compile", str(path), str(e), "a model that MuJoCo compiles")) from None
        return _measure(cfg, model, mjcf_sha(path), [j.name for j in joints], path)

    def bodies(self, names: Iterable[str], where: str) -> Ints:
        """Body ids of names.

        Args:
            names: of bodies.
            where: who asks, such as ``config: train.termination.body_z``.

        Raises:
            RobotError: no such bodies; lists the names that exist.
        """
        ids = [_body_id(self.body_names, name, where) for name in names]
        if problems := [i for i in ids if isinstance(i, Finding)]:
            raise RobotError(*problems)
        return np.array(ids, np.intp)

    def qpos(self, root_pos: Array, root_quat: Array, joint_pos: Array) -> Floats:
        """Assemble qpos, (..., nq), from root position (..., 3) m, orientation (..., 4) and joints (..., J) rad."""
        qpos = np.empty((*joint_pos.shape[:-1], self.model.nq))
        qpos[..., :3], qpos[..., 3:7] = root_pos, root_quat
        qpos[..., self.qpos_adr] = joint_pos
        return qpos

    def lowest(self, data: mujoco.MjData) -> Array:
        """Lowest point of each collision geom of one pose, (G,) m, ``geoms`` order."""
        return lowest_points(self.model, self.geoms, data.geom_xpos[self.geoms], data.geom_xmat[self.geoms])


def mjcf_path(cfg: RobotCfg) -> Path:
    """The MJCF of a configuration: its own, or the one that ships with q1pipe."""
    return Path(cfg.xml) if cfg.xml else Path(str(resources.files("q1pipe"))) / SHIPPED


def _read(path: Path) -> mujoco.MjSpec:
    if not path.is_file():
        raise RobotError(error("robot-missing", str(path), "no such file", "an MJCF", "set robot.xml or Q1_XML"))
    try:
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as e:
        raise RobotError(error("robot-read", str(path), str(e), "an MJCF that MuJoCo reads")) from None


def _hinges(spec: mujoco.MjSpec, path: Path) -> list[mujoco.MjsJoint]:
    free = [j for j in spec.joints if j.type == mujoco.mjtJoint.mjJNT_FREE]
    hinges = [j for j in spec.joints if j.type == mujoco.mjtJoint.mjJNT_HINGE]
    others = [j.name for j in spec.joints if j not in free and j not in hinges]
    if len(free) != 1 or spec.joints[0] is not free[0] or others:
        raise RobotError(
            error(
                "robot-joints",
                str(path),
                f"{len(free)} free joints, {len(hinges)} hinges, others: {first(others) or 'none'}",
                "one free joint, first, and hinges",
                "give the floating base a <freejoint/> and weld what is not a hinge",
            )
        )
    return hinges


def _add_scene(spec: mujoco.MjSpec, cfg: RobotCfg, path: Path) -> None:
    planes = [g for g in spec.geoms if g.type == mujoco.mjtGeom.mjGEOM_PLANE]
    if planes:
        planes[0].name = FLOOR
    else:
        floor = spec.worldbody.add_geom(
            name=FLOOR, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], friction=[1, 0.005, 0.0001], condim=3
        )
        floor.material = _checkered(spec)
    if not any(t.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX for t in spec.textures):
        spec.add_texture(
            name="q1pipe_sky",
            type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
            rgb1=[0.93, 0.95, 0.97],
            rgb2=[0.70, 0.76, 0.83],
            width=64,
            height=384,
        )
    if not spec.lights:
        spec.worldbody.add_light(
            pos=[0, 0, 4], dir=[0, 0, -1], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, castshadow=True
        )
    base = spec.joints[0].parent  # of the free joint
    sites = [s.name for s in spec.sites]
    if cfg.imu not in sites:
        if cfg.imu != RobotCfg().imu:
            allowed = f"one of {', '.join(filter(None, sites)) or 'none: the MJCF has no sites'}"
            raise RobotError(error("robot-imu", f"{path}: robot.imu", repr(cfg.imu), allowed))
        base.add_site(name=cfg.imu)
    spec.add_sensor(name=GYRO, type=mujoco.mjtSensor.mjSENS_GYRO, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=cfg.imu)
    spec.add_sensor(
        name=SELF_COLLISION,
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=mujoco.mjtObj.mjOBJ_XBODY,  # a whole subtree
        objname=base.name,
        reftype=mujoco.mjtObj.mjOBJ_XBODY,
        refname=base.name,
        # which data (bit set), which contact where there are several, how many contacts
        intprm=[1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), _REDUCE_MAXFORCE, 1],
    )


def _checkered(spec: mujoco.MjSpec) -> str:
    """A material with squares of half a metre, so that a picture shows motion and size."""
    name = "q1pipe_floor"
    spec.add_texture(
        name=name,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.62, 0.66, 0.70],
        rgb2=[0.55, 0.59, 0.63],
        width=64,
        height=64,
    )
    material = spec.add_material(name=name, texuniform=True, texrepeat=[1, 1])
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    return name


_REDUCE_MAXFORCE = 2  # MuJoCo's contact sensor: 0 none, 1 mindist, 2 maxforce, 3 netforce


def _add_actuators(spec: mujoco.MjSpec, cfg: RobotCfg, joints: Sequence[mujoco.MjsJoint], path: Path) -> None:
    """One position actuator per joint, with a torque limit and free targets; missing and pure-torque ones get gains.

    Raises:
        RobotError: every joint whose actuators are of another kind, or whose gains or limit cannot be derived.
    """
    of_joint: dict[str, list[mujoco.MjsActuator]] = {j.name: [] for j in joints}
    for actuator in spec.actuators:
        of_joint.get(actuator.target, []).append(actuator)
    problems = []
    for joint in joints:
        where, actuators = f"{path}: {joint.name}", of_joint[joint.name]
        kinds = [_is_position(a) for a in actuators]
        if len(kinds) > 1 or None in kinds:
            found = f"{len(kinds)} actuators: {first(a.name for a in actuators)}"
            allowed = "none, one motor or one position actuator"
            problems.append(error("robot-actuator", where, found, allowed, "leave the others out of the MJCF"))
            continue
        effort = _matching(cfg.effort, joint.name) or _torque_limit(joint, actuators)
        armature = _matching(cfg.armature, joint.name) or float(joint.armature)
        if not effort or not (armature or any(kinds)):
            problems.append(
                error(
                    "robot-gains",
                    where,
                    f"torque limit {effort:g} N·m, armature {armature:g} kg·m²",
                    "both above 0 to derive the gains; the limit also with gains of its own",
                    f"set robot.effort and robot.armature, for example {{'{joint.name}': 33}}",
                )
            )
            continue
        if any(kinds):
            servo = actuators[0]
        else:
            for actuator in actuators:
                spec.delete(actuator)
            omega = 2 * math.pi * cfg.natural_frequency
            servo = spec.add_actuator(name=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name)
            servo.set_to_position(kp=armature * omega**2, kv=2 * cfg.damping_ratio * armature * omega)
            joint.armature = armature
        servo.forcerange, servo.forcelimited = [-effort, effort], mujoco.mjtLimited.mjLIMITED_TRUE
        servo.ctrllimited = mujoco.mjtLimited.mjLIMITED_FALSE  # targets are not clamped, torque is
    if problems:
        raise RobotError(*problems)


def _is_position(actuator: mujoco.MjsActuator) -> bool | None:
    """Whether an actuator is a position servo (True) or pure torque (False); None: something else, such as velocity."""
    if actuator.biastype == mujoco.mjtBias.mjBIAS_NONE:
        return False
    return True if actuator.gainprm[0] == -actuator.biasprm[1] > 0 else None


def _torque_limit(joint: mujoco.MjsJoint, actuators: Sequence[mujoco.MjsActuator]) -> float:
    """The tightest limit that the MJCF gives, N·m; 0 without any. A position actuator's ctrlrange is an angle."""
    ranges = [joint.actfrcrange]
    for a in actuators:
        ranges += [a.forcerange] if _is_position(a) else [a.forcerange, a.ctrlrange * abs(a.gear[0])]
    limits = [float(r[1]) for r in ranges if r[1] > r[0]]
    return min(limits, default=0.0)


def _matching(values: dict[str, float], name: str) -> float:
    return next((value for pattern, value in values.items() if fnmatch.fnmatchcase(name, pattern)), 0.0)


def _measure(cfg: RobotCfg, model: mujoco.MjModel, sha: str, joint_names: Sequence[str], path: Path) -> Robot:
    where = str(path)
    bodies = tuple(model.body(i).name for i in range(1, model.nbody))

    problems: list[Finding] = []

    def ids(names: Iterable[str], key: str) -> Ints:
        found = [_body_id(bodies, n, f"{where}: robot.{key}") for n in names]
        problems.extend(f for f in found if isinstance(f, Finding))
        return np.array([i for i in found if not isinstance(i, Finding)], np.intp)

    joints = [model.joint(n) for n in joint_names]
    actuator_of = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu)}
    actuators = np.array([actuator_of[j.id] for j in joints], np.intp)
    limits = np.array([j.range if model.jnt_limited[j.id] else (-np.inf, np.inf) for j in joints])
    effort = model.actuator_forcerange[actuators, 1]
    stiffness = model.actuator_gainprm[actuators, 0]
    geoms = np.array(
        [g for g in range(model.ngeom) if model.geom_bodyid[g] and model.geom_contype[g] | model.geom_conaffinity[g]],
        np.intp,
    )
    root, anchor, feet = ids([cfg.root], "root"), ids([cfg.anchor], "anchor"), ids(cfg.feet, "feet")
    tracked, end_effectors = ids(cfg.tracked, "tracked"), ids(cfg.end_effectors, "end_effectors")
    base = model.body(model.jnt_bodyid[0]).name  # the free joint is the first
    if cfg.root != base:
        problems.append(error("robot-root", f"{where}: robot.root", cfg.root, f"the floating base, {base}"))
    if lacking := [n for n in (cfg.anchor, *cfg.end_effectors) if n not in cfg.tracked]:
        found = f"lacks {first(lacking)}"
        problems.append(error("robot-tracked", f"{where}: robot.tracked", found, "anchor and end effectors"))
    if bare := [model.body(f).name for f in feet if f not in model.geom_bodyid[geoms]]:
        found = f"no collision geom on {first(bare)}"
        problems.append(error("robot-feet", f"{where}: robot.feet", found, "bodies that touch the floor"))
    keys = [model.key(i).name for i in range(model.nkey)]
    if cfg.default_keyframe not in keys and cfg.default_keyframe != RobotCfg().default_keyframe:
        allowed = f"one of {', '.join(keys) or 'none: the MJCF has no keyframes'}"
        problems.append(
            error("robot-keyframe", f"{where}: robot.default_keyframe", repr(cfg.default_keyframe), allowed)
        )
    if problems:
        raise RobotError(*problems)
    middle, half = limits.mean(axis=1), (limits[:, 1] - limits[:, 0]) / 2 * cfg.soft_limit
    finite = np.isfinite(limits).all(axis=1)
    soft = np.where(finite[:, None], np.stack([middle - half, middle + half], axis=1), limits)
    qpos_adr = np.array([j.qposadr[0] for j in joints], np.intp)
    default, root_height, standing = _default_pose(cfg, model, geoms)
    return Robot(
        cfg=cfg,
        model=model,
        sha=sha,
        joint_names=tuple(joint_names),
        body_names=bodies,
        qpos_adr=qpos_adr,
        qvel_adr=np.array([j.dofadr[0] for j in joints], np.intp),
        actuator_ids=actuators,
        root=int(root[0]),
        anchor=int(anchor[0]),
        tracked=tracked,
        tracked_anchor=int(np.flatnonzero(tracked == anchor[0])[0]),
        end_effectors=end_effectors,
        feet=feet,
        geoms=geoms,
        floor=model.geom(FLOOR).id,
        default_joint_pos=default[qpos_adr],
        default_root_height=root_height,
        stiffness=stiffness,
        damping=-model.actuator_biasprm[actuators, 2],
        effort=effort,
        action_scale=cfg.action_scale * effort / stiffness,
        limits=limits,
        soft_limits=soft,
        standing_height=standing,
        weight=float(model.body_mass.sum() * np.linalg.norm(model.opt.gravity)),
        self_collision=_sensor(model, SELF_COLLISION),
        gyro=_sensor(model, GYRO),
    )


def _default_pose(cfg: RobotCfg, model: mujoco.MjModel, geoms: Ints) -> tuple[Floats, float, float]:
    """qpos of the default pose, its root height with the lowest geom on the floor, and its height, m."""
    keys = [model.key(i).name for i in range(model.nkey)]
    qpos = model.key_qpos[keys.index(cfg.default_keyframe)] if cfg.default_keyframe in keys else model.qpos0
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    pos, mat = data.geom_xpos[geoms], data.geom_xmat[geoms].reshape(-1, 3, 3)
    low = lowest_points(model, geoms, pos, mat).min()
    # a mirror about the horizontal turns the highest point into the lowest
    high = -lowest_points(model, geoms, pos * [1, 1, -1], mat * [[-1], [-1], [-1]]).min()
    return qpos.copy(), float(qpos[2] - low), float(high - low)


def _sensor(model: mujoco.MjModel, name: str) -> slice:
    sensor = model.sensor(name)
    return slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0]))


def _body_id(bodies: Sequence[str], name: str, where: str) -> int | Finding:
    """Body id of a name in the list of all bodies without the world, or what is wrong with it."""
    if name in bodies:
        return bodies.index(name) + 1
    close = difflib.get_close_matches(name, bodies, 1)
    hint = f"did you mean {close[0]}?" if close else ""
    return error("robot-name", where, f"no body {name!r}", f"one of {', '.join(bodies)}", hint)
