"""Actor and critic: ELU networks, each with its own running observation normaliser inside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from q1pipe.config import PolicyCfg

LAST_LAYER = 0.01  # × the usual initial weights of the actor's last layer: it starts at the reference
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Shape:
    """Plain numbers of the row layout that a policy is built for.

    Attributes:
        actor: columns of the actor's observation.
        critic: columns of the critic's observation, which begins with the actor's.
        action: joints.
        reference: first column of the reference's joint positions (`action` columns) in the actor's observation.
    """

    actor: int
    critic: int
    action: int
    reference: int


class Normalizer(nn.Module):
    """Running mean and variance of observations; (x - mean) / (std + 0.01).

    The statistics are those of all rows ever given to `update`, whatever the batches (Chan's merge).
    """

    EPS = 0.01

    mean: Tensor
    var: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.count = 0  # rows; a plain int, because float32 stops counting single rows at 16.7 M

    def get_extra_state(self) -> int:
        """The count, for the state dict."""
        return self.count

    def set_extra_state(self, state: int) -> None:
        """Restore the count from a state dict."""
        self.count = state

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge the rows of x (N, width) into the statistics."""
        mean = x.mean(dim=0)
        var = (x - mean).square_().mean(dim=0)  # a fifth of the time that torch.var_mean takes for columns
        self.merge(len(x), mean, var)

    def merge(self, count: int, mean: Tensor, var: Tensor) -> None:
        """Merge the statistics of so many rows: mean and variance, (width) each."""
        self.count += count
        rate = count / self.count
        delta = mean - self.mean
        self.mean += rate * delta
        self.var += rate * (var - self.var + delta * (mean - self.mean))

    def spread(self) -> Tensor:
        """What observations are divided by, (width)."""
        return self.var.sqrt() + self.EPS

    def forward(self, x: Tensor) -> Tensor:
        """x (…, width) in units of its own spread."""
        return (x - self.mean).div_(self.spread())  # in place: without room for yet another copy of a rollout


def mlp(width: int, hidden: Sequence[int], out: int) -> nn.Sequential:
    """Linear layers with ELU between them."""
    sizes = [width, *hidden, out]
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        layers += [nn.Linear(a, b)] + ([nn.ELU(inplace=True)] if i < len(sizes) - 2 else [])
    return nn.Sequential(*layers)


class Policy(nn.Module):
    """The actor. `forward` is what is exported: observation (N, actor) -> deterministic action (N, action).

    mean action = network(normalised observation) + offset, where the offset is the action that targets the reference's
    joint positions, (reference - default) / action scale. So an untrained policy is PD tracking of the reference.

    Args:
        shape: widths of the observation and the action.
        cfg: hidden layers, initial std, skip.
        default_joint_pos: (action) rad, the target of action 0.
        action_scale: (action) rad per unit of action.
    """

    default_joint_pos: Tensor
    skip_gain: Tensor

    def __init__(self, shape: Shape, cfg: PolicyCfg, default_joint_pos: Sequence[float], action_scale: Sequence[float]):
        super().__init__()
        self.shape, self.cfg = shape, cfg
        self.normalizer = Normalizer(shape.actor)
        self.net = mlp(shape.actor, cfg.hidden, shape.action)
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight *= LAST_LAYER
            last.bias.zero_()
        self.log_std = nn.Parameter(torch.full((shape.action,), math.log(cfg.init_std)))
        self.default, self.scale = [float(x) for x in default_joint_pos], [float(x) for x in action_scale]
        self.register_buffer("default_joint_pos", torch.tensor(self.default), persistent=False)
        gain = 1 / torch.tensor(self.scale)
        self.register_buffer("skip_gain", gain if cfg.skip else torch.zeros_like(gain), persistent=False)

    def features(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """What the network sees, (N, actor), and what is added to its output, (N, action)."""
        return self.normalizer(obs), self.offset(obs)

    def offset(self, obs: Tensor) -> Tensor:
        """The action that targets the reference's joint positions, (N, action); 0 without the skip connection."""
        first = self.shape.reference
        reference = obs[..., first : first + self.shape.action]
        return (reference - self.default_joint_pos) * self.skip_gain

    def mean(self, x: Tensor, offset: Tensor) -> Tensor:
        """Mean action (N, action) from `features`."""
        return self.net(x) + offset

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action (N, action)."""
        return self.mean(*self.features(obs))

    def parts(self) -> dict[str, Tensor]:
        """What `forward` computes with, by the names of `sim.actor.parameters`."""
        parts = {"mean": self.normalizer.mean, "spread": self.normalizer.spread()}
        parts |= {"default": self.default_joint_pos, "gain": self.skip_gain}
        for i, layer in enumerate(x for x in self.net if isinstance(x, nn.Linear)):
            parts |= {f"weight{i}": layer.weight, f"bias{i}": layer.bias}
        return parts

    def record(self) -> dict[str, Any]:
        """Tensors and plain values from which `from_record` builds the same policy anywhere."""
        return {
            "shape": asdict(self.shape),
            "cfg": self.cfg.model_dump(mode="json"),
            "default_joint_pos": self.default,
            "action_scale": self.scale,
            "state": plain(self.state_dict()),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Policy:
        """The policy of `record`, on the CPU and in evaluation mode."""
        cfg = PolicyCfg.model_validate(record["cfg"])
        policy = cls(Shape(**record["shape"]), cfg, record["default_joint_pos"], record["action_scale"])
        policy.load_state_dict(record["state"])
        return policy.eval()


class Critic(nn.Module):
    """Value of the critic's observation (N, critic) -> (N), behind its own normaliser."""

    def __init__(self, width: int, hidden: Sequence[int]):
        super().__init__()
        self.normalizer = Normalizer(width)
        self.net = mlp(width, hidden, 1)

    def value(self, x: Tensor) -> Tensor:
        """Value (…) of normalised observations (…, critic)."""
        return self.net(x).squeeze(-1).float()  # under autocast the network's is not

    def forward(self, obs: Tensor) -> Tensor:
        """Value (…) of observations (…, critic)."""
        return self.value(self.normalizer(obs))


def plain(state: Any) -> Any:
    """A copy with every tensor on the CPU, so that it can be saved here and loaded anywhere.

    What is on a device, all float32, goes over as one block: each copy waits for the device.
    """
    away = [x for x in _tensors(state) if x.device.type != "cpu"]
    block = torch.cat([x.detach().reshape(-1) for x in away]).cpu() if away else torch.empty(0)
    parts = iter(block.split([x.numel() for x in away]))

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone() if value.device.type == "cpu" else next(parts).view(value.shape).clone()
        if isinstance(value, dict):
            return {key: copied(x) for key, x in value.items()}
        return [copied(x) for x in value] if isinstance(value, (list, tuple)) else value

    return copied(state)


def _tensors(state: Any) -> Iterator[Tensor]:
    """The tensors in nested dicts and lists, in order."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from _tensors(value)


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log density (N) of actions (N, J) under a diagonal Gaussian with log-std vector (J)."""
    z = (action - mean) * torch.exp(-log_std)
    return -0.5 * (z.square() + LOG_2PI).sum(-1) - log_std.sum()


def entropy(log_std: Tensor) -> Tensor:
    """Entropy (scalar) of the diagonal Gaussian; the same for every observation."""
    return (log_std + 0.5 * (1 + LOG_2PI)).sum()


def kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL divergence (N) of the new diagonal Gaussian from the old one, KL(old ‖ new)."""
    spread = torch.exp(2 * old_log_std) + (old_mean - mean).square()
    return (log_std - old_log_std + 0.5 * spread * torch.exp(-2 * log_std) - 0.5).sum(-1)
