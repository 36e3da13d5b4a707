"""How fast this machine trains a motion, against what its physics allow, and where the time goes.

Everything is measured on the states that training is in: rounds of real training, each followed by the same number of
steps of the physics alone, from the states and with the targets that training went on with.
"""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from q1pipe import cores
from q1pipe.config import Sections, TrainCfg
from q1pipe.errors import ConfigError, error
from q1pipe.learn.device import cpu_name, use
from q1pipe.learn.history import numbers
from q1pipe.learn.trainer import Trainer
from q1pipe.motion.clip import Clip
from q1pipe.motion.intake import take_in
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.physics import VELOCITY
from q1pipe.stages import device as device_stage
from q1pipe.stages.train import provenance, train
from q1pipe.stopping import Stopping

log = logging.getLogger(__name__)

Array = NDArray[Any]

WARMUP = 10  # iterations before the first measured one: early episodes end after a few steps
ITERATIONS = 5  # of training in a round
CORES = (4, 8, 16, 32, 64, 128)  # that the estimate is for
PARTS = ("physics", "task", "inference", "copies", "waiting", "update", "rest")
CARD = 10.0  # × this learner: the card of the estimate


@dataclass(frozen=True)
class Bench:
    """Seconds of one iteration with so many workers, medians over the rounds.

    Attributes:
        workers: physics processes.
        acts: they compute the policy as well.
        raw: the physics alone, `Batch.step` of all environments in as many threads.
        own: what a worker does beside physics: observations, rewards, resets.
        inference: actions from observations, by a worker for its environments or by the learner for all.
        copies: between host and device.
        collect: all of collection, waiting and messages included.
        update: values, advantages, epochs.
        rest: logging, keeping the state to go on from.
        collection_of_raw: raw / collect, median of the rounds' ratios.
        loop_of_raw: raw / (collect + update + rest), median of the rounds' ratios.
    """

    workers: int
    acts: bool
    raw: float
    own: float
    inference: float
    copies: float
    collect: float
    update: float
    rest: float
    collection_of_raw: float
    loop_of_raw: float

    @property
    def loop(self) -> float:
        """Seconds of the whole iteration."""
        return self.collect + self.update + self.rest

    @property
    def spread(self) -> float:
        """Seconds beside physics that more cores share."""
        return self.own + self.inference * self.acts


