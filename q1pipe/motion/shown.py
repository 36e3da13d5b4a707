"""What was found in a file as a table for people, on a terminal, in a pipe, at 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from q1pipe.errors import Finding

STYLES = {"ERROR": "bold red", "WARN": "yellow", "INFO": "dim"}  # the worst first


def table(findings: Sequence[Finding], source: Path) -> Table:
    """A row for each finding: level, code, field, and what was found, is allowed, is or was done about it."""
    result = Table(box=None, pad_edge=False, padding=(0, 1, 1, 1))
    for name in ("level", "code"):
        result.add_column(name, no_wrap=True)
    result.add_column("field", max_width=16, overflow="fold")
    result.add_column("found; allowed; what to do, or was done", overflow="fold")
    order = list(STYLES)
    for f in sorted(findings, key=lambda f: order.index(f.level)):
        field = f.where.removeprefix(str(source)).removeprefix(": ") or "file"
        said = [f.found, f"allowed: {f.allowed}" if f.allowed else "", f"→ {f.action}" if f.action else ""]
        cells = (Text(f.level, STYLES[f.level]), Text(f.code), Text(field), Text("\n".join(filter(None, said))))
        result.add_row(*cells)
    return result


def summary(findings: Sequence[Finding]) -> str:
    """How many of each level: ``2 errors, 1 warning``."""
    counts = {
        name: sum(f.level == level for f in findings) for name, level in (("error", "ERROR"), ("warning", "WARN"))
    }
    return ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items())
