"""What is known of training runs from their folders alone: listed, compared, cleaned up."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from q1pipe.config.problems import did_you_mean
from q1pipe.errors import Q1Error, error, first
from q1pipe.runfolder import BUDGET, Holder, holder

FINGERPRINT = re.compile(r"[0-9a-f]{12}")
CHECKPOINT = re.compile(r"model_(\d+)\.pt")
REMOVING = ".removing"


@dataclass(frozen=True)
class Run:
    """A run folder, ``results/{motion}/runs/{fingerprint}``; read when asked, whoever writes in it meanwhile."""

    folder: Path

    @property
    def fingerprint(self) -> str:
        """12 hex digits."""
        return self.folder.name

    @cached_property
    def rows(self) -> list[dict[str, float]]:
        """train.csv."""
        return numbers(self.folder / "train.csv")

    @property
    def iteration(self) -> int:
        """The last one that was trained; 0 before the first."""
        return int(self.rows[-1]["iteration"]) if self.rows else 0

    @cached_property
    def args(self) -> dict[str, Any]:
        """args.yaml: what the run is made of; empty before it is written."""
        try:
            return yaml.safe_load((self.folder / "args.yaml").read_text(encoding="utf-8")) or {}
        except (OSError, yaml.YAMLError):
            return {}

    @property
    def last(self) -> int:
        """The iteration that training ends at; 0 when it is not known."""
        return int(self.args.get("train", {}).get("max_iterations", 0))

    @property
    def best(self) -> dict[str, float] | None:
        """The row of eval.csv with the highest score."""
        return max(numbers(self.folder / "eval.csv"), key=lambda row: row["score"], default=None)

    @property
    def when(self) -> float:
        """Time of the last iteration, or of the folder."""
        table = self.folder / "train.csv"
        return (table if table.exists() else self.folder).stat().st_mtime

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())

    @property
    def checkpoint(self) -> tuple[int, float] | None:
        """Iteration and time of the newest numbered checkpoint."""
        found = [(int(m[1]), p) for p in self.folder.glob("model_*.pt") if (m := CHECKPOINT.fullmatch(p.name))]
        return (max(found)[0], max(found)[1].stat().st_mtime) if found else None

    @property
    def holder(self) -> Holder | None:
        """Who trains there now."""
        return holder(self.folder)


def numbers(path: Path) -> list[dict[str, float]]:
    """The whole rows of a table that may be growing, but for the column of text; none when it is not there."""
    try:
        with open(path, newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(line for line in f if line.endswith("\n")))
    except FileNotFoundError:
        return []
    return [{key: float(value) for key, value in row.items() if key != "device"} for row in rows]


def motion_folder(results: Path, motion: str) -> Path:
    """``results/{motion}``.

    Raises:
        Q1Error: nothing was made for a motion of that name.
    """
    folder = results / motion
    if not motion or not folder.is_dir():
        names = [f.name for f in motion_folders(results)]
        here = f"motions here: {first(names) or 'none'}"
        raise Q1Error(error("no-results", str(folder), "not there", here, did_you_mean(motion, names)))
    return folder


def motion_folders(results: Path) -> list[Path]:
    """The folders of all motions for which something was made."""
    marks = ("runs", "logs", "motion.json")
    found = results.iterdir() if results.is_dir() else ()
    return sorted(f for f in found if f.is_dir() and any((f / mark).exists() for mark in marks))


def runs_of(folder: Path) -> list[Run]:
    """All runs of a motion, the latest first."""
    found = folder.glob("runs/*")
    runs = [Run(f) for f in found if f.is_dir() and not f.is_symlink() and FINGERPRINT.fullmatch(f.name)]
    return sorted(runs, key=lambda run: run.when, reverse=True)


def published(folder: Path) -> str:
    """Fingerprint of the run whose policy is the motion's; empty when there is none."""
    return str(_trained(folder).get("fingerprint", ""))


def _trained(folder: Path) -> dict[str, Any]:
    """train.json; empty where there is none."""
    try:
        return dict(json.loads((folder / "train.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def table(folder: Path) -> Table:
    """The runs of a motion, and what each differs in from the published one, or else from the latest."""
    runs, ours = runs_of(folder), published(folder)
    base = next((run for run in runs if run.fingerprint == ours), runs[0] if runs else None)
    head = ("run", "last active", "iterations", "best score", "size", "", "differs in")
    result = Table(*head, box=None, pad_edge=False)
    for run in runs:
        best, at_work = run.best, run.holder
        cells = [
            run.fingerprint,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.when)),
            f"{run.iteration} of {run.last or '?'}",
            f"{best['score']:.1f} at {best['iteration']:.0f}" if best else "–",
            decimal(run.size),
            f"trains: {at_work}" if at_work else "published" if run.fingerprint == ours else "",
            first(differences(base.args, run.args), 4) if base and run is not base else "",
        ]
        result.add_row(*map(Text, cells))
    return result


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What the args.yaml of two runs differ in: settings with both values, and hashes by their names."""
    found = [name for name in ("motion", "robot") if a.get(f"{name}_sha") != b.get(f"{name}_sha")]
    left, right = (dict(_settings(x)) for x in (a, b))
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            found.append(f"{key} {left.get(key)} → {right.get(key)}")
    code = [dict(module.split("@") for module in x.get("code", [])) for x in (a, b)]
    changed = sorted(m for m in code[0].keys() | code[1].keys() if code[0].get(m) != code[1].get(m))
    return found + [f"code of {module.removeprefix('q1pipe.')}" for module in changed]


def _settings(args: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    train = {key: value for key, value in args.get("train", {}).items() if key not in BUDGET}
    yield from _flat({"train": train, "robot": args.get("robot", {})})


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def clean(folder: Path, keep: int) -> tuple[dict[str, int], list[str]]:
    """Remove a motion's runs but the latest `keep`, the published one and its other seeds, and where someone trains.

    Returns:
        Fingerprints of what was removed with its bytes, and of what stays.
    """
    for half in folder.glob(f"runs/*{REMOVING}"):  # an earlier clean was killed
        shutil.rmtree(half)
    removed, needed = {}, {published(folder), *(seed["fingerprint"] for seed in _trained(folder).get("seeds", []))}
    for run in runs_of(folder)[keep:]:
        if run.fingerprint not in needed and run.holder is None:
            removed[run.fingerprint] = run.size
            aside = run.folder.with_name(run.fingerprint + REMOVING)
            os.rename(run.folder, aside)  # whoever comes now finds no half of a run
            shutil.rmtree(aside)
    return removed, [run.fingerprint for run in runs_of(folder)]
