"""Checkpoints: tensors and plain values only, read with weights_only, written so that a kill leaves none half done."""

from __future__ import annotations

import io
import logging
import math
import os
import re
from pathlib import Path
from typing import Any

import torch

from q1pipe.errors import warn
from q1pipe.files import replacing

log = logging.getLogger(__name__)

NUMBERED = re.compile(r"model_(\d+)\.pt")


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint of tensors and plain values, atomically.

    Raises:
        ValueError: a tensor in it is not finite: such a state is not worth going back to.
        OSError: there is no room on the disk; what was there before stays.
    """
    if bad := not_finite(content):
        raise ValueError(f"{path.name} not written: {bad} is not finite")
    whole = io.BytesIO()  # torch itself would put the path's name inside, and hide the reason why a write fails
    torch.save(content, whole)
    with replacing(path) as temporary:
        temporary.write_bytes(whole.getbuffer())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, running nothing that is in it."""
    content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return content


def newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest numbered checkpoint that loads, and its content; none when there is none.

    A damaged one is renamed ``.corrupt`` with a warning, and the one before is taken.

    Args:
        folder: run folder with ``model_{iteration}.pt``.
    """
    found = {int(m[1]): p for p in folder.glob("model_*.pt") if (m := NUMBERED.fullmatch(p.name))}
    for iteration in sorted(found, reverse=True):
        path = found[iteration]
        try:
            content = load(path)
            if content["iteration"] != iteration:
                raise ValueError(f"it holds iteration {content['iteration']}")
            if bad := not_finite(content):
                raise ValueError(f"{bad} is not finite")
            return path, content
        except Exception as e:  # torch.load raises anything on a damaged file
            aside = path.with_name(path.name + ".corrupt")
            os.replace(path, aside)
            why = " ".join(f"{aside.stat().st_size} bytes do not load: {e}".split())[:300]
            action = f"nothing: kept as {aside.name}, the checkpoint before is used"
            log.warning(warn("checkpoint-damaged", str(path), why, action=action))
    return None


def not_finite(content: Any, name: str = "") -> str:
    """Name of the first tensor or number in nested dicts and lists that is NaN or infinite; else empty."""
    if isinstance(content, dict):
        items = [(f"{name}.{key}" if name else str(key), value) for key, value in content.items()]
    elif isinstance(content, (list, tuple)):
        items = [(f"{name}[{i}]", value) for i, value in enumerate(content)]
    elif isinstance(content, torch.Tensor):
        # A sum is not finite where one of its numbers is not, and makes no second tensor
        return name if content.is_floating_point() and not math.isfinite(content.sum(dtype=torch.float64)) else ""
    else:
        return name if isinstance(content, float) and content - content != 0 else ""
    return next(filter(None, (not_finite(value, key) for key, value in items)), "")
