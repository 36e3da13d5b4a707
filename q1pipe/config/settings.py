"""The configuration of one workflow: layers merged, checked, and cut into what each stage goes by."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from q1pipe.config.models import Config, Sections
from q1pipe.config.problems import did_you_mean, dotted, finding, where
from q1pipe.errors import ConfigError, Finding, error, first, warn


class Settings:
    """The checked configuration, cut into the sections that a stage of a motion uses.

    Overrides of a motion are merged first and checked as a whole, so a default never covers a value given for all.
    `Q1_XML` in the environment takes the place of `robot.xml`.

    Args:
        config: merged configuration, as Snakemake holds it.
        motions: names of the motions that exist; overrides for others get a finding in `warnings`.

    Attributes:
        warnings: findings that do not stop anything.

    Raises:
        ConfigError: lists every problem.
    """

    def __init__(self, config: Mapping[str, Any], motions: Iterable[str] | None = None):
        environment = {"robot": {"xml": os.environ["Q1_XML"]}} if os.environ.get("Q1_XML") else {}
        overrides, findings = _overrides(config.get("motions"))
        plain = {k: v for k, v in config.items() if k != "motions"}
        self._sections: dict[str, Sections] = {}
        seen = set()
        for name, override in {"": {}, **overrides}.items():  # first, without a name: what holds for all
            sections, problems = _validated(merged(plain, override, environment))
            new = [p for p in problems if (p["loc"], p["msg"]) not in seen]
            findings += [finding(p, where(p["loc"], name, override), Sections if name else Config) for p in new]
            seen |= {(p["loc"], p["msg"]) for p in problems if not name}
            if sections is not None:
                self._sections[name] = sections
        findings += _missing_mjcf(self._sections)
        if findings:
            raise ConfigError(*findings)
        self.warnings = [] if motions is None else _without_motion(overrides, sorted(motions))

    def of(self, motion: str | None = None) -> Sections:
        """The sections of a motion; of all motions without a name."""
        return self._sections.get(motion or "", self._sections[""])

    def stage(self, motion: str | None, *keys: str) -> str:
        """What a stage goes by, as canonical JSON: equal settings are equal text, however they were written.

        `train.num_workers` is left out: results do not depend on it, so a change must not make them stale.

        Args:
            motion: name of the motion; None for a stage that is one for all motions.
            keys: sections (``train``), or single keys of one (``train.control_hz``).
        """
        values = self.of(motion).model_dump(mode="json", exclude={"train": {"num_workers"}})
        cut: dict[str, Any] = {}
        for key in keys:
            section, _, name = key.partition(".")
            if name:
                cut.setdefault(section, {})[name] = values[section][name]
            else:
                cut[section] = values[section]
        return json.dumps(cut, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def load_settings(text: str) -> dict[str, Any]:
    """The sections in the JSON of `Settings.stage`, as their models; keys that are not in it have their defaults.

    `train.num_workers` is 1 unless given: the number that a stage uses comes on its command line.

    Raises:
        ConfigError: lists every problem.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as e:
        raise ConfigError(error("config", "--settings", str(e), "JSON: {section: {key: value}}")) from None
    if isinstance(values, dict) and isinstance(values.get("train"), dict):
        values = {**values, "train": {"num_workers": 1, **values["train"]}}
    sections, problems = _validated(values)
    if sections is None:
        raise ConfigError(*(finding(p, f"--settings: {dotted(p['loc'])}") for p in problems))
    return {name: getattr(sections, name) for name in values or {}}


def _overrides(value: Any) -> tuple[dict[str, Mapping[str, Any]], list[Finding]]:
    """Overrides by motion name, and a finding for what has another shape. YAML reads a name like 2024 as a number."""
    result: dict[str, Mapping[str, Any]] = {}
    findings = []
    if not isinstance(value or {}, Mapping):
        findings.append(error("config", "config: motions", repr(value), "{motion: {section: {key: value}}}"))
        value = {}
    for name, override in (value or {}).items():
        where = f"config: motions.{name}"
        if not isinstance(override or {}, Mapping):
            findings.append(error("config", where, repr(override), "{section: {key: value}}"))
        elif "device" in (override or {}):
            findings.append(
                error("config", f"{where}.device", "one motion's device", "one for all", "set device.device")
            )
        else:
            result[str(name)] = override or {}
    return result, findings


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


def _validated(values: Any) -> tuple[Sections | None, list[Any]]:
    """The sections, or None and pydantic's account of every problem."""
    try:
        return Sections.model_validate(values), []
    except ValidationError as e:
        return None, e.errors(include_url=False)


def _missing_mjcf(sections: Mapping[str, Sections]) -> list[Finding]:
    first_user = {s.robot.xml: name for name, s in reversed(list(sections.items())) if s.robot.xml}
    return [
        error(
            "robot-missing",
            f"config: motions.{name}.robot.xml" if name else "config: robot.xml",
            f"no file {xml}",
            "an MJCF",
            "mend it, or Q1_XML in the environment, which comes before it",
        )
        for xml, name in first_user.items()
        if not os.path.isfile(xml)
    ]


def _without_motion(overrides: Iterable[str], motions: list[str]) -> list[Finding]:
    return [
        warn(
            "config",
            f"config: motions.{name}",
            "settings for a motion that is not there",
            f"motions are {first(motions) or 'none'}",
            did_you_mean(name, motions) or f"add config/{name}.npz, or remove the settings",
        )
        for name in overrides
        if name not in motions
    ]
