"""The training loop: collect, update, log, save; it can be stopped at any moment and goes on bit for bit."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from q1pipe.config import TrainCfg
from q1pipe.errors import DeviceError, Finding, Q1Error, error, warn
from q1pipe.learn import checkpoint
from q1pipe.learn.buffer import Batch, Rollout
from q1pipe.learn.device import fast_in_bf16, memory_short, out_of_memory
from q1pipe.learn.events import Events
from q1pipe.learn.history import DEVICE, History
from q1pipe.learn.policy import Critic, Policy, plain
from q1pipe.learn.ppo import Ppo
from q1pipe.log import PROGRESS_SECONDS, span
from q1pipe.stopping import Stopping

log = logging.getLogger(__name__)

FORMAT = 2  # of checkpoints and policies
EPISODES = 100  # finished episodes behind ep_ret and ep_len, as in rsl_rl
STORM_STEPS, STORM_ITERATIONS = 2, 5  # a median episode that ends so soon, for so long, is no training
NO_SPREAD = 1e-6  # variance of what is the same in all first observations
TRUNCATIONS = ("motion_end", "time_out")  # causes that are no failures
RESTORATIONS = 3  # of a run whose numbers went bad
BEST = "model_best.pt"
JUDGED = ("score", "success", "finish", "finish_disturbed", "mean_rew", "ep_ret", "ep_len")
EVALUATION = ("iteration", "env_steps", "wall_s", *JUDGED)

Array = NDArray[Any]


class Pool(Protocol):
    """What the learner needs of the simulation; arrays are shared memory, T steps of N environments."""

    rows: Array  # (T+1, N, critic + 3) float32: critic observation, reward, terminated, truncated
    final_obs: Array  # (T, N, critic) float32, the true final observation where truncated
    terms: Array  # (T, N, terms) float32, weighted reward terms
    cause: Array  # (T, N) int8, 0 none, else 1 + index of the cause of the episode's end
    frame: Array  # (T, N) int32
    ep_len: Array  # (T, N) int32
    ep_ret: Array  # (T, N) float32
    actions: Array  # (T, N, J) float32
    features: Array  # (T, N, actor) float32, where the workers act: `Policy.features`, with `offsets`
    offsets: Array  # (T, N, J) float32, where the workers act
    means: Array  # (T, N, J) float32, where the workers act
    moments: Array  # (2, N, actor) float64, where the workers act: sums of what was observed, and of its squares
    policy: dict[str, Array]  # `Policy.parts`, where the workers act; else empty
    bin_probs: Array  # (bins,) float64
    parts: list[slice]  # of the environments, that step in turn

    def reset(self) -> None: ...  # noqa: D102
    def start(self, t: int, part: int) -> None: ...  # noqa: D102
    def wait(self) -> None: ...  # noqa: D102
    def play(self, iteration: int) -> None: ...  # noqa: D102
    def roll(self) -> None: ...  # noqa: D102
    def state(self) -> dict[str, Array]: ...  # noqa: D102
    def load_state(self, state: dict[str, Array]) -> None: ...  # noqa: D102


class Sampler(Protocol):
    """Where episodes start: learns from the failures of an iteration."""

    covered: float  # share of the clip that the last iteration saw

    @property
    def probs(self) -> Array: ...  # noqa: D102  (bins,) float64
    def update(self, frame: Array, cause: Array) -> None: ...  # noqa: D102
    def state(self) -> dict[str, Array]: ...  # noqa: D102
    def load_state(self, state: dict[str, Array]) -> None: ...  # noqa: D102


Evaluate = Callable[[Policy], dict[str, float]]


class DivergedError(Q1Error):
    """Numbers went bad too often.

    Attributes:
        rollout: the last iteration of the environments concerned (n): iteration, quantity, env_ids (n), bin_probs,
            actions (T, n, J), rows (T+1, n, row), and the state that it began with, each name after ``state_``.
    """

    def __init__(self, rollout: dict[str, Array], *findings: Finding):
        self.rollout = rollout
        super().__init__(*findings)


class Trainer:
    """PPO on a pool of environments, in a run folder.

    Args:
        pool: the environments; already started, not yet reset.
        sampler: start distribution, handed to the pool once per iteration.
        policy: actor, on the device.
        critic: value function, on the device.
        cfg: stage settings.
        noise: (actor) ± half-width of the uniform noise on the actor's observation; workers that act have their own.
        folder: run folder for checkpoints, train.csv, eval.csv and TensorBoard events.
        terms: names of the reward terms, columns of `pool.terms`.
        causes: names of the causes 1, 2, … of an episode's end.
        meta: plain values to keep in every checkpoint (hashes, versions, settings).
        evaluate: deterministic episodes from frame 0 that judge the best model; keys of JUDGED.
        stop: who may ask to stop.

    Attributes:
        good: state after the last whole iteration, on the CPU; whatever happens, training goes on from there.
        restored: how often it did so because numbers went bad.
        saved: iteration of the newest checkpoint.
    """

    def __init__(
        self,
        pool: Pool,
        sampler: Sampler,
        policy: Policy,
        critic: Critic,
        cfg: TrainCfg,
        noise: Array,
        folder: Path,
        *,
        terms: Sequence[str],
        causes: Sequence[str],
        meta: Mapping[str, Any],
        evaluate: Evaluate | None = None,
        stop: Stopping | None = None,
    ):
        self.pool, self.sampler, self.policy, self.critic, self.cfg = pool, sampler, policy, critic, cfg
        self.folder, self.meta, self.evaluate = folder, dict(meta), evaluate
        self.terms, self.causes = list(terms), list(causes)
        self.device = policy.log_std.device
        self.generator = torch.Generator(device=self.device).manual_seed(cfg.seed)
        self.noise = torch.as_tensor(noise, dtype=torch.float32, device=self.device)
        noisy = np.flatnonzero(noise).tolist()
        self.noisy = slice(noisy[0], noisy[-1] + 1) if noisy else slice(0)  # columns
        bf16 = cfg.autocast == "bf16" or (cfg.autocast == "auto" and fast_in_bf16(self.device))
        self.ppo = Ppo(policy, critic, cfg.ppo, self.generator, bf16=bf16)
        if pool.policy:  # the rollout is where the workers write it
            self.rollout = Rollout(policy.shape, *map(torch.from_numpy, (pool.rows, pool.actions, pool.means)))
        else:
            self.rollout = Rollout.empty(cfg.steps_per_env, cfg.num_envs, policy.shape, self.device)
        self.dt = 1 / cfg.control_hz
        self.iteration, self.env_steps, self.wall = 0, 0, 0.0
        self.returns: deque[float] = deque(maxlen=EPISODES)
        self.lengths: deque[int] = deque(maxlen=EPISODES)
        self.best: dict[str, float] = {}
        self.unsaved_best: dict[str, Any] = {}
        self.restored = self.saved = self.storm = 0
        self.stop = stop or Stopping()
        self.full: set[str] = set()  # names of what found no room on the disk

    @property
    def columns(self) -> list[str]:
        """Header of train.csv."""
        head = "iteration env_steps mean_rew ep_ret ep_len sps lr kl std value_loss surrogate_loss entropy".split()
        ends = [f"end_{name}" for name in self.causes]
        return [*head, *self.terms, *ends, "sim_unstable", "covered", "collect_s", "update_s", "wall_s", DEVICE]

    def run(self) -> None:
        """Train to max_iterations, from the newest checkpoint in the folder.

        Whatever ends it earlier, a worker's death as well, leaves a checkpoint of the last whole iteration. What was
        done of the one after it is done again, the same, when training goes on.

        Raises:
            Stopped: asked to stop.
            DivergedError: numbers went bad too often.
            Q1Error: a worker failed, episodes end at once, or the last checkpoint finds no room on the disk.
        """
        with self.stop.interruptible():
            self.begin()
        self.good = self.state()
        self.begin_rollout()
        self.history = History(self.folder / "train.csv", self.columns, self.iteration)
        self.evaluations = History(self.folder / "eval.csv", EVALUATION, self.iteration)
        self.events = Events(self.folder, self.iteration)
        last, started = self.cfg.max_iterations, time.monotonic() - self.wall
        progress = Progress(self.iteration, last)
        try:
            while self.iteration < last:
                judged = None
                with self.stop.interruptible():
                    row, good = self.advance()
                    self.wall = row["wall_s"] = good["wall_s"] = time.monotonic() - started
                    due = self.iteration % self.cfg.save_interval == 0 or self.iteration == last
                    if due and self.evaluate:
                        judged = self.judge(self.evaluate)
                        good["best"] = dict(self.best)
                self.good = good
                self.write(row, judged)
                self.require_episodes(row)
                progress.line(self.iteration, row)
                if due:
                    self.save()
        finally:
            if self.saved < self.good["iteration"]:
                self.save()
            for file in (self.history, self.evaluations, self.events):
                file.close()
        if self.saved < last:
            where, action = f"{self.folder}: iteration {last}", "make room; the same command goes on"
            raise Q1Error(error("disk", where, "the last checkpoint finds no room", "room on the disk", action))

    def begin(self) -> None:
        """Go on from the newest checkpoint in the folder, or start.

        Raises:
            Q1Error: a version of q1pipe wrote the checkpoint that kept other things in it.
        """
        precision = "bfloat16" if self.ppo.bf16 else "float32"
        log.info("matrices are multiplied in %s (train.autocast)", precision)
        if not (found := checkpoint.newest(self.folder)):
            self.pool.reset()
            normalizer, first = self.policy.normalizer, torch.from_numpy(self.pool.rows[0]).to(self.device)
            normalizer.update(first[:, : self.policy.shape.actor])
            normalizer.var[normalizer.var < NO_SPREAD] = 1  # all start at one frame: it will vary, by nobody knows what
            return
        path, state = found
        if state["format"] != FORMAT:
            said = f"format {state['format']}"
            action = "go on with the q1pipe that wrote it, or begin anew: pin_code: false"
            raise Q1Error(error("checkpoint-format", str(path), said, f"format {FORMAT}", action))
        self.load(state)
        self.saved = self.iteration
        log.info("going on from %s: iteration %d of %d", path.name, self.iteration, self.cfg.max_iterations)
        if state["rng"]["of"] != self.device.type:
            log.info("on %s, not %s as before: other random numbers", self.device.type, state["rng"]["of"])
        if state["threads"] != (now := torch.get_num_threads()):
            said = f"{now} threads compute, {state['threads']} did before: the last digits may differ"
            log.warning(warn("threads", str(path), said, action="the same --cores for the same digits"))
        if state["bf16"] != self.ppo.bf16:
            said = f"matrices are multiplied in {precision}, and were not before"
            log.warning(
                warn("autocast", str(path), said, action="train.autocast: bf16, or null, is the same everywhere")
            )

    def require_episodes(self, row: dict[str, float]) -> None:
        """Stop where episodes end as soon as they begin, for some iterations: nothing can be learned from them.

        Raises:
            Q1Error: names the causes.
        """
        failed = sum(row[f"end_{c}"] for c in self.causes if c not in TRUNCATIONS)  # short clips end early too, and may
        at_once = bool(self.lengths) and float(np.median(self.lengths)) <= STORM_STEPS and failed > 0.5
        self.storm = self.storm + 1 if at_once else 0
        # Without an evaluation it is the smoke run, which judges by itself; what has come to its end is for the verdict
        if self.storm < STORM_ITERATIONS or not self.evaluate or self.iteration == self.cfg.max_iterations:
            return
        ends = sorted(((row[f"end_{cause}"], cause) for cause in self.causes), reverse=True)
        causes = ", ".join(f"{cause} {share:.0%}" for share, cause in ends if share > 0)
        found = f"for {self.storm} iterations the median episode was {np.median(self.lengths):g} steps: {causes}"
        where, action = (
            f"{self.folder}: iteration {self.iteration}",
            "look at train.termination, and `q1pipe check` the clip",
        )
        raise Q1Error(error("termination-storm", where, found, f"more than {STORM_STEPS} steps", action))

    def advance(self) -> tuple[dict[str, float], dict[str, Any]]:
        """One iteration: its row of train.csv but for wall_s, and the state after it.

        Where numbers went bad, it is done anew from the state before it with half the learning rate.

        Raises:
            DivergedError: the third such restoration of the run did not help either.
            DeviceError: the device has no room for half a mini-batch either.
        """
        while True:
            try:
                row, batch = self.step()
            except RuntimeError as e:
                if not out_of_memory(e):
                    raise
                self.shrink(str(e).partition("\n")[0])
                continue
            state = self.state()
            quantity = self.not_finite(row, batch, state)
            if not quantity:
                return row, state
            if self.restored == RESTORATIONS:
                raise self.diverged(quantity, batch)
            where = f"{self.folder}: iteration {self.iteration}"
            self.rewind()
            self.restored += 1
            self.ppo.set_lr(self.ppo.lr / 2)
            self.good = self.state()
            action = f"done anew with learning rate {self.ppo.lr:.2g}, restoration {self.restored} of {RESTORATIONS}"
            log.warning(warn("not-finite", where, f"{quantity} not finite", action=action))

    def rewind(self) -> None:
        """Back to the last good state."""
        self.load(self.good)
        self.begin_rollout()

    def shrink(self, why: str) -> None:
        """Make mini-batches half as large, once, because the device has no room for them.

        Raises:
            DeviceError: it was done before.
        """
        if self.ppo.mini_batches > self.cfg.ppo.mini_batches:
            raise DeviceError(memory_short(str(self.device), f"half a mini-batch is too much as well: {why}"))
        self.rewind()
        self.ppo.mini_batches *= 2
        found, action = f"iteration {self.iteration + 1}: {why}", "done anew with mini-batches half as large"
        log.warning(warn("device-memory", str(self.device), found, action=action))

    def step(self) -> tuple[dict[str, float], Batch]:
        """One iteration; its row of train.csv but for wall_s, and what it learned from."""
        begin = time.monotonic()
        self.pool.bin_probs[:] = self.sampler.probs
        features = self.collect()
        middle = time.monotonic()
        final, cfg = self.final(), self.cfg.ppo
        with self.ppo.autocast():
            batch = self.rollout.batch(
                features, self.critic, self.policy.log_std, final, dt=self.dt, gamma=cfg.gamma, lam=cfg.lam
            )
        losses = self.ppo.update(batch)
        self.iteration += 1
        row = self.statistics()
        self.sampler.update(self.pool.frame, self.pool.cause)
        row["covered"] = self.sampler.covered
        self.rollout.rows[0].copy_(self.rollout.rows[-1])  # on the device, or in the pool itself
        self.pool.roll()
        end = time.monotonic()
        self.env_steps += self.cfg.steps_per_env * self.cfg.num_envs
        times = {"collect_s": middle - begin, "update_s": end - middle}
        times["sps"] = self.cfg.steps_per_env * self.cfg.num_envs / (end - begin)
        head = {"iteration": self.iteration, "env_steps": self.env_steps, "lr": self.ppo.lr}
        return {**head, **losses, **row, **times}, batch

    @torch.no_grad()
    def collect(self) -> tuple[Tensor, Tensor]:
        """T steps of every environment; the policy's `features` in each, (T, N, …).

        Random numbers are drawn for all steps at once, and the normaliser learns at the end from all observations, as
        the critic's does: small kernels for each step would take longer than the networks.
        """
        sample = torch.randn(self.rollout.actions.shape, generator=self.generator, device=self.device)
        std = torch.exp(self.policy.log_std)
        return self.play(sample, std) if self.pool.policy else self.drive(sample.mul_(std))

    def begin_rollout(self) -> None:
        """Where the iteration starts, on the device."""
        if not self.pool.policy:
            self.rollout.rows[0].copy_(torch.from_numpy(self.pool.rows[0]))

    def play(self, sample: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Let the workers act, each by itself: told each action, all wait for the slowest and for the learner.

        Args:
            sample: (T, N, J) how far each action is from its mean, in units of std.
            std: (J).

        Returns:
            The policy's features, (T, N, …).
        """
        pool, policy = self.pool, self.policy
        for name, values in policy.parts().items():
            pool.policy[name][:] = values
        # Not by torch: its threads would go on spinning for a while, in the way of the workers
        np.multiply(sample.numpy(), std.numpy(), out=pool.actions)
        pool.play(self.iteration)
        count = sample.shape[0] * sample.shape[1]
        mean, square = pool.moments.sum(axis=1) / count
        var = np.maximum(square - mean * mean, 0)
        policy.normalizer.merge(count, *(torch.from_numpy(x.astype(np.float32)) for x in (mean, var)))
        return torch.from_numpy(pool.features), torch.from_numpy(pool.offsets)

    def drive(self, sample: Tensor) -> tuple[Tensor, Tensor]:
        """Steps of every part in turn: the device computes the actions of one while the workers step the others.

        Each copies its block of rows to the device and its actions back, nothing else.

        Args:
            sample: (T, N, J) how far each action is from its mean.

        Returns:
            The policy's features, (T, N, …).
        """
        rows, policy, width = self.rollout.rows, self.policy, self.policy.shape.actor
        noise = torch.zeros(*sample.shape[:2], width, device=self.device)
        noisy, half = noise[..., self.noisy], self.noise[self.noisy]  # numbers for all would take twice as long
        noisy[:] = torch.rand(noisy.shape, generator=self.generator, device=self.device).mul_(2).sub_(1).mul_(half)
        for t in range(self.cfg.steps_per_env):
            for number, part in enumerate(self.pool.parts):
                if t > 0:
                    self.arrive(t, part)
                self.act(t, part, noise[t, part], sample[t, part])
                self.pool.start(t, number)
        for part in self.pool.parts:
            self.arrive(self.cfg.steps_per_env, part)
        observed = noise.add_(rows[:-1, :, :width])
        features = policy.features(observed)
        policy.normalizer.update(observed.flatten(0, 1))
        return features

    def arrive(self, t: int, part: slice) -> None:
        """Wait for what a part's step led to, and copy it to the device."""
        self.pool.wait()
        self.rollout.rows[t, part].copy_(torch.from_numpy(self.pool.rows[t, part]))

    def act(self, t: int, part: slice, noise: Tensor, sample: Tensor) -> None:
        """Choose a part's actions and copy them to the workers; noise of observations and of actions, a row each."""
        roll, policy = self.rollout, self.policy
        features = policy.features(roll.rows[t, part, : policy.shape.actor] + noise)
        with self.ppo.autocast():
            roll.means[t, part] = policy.mean(*features)
        roll.actions[t, part] = roll.means[t, part] + sample
        torch.from_numpy(self.pool.actions[t, part]).copy_(roll.actions[t, part])

    def final(self) -> tuple[Tensor, Tensor] | None:
        """True final observations of the truncated episodes, and their flat indices, on the device: one copy."""
        truncated = self.pool.rows[1:, :, -1] > 0  # (T, N)
        if not truncated.any():
            return None
        index = np.flatnonzero(truncated).astype(np.int32).view(np.float32)  # its bits, as one more column
        block = torch.from_numpy(np.column_stack((self.pool.final_obs[truncated], index))).to(self.device)
        return block[:, :-1].contiguous(), block[:, -1].contiguous().view(torch.int32).long()

    def statistics(self) -> dict[str, float]:
        """What the rollout says about rewards and episodes."""
        pool = self.pool
        ended = pool.cause > 0  # (T, N), read in this order whatever the workers
        self.returns.extend(pool.ep_ret[ended].tolist())
        self.lengths.extend(pool.ep_len[ended].tolist())
        counts = np.bincount(pool.cause[ended], minlength=len(self.causes) + 1)[1:]
        row = {
            "mean_rew": float(pool.rows[1:, :, -3].mean(dtype=np.float64)),
            "ep_ret": float(np.mean(self.returns)) if self.returns else math.nan,
            "ep_len": float(np.mean(self.lengths)) if self.lengths else math.nan,
            "std": float(self.policy.log_std.detach().exp().mean()),
        }
        row |= zip(self.terms, pool.terms.mean(axis=(0, 1), dtype=np.float64).tolist(), strict=True)
        row |= {f"end_{c}": float(n / max(1, counts.sum())) for c, n in zip(self.causes, counts, strict=True)}
        row["sim_unstable"] = float(counts[self.causes.index("sim_unstable")] / ended.size)
        return row

    def judge(self, evaluate: Evaluate) -> dict[str, float]:
        """Evaluate the policy; keep it as the best when its score is the highest so far."""
        row = {"iteration": self.iteration, "env_steps": self.env_steps, "wall_s": self.wall, **evaluate(self.policy)}
        if not self.best or row["score"] > self.best["score"]:
            self.best = row
        return row

    def write(self, row: dict[str, float], judged: dict[str, float] | None) -> None:
        """Put the last iteration's row, and what it was judged, where they are read."""
        with self.room("train.csv"):
            self.history.append({**row, DEVICE: str(self.device)})
        with self.room("TensorBoard"):
            self.events.add("train", row, self.columns[1:-1], self.iteration)
        if judged is None:
            return
        if judged is self.best:
            self.unsaved_best = self.published(judged)
        with self.room("eval.csv"):
            self.evaluations.append(judged)
        with self.room("TensorBoard"):
            self.events.add("eval", judged, JUDGED, self.iteration)

    def save(self) -> None:
        """Save the last good state; without room on the disk, the next time is the next interval."""
        name = f"model_{self.good['iteration']}.pt"
        with self.room(name):
            # A checkpoint knows of rows and of a best model: these first, so that no kill can leave a gap.
            self.history.flush()
            self.evaluations.flush()
            if self.unsaved_best:
                checkpoint.save(self.folder / BEST, self.unsaved_best)
                self.unsaved_best = {}
            checkpoint.save(self.folder / name, self.good)
            self.saved = self.good["iteration"]

    @contextmanager
    def room(self, name: str) -> Iterator[None]:
        """Around what writes to the disk: without room there, training goes on with a warning, one for each name."""
        try:
            yield
        except OSError as e:
            if name not in self.full:
                self.full.add(name)
                action = "make room: training goes on, and what is missing is written as soon as it can be"
                log.warning(warn("disk", f"{self.folder / name}", e.strerror or str(e), "room on the disk", action))
        else:
            if name in self.full:
                self.full.remove(name)
                log.info("%s is written again", name)

    def published(self, judged: dict[str, float]) -> dict[str, Any]:
        """The policy alone, with its evaluation and everything to rebuild it."""
        return {"format": FORMAT, "policy": self.policy.record(), "evaluation": dict(judged), "meta": self.meta}

    def state(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, as tensors and plain values."""
        return {
            "format": FORMAT,
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "wall_s": self.wall,
            "policy": self.policy.record(),
            "critic": plain(self.critic.state_dict()),
            "optimizer": plain(self.ppo.optimizer.state_dict()["state"]),
            "lr": self.ppo.lr,
            "rng": {"cpu": torch.get_rng_state(), "device": self.generator.get_state(), "of": self.device.type},
            "pool": _tensors(self.pool.state()),
            "sampler": _tensors(self.sampler.state()),
            "episodes": {"returns": list(self.returns), "lengths": list(self.lengths)},
            "best": dict(self.best),
            "restored": self.restored,
            "threads": torch.get_num_threads(),
            "bf16": self.ppo.bf16,
            "meta": self.meta,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state, bit for bit."""
        self.iteration, self.env_steps, self.wall = state["iteration"], state["env_steps"], state["wall_s"]
        self.policy.load_state_dict(state["policy"]["state"])
        self.critic.load_state_dict(state["critic"])
        optimizer = self.ppo.optimizer.state_dict()  # its options are this device's, only the moments are loaded
        self.ppo.optimizer.load_state_dict({**optimizer, "state": plain(state["optimizer"])})
        self.ppo.set_lr(state["lr"])
        torch.set_rng_state(state["rng"]["cpu"])
        if state["rng"]["of"] == self.device.type:
            self.generator.set_state(state["rng"]["device"])
        else:  # another kind of device draws other numbers, and keeps its state in another format
            self.generator.manual_seed(self.cfg.seed + self.iteration)
        self.pool.load_state(_arrays(state["pool"]))
        self.sampler.load_state(_arrays(state["sampler"]))
        for episodes, kept in ((self.returns, "returns"), (self.lengths, "lengths")):
            episodes.clear()
            episodes.extend(state["episodes"][kept])
        self.best, self.restored = dict(state["best"]), state["restored"]

    def not_finite(self, row: Mapping[str, float], batch: Batch, state: dict[str, Any]) -> str:
        """The first quantity of the iteration, in the order in which they are computed, that went bad; else empty."""
        lost = next((name for name in Ppo.STATISTICS if not math.isfinite(row[name])), "")
        broken = checkpoint.not_finite(state)
        if not lost and not broken:
            return ""
        finite = (name for name, x in self.by_environment(batch).items() if not bool(torch.isfinite(x).all()))
        return next(finite, lost or broken)

    def by_environment(self, batch: Batch) -> dict[str, Tensor]:
        """What of an iteration belongs to single environments: (T or T+1, N, …)."""
        critic, rows = self.policy.shape.critic, self.rollout.rows
        steps, envs = self.rollout.actions.shape[:2]
        flat = {"action means": batch.means, "values": batch.values, "returns": batch.returns}
        flat["advantages"] = batch.advantages
        computed = {name: x.view(steps, envs, -1) for name, x in flat.items()}
        return {"observations": rows[..., :critic], "rewards": rows[1:, :, critic : critic + 1], **computed}

    def diverged(self, quantity: str, batch: Batch) -> DivergedError:
        """The end of a run whose numbers went bad, with the environments where they did, or all."""
        x = self.by_environment(batch).get(quantity)
        envs = np.arange(self.cfg.num_envs)
        if x is not None:
            envs = np.flatnonzero(~torch.isfinite(x).all(dim=2).all(dim=0).cpu().numpy())
        rollout = {
            "iteration": np.array(self.iteration),
            "quantity": np.array(quantity),
            "env_ids": envs,
            "bin_probs": self.pool.bin_probs.copy(),
            "actions": self.rollout.actions[:, envs].cpu().numpy(),
            "rows": self.rollout.rows[:, envs].cpu().numpy(),
            **{f"state_{name}": array.numpy()[envs] for name, array in self.good["pool"].items()},
        }
        where, found = f"{self.folder}: iteration {self.iteration}", f"{quantity} not finite"
        found += f", and again after {RESTORATIONS} restorations, each with half the learning rate"
        return DivergedError(rollout, error("not-finite", where, found, "numbers", "lower train.ppo.learning_rate"))


class Progress:
    """A line now and then with what is left.

    Args:
        done: iterations before this attempt.
        last: the iteration that training ends at.
    """

    def __init__(self, done: int, last: int):
        self.last, self.began, self.first, self.said = last, time.monotonic(), done, 0.0

    def line(self, iteration: int, row: Mapping[str, float]) -> None:
        """Log the iteration, at most every PROGRESS_SECONDS."""
        now = time.monotonic()
        if now - self.said < PROGRESS_SECONDS and iteration < self.last:
            return
        self.said = now
        left = (now - self.began) / (iteration - self.first) * (self.last - iteration)
        share = 100 * iteration // self.last
        said = f"reward {row['mean_rew']:.2f}  return {row['ep_ret']:.1f}  {row['sps'] / 1000:.1f}k steps/s"
        log.info(f"train {iteration}/{self.last} {share}%  {said}  {span(left)} left")


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(a)) for name, a in arrays.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: t.numpy() for name, t in tensors.items()}
