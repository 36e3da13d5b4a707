"""Stage 1: decide what a clip is worth before hours are spent on it, and write it in the normalised form."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import MotionCfg, RandomizationCfg, ResetCfg, TrainCfg
from q1pipe.errors import Finding, MotionError, Q1Error, error
from q1pipe.files import replacing, write_json
from q1pipe.log import progress
from q1pipe.motion.clip import Clip
from q1pipe.motion.followability import (
    Followability,
    Replay,
    broken,
    carried_95,
    followability,
    judge,
    replay,
    score,
    slow_gap,
    verdict,
)
from q1pipe.motion.intake import take_in
from q1pipe.motion.plot import plot
from q1pipe.motion.raw import runs_of, spans
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.terminations import DEPARTURES, Cause, Limits, causes, failed, worst

log = logging.getLogger(__name__)

CHUNK = 512  # frames that are simulated at once
LONG, LONG_STRIDE = 6000, 10  # in clips of more frames, plain PD is tried in each tenth chunk only
HOLD_STEPS = 5  # control steps that a reset to any frame must survive without a policy
STILL = ResetCfg(
    xy=0, z=(0, 0), roll_pitch=0, yaw=0, joint=0, vel_xy=0, vel_z=0, vel_roll_pitch=0, vel_yaw=0, from_start=0
)


def run(source: Path, out_npz: Path, out_json: Path, settings: Mapping[str, Any], out_plot: Path | None = None) -> None:
    """Check a motion file and write `motion.npz` and `motion.json`.

    Args:
        source: the user's file; it is not changed.
        out_npz: the normalised clip at the control rate.
        out_json: findings, statistics and curves; written also when the clip is refused.
        settings: sections ``robot``, ``motion``, ``train``.
        out_plot: the curves as SVG.

    Raises:
        Q1Error: the clip cannot be trained on; every reason.
    """
    robot = Robot.load(settings["robot"])
    record: dict[str, Any] = {"source": source.name, "hashes": {"source": file_sha(source), "robot": robot.sha}}
    findings: list[Finding] = []
    try:
        assessed = assess(source, robot, settings["motion"], settings["train"])
        record |= assessed.record
        findings = assessed.findings
        if errors := [f for f in findings if f.level == "ERROR"]:
            raise MotionError(*errors)
    except Q1Error as e:
        findings = findings or list(e.findings)
        raise
    finally:
        write_json(out_json, {**record, "findings": [f.record() for f in findings]})
    assessed.clip.save(out_npz)
    if out_plot is not None:
        with replacing(out_plot) as temporary:
            temporary.write_text(assessed.plot, encoding="utf-8")
    for finding in findings:
        log.log(logging.WARNING if finding.level == "WARN" else logging.INFO, finding)
    log.info("%s: %s", source.name, assessed.verdict)


@dataclass(frozen=True, eq=False)
class Assessment:
    """What a clip is worth.

    Attributes:
        clip: the normalised clip.
        findings: all of them; an ERROR among them: it cannot be trained on.
        record: statistics and curves, plain values.
        plot: the curves, SVG.
        verdict: one line.
    """

    clip: Clip
    findings: list[Finding]
    record: dict[str, Any]
    plot: str
    verdict: str


def assess(source: Path, robot: Robot, cfg: MotionCfg, train: TrainCfg) -> Assessment:
    """Take a file in and measure what it asks of the robot.

    Raises:
        MotionError: it is no motion of this robot; every reason.
    """
    where = str(source)
    taken = take_in(source, robot, cfg, train.control_hz)
    clip = taken.clip
    curves = followability(robot, clip, cfg.contact_distance)
    replays = [
        replay(robot, clip.opening(), train.control_hz * train.substeps, gain) for gain in (1.0, cfg.replay_gain)
    ]
    findings = taken.findings + judge(curves, cfg, where) + check_terminations(robot, clip, train, where)
    record = _statistics(robot, taken.fps, clip, curves, replays, cfg)
    low = taken.floor
    record["floor_distance"] = {"min": float(low.min()), "max": float(low.max()), "frame_of_min": int(low.argmin())}
    line = f"{clip.frames} frames, {clip.seconds:.2f} s at {clip.fps:g} Hz; {verdict(curves, replays[0], cfg)}"
    return Assessment(clip, findings, record, plot(curves, cfg, clip.fps, source.name), line)


def check_terminations(robot: Robot, clip: Clip, cfg: TrainCfg, where: str) -> list[Finding]:
    """Every termination on the reference itself, at each frame, and after a moment of plain PD tracking from there.

    One that fires on the reference would end every episode there: an ERROR. What plain PD loses, a policy has to
    learn: INFO.
    """
    still = cfg.model_copy(update={"reset": STILL, "randomization": RandomizationCfg(push=0)})
    frames = np.arange(clip.frames)
    at_once = min(clip.frames, CHUNK)
    env = TrackingEnv(robot, clip, still, np.arange(at_once), "nominal")
    out = StepBuffers.zeros(at_once, env.layout)
    never, limits = np.zeros(at_once, bool), Limits.of(robot, cfg.termination)
    on_reference, held = np.full((2, clip.frames), Cause.NONE)
    beyond: dict[int, list[tuple[float, float, int]]] = {}  # cause -> value, limit, frame
    tried = np.ones(clip.frames, bool)
    chunks = range(0, clip.frames, at_once)
    for start in progress(chunks, len(chunks), f"terminations, stretch of {at_once} frames"):
        chosen = np.minimum(frames[:at_once] + start, clip.frames - 1)  # the last chunk repeats the last frame
        env.reset_all(out, chosen)
        on_reference[chosen] = now = causes(env.view, limits, never, never)
        for cause in set(now.tolist()) & set(DEPARTURES):
            value, limit = worst(env.view, limits, cause)
            k = int(np.where(now == cause, value / limit, 0).argmax())
            beyond.setdefault(cause, []).append((float(value[k]), float(limit[k]), int(chosen[k])))
        if clip.frames > LONG and start % (LONG_STRIDE * at_once):
            tried[chosen] = False
            continue
        for _ in range(HOLD_STEPS):
            reference = out.rows[:, env.layout.reference_joint_pos]
            env.step(((reference - robot.default_joint_pos) / robot.action_scale).astype(np.float32), out)
        held[chosen] = np.where(failed(out.cause), out.cause, Cause.NONE)
    findings = []
    for number, frames in _fired(on_reference):
        found = f"{Cause(number).name.lower()} fires on the reference itself in frames {spans(frames)}"
        if number in beyond:
            most, allowed, frame = max(beyond[number], key=lambda b: b[0] / b[1])
            found += f", up to {most:.3f} > {allowed:.3f} in frame {frame}"
        action = "loosen train.termination or mend the clip"
        findings.append(error("termination", where, found, "no termination", action))
    told = f"after {HOLD_STEPS} steps of plain PD from"
    for number, frames in _fired(held):
        found = f"{Cause(number).name.lower()} fires {told} {len(frames)} of {tried.sum()} frames: {spans(frames)}"
        findings.append(Finding("INFO", "termination", where, found))
    if not tried.all():
        found = f"plain PD was tried from {tried.sum()} of {clip.frames} frames, every tenth stretch of {CHUNK}"
        findings.append(Finding("INFO", "termination", where, found))
    return findings


def _fired(cause: NDArray[np.integer]) -> list[tuple[int, NDArray[np.intp]]]:
    """Each termination that fired, and the frames, given the cause of each, (T,)."""
    return [(int(number), np.flatnonzero(cause == number)) for number in np.unique(cause[cause != Cause.NONE])]


def _statistics(
    robot: Robot, fps: float, clip: Clip, curves: Followability, replays: Sequence[Replay], cfg: MotionCfg
) -> dict[str, Any]:
    """What motion.json says beyond the findings: plain numbers, curves per frame of the normalised clip."""
    speed = np.abs(clip.joint_vel).max(axis=0)
    joints = {
        name: {
            "min": float(clip.joint_pos[:, j].min()),
            "max": float(clip.joint_pos[:, j].max()),
            "limits": robot.limits[j].tolist(),
            "peak_speed": float(speed[j]),
        }
        for j, name in enumerate(robot.joint_names)
    }
    height = clip.body_pos_w[:, robot.anchor - 1, 2]
    return {
        "fps": {"file": fps, "normalised": clip.fps},
        "frames": clip.frames,
        "seconds": clip.seconds,
        "jumps": list(clip.jumps),
        "anchor_height": {"first": float(height[0]), "last": float(height[-1]), "max": float(height.max())},
        "joints": joints,
        "followability": {
            "support_gap_slow": slow_gap(curves, cfg),
            "carried_95": carried_95(curves),
            "carried_max": float(curves.carried.max()),
            "score": score(curves, cfg),
            "spoiled": {name: runs_of(np.flatnonzero(bad)) for name, bad in broken(curves, cfg).items()},
            "curves": {name: np.round(value, 4).tolist() for name, value in vars(curves).items()},
            "units": {
                "com_speed": "m/s",
                "support_gap": "m",
                "carried": "× weight",
                "contacts": "bodies on the floor",
                "joint_speed": "rad/s",
                "torque": "× limit",
                "self_penetration": "m",
                "skating": "m/s",
            },
        },
        "replay": [asdict(r) for r in replays],
    }
