"""The policy in numpy, for workers: where it computes on the CPU, a message there and back for every step costs more.

Workers never import torch. The formula is `learn.policy.Policy`'s; a test holds the two together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# Always as many rows at a time: BLAS takes another kernel for another number of them, with other last digits, and an
# action must not depend on how many environments its worker has.
BLOCK = 32


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


class Actor:
    """Mean actions of n environments.

    Args:
        parameters: arrays of `parameters`, read anew in each call.
        reference: columns of the reference's joint positions in the observation.
        num_envs: n.
    """

    def __init__(self, parameters: Mapping[str, NDArray[Any]], reference: slice, num_envs: int):
        self._p, self._reference, self._n = parameters, reference, num_envs
        blocks = -(-num_envs // BLOCK)
        layers = (len(parameters) - 4) // 2
        self._layers = [(parameters[f"weight{i}"].T, parameters[f"bias{i}"]) for i in range(layers)]
        widths = [len(parameters["mean"]), *(len(bias) for _, bias in self._layers)]
        self._x = [np.zeros((blocks, BLOCK, width), np.float32) for width in widths]  # what each layer is given, gives
        self._negative = [np.empty_like(x) for x in self._x]

    def mean(self, obs: Floats, out: Floats) -> None:
        """Write the mean actions (n, J) for observations (n, actor)."""
        p, x = self._p, self._x[0]
        rows = x.reshape(-1, x.shape[-1])[: self._n]
        np.subtract(obs, p["mean"], out=rows)
        rows /= p["spread"]
        for i, (weight, bias) in enumerate(self._layers, start=1):
            y = self._x[i]
            np.matmul(x, weight, out=y)
            y += bias
            if i < len(self._layers):  # ELU: max(y, 0) + exp(min(y, 0)) - 1
                negative = np.minimum(y, 0, out=self._negative[i])
                np.exp(negative, out=negative)
                negative -= 1
                np.maximum(y, 0, out=y)
                y += negative
            x = y
        np.subtract(obs[:, self._reference], p["default"], out=out)
        out *= p["gain"]
        out += x.reshape(-1, x.shape[-1])[: self._n]
