"""Stage 6: everything about a policy in one file, to pass on."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from q1pipe.config import PackageCfg
from q1pipe.deploy.folder import FILES as DEPLOY
from q1pipe.errors import Q1Error, error
from q1pipe.provenance import file_sha
from q1pipe.report.contribution import contribution, license_note
from q1pipe.report.package import build, verify
from q1pipe.report.results import Results, args_path

log = logging.getLogger(__name__)

# In results/{motion}/, under the same names in the package.
FILES = (
    *("policy.onnx", "policy_with_reference.onnx", "motion.npz", "trajectory.npz"),
    *("train.csv", "train.json", "motion.json", "smoke.json", "export.json", "sim2sim.json", "eval.json"),
    *(f"{which}{end}" for which in ("reference", "policy") for end in (".mp4", ".png", "_sheet.png", "_video.json")),
    "report.html",
    *(f"deploy/{name}" for name in DEPLOY),
)


def run(folder: Path, device_json: Path, source: Path, out: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Write package.zip and check it.

    Args:
        folder: results/{motion}.
        device_json: device.json.
        source: the motion file as it was given.
        out: package.zip.
        name: of the motion.
        settings: section ``package``.

    Raises:
        Q1Error: the files are not of one run.
    """
    cfg: PackageCfg = settings["package"]
    results = Results.load(name, folder, device_json)
    trained_on = results["motion"]["hashes"]["source"]
    if (sha := file_sha(source)) != trained_on:
        raise Q1Error(error("mixed-run", str(source), sha, f"{trained_on}, as motion.npz was made of", "train again"))
    fingerprint = results["train"]["fingerprint"]
    paths = {file: folder / file for file in FILES}
    paths |= {gif.name: gif for gif in folder.glob("*.gif")}  # where there was no ffmpeg
    paths |= {"device.json": device_json, "args.yaml": args_path(folder, fingerprint), f"config/{source.name}": source}
    members = {file: path.read_bytes() for file, path in paths.items()}
    members["CONTRIBUTION.md"] = contribution(results, cfg).encode()
    members["LICENSE.txt"] = license_note(results, cfg).encode()
    code = results["train"]["code"]
    about = {
        "motion": name,
        "verdict": results["eval"]["verdict"],
        "fingerprint": fingerprint,
        "code": code,
        "code_sha256": hashlib.sha256("\n".join(code).encode()).hexdigest(),
    }
    build(out, members, about)
    verify(out)
    log.info("%s: %d files, %.1f MB", out, len(members) + 1, out.stat().st_size / 1e6)
