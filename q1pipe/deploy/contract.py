"""What an exported policy says about itself: the metadata of policy.onnx, written and read in this one place.

Values are text, lists are comma-separated, tables are JSON, numbers have all their digits. The first keys have the
names that BeyondMimic's controllers look for; what else a controller or another simulator needs has names of ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Finding, Q1Error, RobotError, error, first
from q1pipe.robot import Robot

Floats = NDArray[np.float64]

FORMAT = "q1pipe-policy-1"
SEMANTICS = (
    "target = default_joint_pos + action_scale * action, rad, not clamped, held for one control step; "
    "torque = joint_stiffness * (target - position) - joint_damping * velocity, limited to joint_effort_limits; "
    "last_action is the action before the scale; at the start, the one whose target is the measured pose"
)
# The observation terms by the names of BeyondMimic's controllers; `command` is both of the reference's terms.
BEYONDMIMIC = {
    "reference_joint_pos": "command",
    "reference_joint_vel": "command",
    "anchor_ori": "motion_anchor_ori_b",
    "base_ang_vel": "base_ang_vel",
    "joint_pos": "joint_pos",
    "joint_vel": "joint_vel",
    "last_action": "actions",
}


class Codec(NamedTuple):
    """How a value becomes text and comes back."""

    encode: Callable[[Any], str]
    decode: Callable[[str], Any]


TEXT = Codec(str, str)
INTEGER = Codec(str, int)
NUMBER = Codec(lambda x: repr(float(x)), float)
NAMES = Codec(",".join, lambda text: tuple(text.split(",")) if text else ())
INTEGERS = Codec(lambda x: ",".join(map(str, x)), lambda text: tuple(int(v) for v in text.split(",")))
NUMBERS = Codec(
    lambda x: ",".join(repr(float(v)) for v in x), lambda text: np.array([float(v) for v in text.split(",")])
)
TABLE = Codec(lambda x: json.dumps(x, separators=(",", ":")), json.loads)


def _key(codec: Codec) -> Any:
    return field(metadata={"codec": codec})


@dataclass(frozen=True, eq=False)
class Contract:
    """The metadata of a policy. J joints in the order of every joint list; arrays are float64.

    Attributes:
        run_path: motion and run that it comes from.
        joint_names: J names.
        joint_stiffness: (J,) N·m/rad.
        joint_damping: (J,) N·m·s/rad.
        default_joint_pos: (J,) rad, the target of action 0.
        command_names: BeyondMimic's name of the reference.
        observation_names: terms by BeyondMimic's names, in order.
        observation_history_lengths: of each of them.
        action_scale: (J,) rad per unit of action.
        anchor_body_name: body that the reference is aligned to.
        body_names: tracked bodies, the rows of the reference in policy_with_reference.onnx.
        format: of this metadata.
        robot: name of the model.
        robot_sha: hash of the MJCF and its files.
        joint_effort_limits: (J,) N·m.
        joint_lower_limits: (J,) rad, -inf where there is none.
        joint_upper_limits: (J,) rad.
        control_dt: s between actions.
        sim_dt: s, physics step of training.
        decimation: physics steps per control step.
        observation_layout: per term its name, start, size, noise (± uniform in training) and history, in order.
        action_semantics: what an action means, in words.
        action_example: an action and the target that it means.
        root_body_name: floating base.
        end_effector_names: bodies.
        imu_to_anchor: rotations from the IMU's frame to the anchor's, as `chain` makes them.
        quaternion_order: of every quaternion.
        motion: name of the clip.
        motion_sha256: of motion.npz.
        motion_fps: frames per second.
        motion_frames: number of frames that are played: up to the first jump, where the clip has one.
        iteration: of the training, when the policy was saved.
        fingerprint: of the training run.
        versions: of the packages that trained and exported it.
    """

    run_path: str = _key(TEXT)
    joint_names: tuple[str, ...] = _key(NAMES)
    joint_stiffness: Floats = _key(NUMBERS)
    joint_damping: Floats = _key(NUMBERS)
    default_joint_pos: Floats = _key(NUMBERS)
    command_names: tuple[str, ...] = _key(NAMES)
    observation_names: tuple[str, ...] = _key(NAMES)
    observation_history_lengths: tuple[int, ...] = _key(INTEGERS)
    action_scale: Floats = _key(NUMBERS)
    anchor_body_name: str = _key(TEXT)
    body_names: tuple[str, ...] = _key(NAMES)
    format: str = _key(TEXT)
    robot: str = _key(TEXT)
    robot_sha: str = _key(TEXT)
    joint_effort_limits: Floats = _key(NUMBERS)
    joint_lower_limits: Floats = _key(NUMBERS)
    joint_upper_limits: Floats = _key(NUMBERS)
    control_dt: float = _key(NUMBER)
    sim_dt: float = _key(NUMBER)
    decimation: int = _key(INTEGER)
    observation_layout: list[dict[str, Any]] = _key(TABLE)
    action_semantics: str = _key(TEXT)
    action_example: dict[str, list[float]] = _key(TABLE)
    root_body_name: str = _key(TEXT)
    end_effector_names: tuple[str, ...] = _key(NAMES)
    imu_to_anchor: list[dict[str, Any]] = _key(TABLE)
    quaternion_order: str = _key(TEXT)
    motion: str = _key(TEXT)
    motion_sha256: str = _key(TEXT)
    motion_fps: float = _key(NUMBER)
    motion_frames: int = _key(INTEGER)
    iteration: int = _key(INTEGER)
    fingerprint: str = _key(TEXT)
    versions: dict[str, str] = _key(TABLE)

    def metadata(self) -> dict[str, str]:
        """Every key as text."""
        return {f.name: f.metadata["codec"].encode(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def read(cls, metadata: Mapping[str, str], where: str) -> Contract:
        """The contract in a model's metadata.

        Args:
            metadata: `custom_metadata_map` of onnxruntime.
            where: the file, for findings.

        Raises:
            Q1Error: keys are missing or do not read; names each.
        """
        findings, values = [], {}
        for f in fields(cls):
            if f.name not in metadata:
                findings.append(error("metadata-missing", where, f"no key {f.name}", "all keys", "export it again"))
                continue
            try:
                values[f.name] = f.metadata["codec"].decode(metadata[f.name])
            except ValueError as e:
                found = f"{metadata[f.name]!r:.60}: {e}"
                findings.append(error("metadata-value", f"{where}: {f.name}", found, action="export it again"))
        if findings:
            raise Q1Error(*findings)
        return cls(**values)

    @property
    def observation_size(self) -> int:
        """Width of the observation."""
        return sum(term["size"] for term in self.observation_layout)

    def slices(self) -> dict[str, slice]:
        """Columns of each observation term, in order."""
        return {t["name"]: slice(t["start"], t["start"] + t["size"]) for t in self.observation_layout}

    def noise(self) -> Floats:
        """± uniform noise of training on each column of the observation, (D,)."""
        return np.repeat([t["noise"] for t in self.observation_layout], [t["size"] for t in self.observation_layout])


def observation_names(layout: list[dict[str, Any]]) -> tuple[str, ...]:
    """The terms of a layout by BeyondMimic's names."""
    return tuple(dict.fromkeys(BEYONDMIMIC[term["name"]] for term in layout))


