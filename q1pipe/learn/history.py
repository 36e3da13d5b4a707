"""CSV files that grow by one flushed line at a time and can be cut back to an earlier iteration."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from q1pipe.files import replacing


class History:
    """A table with one row per iteration, readable at any moment.

    Args:
        path: CSV file; what it has of iterations after `upto`, and a half last line, is cut off.
        columns: header; the first is ``iteration``.
        upto: last iteration to keep.
    """

    def __init__(self, path: Path, columns: Sequence[str], upto: int):
        self.columns = list(columns)
        kept = read(path, self.columns, upto)
        with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as f:
            csv.writer(f, lineterminator="\n").writerows([self.columns, *kept])
        self._file: TextIO = open(path, "a", newline="", encoding="utf-8", buffering=1)  # noqa: SIM115

    def append(self, row: dict[str, float]) -> None:
        """Write one row, with nine significant digits, and flush it."""
        self._file.write(",".join(_text(row[name]) for name in self.columns) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def read(path: Path, columns: Sequence[str], upto: int) -> list[list[str]]:
    """Complete rows of the iterations 1 … upto; none when there is no such file or it has another header."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as f:
        lines = [line for line in f if line.endswith("\n")]
    rows = list(csv.reader(lines))
    if not rows or rows[0] != list(columns):
        return []
    return [row for row in rows[1:] if len(row) == len(columns) and row[0].isdigit() and int(row[0]) <= upto]


def numbers(path: Path) -> list[dict[str, float]]:
    """All rows of a table, as numbers by column."""
    with open(path, newline="", encoding="utf-8") as f:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(f)]
