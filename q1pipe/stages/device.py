"""Stage 2: which device trains, proven by a computation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from q1pipe.config import DeviceCfg
from q1pipe.errors import Finding
from q1pipe.files import write_json
from q1pipe.learn.device import choose

log = logging.getLogger(__name__)


def run(out_json: Path, settings: Mapping[str, Any]) -> None:
    """Choose a device and write the record.

    Args:
        out_json: device.json.
        settings: section ``device``.

    Raises:
        DeviceError: a device that was asked for does not compute.
    """
    cfg: DeviceCfg = settings["device"]
    record = choose(cfg)
    for finding in record["findings"]:
        log.warning(Finding(**finding))
    log.info("device %s (%s): %s", record["device"], record["name"], record["why"])
    write_json(out_json, record)