def run(source: Path, sections: Sections, workers: Sequence[int], rounds: int, out: Path | None) -> dict[str, Any]:
    """Measure, for numbers of workers.

    Args:
        source: any motion file.
        sections: the settings of its training.
        workers: numbers to try; none: all divisors of num_envs up to the cores there are.
        rounds: of each.
        out: JSON file for the record.

    Returns:
        The record: machine, settings, one `Bench` for each number of workers, estimate.

    Raises:
        Q1Error: the motion is no good, the device does not compute, or a number of workers does not fit.
    """
    cfg, available = sections.train, cores.available()
    tried = list(workers) or [n for n in range(1, available + 1) if cfg.num_envs % n == 0]
    if bad := [n for n in tried if n < 1 or cfg.num_envs % n]:
        raise ConfigError(
            error("workers", "--workers", str(bad[0]), f"divisors of train.num_envs, {cfg.num_envs}", "choose others")
        )
    robot = Robot.load(sections.robot)
    with tempfile.TemporaryDirectory(prefix="q1pipe-bench-") as name:
        folder = Path(name)
        clip = take_in(source, robot, sections.motion, cfg.control_hz).clip
        clip.save(folder / "motion.npz")
        device_stage.run(folder / "device.json", {"device": sections.device})
        benches = [measured(folder, clip, robot, sections, count, rounds) for count in tried]
        chosen = json.loads((folder / "device.json").read_text(encoding="utf-8"))
    best = min(benches, key=lambda bench: bench.loop)
    record = {
        "machine": {"cpu": cpu_name(), "cores": available, "device": chosen["device"], "device_name": chosen["name"]},
        "settings": {
            "num_envs": cfg.num_envs,
            "steps_per_env": cfg.steps_per_env,
            "hidden": list(cfg.policy.hidden),
            "frames": clip.frames,
            "rounds": rounds,
        },
        "workers": [asdict(bench) for bench in benches],
        "recommended_workers": best.workers,
        "estimate": estimate(benches, cfg),
    }
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def measured(folder: Path, clip: Clip, robot: Robot, sections: Sections, workers: int, rounds: int) -> Bench:
    """Rounds of training with a number of workers, and of the physics alone.

    Args:
        folder: with motion.npz and device.json; a run folder is made in it.
        clip: the motion.
        robot: the robot.
        sections: settings.
        workers: physics processes.
        rounds: how many.
    """
    chosen = json.loads((folder / "device.json").read_text(encoding="utf-8"))
    cfg = sections.train.model_copy(update={"num_workers": workers, "save_interval": 10**9})
    meta, device = provenance(folder / "motion.npz", robot, cfg, chosen), use(chosen["device"])
    runs, parts = folder / f"workers-{workers}", []
    runs.mkdir()
    for n in range(rounds):
        end = WARMUP + (n + 1) * ITERATIONS
        budget = cfg.model_copy(update={"max_iterations": end})
        of = (sections.robot, robot, folder / "motion.npz", clip, budget, cores.available())
        trainer = train(*of, device, runs, meta, None, Stopping())
        rows = numbers(runs / "train.csv")[-ITERATIONS:]
        collect, update = (statistics.median(row[f"{what}_s"] for row in rows) for what in ("collect", "update"))
        wall = (rows[-1]["wall_s"] - rows[0]["wall_s"]) / (len(rows) - 1)
        raw, _ = physics(trainer, robot, clip, cfg, 1, workers)
        alone, whole = physics(trainer, robot, clip, cfg, workers, 1)
        acts = bool(trainer.pool.policy)
        inference, copies = (one_core(trainer, cfg.num_envs // workers), 0.0) if acts else learner(trainer)
        parts.append((raw, whole - alone, inference, copies, collect, update, max(0.0, wall - collect - update)))
        log.info("%d workers, round %d of %d: %.0f steps/s", workers, n + 1, rounds, rows[-1]["sps"])
    raw, own, inference, copies, collect, update, rest = (statistics.median(x) for x in zip(*parts, strict=True))
    ratios = (statistics.median(p[0] / whole(p) for p in parts) for whole in (lambda p: p[4], lambda p: sum(p[4:])))
    return Bench(workers, acts, raw, own, inference, copies, collect, update, rest, *ratios)


def physics(trainer: Trainer, robot: Robot, clip: Clip, cfg: TrainCfg, share: int, threads: int) -> tuple[float, float]:
    """Seconds of an iteration's steps from where training is: of `Batch.step` alone, and of all a worker does.

    Args:
        trainer: its policy acts.
        robot: the robot.
        clip: the motion.
        cfg: settings.
        share: one of how many equal parts of the environments.
        threads: of the physics.
    """
    n = cfg.num_envs // share
    env = TrackingEnv(robot, clip, cfg, np.arange(n), "train", threads)
    env.bin_probs[:] = trainer.sampler.probs
    out = StepBuffers.zeros(n, env.layout)
    start = {name: np.asarray(value)[:n] for name, value in trainer.good["pool"].items()}
    env.load(start, out)
    std = torch.exp(trainer.policy.log_std.detach()).cpu().numpy()
    rng, whole, targets, states = np.random.default_rng(0), 0.0, [], []
    for _ in range(cfg.steps_per_env):
        with torch.no_grad():
            obs = torch.from_numpy(out.rows[:, : env.layout.actor_dim].copy()).to(trainer.device)
            mean = trainer.policy(obs).cpu().numpy()
        action = (mean + std * rng.standard_normal(mean.shape)).astype(np.float32)
        begin = time.perf_counter()
        env.step(action, out)
        whole += time.perf_counter() - begin
        targets.append(env.physics.ctrl.copy())
        states.append(env.physics.save())
    env.physics.load(start["physics"])
    batch, alone = env.physics.batch, 0.0
    for target, state in zip(targets, states, strict=True):
        env.physics.ctrl[:] = target
        begin = time.perf_counter()
        batch.step(nstep=cfg.substeps, stage=VELOCITY)
        alone += time.perf_counter() - begin
        changed = np.flatnonzero((batch.state != state).any(axis=1))  # began a new episode, or was pushed
        if len(changed):
            batch.state[changed] = state[changed]
            batch.forward(changed, stage=VELOCITY)
    return alone, whole


def one_core(trainer: Trainer, envs: int) -> float:
    """Seconds of an iteration's inference for so many environments on one core, by torch; workers have `sim.actor`."""
    policy, rows, threads = trainer.policy, trainer.rollout.rows[:-1, :envs], torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        policy(rows[0, :, : policy.shape.actor])  # whatever the first call sets up
        begin = time.perf_counter()
        for row in rows:
            policy(row[:, : policy.shape.actor])
        seconds = time.perf_counter() - begin
    torch.set_num_threads(threads)
    return seconds


def learner(trainer: Trainer) -> tuple[float, float]:
    """Seconds of an iteration's inference and of its copies, each by itself."""
    rows, policy, steps = trainer.rollout.rows, trainer.policy, trainer.cfg.steps_per_env
    on_host = torch.zeros(rows.shape[1:])
    with torch.no_grad():
        policy(rows[0, :, : policy.shape.actor])  # whatever the first call sets up
        begin = time.perf_counter()
        for t in range(steps):
            actions = policy(rows[t, :, : policy.shape.actor])
        float(actions.sum())  # waits for the device
        middle = time.perf_counter()
        for t in range(steps):
            rows[t].copy_(on_host)
            actions.cpu()
        return middle - begin, time.perf_counter() - middle


def estimate(benches: Sequence[Bench], cfg: TrainCfg) -> list[dict[str, float]]:
    """Environment steps per second with more cores, from what was measured here.

    Physics and a worker's own work are spread over the cores, as a fixed part and one per environment (two numbers of
    workers tell them apart; one number leaves all of it fixed). A learner's inference and copies, the update and the
    rest are as long as here; on a card that is CARD times as fast as this learner, inference and update shrink.
    """
    few, many = min(benches, key=lambda b: b.workers), max(benches, key=lambda b: b.workers)
    steps = cfg.num_envs * cfg.steps_per_env
    physics_work = few.raw * few.workers / steps  # s of one core for an environment step
    slope = (few.spread - many.spread) / (1 / few.workers - 1 / many.workers) if few.workers < many.workers else 0.0
    slope = max(0.0, slope)
    fixed = max(0.0, few.spread - slope / few.workers)
    messages = max(0.0, many.collect - many.raw - many.own - many.inference - many.copies)
    found = []
    for count in CORES:
        if cfg.num_envs % count:
            continue
        spread = physics_work * steps / count + fixed + slope / count + messages
        serial = many.copies + many.rest
        computed = many.inference * (not many.acts) + many.update
        found.append(
            {
                "cores": count,
                "steps_per_s": steps / (spread + serial + computed),
                "steps_per_s_with_card": steps / (spread + serial + computed / CARD),
            }
        )
    return found


def tables(record: dict[str, Any]) -> list[Table]:
    """The record for people: speeds by number of workers, where the time goes, the estimate."""
    settings, machine = record["settings"], record["machine"]
    steps = settings["num_envs"] * settings["steps_per_env"]
    net = "-".join(map(str, settings["hidden"]))
    about = f"{settings['num_envs']} environments, net {net}; {machine['cpu']}, learner on {machine['device_name']}"
    speed = Table("workers", "physics alone", "collection", "of it", "whole loop", "of it", caption=about)
    speed.title = "environment steps per second"
    where = Table("workers", *PARTS, title="where an iteration's time goes, ms")
    where.caption = "task: observations, rewards, resets; waiting: for the slowest worker, messages; rest: logs, state"
    for b in (Bench(**values) for values in record["workers"]):
        raw, collection, loop = (f"{steps / seconds:,.0f}" for seconds in (b.raw, b.collect, b.loop))
        speed.add_row(str(b.workers), raw, collection, f"{b.collection_of_raw:.2f}", loop, f"{b.loop_of_raw:.2f}")
        waiting = max(0.0, b.collect - b.raw - b.own - b.inference - b.copies)
        times = (b.raw, b.own, b.inference, b.copies, waiting, b.update, b.rest)
        where.add_row(str(b.workers), *(f"{1e3 * seconds:.1f}" for seconds in times))
    later = Table(
        "cores", "whole loop", f"learner {CARD:.0f} × as fast", title="estimate: environment steps per second"
    )
    for row in record["estimate"]:
        later.add_row(str(row["cores"]), f"{row['steps_per_s']:,.0f}", f"{row['steps_per_s_with_card']:,.0f}")
    return [speed, where, later]