def chain(model: mujoco.MjModel, site: int, body: int) -> list[dict[str, Any]]:
    """The rotations from a site's frame to a body's: each ``{"quat"}``, or a joint's ``{"joint", "axis", "zero"}``.

    Multiplied in order, a joint's as the turn about its axis by (position - zero), they give the body's orientation in
    the site's frame: what a robot needs that has its IMU on one body and its anchor on another.

    Args:
        model: the robot's.
        site: id, of the IMU.
        body: id, of the anchor.

    Raises:
        RobotError: something else than hinges is between the two.
    """
    up, down = ([*_above(model, b)] for b in (int(model.site_bodyid[site]), body))
    while up and down and up[-1] == down[-1]:  # what is above both
        up, down = up[:-1], down[:-1]
    steps = [{"quat": _inverse(model.site_quat[site])}]
    for b in up:
        steps += [*({**hinge, "axis": (-np.array(hinge["axis"])).tolist()} for hinge in reversed(_hinges(model, b)))]
        steps.append({"quat": _inverse(model.body_quat[b])})
    for b in reversed(down):
        steps += [{"quat": model.body_quat[b].tolist()}, *_hinges(model, b)]
    return [step for step in steps if step.get("quat") != [1.0, 0.0, 0.0, 0.0]]


def _above(model: mujoco.MjModel, body: int) -> Iterator[int]:
    """A body and those that it hangs on, up to the world."""
    while body:
        yield body
        body = int(model.body_parentid[body])


def _hinges(model: mujoco.MjModel, body: int) -> list[dict[str, Any]]:
    """The joints by which a body turns in its parent's frame."""
    first_joint, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    joints = range(first_joint, first_joint + count)
    if strange := [model.joint(j).name for j in joints if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_HINGE]:
        found = f"{', '.join(strange)} of {model.body(body).name} is between them"
        action = "set robot.imu and robot.anchor"
        raise RobotError(error("robot-chain", "robot: imu, anchor", found, "hinges only, on one robot", action))
    return [
        {
            "joint": model.joint(j).name,
            "axis": model.jnt_axis[j].tolist(),
            "zero": float(model.qpos0[model.jnt_qposadr[j]]),
        }
        for j in joints
    ]


