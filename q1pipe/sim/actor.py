"""The policy for workers: where it computes on the CPU, a message there and back for every step costs more.

Workers never import torch. The formula is `learn.policy.Policy`'s; a test holds the two together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from q1pipe.sim import draws
from q1pipe.sim.compiled import compiled

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]

# Always as many rows at a time: BLAS takes another kernel for another number of them, with other last digits, and an
# action must not depend on how many environments its worker has. A block stays in the processor's caches.
BLOCK = 32


class Net(NamedTuple):
    """What the policy is made of.

    Attributes:
        mean: (actor) of the observations.
        spread: (actor) that they are divided by.
        default: (J) rad, the target of action 0.
        gain: (J) of the skip connection.
        weights: (out, in) of each layer.
        biases: (out) of each layer.
    """

    mean: Floats
    spread: Floats
    default: Floats
    gain: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Net:
        """From arrays named as in `parameters`; it sees what is written to them later."""
        layers = range((len(arrays) - 4) // 2)
        weights, biases = (tuple(arrays[f"{name}{i}"] for i in layers) for name in ("weight", "bias"))
        return cls(arrays["mean"], arrays["spread"], arrays["default"], arrays["gain"], weights, biases)


def parameters(observation: int, hidden: Sequence[int], actions: int) -> dict[str, tuple[int, ...]]:
    """Shapes of what the policy is made of, by name: the normaliser, the skip connection, the layers."""
    shapes: dict[str, tuple[int, ...]] = {
        "mean": (observation,),
        "spread": (observation,),
        "default": (actions,),
        "gain": (actions,),
    }
    for i, (a, b) in enumerate(itertools.pairwise((observation, *hidden, actions))):
        shapes |= {f"weight{i}": (b, a), f"bias{i}": (b,)}
    return shapes


class Explored(NamedTuple):
    """What the learner needs of the policy's work, beside the actions.

    Attributes:
        features: (n, actor) what the network saw.
        offsets: (n, J) what was added to its output.
        means: (n, J) mean actions.
        moments: (2, n, actor) float64, sums of what was observed, with its noise, and of its squares, over the steps of
            an iteration.
    """

    features: Floats
    offsets: Floats
    means: Floats
    moments: NDArray[np.float64]


class Noise(NamedTuple):
    """Uniform noise on observations, the same for an environment's step whoever computes it.

    Attributes:
        seed: of the run, as `randomization.word` makes it.
        columns: which of an observation's have any, (k,).
        half: ± of each, (k,).
    """

    seed: np.uint64
    columns: Ids
    half: Floats

    @classmethod
    def of(cls, seed: np.uint64, half: Floats) -> Noise:
        """From the half-range on every column, `observations.Layout.noise`."""
        columns = np.flatnonzero(half)
        return cls(seed, columns, half[columns])


@compiled
def act(
    net: Net,
    noise: Noise,
    env_ids: Ids,
    step: int,
    rows: Floats,
    reference: int,
    out: Explored,
    actions: Floats,
) -> None:
    """Write what the policy sees and its mean actions, and add these to the actions (n, J).

    Args:
        net: the policy.
        noise: on observations.
        env_ids: global numbers of the environments, (n,).
        step: control steps of the run so far, which the noise depends on.
        rows: (n, actor or more) observations without noise.
        reference: first of the J columns with the reference's joint positions.
        out: where to write; the moments are added to.
        actions: how far each action is from its mean.
    """
    n, width = out.features.shape
    for first in range(0, n, BLOCK):
        count = min(BLOCK, n - first)
        x = np.zeros((BLOCK, width), np.float32)
        for i in range(count):
            seen, features, offsets = x[i], out.features[first + i], out.offsets[first + i]
            sums, squares = out.moments[0, first + i], out.moments[1, first + i]
            for c in range(width):
                seen[c] = rows[first + i, c]
            key = draws.key(noise.seed, draws.Purpose.NOISE, env_ids[first + i], step)
            for k in range(len(noise.columns)):
                seen[noise.columns[k]] += np.float32(draws.around(draws.draw(key, k), noise.half[k]))
            for j in range(len(offsets)):
                offsets[j] = (seen[reference + j] - net.default[j]) * net.gain[j]
            for c in range(width):
                value = np.float64(seen[c])
                sums[c] += value
                squares[c] += value * value
                seen[c] = (seen[c] - net.mean[c]) / net.spread[c]
                features[c] = seen[c]
        for layer in range(len(net.weights)):
            x = np.dot(x, net.weights[layer].T)
            x += net.biases[layer]
            if layer < len(net.weights) - 1:
                _elu(x.reshape(-1))
        for i in range(count):
            for j in range(actions.shape[1]):
                mean = out.offsets[first + i, j] + x[i, j]
                out.means[first + i, j] = mean
                actions[first + i, j] += mean


# exp for float32 as in Cephes: 2^k · e^r, |r| ≤ ln 2 / 2. The loops below become vector instructions; a call of exp for
# each number does not, and takes seven times as long.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_POWERS = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)
_ZERO, _HALF, _ONE, _LEAST = np.float32(0), np.float32(0.5), np.float32(1), np.float32(-87)


@compiled
def _elu(y: Floats) -> None:
    """In place, y where it is positive, else e^y − 1. (n,)."""
    rest, power = np.empty(len(y), np.float32), np.empty(len(y), np.int32)
    for i in range(len(y)):
        x = max(min(y[i], _ZERO), _LEAST)
        k = np.floor(x * _LOG2E + _HALF)
        r = x - k * _LN2_HIGH - k * _LN2_LOW
        tail = _POWERS[0]
        for c in range(1, 6):
            tail = tail * r + _POWERS[c]
        rest[i] = tail * (r * r) + r + _ONE
        power[i] = (np.int32(k) + np.int32(127)) << np.int32(23)  # the bits of 2^k
    scale = power.view(np.float32)
    for i in range(len(y)):
        y[i] = max(y[i], _ZERO) + (rest[i] * scale[i] - _ONE)
