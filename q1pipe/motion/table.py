"""CSV motions: headerless (root x y z, quaternion, joints), or with a header that names columns, units and order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Finding, MotionError, error, first
from q1pipe.motion.raw import RawMotion, one_fps

Array = NDArray[np.floating]

PROBLEMS_SHOWN = 5
UNITS = {"deg": np.pi / 180, "degree": np.pi / 180, "degrees": np.pi / 180, "rad": 1.0, "radian": 1.0, "radians": 1.0}
UNITS |= {"m": 1.0, "cm": 0.01, "mm": 0.001}
_UNIT = re.compile(r"\s*[(\[]\s*([a-z]+)\s*[)\]]\s*$")
_ROOT = re.compile(r"^(?:root|base|pelvis|floating_base)?_?(?:pos|position|trans|translation|translate)?_?([xyz])$")
_QUAT = re.compile(r"^(?:root|base|pelvis|floating_base)?_?(?:quat|quaternion|rot|rotation|orientation)?_?q?([wxyz])$")
_TIME = re.compile(r"^(?:time|t|timestamp|seconds)$")
_COUNT = re.compile(r"^(?:frame|frames|index|idx|step|unnamed: 0|)$")
_FPS = re.compile(r"\b(?:fps|frame_?rate)\s*[:=]?\s*([^\s,;]+)", re.IGNORECASE)


def parse(path: Path, quat: str) -> tuple[RawMotion, list[Finding]]:
    """Read a CSV.

    Args:
        path: UTF-8 or UTF-16, with or without byte order mark; comma, semicolon, tab or blanks between the columns;
            lines that begin with # are comments, in which ``fps: 30`` counts.
        quat: order of the root's quaternion, xyzw or wxyz, where no header names its columns.

    Raises:
        MotionError: every problem, with line numbers.
    """
    data = path.read_bytes()
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    comments, lines = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            comments.append(line)
        elif line.strip(" ,;\t"):
            lines.append((number, line))
    rate = next((match[1] for line in comments if (match := _FPS.search(line))), None)
    fps = None if rate is None else one_fps(rate, f"{path}: fps")
    if not lines:
        raise MotionError(error("table", str(path), "no rows", "a row per frame"))
    header, rows = _cells(lines, path)
    if header is None:
        if rows.shape[1] < 8:
            allowed = "root x, y, z, quaternion, joints: 7 + J"
            raise MotionError(error("table", str(path), f"{rows.shape[1]} columns", allowed))
        order = [3, 4, 5, 6] if quat == "wxyz" else [6, 3, 4, 5]
        arrays = {"root_pos": rows[:, :3], "root_quat": rows[:, order], "joint_pos": rows[:, 7:]}
        return RawMotion(fps, arrays, doubtful_quat=quat), []
    return _named(header, rows, fps, path)


def _cells(lines: Sequence[tuple[int, str]], path: Path) -> tuple[list[str] | None, Array]:
    """Split lines into a header, where there is one, and numbers. (T, columns)."""
    sample = lines[-1][1]
    separator = next((s for s in (";", "\t", ",") if s in sample), None)

    def split(line: str) -> list[str]:
        return [cell.strip().strip('"').strip() for cell in line.rstrip().split(separator)]

    def number(cell: str) -> float | None:
        if separator == ";":
            cell = cell.replace(",", ".")
        try:
            return float(cell) if cell else float("nan")
        except ValueError:
            return None

    header = None
    cells = split(lines[0][1])
    if None in map(number, cells):
        header, lines = cells, lines[1:]
    width = len(header) if header else len(cells)
    rows = []
    problems: list[Finding] = []
    bad = 0
    for line_number, line in lines:
        cells = split(line)
        if len(cells) == width + 1 and not cells[-1]:  # a separator at the end of the line
            cells.pop()
        row = [number(cell) for cell in cells]
        rows.append(row)
        if None in row:
            found = f"no number: {cells[row.index(None)]!r:.40}"
        elif len(row) != width:
            found = f"{len(row)} columns"
        else:
            continue
        bad += 1
        if len(problems) < PROBLEMS_SHOWN:
            problems.append(error("table", f"{path}: line {line_number}", found, f"{width} numbers"))
    if bad > PROBLEMS_SHOWN:
        problems.append(error("table", str(path), f"{bad - PROBLEMS_SHOWN} more such lines", "", "export it again"))
    if problems:
        raise MotionError(*problems)
    return header, np.array(rows, float).reshape(len(rows), width)


def _named(header: list[str], rows: Array, fps: float | None, path: Path) -> tuple[RawMotion, list[Finding]]:
    """Columns by name: the root's position and quaternion in any order, everything else a joint."""
    plain, factors, unknown_units = [], [], []
    for name in header:
        match = _UNIT.search(name.lower())
        plain.append(_UNIT.sub("", name.strip().lower()) if match else name.strip().lower())
        if match and match[1] not in UNITS:
            unknown_units.append(name)
        factors.append(UNITS.get(match[1], 1.0) if match else 1.0)
    problems = []
    if unknown_units:
        problems.append(error("table", f"{path}: header", f"unit of {first(unknown_units)}", "deg, rad, m, cm or mm"))
    if len(set(plain)) < len(plain):
        twice = sorted({n for n in plain if plain.count(n) > 1})
        problems.append(error("table", f"{path}: header", f"{first(twice)} more than once", "each column once"))
    rows = rows * factors
    position = {m[1]: i for i, n in enumerate(plain) if (m := _ROOT.match(n))}
    quaternion = {m[1]: i for i, n in enumerate(plain) if (m := _QUAT.match(n)) and i not in position.values()}
    for what, found, wanted in (("position", position, "xyz"), ("quaternion", quaternion, "wxyz")):
        lacking = [axis for axis in wanted if axis not in found]
        if lacking:
            allowed = "columns such as root_x, root_y, root_z, root_qx, root_qy, root_qz, root_qw"
            there = f"{len(header)} columns: {first(header, 8)}; lacks the root's {what} {', '.join(lacking)}"
            problems.append(error("table", f"{path}: header", there, allowed, "name them, or remove the header"))
    if problems:
        raise MotionError(*problems)
    time = next((i for i, n in enumerate(plain) if _TIME.match(n)), None)
    skipped = {i for i, n in enumerate(plain) if _TIME.match(n) or _COUNT.match(n)}
    joints = [i for i in range(len(plain)) if i not in {*position.values(), *quaternion.values(), *skipped}]
    if fps is None and time is not None and len(rows) > 1:
        step = float(np.median(np.diff(rows[:, time])))
        fps = one_fps(round(1 / step, 3) if step > 0 else step, f"{path}: {header[time]}")
    arrays = {
        "root_pos": rows[:, [position[axis] for axis in "xyz"]],
        "root_quat": rows[:, [quaternion[axis] for axis in "wxyz"]],
        "joint_pos": rows[:, joints],
    }
    return RawMotion(fps, arrays, joint_names=tuple(plain[i] for i in joints)), []
