"""Stage 6: the report of a motion, and the overview of all."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from q1pipe.files import replacing
from q1pipe.learn.history import numbers
from q1pipe.report import page
from q1pipe.report.results import Results

log = logging.getLogger(__name__)

OVERVIEW = ("eval", "train")  # records that the overview reads


def run(folder: Path, device_json: Path, out: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Write report.html.

    Args:
        folder: results/{motion}, with everything that the stages before wrote.
        device_json: device.json.
        out: report.html, in the same folder, because large videos stay beside it.
        name: of the motion.
        settings: section ``report``.

    Raises:
        Q1Error: the files in the folder are not of one run.
    """
    text = page.render(Results.load(name, folder, device_json), numbers(folder / "train.csv"), settings["report"])
    _write(out, text)


def index(out: Path, names: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Write results/index.html, the motions beside each other.

    Args:
        out: index.html; the folders of the motions are beside it.
        names: of the motions.
        settings: section ``report``.
    """
    records: dict[str, dict[str, Any]] = {
        name: {r: json.loads((out.parent / name / f"{r}.json").read_text(encoding="utf-8")) for r in OVERVIEW}
        for name in names
    }
    for name, record in records.items():
        record["video"] = "policy.gif" if (out.parent / name / "policy.gif").is_file() else "policy.mp4"
    _write(out, page.render_index(records, settings["report"].language))


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    log.info("%s: %.0f kB", path, path.stat().st_size / 1e3)
