"""What q1pipe says when something is wrong: what, where, the value, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

EXIT_USER_ERROR = 2


@dataclass(frozen=True)
class Finding:
    """One line for a person, and the same record in a stage's JSON.

    Attributes:
        level: ERROR stops the stage; WARN is a repair or a doubt; INFO is worth knowing.
        code: short name of the kind of finding, such as ``body-order``.
        where: file and field, such as ``config/wave.npz: body_pos_w``.
        found: what is there, with numbers and the first names.
        allowed: what would be right; may be empty for WARN and INFO.
        action: what to do about it; may be empty for INFO.
    """

    level: Literal["ERROR", "WARN", "INFO"]
    code: str
    where: str
    found: str
    allowed: str = ""
    action: str = ""

    def __str__(self) -> str:
        parts = [f"{self.level} [{self.code}] {self.where}", self.found, self.allowed, self.action]
        return " — ".join(part for part in parts if part)

    def record(self) -> dict[str, str]:
        """The finding as plain strings, for JSON."""
        return asdict(self)


class Q1Error(Exception):
    """A mistake that a person can mend: printed as its findings, without a traceback, exit code 2."""

    def __init__(self, *findings: Finding):
        self.findings = findings
        super().__init__("\n".join(map(str, findings)))


class ConfigError(Q1Error):
    """The configuration has unknown keys or values out of range."""


class RobotError(Q1Error):
    """The MJCF and the names in the configuration do not fit."""


class MotionError(Q1Error):
    """The motion file cannot be used."""


class DeviceError(Q1Error):
    """The device that was asked for does not compute."""


def error(code: str, where: str, found: str, allowed: str = "", action: str = "") -> Finding:
    """An ERROR finding."""
    return Finding("ERROR", code, where, found, allowed, action)


def warn(code: str, where: str, found: str, allowed: str = "", action: str = "") -> Finding:
    """A WARN finding."""
    return Finding("WARN", code, where, found, allowed, action)


def first(names: Iterable[object], limit: int = 5) -> str:
    """The first names and how many more: ``a, b, c, d, e and 3 more``."""
    items = [str(n) for n in names]
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more
