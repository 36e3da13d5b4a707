"""Random numbers that are counted, not streamed, compiled; see `randomization`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.sim.compiled import compiled

Array = NDArray[Any]
Ids = NDArray[np.intp]

_GOLDEN, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)


class Purpose(IntEnum):
    """What random numbers are for; numbers of different purposes are independent."""

    DOMAIN = 1
    START = 2
    RESET = 3
    FIRST_PUSH = 4
    PUSH = 5
    FIRST_LIMIT = 6
    NOISE = 7


@compiled
def uniform(seed: np.uint64, purpose: int, env_ids: Ids, count: Ids, out: Array) -> None:
    """Write uniform numbers in [0, 1), (n, width); see `randomization.uniform`."""
    for i in range(len(out)):
        series = key(seed, purpose, env_ids[i], count[i])
        for column in range(out.shape[1]):
            out[i, column] = draw(series, column)


@compiled
def key(seed: np.uint64, purpose: int, env_id: int, count: int) -> np.uint64:
    """What a series of numbers depends on, as one word."""
    word = mix(seed + _GOLDEN * np.uint64(purpose))
    word = mix(word + _GOLDEN * (np.uint64(env_id) + _ONE))
    return mix(word + _GOLDEN * (np.uint64(count) + _ONE))


@compiled
def draw(key: np.uint64, column: int) -> float:
    """A number of a series, in [0, 1)."""
    return np.float64(mix(key + _GOLDEN * np.uint64(column + 1)) >> np.uint64(11)) * 2.0**-53


@compiled
def mix(x: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64: a bijection that turns counters into noise. Overflow is meant."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def around(u: float, half: float) -> float:
    """Map [0, 1) to ± half."""
    return (2 * u - 1) * half
