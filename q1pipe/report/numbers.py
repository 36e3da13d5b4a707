"""Numbers for people."""

from __future__ import annotations

import math
from typing import Any

NOT_AVAILABLE = "n/a"
SHARES = {"success_rate", "finish_rate", "torque_use", "torque_peak", "soft_limit_use"}


def number(value: Any) -> str:
    """Four digits, thousands apart; n/a for what is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.4g}"


def share(value: Any) -> str:
    """Per cent."""
    text = number(value)
    return text if text == NOT_AVAILABLE else f"{100 * value:.1f} %"


def metric(value: Any, name: str) -> str:
    """A metric in its own form."""
    return share(value) if name in SHARES else number(value)


def duration(seconds: Any) -> str:
    """Seconds, minutes or hours."""
    if number(seconds) == NOT_AVAILABLE:
        return NOT_AVAILABLE
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