def _inverse(quat: Floats) -> list[float]:
    values: list[float] = (quat * np.array([1.0, -1.0, -1.0, -1.0]) + 0.0).tolist()  # + 0: no negative zero
    return values


def check(contract: Contract, robot: Robot, widths: Mapping[str, int], inputs: int, where: str) -> list[Finding]:
    """What contradicts: the contract itself, the network, the robot's model, or what can be observed here.

    Args:
        contract: of the policy.
        robot: the model that is to be controlled.
        widths: observation terms that can be built here -> their sizes.
        inputs: columns of the network's input.
        where: the policy's file.
    """
    return [
        *_check_layout(contract, widths, inputs, where),
        *_check_joints(contract, robot, where),
        *_check_action(contract, where),
    ]


def _check_layout(contract: Contract, widths: Mapping[str, int], inputs: int, where: str) -> list[Finding]:
    layout = contract.observation_layout
    wanted, known = [f"{t['name']}({t['size']})" for t in layout], [f"{n}({w})" for n, w in widths.items()]
    built = sum(widths[t["name"]] for t in layout if t["name"] in widths)
    findings = []
    missing = [w for w, t in zip(wanted, layout, strict=True) if widths.get(t["name"]) != t["size"]]
    if missing or contract.observation_size != inputs:
        found = f"policy expects {inputs} = [{', '.join(wanted)}], here {built} of them can be built"
        lacking = f"; missing {', '.join(missing)}" if missing else f"; the terms add up to {contract.observation_size}"
        allowed = f"terms {', '.join(known)}"
        findings.append(error("observation-size", where, found + lacking, allowed, "export with the same q1pipe"))
    starts = np.cumsum([0, *(t["size"] for t in layout)])[:-1].tolist()
    if [t["start"] for t in layout] != starts:
        found = f"terms start at {[t['start'] for t in layout]}"
        findings.append(error("observation-start", where, found, f"{starts}, without gaps", "export it again"))
    if contract.quaternion_order != "wxyz":
        findings.append(error("quaternion-order", where, contract.quaternion_order, "wxyz", "export it again"))
    return findings


def _check_joints(contract: Contract, robot: Robot, where: str) -> list[Finding]:
    mine, theirs = set(robot.joint_names), set(contract.joint_names)
    if mine != theirs or len(theirs) != len(contract.joint_names):
        found = f"not in the model: {first(sorted(theirs - mine)) or 'none'}; not in the policy: "
        found += first(sorted(mine - theirs)) or "none"
        return [
            error("joint-names", where, found, "the joints of the MJCF, each once", "use the robot of the training")
        ]
    row = [robot.joint_names.index(name) for name in contract.joint_names]
    findings = []
    for key, values in {
        "joint_stiffness": robot.stiffness,
        "joint_damping": robot.damping,
        "joint_effort_limits": robot.effort,
        "default_joint_pos": robot.default_joint_pos,
        "action_scale": robot.action_scale,
    }.items():
        theirs_, mine_ = getattr(contract, key), values[row]
        if len(theirs_) != len(mine_):
            found = f"{len(theirs_)} numbers for {len(mine_)} joints"
            findings.append(error("metadata-value", f"{where}: {key}", found, action="export it again"))
            continue
        bad = np.flatnonzero(~np.isclose(theirs_, mine_, rtol=1e-6, atol=1e-9))
        if len(bad):
            pairs = [f"{contract.joint_names[i]} {mine_[i]:.6g} (policy {theirs_[i]:.6g})" for i in bad]
            action = "the MJCF is not the one of the training: train again, or mend it"
            findings.append(error("robot-differs", f"{where}: {key}", first(pairs), "the policy's", action))
    return findings


def _check_action(contract: Contract, where: str) -> list[Finding]:
    action, target = (np.array(contract.action_example[key]) for key in ("action", "target"))
    mine = contract.default_joint_pos + contract.action_scale * action
    bad = np.flatnonzero(~np.isclose(mine, target, rtol=0, atol=1e-6))
    names = [f"{contract.joint_names[i]} {mine[i]:.6g} instead of {target[i]:.6g}" for i in bad]
    where = f"{where}: action_example"
    return [error("action-meaning", where, first(names), contract.action_semantics, "export it again")] if names else []


def sha256(path: Path) -> str:
    """All 64 hex digits of a file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
