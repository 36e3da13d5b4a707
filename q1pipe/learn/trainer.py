"""The training loop: collect, update, log, save; it can be stopped at any iteration and goes on bit for bit."""

from __future__ import annotations

import logging
import math
import signal
import threading
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
from torch.utils.tensorboard import SummaryWriter

from q1pipe.config import TrainCfg
from q1pipe.errors import Q1Error, error
from q1pipe.learn import checkpoint
from q1pipe.learn.buffer import Batch, Rollout
from q1pipe.learn.history import History
from q1pipe.learn.policy import Critic, Policy, plain
from q1pipe.learn.ppo import Ppo

log = logging.getLogger(__name__)

FORMAT = 1
EPISODES = 100  # finished episodes behind ep_ret and ep_len, as in rsl_rl
PROGRESS_SECONDS = 10.0
BEST = "model_best.pt"
JUDGED = ("score", "success", "finish", "finish_disturbed", "mean_rew", "ep_ret", "ep_len")
EVALUATION = ("iteration", "env_steps", "wall_s", *JUDGED)
TIME_COLUMNS = ("sps", "collect_s", "update_s", "wall_s")

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
    actions: Array  # (N, J) float32
    bin_probs: Array  # (bins,) float64

    def reset(self) -> None: ...  # noqa: D102
    def step(self, t: int) -> None: ...  # noqa: D102
    def roll(self) -> None: ...  # noqa: D102
    def state(self) -> dict[str, Array]: ...  # noqa: D102
    def load_state(self, state: dict[str, Array]) -> None: ...  # noqa: D102


class Sampler(Protocol):
    """Where episodes start: learns from the failures of an iteration."""

    @property
    def probs(self) -> Array: ...  # noqa: D102  (bins,) float64
    def update(self, frame: Array, cause: Array) -> None: ...  # noqa: D102
    def state(self) -> dict[str, Array]: ...  # noqa: D102
    def load_state(self, state: dict[str, Array]) -> None: ...  # noqa: D102


Evaluate = Callable[[Policy], dict[str, float]]


