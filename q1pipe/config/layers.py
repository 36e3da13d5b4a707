"""Where settings come from: files and command line, read as people mean them, with the line of each setting.

Files are read by the rules of YAML 1.2, as editors check them: `1e-3` is a number, `on` and `no` are text (and still a
yes or no where one is asked for), `010` is ten, keys are text. PyYAML's own rules are those of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from q1pipe.errors import ConfigError, Finding, error

Loc = tuple[int | str, ...]

COMMAND_LINE = "--config"  # where what is given there is from

WORDS = {"": None, "~": None, **dict.fromkeys(("null", "Null", "NULL"))}
WORDS |= {**dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False)}
INTEGER = re.compile(r"[-+]?[0-9]+")
OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Layer:
    """Settings of one origin.

    Attributes:
        name: of the file, or what the origin is called.
        values: as in config.yaml.
        lines: line of each place in the file, from 1.
    """

    name: str
    values: Mapping[str, Any]
    lines: Mapping[Loc, int] = field(default_factory=dict)

    def where(self, loc: Iterable[int | str]) -> str:
        """``config/config.yaml:71: train.seed``; the line of the nearest place that the layer names."""
        loc = tuple(loc)
        line = next((self.lines[loc[:n]] for n in range(len(loc), 0, -1) if loc[:n] in self.lines), None)
        return f"{self.name}{f':{line}' if line else ''}: {dotted(loc)}"

    def names(self, loc: Loc) -> int:
        """How many parts of a place the layer has."""
        inside: Any = self.values
        for depth, part in enumerate(loc):
            if not isinstance(inside, Mapping):
                return len(loc)
            if part not in inside:
                return depth
            inside = inside[part]
        return len(loc)


def dotted(loc: Iterable[int | str]) -> str:
    """A place as people write it: ``train.policy.hidden[1]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def at(values: Any, loc: Iterable[int | str]) -> Any:
    """What is at a place of a tree."""
    for part in loc:
        values = values[part]
    return values


def of_file(path: str | Path) -> Layer:
    """The settings in a YAML or JSON file; an empty file has none.

    Raises:
        ConfigError: unreadable, no YAML, no mapping, or a key twice.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(error("config", name, str(e), "a YAML file")) from None
    return _parsed(name, text)


def of_arguments(arguments: Iterable[str]) -> Layer:
    """What `--config` says: ``train={"ppo": {"clip": 0.3}}``, or ``train__ppo__clip=0.3``.

    Snakemake takes no dots in a key, hence the two underscores.

    Raises:
        ConfigError: a value is no YAML, there is no ``=``, or a dot before it.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise ConfigError(error("config", f"{COMMAND_LINE} {argument}", "no =", "key=value"))
        value = _parsed(f"{COMMAND_LINE} {key}", text, mapping=False).values
        if "." in key:
            raise ConfigError(
                error(
                    "config",
                    f"{COMMAND_LINE} {key}",
                    "a dot in the name",
                    "two underscores, because Snakemake takes no dots",
                    f"write {COMMAND_LINE} {key.replace('.', '__')}={text}",
                )
            )
        for part in reversed(key.split("__")):
            value = {part: value}
        values = merged(values, value)
    return Layer(COMMAND_LINE, values)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers over earlier ones, mappings key by key, as Snakemake merges its config files."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if not isinstance(below, Mapping):
                result[key] = value
            elif value is not None:  # a section left empty changes nothing
                result[key] = merged(below, value) if isinstance(value, Mapping) else value
    return result


def _parsed(name: str, text: str, mapping: bool = True) -> Layer:
    """A layer; `mapping`: nothing else is taken, and an empty text is an empty one."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as e:
        raise ConfigError(error("config", name, " ".join(str(e).split()), "YAML")) from None
    lines: dict[Loc, int] = {}
    findings: list[Finding] = []
    values = None if node is None else _value(node, (), lines, findings)
    if mapping and not isinstance(values or {}, Mapping):
        findings.append(error("config", name, f"{values!r:.80}", "settings, {section: {key: value}}"))
    if findings:
        raise ConfigError(*(error("config", f"{name}:{f.where}", f.found, f.allowed, f.action) for f in findings))
    return Layer(name, (values or {}) if mapping else values, lines)  # type: ignore[arg-type]


def _value(node: Any, loc: Loc, lines: dict[Loc, int], findings: list[Finding]) -> Any:
    """What a node of PyYAML's tree means; notes lines and keys that are there twice."""
    if node.id == "sequence":
        return [_value(child, (*loc, i), lines, findings) for i, child in enumerate(node.value)]
    if node.id == "scalar":
        return _scalar(node.value) if not node.style else node.value
    result: dict[str, Any] = {}
    for key, child in node.value:
        name, line = key.value if key.id == "scalar" else str(key.value), key.start_mark.line + 1
        if name == "<<" and child.id == "mapping":
            result = merged(_value(child, loc, lines, findings), result)
            continue
        if name in result and (*loc, name) in lines:
            there = f"it is in line {lines[*loc, name]} too"
            findings.append(error("config", f"{line}: {dotted((*loc, name))}", there, "each key once", "remove one"))
        lines[*loc, name] = line
        result[name] = _value(child, (*loc, name), lines, findings)
    return result


def _scalar(text: str) -> Any:
    """A scalar without quotes, by the core schema of YAML 1.2."""
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if REAL.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan"))
    return text
