"""Stage 2: which device trains, proven by a computation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from q1pipe.config import DeviceCfg
from q1pipe.errors import Finding
from q1pipe.files import write_json
from q1pipe.learn.device import VARIABLES, look, require

log = logging.getLogger(__name__)


def run(out_json: Path | None, settings: Mapping[str, Any]) -> None:
    """Choose a device, say what was found, and write the record.

    Args:
        out_json: device.json; none: only say it.
        settings: section ``device``.

    Raises:
        DeviceError: a device that was asked for does not compute.
    """
    cfg: DeviceCfg = settings["device"]
    record = look(cfg)
    for line in table(record):
        log.info(line)
    findings = [Finding(**finding) for finding in record["findings"]]
    for finding in (f for f in findings if f.level != "ERROR"):
        log.warning(finding)
    require(record)
    if out_json:
        write_json(out_json, record)


def table(record: Mapping[str, Any]) -> list[str]:
    """The record for a person: what was chosen and why, what was found, versions, memory, and how to change it."""
    chosen = f"{record['device']} ({record['name']})" if record["device"] else "none"
    lines = [("chosen", chosen), ("why", record["why"] or "see the error below")]
    variables = [f"{name}={record['variables'][name]!r}" for name in VARIABLES if name in record["variables"]]
    lines.append(("asked for", f"device.device={record['requested']}, {', '.join(variables) or 'no variable set'}"))
    for probe in record["tried"]:
        said = [probe["why"]] if not probe["ok"] else ["computes", probe["name"], _cards(probe["cards"]), _room(probe)]
        lines.append((probe["device"], "; ".join(filter(None, [*said, *probe["detail"]]))))
    installed = [f"{name} {version or '-'}" for name, version in record["versions"].items()]
    lines.append(("versions", ", ".join(installed)))
    smi = record["smi"]
    cards = [
        f"{c['number']}.{c['chip']} {c['name']} {c['health']} {c['used_mb']}/{c['total_mb']} MB" for c in smi["cards"]
    ]
    lines.append(("npu-smi", ", ".join(cards) or " ".join(filter(None, [smi["state"], smi["why"]]))))
    lines.append(
        ("to change", "device.device in the configuration, or PRIMEBOT_DEVICE=npu:0 …; the workflow notices both")
    )
    return [f"{name:10} {text}" for name, text in lines]


def _cards(number: int) -> str:
    return f"{number} cards visible" if number > 1 else ""


def _room(probe: Mapping[str, Any]) -> str:
    if not probe["total"]:
        return ""
    return f"{probe['free'] / 2**30:.1f} of {probe['total'] / 2**30:.1f} GB free"
