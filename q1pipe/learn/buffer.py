"""The rollout of one iteration on the device, and generalised advantages over it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from q1pipe.config import TrainCfg
from q1pipe.learn.policy import Critic, Shape

LIBRARIES = 256 << 20  # bytes that a back-end's own libraries take


@dataclass
class Batch:
    """All samples of an iteration, flat (T·N rows), as the update reads them."""

    obs: Tensor  # (M, actor) normalised as when the action was chosen
    offset: Tensor  # (M, J) reference skip
    critic_obs: Tensor  # (M, critic) normalised
    actions: Tensor  # (M, J)
    means: Tensor  # (M, J)
    values: Tensor  # (M)
    returns: Tensor  # (M)
    advantages: Tensor  # (M)
    log_std: Tensor  # (J) of the policy that collected


def bytes_needed(cfg: TrainCfg, shape: Shape) -> int:
    """Upper estimate of what training takes of a device's memory."""
    samples, hidden = cfg.steps_per_env * cfg.num_envs, sum(cfg.policy.hidden)
    kept = 2 * shape.critic + shape.actor + 3 * shape.action + 16  # of a step: the rollout, and what is made of it
    shuffled = shape.critic + shape.actor + 3 * shape.action + 4
    activations = 2 * hidden + 8 * hidden / cfg.ppo.mini_batches  # the critic's over all, each one's with gradients
    widths = [shape.critic, *cfg.policy.hidden, shape.action]
    parameters = 2 * 6 * sum((a + 1) * b for a, b in itertools.pairwise(widths))  # gradients, moments, temporaries
    return int(4 * (samples * (kept + shuffled + activations) + parameters)) + LIBRARIES


@dataclass
class Rollout:
    """Rows of T steps of N environments, and what the policy made of them, time first.

    Attributes:
        shape: widths; a row is the critic's observation followed by reward, terminated, truncated.
        rows: (T+1, N, critic + 3) float32, as all.
        actions: (T, N, J).
        means: (T, N, J).
    """

    shape: Shape
    rows: Tensor
    actions: Tensor
    means: Tensor

    @classmethod
    def empty(cls, steps: int, envs: int, shape: Shape, device: torch.device) -> Self:
        """Room on a device."""
        widths = (steps + 1, shape.critic + 3), (steps, shape.action), (steps, shape.action)
        return cls(shape, *(torch.zeros(length, envs, width, device=device) for length, width in widths))

    @torch.no_grad()
    def batch(
        self,
        features: tuple[Tensor, Tensor],
        critic: Critic,
        log_std: Tensor,
        final: tuple[Tensor, Tensor] | None,
        *,
        dt: float,
        gamma: float,
        lam: float,
    ) -> Batch:
        """Values, advantages and returns of the full rollout.

        Args:
            features: `Policy.features` of the steps, (T, N, …).
            critic: its normaliser is updated with the rollout first.
            log_std: (J) of the policy that collected.
            final: true final observations (K, critic) of the truncated episodes and their flat step·N + env index (K).
            dt: s of a control step, multiplies the reward.
            gamma: discount of a step.
            lam: of generalised advantage estimation.
        """
        steps, envs = self.actions.shape[:2]
        obs = self.rows[..., : self.shape.critic]
        critic.normalizer.update(obs[:-1].reshape(steps * envs, -1))
        normal = critic.normalizer(obs)
        values = critic.value(normal)  # (T+1, N)
        rewards, terminated, truncated = (self.rows[1:, :, self.shape.critic + i] for i in range(3))
        bootstrap = torch.zeros(steps * envs, device=values.device)
        if final is not None:
            bootstrap[final[1]] = critic(final[0])
        advantages = gae(rewards * dt, values, terminated, truncated, bootstrap.view(steps, envs), gamma, lam)
        returns = advantages + values[:-1]
        spread = advantages.std() + 1e-8

        def flat(x: Tensor) -> Tensor:
            return x.reshape(steps * envs, *x.shape[2:])

        return Batch(
            obs=flat(features[0]),
            offset=flat(features[1]),
            critic_obs=flat(normal[:-1]),
            actions=flat(self.actions),
            means=flat(self.means),
            values=flat(values[:-1]),
            returns=flat(returns),
            advantages=flat((advantages - advantages.mean()) / spread),
            log_std=log_std.detach().clone(),
        )


def gae(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_values: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantages (T, N).

    Args:
        rewards: (T, N).
        values: (T+1, N), of the observation before each step and of the last one; after an episode's end the
            next row belongs to the next episode and is not used.
        terminated: (T, N) 1 where the episode failed: nothing comes after.
        truncated: (T, N) 1 where it was only cut off: the value of its true final observation comes after.
        final_values: (T, N), read where truncated and not terminated.
        gamma: discount of a step.
        lam: weight of longer returns.
    """
    going = (1 - terminated) * (1 - truncated)
    after = going * values[1:] + (1 - terminated) * truncated * final_values
    deltas = rewards + gamma * after - values[:-1]
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        running = deltas[t] + gamma * lam * going[t] * running
        advantages[t] = running
    return advantages
