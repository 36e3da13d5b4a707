"""The files of one motion that a report and a package are made of, and whether they are of one run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from q1pipe.errors import Finding, Q1Error, error
from q1pipe.provenance import file_sha

RECORDS = ("motion", "smoke", "train", "export", "sim2sim", "eval", "reference_video", "policy_video")


@dataclass(frozen=True)
class Results:
    """What is in results/{motion}/.

    Attributes:
        name: of the motion.
        folder: results/{motion}.
        records: JSON files by their stems, and ``device``.
        args: args.yaml of the training run.
        hashes: file name -> its hash, of the files that say what they were made of.
    """

    name: str
    folder: Path
    records: dict[str, dict[str, Any]]
    args: dict[str, Any]
    hashes: dict[str, str]

    def __getitem__(self, record: str) -> dict[str, Any]:
        return self.records[record]

    @classmethod
    def load(cls, name: str, folder: Path, device: Path) -> Results:
        """Read them.

        Raises:
            Q1Error: a file is missing, or they are not of one run.
        """
        paths = {stem: folder / f"{stem}.json" for stem in RECORDS} | {"device": device}
        records = {stem: _json(path) for stem, path in paths.items()}
        args = args_path(folder, records["train"]["fingerprint"])
        hashes = {f: file_sha(folder / f) for f in ("motion.npz", "policy.pt", "policy.onnx")}
        results = cls(name, folder, records, yaml.safe_load(_text(args)), hashes)
        if findings := list(results.contradictions()):
            raise Q1Error(*findings)
        return results

    def contradictions(self) -> Iterator[Finding]:
        """Files that are not of one run: an interruption can leave old ones beside new ones."""
        said = {
            "fingerprint": {stem: self[stem]["fingerprint"] for stem in ("train", "export", "sim2sim", "eval")},
            "motion.npz": {
                "motion.npz": self.hashes["motion.npz"],
                "train": self["train"]["hashes"]["motion"],
                "sim2sim": self["sim2sim"]["hashes"]["motion.npz"],
                "eval": self["eval"]["hashes"]["motion"],
            },
            "policy.onnx": {
                "policy.onnx": self.hashes["policy.onnx"],
                "export": self["export"]["hashes"]["policy.onnx"],
                "sim2sim": self["sim2sim"]["hashes"]["policy.onnx"],
            },
            "policy.pt": {
                "policy.pt": self.hashes["policy.pt"],
                "export": self["export"]["hashes"]["policy.pt"],
                "eval": self["eval"]["hashes"]["policy"],
            },
        }
        for what, values in said.items():
            if len(set(values.values())) > 1:
                found = ", ".join(f"{value} in {where}" for where, value in values.items())
                action = "snakemake -n says what is stale; results of one run belong together"
                yield error("mixed-run", str(self.folder), f"{what}: {found}", "one run", action)


def args_path(folder: Path, fingerprint: str) -> Path:
    """args.yaml of a training run."""
    return folder / "runs" / fingerprint / "args.yaml"


def _json(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(_text(path))
    return record


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Q1Error(error("missing", str(path), "no such file", action="run snakemake for it")) from None
