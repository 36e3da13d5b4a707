"""Files that grow by whole records, and tables among them that can be cut back to an earlier iteration."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from q1pipe.files import replacing

DEVICE = "device"  # the one column of text: where the iteration was computed


class Growing:
    """A file that grows by whole records, readable at any moment; what finds no room on the disk waits its turn.

    Args:
        path: file to append to.
    """

    def __init__(self, path: Path):
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._size = self._file.seek(0, os.SEEK_END)
        self._waiting: list[bytes] = []

    def write(self, record: bytes) -> None:
        """Write a record, after those that wait.

        Raises:
            OSError: there is no room; the record waits, and nothing of it is in the file.
        """
        self._waiting.append(record)
        self.flush()

    def flush(self) -> None:
        """Write what waits.

        Raises:
            OSError: there is no room.
        """
        data = b"".join(self._waiting)
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size += len(data)
        self._waiting.clear()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class History(Growing):
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
        super().__init__(path)

    def append(self, row: Mapping[str, float | str]) -> None:
        """Write one row, with nine significant digits.

        Raises:
            OSError: there is no room; the row waits until there is.
        """
        self.write((",".join(_text(row[name]) for name in self.columns) + "\n").encode())


def _text(value: float | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


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
    """All rows of a table, as numbers by column; without the column `DEVICE`."""
    with open(path, newline="", encoding="utf-8") as f:
        return [{key: float(value) for key, value in row.items() if key != DEVICE} for row in csv.DictReader(f)]
