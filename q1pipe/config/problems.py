"""A problem of the configuration as pydantic tells it -> one line for a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from q1pipe.config.models import Config, Sections, either
from q1pipe.errors import Finding, error, first


def finding(problem: Mapping[str, Any], where: str, model: type[Sections] = Sections) -> Finding:
    """A problem as pydantic tells it -> one line for a person."""
    value, message = problem["input"], problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "extra_forbidden":
        parent, name = problem["loc"][:-1], str(problem["loc"][-1])
        names = _keys(model, parent)
        inside = f"{dotted(parent)} has" if parent else "sections are"
        near = did_you_mean(name, names) or _elsewhere(name)
        return error("config", where, "unknown key", f"{inside} {first(names, 30)}", near)
    if problem["type"] == "missing":
        return error("config", where, "missing", "a value", "add it")
    if "; " in message:  # a validator of ours that looks at several keys and names their values itself
        return error("config", where, *message.split("; ", 1))
    return error("config", where, f"{value!r:.80}", message)


def where(loc: tuple[int | str, ...], motion: str, override: Mapping[str, Any]) -> str:
    """Where a person finds the cause: for a motion, what of the place is among its overrides."""
    if not motion:
        return f"config: {dotted(loc)}"
    inside: Any = override
    for depth, part in enumerate(loc):
        if not isinstance(inside, Mapping) or part not in inside:
            loc = loc[:depth] if isinstance(inside, Mapping) else loc
            break
        inside = inside[part]
    return f"config: {dotted(('motions', motion, *loc))}"


def dotted(loc: Iterable[int | str]) -> str:
    """A place as people write it: ``train.policy.hidden[1]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _keys(model: Any, loc: Iterable[int | str]) -> list[str]:
    """Names of the keys below a place in the configuration."""
    for part in loc:
        model = model.model_fields[part].annotation
    return list(model.model_fields)


def _elsewhere(name: str) -> str:
    """A hint for a key that belongs into another section: train.learning_rate -> train.ppo.learning_rate."""

    def paths(model: type[BaseModel], above: str = "") -> Iterable[str]:
        for key, field in model.model_fields.items():
            yield above + key
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from paths(field.annotation, f"{above}{key}.")

    found = [path for path in paths(Config) if path.rpartition(".")[2] == name]
    return f"did you mean {either(found)}?" if found else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint, or nothing where no name is near."""
    near = difflib.get_close_matches(name.lower(), {n.lower(): n for n in names}, 1)
    return f"did you mean {next(n for n in names if n.lower() == near[0])}?" if near else ""
