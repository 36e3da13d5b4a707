"""A problem of the configuration as pydantic tells it -> one line for a person, with the YAML that would be right."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from q1pipe.config.layers import COMMAND_LINE, Loc, dotted
from q1pipe.config.models import Config, Sections, either, places
from q1pipe.errors import Finding, error, first


def finding(problem: Mapping[str, Any], where: str, motion: str = "") -> Finding:
    """One line.

    Args:
        problem: of `ValidationError.errors`.
        where: file and place.
        motion: the problem is of this motion's overrides.
    """
    value, message = problem["input"], problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    message = message.partition(", unable to ")[0]  # the value is there already
    loc: Loc = problem["loc"]
    if problem["type"] == "extra_forbidden":
        parent, name = loc[:-1], str(loc[-1])
        names = keys(Sections if motion else Config, parent)
        inside = f"{dotted(parent)} has" if parent else "sections are"
        right = near(name, names)
        places = [(*parent, right)] if right else _elsewhere(name)
        action = _instead(places, value, motion, where)
        return error("config", where, "unknown key", f"{inside} {first(names, 30)}", action)
    if problem["type"] == "missing":
        return error("config", where, "missing", "a value", f"write {_written(loc, _default(loc), motion, where)}")
    if "; " in message:  # a validator of ours that looks at several keys and names their values itself
        found, allowed, fix = message.split("; ")
        return error("config", where, found, allowed, f"write {f'motions: {{{motion}: {{{fix}}}}}' if motion else fix}")
    default = _default(loc)
    fix = f"write {_written(loc, default, motion, where)}" if default is not None else ""
    return error("config", where, f"{value!r:.80}", message, fix)


def keys(model: Any, loc: Iterable[int | str]) -> list[str]:
    """Names of the keys below a place in the configuration."""
    for part in loc:
        model = model.model_fields[part].annotation
    return list(model.model_fields)


def near(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The name that was meant, or nothing where none is near."""
    found = difflib.get_close_matches(name.lower(), {n.lower(): n for n in names}, 1, cutoff)
    return next(n for n in names if n.lower() == found[0]) if found else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint, or nothing where no name is near."""
    found = near(name, names)
    return f"did you mean {found}?" if found else ""


def snippet(loc: Loc, value: Any, motion: str = "") -> str:
    """A setting as one line of YAML: ``train: {ppo: {clip: 0.2}}``. A place in a list stands for the whole list."""
    for part in reversed([*(("motions", motion) if motion else ()), *loc]):
        if isinstance(part, str):
            value = {part: value}
    return flow(value)[1:-1]


def flow(value: Any) -> str:
    """A value as one line of YAML."""
    import yaml

    text = str(yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6))
    return text.removesuffix("...\n").strip()


def _written(loc: Loc, value: Any, motion: str, where: str) -> str:
    """A setting as it is written where the problem is: YAML, or an argument of ``--config``."""
    if not where.startswith(COMMAND_LINE):
        return snippet(loc, value, motion)
    names = [part for part in (*(("motions", motion) if motion else ()), *loc) if isinstance(part, str)]
    return f"{COMMAND_LINE} {shlex.quote('__'.join(names) + '=' + flow(value))}"


def _instead(places: list[Loc], value: Any, motion: str, where: str) -> str:
    """A hint for an unknown key that was meant for one of these places."""
    if not places:
        return "remove it"
    write = f" write {_written(places[0], value, motion, where)}" if len(places) == 1 else ""
    return f"did you mean {either(map(dotted, places))}?{write}"


def _default(loc: Loc) -> Any:
    """The default at a place; None where it has none, as in tables with a robot's names."""
    value: Any = Config().model_dump(mode="json")
    for part in loc:
        if isinstance(part, int):
            break
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _elsewhere(name: str) -> list[Loc]:
    """Places of a key that belongs into another section: train.learning_rat -> train.ppo.learning_rate."""
    everywhere = [place for place, _ in places()]
    meant = near(name, sorted({str(place[-1]) for place in everywhere}), cutoff=0.8)
    return [place for place in everywhere if place[-1] == meant]
