"""Where episodes start: bins of about a second, drawn more often where episodes fail. The learner keeps it, for all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import ResetCfg
from q1pipe.sim.terminations import failed

Array = NDArray[np.float64]


class AdaptiveSampler:
    """Probability of each bin of start frames.

    The share `cfg.uniform` is spread evenly whatever fails, so each bin keeps at least uniform / bins, however many
    environments there are; the rest follows an EMA of failures per bin.

    Attributes:
        failures: (bins,) EMA of the failures per iteration.
        covered: share of the bins that the last iteration's steps were in.
    """

    def __init__(self, frames: int, control_hz: float, cfg: ResetCfg):
        self.cfg = cfg
        self.frames = frames
        self.failures: Array = np.zeros(bin_count(frames, control_hz, cfg))
        self.covered = 0.0

    def update(self, frame: NDArray[np.integer], cause: NDArray[np.integer]) -> None:
        """Count one iteration's terminations, and where in the clip it was.

        Args:
            frame: reference frame of each step, any shape.
            cause: `terminations.Cause` of each step, same shape; truncations are no failures.
        """
        bins = len(self.failures)
        counts = np.bincount(bin_of(frame[failed(cause)], self.frames, bins), minlength=bins)
        self.covered = float((np.bincount(bin_of(frame.ravel(), self.frames, bins), minlength=bins) > 0).mean())
        self.failures += self.cfg.adapt_rate * (counts - self.failures)

    @property
    def probs(self) -> Array:
        """(bins,), sums to 1."""
        bins, total = len(self.failures), self.failures.sum()
        even = np.full(bins, 1 / bins)
        if total <= 0:
            return even
        return self.cfg.uniform * even + (1 - self.cfg.uniform) * self.failures / total

    def state(self) -> dict[str, Array]:
        """What to keep in a checkpoint."""
        return {"failures": self.failures.copy()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Go on from a saved table.

        Raises:
            ValueError: it has another number of bins.
        """
        if np.shape(state["failures"]) != self.failures.shape:
            raise ValueError(f"failure table has {len(state['failures'])} bins, this clip has {len(self.failures)}")
        self.failures = np.array(state["failures"], np.float64)


def bin_count(frames: int, control_hz: float, cfg: ResetCfg) -> int:
    """How many bins a clip has: its seconds over bin_seconds, rounded; at least one, at most one per start frame."""
    starts = max(frames - 1, 1)
    return int(np.clip(round(starts / control_hz / cfg.bin_seconds), 1, starts))


def bin_of(frames: NDArray[np.integer], clip_frames: int, bins: int) -> NDArray[np.intp]:
    """Bin of each frame; the last frame, where no episode starts, is in the last bin."""
    starts = max(clip_frames - 1, 1)
    return np.minimum(np.asarray(frames, np.intp) * bins // starts, bins - 1)
