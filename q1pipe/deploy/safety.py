"""Is the policy fit to command the robot? The rules of the vendor SDK's joint interface, and what they leave open.

From the SDK's description of joint commands: no joint's position may change by more than 0.2 rad from one command to
the next; joints are found by name, a name that is wrong is dropped silently, and every command should hold all joints;
commands come at 500 to 1000 Hz; a position beyond its limit may make the motor shut down; the last command has
stiffness 0 and damping 5. A policy gives a target 50 times a second, so commands go from one target to the next in a
straight line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import SafetyCfg
from q1pipe.deploy.contract import Contract
from q1pipe.robot import Robot

Array = NDArray[Any]


def commands_per_target(contract: Contract, cfg: SafetyCfg) -> int:
    """Joint commands between one target of the policy and the next, at the slowest rate."""
    return max(1, int(contract.control_dt * cfg.command_hz + 1e-9))


def audit(
    robot: Robot, contract: Contract, trace: Mapping[str, Array], damped: tuple[float, str], cfg: SafetyCfg
) -> list[dict[str, Any]]:
    """The rules, each with what was measured over episodes, what is allowed, and where it is worst.

    Args:
        robot: the model, whose limits hold.
        contract: of the policy.
        trace: `sim2sim.Outcome.trace`: arrays (T, n, …) with what was commanded and what came of it.
        damped: highest joint speed after the last command, and whose.
        cfg: what is allowed.

    Returns:
        Rows: rule, value, unit, allowed (none where the number is only told), worst, passed.
    """
    names = contract.joint_names
    order = [robot.joint_names.index(name) for name in names if name in robot.joint_names]
    running, target = trace["running"], trace["ctrl"]  # (T, n), (T, n, J)
    position, velocity = trace["joint_pos"], trace["joint_vel"]
    before, speed_before = trace["joint_pos_before"], trace["joint_vel_before"]
    soft, hard = robot.soft_limits[order], robot.limits[order]

    change = np.abs(np.diff(np.concatenate([before[:1], target]), axis=0)) / commands_per_target(contract, cfg)
    asked = np.abs(contract.joint_stiffness * (target - before) - contract.joint_damping * speed_before)
    over = asked > contract.joint_effort_limits
    beyond, aimed = (np.maximum(np.maximum(hard[:, 0] - x, x - hard[:, 1]), 0) for x in (position, target))
    outside = (position < soft[:, 0]) | (position > soft[:, 1])
    steps = max(int(running.sum()), 1)

    def worst(values: Array) -> tuple[float, str]:
        """Largest of (T, n, J) over what was running, and its joint."""
        each = np.where(running[..., None], np.nan_to_num(values, nan=np.inf), 0).max(axis=(0, 1))
        return _largest(each, names)

    def most(values: Array) -> tuple[float, str]:
        """Largest share over the joints of the running steps in which (T, n, J) holds, and its joint."""
        each = (values & running[..., None]).sum(axis=(0, 1)) / steps
        return _largest(each, names)

    strange = sorted(set(names) ^ set(robot.joint_names))
    repeated = len(names) - len(set(names))
    rows = [
        ("joints not addressed by a name of the robot", float(len(strange) + repeated), "", 0, ", ".join(strange[:5])),
        (f"command change at {cfg.command_hz:g} Hz", *_with(worst(change), "rad", cfg.max_command_change)),
        (
            "first target from the measured pose",
            *_with(worst(np.abs(target - before)[:1]), "rad", cfg.max_first_change),
        ),
        ("steps that ask for more than the torque limit", *_with(most(over), "share", cfg.max_saturation)),
        ("joint speed", *_with(worst(np.abs(velocity)), "rad/s", cfg.max_speed)),
        ("beyond hard limits", *_with(worst(beyond), "rad", cfg.max_beyond_limit)),
        # Targets are not clamped: one beyond a limit only asks for torque. How far it may is a matter of the hard stop.
        ("targets beyond hard limits", *_with(worst(aimed), "rad", cfg.max_target_beyond)),
        ("steps with a target beyond hard limits", *_with(most(aimed > 0), "share", None)),
        ("steps beyond soft limits", *_with(most(outside), "share", cfg.max_soft_limit)),
        (f"joint speed after the damping command ({cfg.damping:g})", *_with(damped, "rad/s", cfg.max_speed)),
    ]
    keys = ("rule", "value", "unit", "allowed", "worst")
    return [{**dict(zip(keys, row, strict=True)), "passed": row[3] is None or bool(row[1] <= row[3])} for row in rows]


def _largest(each: Array, names: Sequence[str]) -> tuple[float, str]:
    """The largest of a value per joint, and whose it is; nobody's where it is 0."""
    value = float(each.max())
    return value, names[int(each.argmax())] if value else ""


def _with(measured: tuple[float, str], unit: str, allowed: float | None) -> tuple[float, str, float | None, str]:
    value, where = measured
    return value, unit, allowed, where
