"""Proximal policy optimisation, as rsl_rl does it: clipped losses, KL-adaptive learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from q1pipe.config import PpoCfg
from q1pipe.learn.buffer import Batch
from q1pipe.learn.device import fused_optimizer
from q1pipe.learn.policy import Critic, Policy, entropy, kl, log_prob


class Ppo:
    """The update. Keeps the optimiser and the learning rate.

    Args:
        policy: actor.
        critic: value function.
        cfg: hyperparameters.
        generator: random numbers on the device, for the order of the samples.
        bf16: the networks multiply matrices in bfloat16 while they are trained; parameters and all else stay float32.
    """

    STATISTICS = ("kl", "value_loss", "surrogate_loss", "entropy")

    def __init__(self, policy: Policy, critic: Critic, cfg: PpoCfg, generator: torch.Generator, bf16: bool = False):
        self.policy, self.critic, self.cfg, self.generator, self.bf16 = policy, critic, cfg, generator, bf16
        self.lr = cfg.learning_rate
        self.mini_batches = cfg.mini_batches  # doubled where the device's memory does not suffice
        parameters = [*policy.parameters(), *critic.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=self.lr, fused=fused_optimizer(generator.device) or None)

    def autocast(self) -> AbstractContextManager[Any]:
        """Around what the networks compute."""
        return torch.autocast(self.generator.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    def update(self, batch: Batch) -> dict[str, float]:
        """Epochs of mini-batches over one rollout; means of STATISTICS over the mini-batches."""
        cfg, actor, critic = self.cfg, list(self.policy.parameters()), list(self.critic.parameters())
        # One shuffle, then slices, as rsl_rl: mini-batches are contiguous views and every epoch sees the same ones.
        order = torch.randperm(len(batch.values), generator=self.generator, device=self.generator.device)
        old = log_prob(batch.actions, batch.means, batch.log_std)
        columns = [batch.obs, batch.offset, batch.critic_obs, batch.actions, batch.means]
        columns += [old, batch.values, batch.returns, batch.advantages]
        minis = list(zip(*(x.index_select(0, order).chunk(self.mini_batches) for x in columns), strict=True))
        sums = torch.zeros(len(self.STATISTICS), device=order.device)
        with without_denormals(), side_by_side(order.device) as beside:
            for step, mini in enumerate(minis * cfg.epochs):
                obs, offset, critic_obs, actions, old_mean, old_log_prob, old_values, returns, advantages = mini
                for parameter in (
                    *actor,
                    *critic,
                ):  # zero_grad does no more, but takes ten times as long
                    parameter.grad = None
                value_loss = beside(self.learn_values, critic_obs, old_values, returns)
                with self.autocast():
                    mean = self.policy.mean(obs, offset)
                log_std = self.policy.log_std
                with torch.no_grad():
                    divergence = kl(old_mean, batch.log_std, mean, log_std).mean()
                if step > 0:  # the first mini-batch is still at the policy that collected: its KL is rounding
                    self.adapt(float(divergence))  # the one wait for the device per mini-batch

                ratio = torch.exp(log_prob(actions, mean, log_std) - old_log_prob)
                surrogate, spread = clipped_surrogate(ratio, advantages, cfg.clip), entropy(log_std)
                (surrogate - cfg.entropy * spread).backward()
                # Each network has its own norm: early value errors must not shrink the actor's step.
                nn.utils.clip_grad_norm_(actor, cfg.max_grad_norm)
                sums += torch.stack((divergence, value_loss(), surrogate, spread)).detach()
                self.optimizer.step()
        means = (sums / (len(minis) * cfg.epochs)).tolist()
        return dict(zip(self.STATISTICS, means, strict=True))

    def learn_values(self, critic_obs: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        """Gradients of the critic on a mini-batch; its loss."""
        with self.autocast():
            values = self.critic.value(critic_obs)
        value_loss = clipped_value_loss(values, old_values, returns, self.cfg.clip)
        (self.cfg.value_loss * value_loss).backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), self.cfg.max_grad_norm)
        return value_loss.detach()

    def adapt(self, divergence: float) -> None:
        """Move the learning rate so that a mini-batch's KL stays within a factor of two of the target."""
        low, high = self.cfg.learning_rate_range
        if divergence > 2 * self.cfg.target_kl:
            self.set_lr(max(low, self.lr / 1.5))
        elif divergence < self.cfg.target_kl / 2:
            self.set_lr(min(high, self.lr * 1.5))

    def set_lr(self, lr: float) -> None:
        """Use this learning rate from the next step on."""
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr


@contextmanager
def without_denormals() -> Iterator[None]:
    """What is below 1e-38 is 0 meanwhile, also for threads that begin: a CPU takes a hundred times as long for it.

    With it, the critic's part of an update of the laptop configuration took 14 ms instead of 5.
    """
    np.finfo(np.float32), np.finfo(np.float64)  # which warn where they are first looked up in between
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def side_by_side(device: torch.device) -> Iterator[Callable[..., Callable[[], Tensor]]]:
    """Computing one thing beside another: called with a function and its arguments, gives a function for its result.

    On a CPU each has half of the cores: two small networks share them better than the parts of one. Elsewhere what is
    asked for is computed when its result is.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads < 2:
        yield partial
        return
    torch.set_num_threads(threads // 2)
    try:
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(threads - threads // 2,)) as other:
            yield lambda function, *args: other.submit(function, *args).result
    finally:
        torch.set_num_threads(threads)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Mean over the samples of -min(ratio·A, clip(ratio)·A)."""
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Mean over the samples of the larger squared error of the value and of the value held within ±clip of the old."""
    held = old_values + (values - old_values).clamp(-clip, clip)
    return torch.max((values - returns).square(), (held - returns).square()).mean()
