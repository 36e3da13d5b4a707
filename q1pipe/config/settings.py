"""The configuration of one workflow: layers merged, checked, and cut into what each stage goes by."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from q1pipe.config.layers import Layer, Loc, at, dotted, merged
from q1pipe.config.models import Sections, places, section_of
from q1pipe.config.problems import did_you_mean, finding
from q1pipe.errors import ConfigError, Finding, error, first, warn

SETTINGS = [loc for loc, field in places() if section_of(field) is None]
FOR_ALL = ("device", "pin_code")  # what no motion can have for itself
UNTRACKED = "train.num_workers"  # results do not depend on it


class Settings:
    """The checked configuration, cut into the sections that a stage of a motion uses.

    Overrides of a motion are merged first and checked as a whole, so a default never covers a value given for all.
    `Q1_XML` in the environment takes the place of `robot.xml`.

    Args:
        config: layers, later over earlier; or all of them merged.
        motions: names of the motions that exist; overrides for others get a finding in `warnings`.

    Attributes:
        warnings: findings that do not stop anything.
        layers: where settings come from, the environment last.
        overrides: what differs for single motions, by name.

    Raises:
        ConfigError: lists every problem.
    """

    def __init__(self, config: Mapping[str, Any] | Sequence[Layer], motions: Iterable[str] | None = None):
        self.layers = [Layer("config", config)] if isinstance(config, Mapping) else list(config)
        together = merged(*(layer.values for layer in self.layers))
        if xml := os.environ.get("Q1_XML"):
            self.layers.append(Layer("Q1_XML", {"robot": {"xml": xml}}))
        self.overrides, findings = self._overrides(together.pop("motions", None))
        self._sections: dict[str, Sections] = {}
        seen = set()
        for name, override in {"": {}, **self.overrides}.items():  # first, without a name: what holds for all
            environment = {"robot": {"xml": xml}} if xml else {}
            sections, problems = _validated(merged(together, override, environment))
            new = [p for p in problems if (p["loc"], p["msg"]) not in seen]
            findings += [finding(p, self._where(p["loc"], name), name) for p in new]
            seen |= {(p["loc"], p["msg"]) for p in problems if not name}
            if sections is not None:
                self._sections[name] = sections
        findings += self._missing_mjcf()
        if findings:
            raise ConfigError(*findings)
        self.warnings = [] if motions is None else self._without_motion(sorted(motions))
        self._plain: dict[str, dict[str, Any]] = {}  # by motion, "" for all without overrides: made once
        self._texts: dict[str, dict[str, str]] = {}

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
        values = self._values(motion)
        cut: dict[str, Any] = {}
        for key in keys:
            section, _, name = key.partition(".")
            if name:
                cut.setdefault(section, {})[name] = values[section][name]
            else:
                cut[section] = values[section]
        if "train" in cut:
            cut["train"] = {k: v for k, v in cut["train"].items() if f"train.{k}" != UNTRACKED}
        return _canonical(cut)

    def text(self, motion: str | None, place: str) -> str:
        """One setting as text, ``train.ppo.clip=0.2``; see `settings_of` for the places."""
        name = motion if motion and motion in self._sections else ""
        if name not in self._texts:
            values = self._values(name)
            self._texts[name] = {dotted(loc): f"{dotted(loc)}={_canonical(at(values, loc))}" for loc in SETTINGS}
        return self._texts[name][place]

    def _values(self, motion: str | None) -> dict[str, Any]:
        """All settings of a motion as plain values."""
        name = motion if motion and motion in self._sections else ""
        if name not in self._plain:
            self._plain[name] = self.of(name).model_dump(mode="json")
        return self._plain[name]

    def _where(self, loc: Loc, motion: str) -> str:
        """Where a person finds the cause: the last layer that names most of a place; for a motion, its override."""
        full = ("motions", motion, *loc) if motion else loc
        deepest = max(layer.names(full) for layer in self.layers)
        layer = [layer for layer in self.layers if layer.names(full) == deepest][-1]
        return layer.where(full[:deepest] if motion else full)

    def _overrides(self, value: Any) -> tuple[dict[str, Mapping[str, Any]], list[Finding]]:
        """Overrides by motion name, and a finding for what has another shape."""
        result: dict[str, Mapping[str, Any]] = {}
        findings = []
        if not isinstance(value or {}, Mapping):
            allowed = "{motion: {section: {key: value}}}"
            findings.append(error("config", self._where(("motions",), ""), repr(value), allowed))
            value = {}
        for name, override in (value or {}).items():
            where = self._where(("motions", name), "")
            if not isinstance(override or {}, Mapping):
                findings.append(error("config", where, repr(override), "{section: {key: value}}"))
            elif for_all := [key for key in FOR_ALL if key in (override or {})]:
                where = self._where(("motions", name, for_all[0]), "")
                findings.append(error("config", where, "set for one motion", "set for all", f"move {for_all[0]} up"))
            else:
                result[str(name)] = override or {}
        return result, findings

    def _missing_mjcf(self) -> list[Finding]:
        first_user = {s.robot.xml: name for name, s in reversed(list(self._sections.items())) if s.robot.xml}
        return [
            error("robot-missing", self._where(("robot", "xml"), name), f"no file {xml}", "an MJCF", "mend the path")
            for xml, name in first_user.items()
            if not os.path.isfile(xml)
        ]

    def _without_motion(self, motions: list[str]) -> list[Finding]:
        return [
            warn(
                "config",
                self._where(("motions", name), ""),
                "settings for a motion that is not there",
                f"motions are {first(motions) or 'none'}",
                did_you_mean(name, motions) or f"add config/{name}.npz, or remove the settings",
            )
            for name in self.overrides
            if name not in motions
        ]


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


def _validated(values: Any) -> tuple[Sections | None, list[Any]]:
    """The sections, or None and pydantic's account of every problem."""
    try:
        return Sections.model_validate(values), []
    except ValidationError as e:
        return None, e.errors(include_url=False)


def settings_of(*keys: str) -> list[str]:
    """Places of all settings in these sections (``train``), or at single keys (``train.ppo``), without `UNTRACKED`."""
    return [
        place
        for place in map(dotted, SETTINGS)
        if place != UNTRACKED and any(place == key or place.startswith(f"{key}.") for key in keys)
    ]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