class Trainer:
    """PPO on a pool of environments, in a run folder.

    Args:
        pool: the environments; already started, not yet reset.
        sampler: start distribution, handed to the pool once per iteration.
        policy: actor, on the device.
        critic: value function, on the device.
        cfg: stage settings.
        noise: (actor) ± half-width of the uniform noise on the actor's observation.
        folder: run folder for checkpoints, train.csv, eval.csv and TensorBoard events.
        terms: names of the reward terms, columns of `pool.terms`.
        causes: names of the causes 1, 2, … of an episode's end.
        meta: plain values to keep in every checkpoint (hashes, versions, settings).
        evaluate: deterministic episodes from frame 0 that judge the best model; keys of JUDGED.
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
    ):
        self.pool, self.sampler, self.policy, self.critic, self.cfg = pool, sampler, policy, critic, cfg
        self.folder, self.meta, self.evaluate = folder, dict(meta), evaluate
        self.terms, self.causes = list(terms), list(causes)
        self.device = policy.log_std.device
        self.generator = torch.Generator(device=self.device).manual_seed(cfg.seed)
        self.noise = torch.as_tensor(noise, dtype=torch.float32, device=self.device)
        self.ppo = Ppo(policy, critic, cfg.ppo, self.generator)
        self.rollout = Rollout(cfg.steps_per_env, cfg.num_envs, policy.shape, self.device)
        self.dt = 1 / cfg.control_hz
        self.iteration, self.env_steps, self.wall = 0, 0, 0.0
        self.returns: deque[float] = deque(maxlen=EPISODES)
        self.lengths: deque[int] = deque(maxlen=EPISODES)
        self.best: dict[str, float] = {}
        self.signal = 0  # the one that asked to stop

    @property
    def columns(self) -> list[str]:
        """Header of train.csv."""
        head = "iteration env_steps mean_rew ep_ret ep_len sps lr kl std value_loss surrogate_loss entropy".split()
        ends = [f"end_{name}" for name in self.causes]
        return [*head, *self.terms, *ends, "sim_unstable", "collect_s", "update_s", "wall_s"]

    def run(self) -> None:
        """Train to max_iterations, from the newest checkpoint in the folder; or until a signal, see `signal`."""
        resumed = self.resume()
        if not resumed:
            self.pool.reset()
        self.rollout.rows[0].copy_(torch.from_numpy(self.pool.rows[0]))
        history = History(self.folder / "train.csv", self.columns, self.iteration)
        evaluations = History(self.folder / "eval.csv", EVALUATION, self.iteration)
        events = SummaryWriter(str(self.folder), purge_step=self.iteration + 1 if resumed else None)
        last, started = self.cfg.max_iterations, time.monotonic() - self.wall
        progress = Progress(self.iteration, last)
        with stop_on_signals(self):
            while self.iteration < last and not self.signal:
                row = self.step()
                self.wall = row["wall_s"] = time.monotonic() - started
                history.append(row)
                for name in history.columns[1:]:
                    events.add_scalar(f"train/{name}", row[name], self.iteration)
                progress.line(self.iteration, row)
                due = self.iteration % self.cfg.save_interval == 0 or self.iteration == last
                if due and self.evaluate:
                    judged = self.judge(self.evaluate)
                    evaluations.append(judged)
                    for name in JUDGED:
                        events.add_scalar(f"eval/{name}", judged[name], self.iteration)
                if due or self.signal:
                    checkpoint.save(self.folder / f"model_{self.iteration}.pt", self.state())
        for file in (history, evaluations, events):
            file.close()

    def step(self) -> dict[str, float]:
        """One iteration; its row of train.csv but for wall_s."""
        begin = time.monotonic()
        self.pool.bin_probs[:] = self.sampler.probs
        self.collect()
        middle = time.monotonic()
        batch = self.rollout.batch(
            self.critic, self.policy.log_std, self.final(), dt=self.dt, gamma=self.cfg.ppo.gamma, lam=self.cfg.ppo.lam
        )
        losses = self.ppo.update(batch)
        self.iteration += 1
        self.require_finite(losses, batch)
        row = self.statistics()
        self.sampler.update(self.pool.frame, self.pool.cause)
        self.pool.roll()
        self.rollout.rows[0].copy_(self.rollout.rows[-1])
        end = time.monotonic()
        self.env_steps += self.cfg.steps_per_env * self.cfg.num_envs
        times = {"collect_s": middle - begin, "update_s": end - middle}
        times["sps"] = self.cfg.steps_per_env * self.cfg.num_envs / (end - begin)
        return {"iteration": self.iteration, "env_steps": self.env_steps, "lr": self.ppo.lr, **losses, **row, **times}

    @torch.no_grad()
    def collect(self) -> None:
        """T steps; each copies one block of rows to the device and the actions back, nothing else."""
        roll, policy, actor = self.rollout, self.policy, self.policy.shape.actor
        std = torch.exp(policy.log_std)
        for t in range(self.cfg.steps_per_env):
            obs = roll.rows[t, :, :actor]
            noise = torch.rand(obs.shape, generator=self.generator, device=self.device)
            obs = obs + self.noise * (2 * noise - 1)
            policy.normalizer.update(obs)
            roll.obs[t], roll.offset[t] = policy.features(obs)
            roll.means[t] = policy.mean(roll.obs[t], roll.offset[t])
            sample = torch.randn(roll.means[t].shape, generator=self.generator, device=self.device)
            roll.actions[t] = roll.means[t] + std * sample
            torch.from_numpy(self.pool.actions).copy_(roll.actions[t])
            self.pool.step(t)
            roll.rows[t + 1].copy_(torch.from_numpy(self.pool.rows[t + 1]))

    def final(self) -> tuple[Tensor, Tensor] | None:
        """True final observations of the truncated episodes, and their flat indices, on the device."""
        truncated = self.pool.rows[1:, :, -1] > 0  # (T, N)
        if not truncated.any():
            return None
        obs, index = self.pool.final_obs[truncated], np.flatnonzero(truncated)
        return torch.from_numpy(obs).to(self.device), torch.from_numpy(index).to(self.device)

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
            # Written before the numbered checkpoint that knows of it: after a kill in between, it is found anew.
            self.best = row
            checkpoint.save(self.folder / BEST, self.published(row))
        return row

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
            "rng": {"cpu": torch.get_rng_state(), "device": self.generator.get_state()},
            "pool": _tensors(self.pool.state()),
            "sampler": _tensors(self.sampler.state()),
            "episodes": {"returns": list(self.returns), "lengths": list(self.lengths)},
            "best": dict(self.best),
            "meta": self.meta,
        }

    def resume(self) -> bool:
        """Take up the newest valid checkpoint of the folder, if there is one."""
        found = checkpoint.newest(self.folder)
        if not found:
            return False
        path, state = found
        self.iteration, self.env_steps, self.wall = state["iteration"], state["env_steps"], state["wall_s"]
        self.policy.load_state_dict(state["policy"]["state"])
        self.critic.load_state_dict(state["critic"])
        optimizer = self.ppo.optimizer.state_dict()  # its options are this device's, only the moments are loaded
        self.ppo.optimizer.load_state_dict({**optimizer, "state": state["optimizer"]})
        self.ppo.set_lr(state["lr"])
        torch.set_rng_state(state["rng"]["cpu"])
        self.generator.set_state(state["rng"]["device"])
        self.pool.load_state(_arrays(state["pool"]))
        self.sampler.load_state(_arrays(state["sampler"]))
        self.returns.extend(state["episodes"]["returns"])
        self.lengths.extend(state["episodes"]["lengths"])
        self.best = state["best"]
        log.info("going on from %s: iteration %d of %d", path.name, self.iteration, self.cfg.max_iterations)
        return True

    def require_finite(self, losses: dict[str, float], batch: Batch) -> None:
        """Stop where a loss or a parameter is not a number, naming the first quantity that went wrong.

        Raises:
            Q1Error: with iteration and quantity.
        """
        parameters = [*self.policy.parameters(), *self.critic.parameters()]
        total = float(torch.stack([p.detach().sum() for p in parameters]).sum())
        if all(map(math.isfinite, [*losses.values(), total])):
            return
        critic, rows = self.policy.shape.critic, self.rollout.rows
        suspects = {
            "observations": rows[..., :critic],
            "rewards": rows[1:, :, critic],
            "action means": batch.means,
            "values": batch.values,
            "returns": batch.returns,
            "advantages": batch.advantages,
        }
        bad = next((name for name, x in suspects.items() if not bool(torch.isfinite(x).all())), "")
        bad = bad or next((name for name, x in losses.items() if not math.isfinite(x)), "parameters")
        kept = checkpoint.newest(self.folder)
        action = "lower train.ppo.learning_rate" + (f"; the newest good state is {kept[0].name}" if kept else "")
        raise Q1Error(
            error("not-finite", f"{self.folder}: iteration {self.iteration}", f"{bad} not finite", "numbers", action)
        )


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
        speed = f"{row['sps'] / 1000:.1f}k steps/s"
        log.info(f"train {iteration}/{self.last} {share}%  reward {row['ep_ret']:.1f}  {speed}  {span(left)} left")


def span(seconds: float) -> str:
    """A duration for a person: 40 s, 25 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def stop_on_signals(trainer: Trainer) -> Iterator[None]:
    """Let SIGINT and SIGTERM end training after the current iteration; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        trainer.signal = number
        log.warning("%s: saving and leaving after this iteration", signal.Signals(number).name)
        for n, old in previous.items():
            signal.signal(n, old)

    previous = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for n in previous:
        signal.signal(n, handle)
    try:
        yield
    finally:
        for n, old in previous.items():
            signal.signal(n, old)


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(a)) for name, a in arrays.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: t.numpy() for name, t in tensors.items()}
