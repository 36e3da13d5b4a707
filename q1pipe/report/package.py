"""package.zip: everything about a policy in one file whose content can be checked, byte for byte the same every time.

Members are stored, not compressed: most of them are compressed already, and what a compressor makes of the rest depends
on its version.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from q1pipe.errors import Finding, Q1Error, error, first
from q1pipe.files import replacing

MANIFEST = "MANIFEST.json"
FORMAT = "q1pipe-package-1"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
AGAIN = "fetch it again, or make it again"


def build(out: Path, members: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Write a package.

    Args:
        out: package.zip.
        members: name in the package -> content.
        about: what the manifest says beyond the list of files.
    """
    files = {name: {"sha256": _sha256(data), "bytes": len(data)} for name, data in sorted(members.items())}
    manifest = json.dumps({"format": FORMAT, **about, "files": files}, indent=2, ensure_ascii=False) + "\n"
    with replacing(out) as temporary, zipfile.ZipFile(temporary, "w") as package:
        for name, data in [(MANIFEST, manifest.encode()), *sorted(members.items())]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # Unix, rw-r--r--
            package.writestr(entry, data)


def verify(path: Path) -> dict[str, Any]:
    """Check a package: that every file is what the manifest says, and that the files are of one run.

    Returns:
        The manifest.

    Raises:
        Q1Error: everything that is wrong.
    """
    try:
        with zipfile.ZipFile(path) as package:
            content = _read(path, package)
    except zipfile.BadZipFile as e:
        raise Q1Error(error("package", str(path), f"not a whole zip file: {e}", "package.zip", AGAIN)) from None
    try:
        manifest = json.loads(content.pop(MANIFEST))
        if manifest["format"] != FORMAT:
            raise ValueError(f"format {manifest['format']}")
        files: dict[str, dict[str, Any]] = manifest["files"]
        findings = [*_compare(path, files, content)]
        findings = findings or [*_contradictions(path, manifest, content)]
    except (KeyError, TypeError, ValueError) as e:
        found = f"no manifest that can be read ({type(e).__name__}: {e})"
        raise Q1Error(error("package", f"{path}: {MANIFEST}", found, FORMAT, AGAIN)) from None
    if findings:
        raise Q1Error(*findings)
    return {**manifest, "sha256": _sha256(path.read_bytes())}


def _read(path: Path, package: zipfile.ZipFile) -> dict[str, bytes]:
    names = package.namelist()
    strange = [n for n in names if PurePosixPath(n).is_absolute() or ".." in PurePosixPath(n).parts or "\\" in n]
    twice = sorted({n for n in names if names.count(n) > 1})
    if strange or twice:
        found = f"names that do not belong into a package: {first(strange + twice)}"
        raise Q1Error(error("package", str(path), found, "each file once, inside the package", AGAIN))
    return {name: package.read(name) for name in names}


def _compare(path: Path, files: Mapping[str, Mapping[str, Any]], content: Mapping[str, bytes]) -> Iterator[Finding]:
    """Files that are missing, that nobody listed, or that are not what was listed."""
    where = str(path)
    if missing := sorted(set(files) - set(content)):
        yield error("package-missing", where, first(missing), "every file of the manifest", AGAIN)
    if surplus := sorted(set(content) - set(files)):
        yield error("package-surplus", where, first(surplus), "only files of the manifest", AGAIN)
    changed = [n for n, data in content.items() if n in files and _sha256(data) != files[n]["sha256"]]
    if changed:
        yield error("package-changed", where, first(sorted(changed)), "the sha256 of the manifest", AGAIN)


def _contradictions(path: Path, manifest: Mapping[str, Any], content: Mapping[str, bytes]) -> Iterator[Finding]:
    """Whether the files say that they are of one run."""
    record = {stem: json.loads(content[f"{stem}.json"]) for stem in ("train", "export", "sim2sim", "eval")}
    short = {name: _sha256(content[name])[:12] for name in ("motion.npz", "policy.onnx")}
    pairs = {
        **{f"fingerprint of {stem}.json": (r["fingerprint"], manifest["fingerprint"]) for stem, r in record.items()},
        "verdict of eval.json": (record["eval"]["verdict"], manifest["verdict"]),
        "motion of eval.json": (record["eval"]["hashes"]["motion"], short["motion.npz"]),
        "motion of sim2sim.json": (record["sim2sim"]["hashes"]["motion.npz"], short["motion.npz"]),
        "policy of sim2sim.json": (record["sim2sim"]["hashes"]["policy.onnx"], short["policy.onnx"]),
        "deploy/policy.onnx": (_sha256(content["deploy/policy.onnx"])[:12], short["policy.onnx"]),
        "deploy/motion.npz": (_sha256(content["deploy/motion.npz"])[:12], short["motion.npz"]),
    }
    for what, (there, here) in pairs.items():
        if there != here:
            yield error("package-mixed", f"{path}: {what}", str(there), str(here), "make the package again")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
