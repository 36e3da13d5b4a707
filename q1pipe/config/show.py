"""All settings of a motion as YAML, each with where it is from: what `q1pipe config` prints."""

from __future__ import annotations

import os
from collections.abc import Iterator

from q1pipe.config.layers import Layer, Loc, at
from q1pipe.config.models import Sections, places, section_of
from q1pipe.config.problems import snippet
from q1pipe.config.settings import Settings

DEVICE = "PRIMEBOT_DEVICE"
COLUMN = 48  # where the origins begin, at least


def shown(settings: Settings, motion: str | None = None) -> Iterator[str]:
    """A line for each section and setting; the whole is YAML that says the same."""
    values, defaults = (model.model_dump(mode="json") for model in (settings.of(motion), Sections()))
    for loc, field in places():
        indent = "  " * (len(loc) - 1)
        if section_of(field) is not None:
            yield f"{indent}{loc[-1]}:"
            continue
        value, default = at(values, loc), at(defaults, loc)
        line = indent + snippet(loc[-1:], value)
        by = origin(settings, motion, loc, unchanged=value == default)
        if loc == ("device", "device") and value == "auto" and os.environ.get(DEVICE):
            by = f"{by}: {DEVICE}={os.environ[DEVICE]} decides"
        yield f"{line:{COLUMN}}  # {by}"


def origin(settings: Settings, motion: str | None, loc: Loc, unchanged: bool) -> str:
    """The layer that a setting is from; `default` where nobody changed it: config.yaml names everything."""
    override = ("motions", motion, *loc) if motion else loc
    for_all = [layer for layer in settings.layers if _named(layer, loc)]
    for_one = [layer for layer in settings.layers if motion and _named(layer, override)]
    if environment := [layer for layer in for_all if layer.name == "Q1_XML"]:
        return environment[-1].name
    if for_one:
        return f"{_place(for_one[-1], override)}, motions.{motion}"
    if unchanged and len(for_all) < 2:
        return "default"
    return _place(for_all[-1], loc) if for_all else "default"


def _named(layer: Layer, loc: Loc) -> bool:
    return layer.names(loc) == len(loc)


def _place(layer: Layer, loc: Loc) -> str:
    return layer.where(loc).rpartition(": ")[0]
