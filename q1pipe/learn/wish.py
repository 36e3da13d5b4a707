"""What PRIMEBOT_DEVICE asks for, and whether that was chosen: the workflow wants to know, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "PRIMEBOT_DEVICE"


def wish(environ: Mapping[str, str]) -> str:
    """The device that the variable asks for; empty: none."""
    value = environ.get(VARIABLE, "").strip()
    return "" if value == "auto" else value


def tracked(asked: str, device_json: Path, environ: Mapping[str, str]) -> str:
    """A text that differs from the one of the run that chose a device where it would choose another one now.

    Args:
        asked: ``device.device``; only ``auto`` leaves it to the variable.
        device_json: what that run wrote; it need not be there.
        environ: environment variables.
    """
    if asked != "auto":
        return f"{VARIABLE}="
    now = wish(environ)
    try:
        record = json.loads(device_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    if record.get("requested") == "auto" and _same(now, record):
        now = wish(record["variables"])
    return f"{VARIABLE}={now}"


def _same(now: str, record: Mapping[str, Any]) -> bool:
    """Whether the choice stays as recorded; with several cards, one of them is not the same as any of them."""
    if now == wish(record["variables"]):
        return True
    if not now:
        return bool(record.get("automatic"))
    one_card = ":" in now
    device = now if one_card or now == "cpu" else f"{now}:0"
    seen = max(probe["cards"] for probe in record["tried"] if probe["device"] == record["device"])
    return device == record["device"] and (seen <= 1 or one_card == (record["cards"] < seen))
