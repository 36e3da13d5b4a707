"""Stage 5: the exported policy in an independent simulation, in many worlds, and what the robot would say to it.

Nothing here or below imports the training's simulation, or torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from q1pipe.config import EvaluateCfg, ExportCfg, Sim2simCfg
from q1pipe.deploy.contract import Contract, check, sha256
from q1pipe.deploy.openloop import Row, differences, replay
from q1pipe.deploy.parity import session_of
from q1pipe.deploy.run_policy import Controller
from q1pipe.deploy.safety import audit
from q1pipe.deploy.sim2sim import Judge, Limits, Outcome, close_loop, damped, floor_forces, widths
from q1pipe.deploy.worlds import NOMINAL, worlds
from q1pipe.errors import Finding, Q1Error, error, warn
from q1pipe.files import replacing, write_json
from q1pipe.metrics import DEFINITIONS, gate
from q1pipe.motion.clip import Clip
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.stages.versions import differing, installed

log = logging.getLogger(__name__)


def run(
    onnx: Path,
    recording: Path,
    motion: Path,
    out_json: Path,
    trajectory: Path,
    threads: int,
    settings: Mapping[str, Any],
) -> None:
    """Put policy.onnx through its paces and write sim2sim.json. A failed gate is a verdict in the file, not an error.

    Args:
        onnx: policy.onnx.
        recording: recording.npz of export.
        motion: motion.npz.
        out_json: sim2sim.json.
        trajectory: trajectory.npz, the first nominal episode.
        threads: cores for the physics; the result does not depend on it.
        settings: sections ``robot``, ``sim2sim``, of ``export`` its max_difference, of ``evaluate`` what holding the
            final pose means, of ``train`` the terminations.

    Raises:
        Q1Error: the file contradicts itself, the model or the motion; or a recorded step does not come out again.
    """
    cfg: Sim2simCfg = settings["sim2sim"]
    export: ExportCfg = settings["export"]
    evaluate: EvaluateCfg = settings["evaluate"]
    robot, clip = Robot.load(settings["robot"]), Clip.load(motion).opening()
    contract, controller = load(onnx, motion, robot)
    versions = installed("mujoco", "onnxruntime", "numpy")
    doubts = [*differing(contract.versions, versions, "sim2sim"), *other_robot(contract, robot)]
    for finding in doubts:
        log.warning(finding)

    with np.load(recording) as data:
        recorded = dict(data)
    table, drift = replay(robot, contract, controller, recorded, threads)
    for row in table:
        log.info("  %-6s %-20s %.1e  %s, step %d", row.what, row.term, row.largest, row.at, row.step)
    log.info("  all %d actions from the first state on: qpos within %.1e", len(recorded["action"]), drift)
    open_loop = {"rows": [vars(row) for row in table], "drift": drift, "allowed": cfg.max_difference}
    if findings := differences(table, cfg, export.max_difference, str(onnx)):
        found = [f.record() for f in (*findings, *doubts)]
        write_json(out_json, {"verdict": "fail", "findings": found, "open_loop": open_loop})
        raise Q1Error(*findings)

    judge = Judge(robot, clip, Limits(settings["train"].termination, evaluate))
    starts = recorded["start_qpos"], recorded["start_qvel"]
    outcomes = matrix(judge, contract, controller, starts, cfg, threads)
    nominal = outcomes[NOMINAL]
    whole = np.isfinite(nominal.trace["qpos"][-1]).all(axis=1)
    last = nominal.trace["qpos"][-1][whole], nominal.trace["qvel"][-1][whole]
    ending = damped(robot, contract, *last, cfg.safety.damping, cfg.safety.damping_seconds, threads)
    safety = audit(robot, contract, nominal.trace, ending, cfg.safety)
    save_trajectory(trajectory, robot, contract, nominal)
    verdict = gates(cfg, outcomes, table)
    write_json(
        out_json,
        {
            "verdict": "pass" if all(g["passed"] for g in verdict) else "fail",
            "gates": verdict,
            "findings": [f.record() for f in doubts],
            "worlds": {name: record(outcome) for name, outcome in outcomes.items()},
            "nominal_success": nominal.success.tolist(),
            "open_loop": open_loop,
            "safety": {"verdict": "pass" if all(r["passed"] for r in safety) else "fail", "rules": safety},
            "definitions": {k: v for k, v in DEFINITIONS.items() if k in nominal.summary()},
            "fingerprint": contract.fingerprint,
            "hashes": {p.name: file_sha(p) for p in (onnx, motion, recording)},
            "versions": versions,
        },
    )
    report(outcomes, safety)


def load(onnx: Path, motion: Path, robot: Robot) -> tuple[Contract, Controller]:
    """The policy's contract, checked against the model and the motion, and its controller.

    Raises:
        Q1Error: names each contradiction.
    """
    session = session_of(str(onnx))
    contract = Contract.read(session.get_modelmeta().custom_metadata_map, str(onnx))
    findings = check(contract, robot, widths(robot), session.get_inputs()[0].shape[1], str(onnx))
    if (sha := sha256(motion)) != contract.motion_sha256:
        found = f"the policy follows another motion: {contract.motion_sha256[:12]}, this one is {sha[:12]}"
        findings.append(error("mixed-run", str(motion), found, "one run", "export again"))
    if findings:
        raise Q1Error(*findings)
    return contract, Controller(str(onnx), str(motion))


def other_robot(contract: Contract, robot: Robot) -> list[Finding]:
    """A WARN when the MJCF is not that of the training; what `check` compares is still the same."""
    if robot.sha == contract.robot_sha:
        return []
    found = f"MJCF {robot.sha}, the policy was trained with {contract.robot_sha}"
    return [warn("other-robot", contract.robot, found, "", "differences are differences of the models")]


def matrix(
    judge: Judge, contract: Contract, controller: Controller, starts: Any, cfg: Sim2simCfg, threads: int
) -> dict[str, Outcome]:
    """World -> what its episodes gave, the nominal one first."""
    every = worlds(cfg)
    count = {w.name: min(cfg.episodes, len(starts[0])) for w in every} | {NOMINAL: len(starts[0])}
    played: dict[str, Outcome] = {}
    for _, members in groupby(sorted(every, key=lambda w: w.group), key=lambda w: w.group):
        group = list(members)
        counts = [count[w.name] for w in group]
        for outcome in close_loop(judge, contract, controller, group, starts, counts, cfg, threads):
            played[outcome.world.name] = outcome
    return {w.name: played[w.name] for w in every}


def gates(cfg: Sim2simCfg, outcomes: Mapping[str, Outcome], table: list[Row]) -> list[dict[str, Any]]:
    """Each gate with the number behind it: name, value, allowed, passed."""
    bounds = {name: cfg.min_success if name == NOMINAL else cfg.min_success_worlds for name in outcomes}
    success = {name: float(outcome.success.mean()) for name, outcome in outcomes.items()}
    largest = max(row.largest for row in table if row.what != "action")
    return [
        gate("open_loop.difference", largest, f"<= {cfg.max_difference:g}", largest <= cfg.max_difference),
        *(gate(f"{n}.success_rate", success[n], f">= {b:g}", success[n] >= b) for n, b in bounds.items()),
    ]


def record(outcome: Outcome) -> dict[str, Any]:
    """A world in sim2sim.json: its numbers, its ends, and how it differs from training."""
    changed = {k: v for k, v in vars(outcome.world).items() if k != "name" and v not in (None, "", 0, False, 1.0)}
    return {**outcome.summary(), "ends": outcome.ends, "changed": changed}


def save_trajectory(path: Path, robot: Robot, contract: Contract, nominal: Outcome) -> None:
    """Write the first nominal episode: a row per control step, what holds at its end."""
    length = int(nominal.ep_len[0])
    first = {name: nominal.trace[name][:length, 0] for name in ("qpos", "qvel", "ctrl", "torque", "contact")}
    forces = floor_forces(robot, contract, first["qpos"], first["qvel"], first["ctrl"])
    with replacing(path) as temporary, open(temporary, "wb") as f:
        np.savez_compressed(
            f,
            time=np.arange(1, length + 1) * contract.control_dt,
            frame=np.arange(1, length + 1),
            **first,  # type: ignore[arg-type]
            contact_force=forces.astype(np.float32),
            joint_names=np.array(contract.joint_names),
            body_names=np.array(robot.body_names),
            fps=np.array([1 / contract.control_dt]),
        )


def report(outcomes: Mapping[str, Outcome], safety: list[dict[str, Any]]) -> None:
    """Print the tables."""
    for name, outcome in outcomes.items():
        s = outcome.summary()
        log.info(
            "  %-22s success %5.1f %%  finish %5.1f %%  r_mpkpe %.3f m",
            *(name, 100 * s["success_rate"], 100 * s["finish_rate"], s["r_mpkpe"]),
        )
    for row in safety:
        passed = ("pass" if row["passed"] else "FAIL") if row["allowed"] is not None else "    "
        allowed = f"<= {row['allowed']:g}" if row["allowed"] is not None else ""
        log.info(
            "  %s  %-48s %8.3g %s %s  %s", *(passed, row["rule"], row["value"], allowed, row["unit"], row["worst"])
        )
