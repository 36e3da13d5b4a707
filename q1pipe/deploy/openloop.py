"""Open loop: every recorded step of the training's simulation is done again and compared term by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import Sim2simCfg
from q1pipe.deploy.contract import Contract
from q1pipe.deploy.run_policy import Controller
from q1pipe.deploy.worlds import NOMINAL, Simulation, State, World
from q1pipe.errors import Finding, error
from q1pipe.robot import Robot

Array = NDArray[Any]

ACTION = "action"


@dataclass(frozen=True)
class Row:
    """A line of the table of differences.

    Attributes:
        term: of the observation, or ``action``.
        what: ``state``: observed in a recorded state; ``step``: observed after a control step from it; ``action``.
        largest: difference.
        at: component where it is: a joint, or a number.
        step: control step where it is.
        swapped: what the values are instead, where that is found out.
    """

    term: str
    what: str
    largest: float
    at: str
    step: int
    swapped: str = ""


def replay(
    robot: Robot, contract: Contract, controller: Controller, recording: Mapping[str, Any], threads: int
) -> tuple[list[Row], float]:
    """Do each step of a recorded trajectory again and compare what is observed and what the policy answers.

    Every step begins in its recorded state, so that a difference stays where it arises and contacts do not amplify it.

    Args:
        robot: the model.
        contract: of the policy.
        controller: of the policy.
        recording: ``qpos`` (K+1, nq), ``qvel``, ``warmstart`` (K+1, nv), ``frame`` (K+1), ``observation`` (K+1, D) in
            the training's layout, ``action`` (K, J) of the training's policy.
        threads: cores.

    Returns:
        The table, and the largest difference of qpos when all actions are applied from the first state on.
    """
    observed, action = recording["observation"], recording["action"]
    steps = len(action)
    ahead = np.minimum(recording["frame"] + 1, controller.frames - 1)
    target = controller.target(action)
    states = [recording[name] for name in ("qpos", "qvel", "warmstart")]
    simulation = Simulation(robot, contract, [World(NOMINAL)], [steps + 1], threads)

    def compared(state: State, first: int, what: str) -> list[Row]:
        rows = slice(first, steps + 1)
        imu, gyro, pos, vel = (x[: steps + 1 - first] for x in state.measured)
        mine = controller.observe(imu, gyro, pos, vel, ahead[rows], last[rows])
        return _compare(contract, mine, observed[rows], what, first)

    start = simulation.start(*states)
    last = np.concatenate([controller.holding(start.measured[2][:1]), action])
    table = compared(start, 0, "state")
    held = np.concatenate([target, target[-1:]])  # the step from the last state is not recorded
    table += compared(simulation.step(held, held), 1, "step")
    answer = controller.act(observed[:-1])
    table.append(_row(contract, ACTION, ACTION, answer, {ACTION: action}, 0))

    alone = Simulation(robot, contract, [World(NOMINAL)], [1], 1)
    alone.start(*(s[:1] for s in states))
    drift = 0.0
    for k in range(steps):
        alone.step(target[k : k + 1], target[k : k + 1])
        drift = max(drift, float(np.abs(alone.qpos[0] - recording["qpos"][k + 1]).max()))
    return table, drift


def _compare(contract: Contract, mine: Array, recorded: Array, what: str, first: int) -> list[Row]:
    columns = contract.slices()
    theirs = {name: recorded[:, c] for name, c in columns.items()}
    return [_row(contract, name, what, mine[:, c], theirs, first) for name, c in columns.items()]


def _row(contract: Contract, term: str, what: str, mine: Array, theirs: Mapping[str, Array], first: int) -> Row:
    difference = np.abs(mine - theirs[term])
    step, column = np.unravel_index(np.nan_to_num(difference, nan=np.inf).argmax(), difference.shape)
    names = contract.joint_names
    at = names[column] if difference.shape[1] == len(names) else f"[{column}]"
    return Row(term, what, float(difference[step, column]), at, int(step) + first, _swapped(names, term, mine, theirs))


def _swapped(names: Sequence[str], term: str, mine: Array, theirs: Mapping[str, Array]) -> str:
    """What the values of a term are instead of the recorded ones: another term, or those of the other side."""
    tolerance = 1e-4
    if np.allclose(mine, theirs[term], rtol=0, atol=tolerance):
        return ""
    for other, values in theirs.items():
        if values.shape == mine.shape and np.allclose(mine, values, rtol=0, atol=tolerance):
            return f"it is what was recorded as {other}"
    mirrored = [n.replace("left", "\0").replace("right", "left").replace("\0", "right") for n in names]
    if mine.shape[1] == len(names) and set(mirrored) == set(names):
        sides = (theirs[term], theirs[term][:, [names.index(n) for n in mirrored]])
        if np.any([(np.abs(mine - side) <= tolerance).all(axis=0) for side in sides], axis=0).all():
            return "left and right are swapped"
    return ""


def differences(table: Sequence[Row], cfg: Sim2simCfg, max_action: float, where: str) -> list[Finding]:
    """An ERROR that names the first term that differs, for observing, for acting and for the physics each.

    Args:
        table: of `replay`.
        cfg: what is allowed.
        max_action: largest difference of an action.
        where: the policy's file.
    """
    causes = {
        "state": ("observed in the same state", "compare joint order, default pose, frames and term order"),
        ACTION: ("for the same observation", "this is another network, or its outputs are in another order"),
        "step": ("one control step after the same state", "compare gains, time step, armature, masses and friction"),
    }
    findings = []
    for what, (when, action) in causes.items():
        allowed = max_action if what == ACTION else cfg.max_difference
        bad = [row for row in table if row.what == what and not row.largest <= allowed]
        if not bad:
            continue
        row = bad[0]
        found = f"differs by {row.largest:.3g} at {row.at} in step {row.step}, {when}"
        if row.swapped:
            found += f": {row.swapped}"
        if len(bad) > 1:
            found += f"; also {', '.join(f'{r.term} {r.largest:.2g} at {r.at}' for r in bad[1:])}"
        findings.append(error(f"differs-{what}", f"{where}: {row.term}", found, f"at most {allowed:g}", action))
        if what == "state":
            break  # all that follows differs too
    return findings
