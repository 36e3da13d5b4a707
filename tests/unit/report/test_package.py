"""A package: the same bytes from the same files, and everything that is wrong with one is found."""

import hashlib
import json
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

from q1pipe.errors import Q1Error
from q1pipe.report.package import MANIFEST, build, verify

RUN = "0123456789ab"


def short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def members() -> dict[str, bytes]:
    motion, onnx = b"a motion", b"a policy"
    records = {
        "train": {"fingerprint": RUN},
        "export": {"fingerprint": RUN},
        "sim2sim": {"fingerprint": RUN, "hashes": {"motion.npz": short(motion), "policy.onnx": short(onnx)}},
        "eval": {"fingerprint": RUN, "verdict": "pass", "hashes": {"motion": short(motion)}},
    }
    files = {"motion.npz": motion, "policy.onnx": onnx, "deploy/policy.onnx": onnx, "deploy/motion.npz": motion}
    return {**files, "起身.txt": b"text", **{f"{k}.json": json.dumps(v).encode() for k, v in records.items()}}


ABOUT = {"motion": "wave", "verdict": "pass", "fingerprint": RUN}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    build(tmp_path / "package.zip", members(), ABOUT)
    return tmp_path / "package.zip"


def rewritten(package: Path, change) -> Path:
    """The package with other members, the manifest as it was."""
    with zipfile.ZipFile(package) as old:
        content = {name: old.read(name) for name in old.namelist()}
    change(content)
    out = package.with_name("changed.zip")
    with zipfile.ZipFile(out, "w") as new:
        for name, data in content.items():
            new.writestr(name, data)
    return out


def test_bytes_depend_on_nothing_but_content(package: Path, tmp_path: Path) -> None:
    build(tmp_path / "again.zip", dict(reversed(members().items())), ABOUT)
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()
    with zipfile.ZipFile(package) as z:
        assert {i.date_time for i in z.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {i.compress_type for i in z.infolist()} == {zipfile.ZIP_STORED}
        assert z.namelist() == [MANIFEST, *sorted(members())]


def test_whole_package(package: Path) -> None:
    manifest = verify(package)
    assert set(manifest["files"]) == set(members())
    assert manifest["files"]["motion.npz"] == {"sha256": hashlib.sha256(b"a motion").hexdigest(), "bytes": 8}
    assert manifest["sha256"] == hashlib.sha256(package.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda c: c.update({"motion.npz": b"b motion"}), "package-changed", "motion.npz"),
        (lambda c: c.pop("起身.txt"), "package-missing", "起身.txt"),
        (lambda c: c.update({"more.txt": b""}), "package-surplus", "more.txt"),
        (lambda c: c.update({"../x": b""}), "package", "../x"),
        (lambda c: c.update({"/etc/x": b""}), "package", "/etc/x"),
        (lambda c: c.pop(MANIFEST), "package", "no manifest that can be read"),
        (lambda c: c.update({MANIFEST: b"{}"}), "package", "no manifest that can be read"),
        (lambda c: c.update({MANIFEST: b"\xff"}), "package", "no manifest that can be read"),
    ],
)
def test_tampered(package: Path, change, code: str, said: str) -> None:
    with pytest.raises(Q1Error) as e:
        verify(rewritten(package, change))
    assert e.value.findings[0].code == code
    assert said in e.value.findings[0].found


def test_all_that_is_wrong_is_told_at_once(package: Path) -> None:
    def change(content: dict[str, bytes]) -> None:
        content.pop("起身.txt")
        content["motion.npz"] = content["policy.onnx"] = b""

    with pytest.raises(Q1Error) as e:
        verify(rewritten(package, change))
    assert [f.code for f in e.value.findings] == ["package-missing", "package-changed"]
    assert e.value.findings[1].found == "motion.npz, policy.onnx"


def test_a_name_that_is_there_twice(package: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(package, "a") as z:
        warnings.simplefilter("ignore")
        z.writestr("motion.npz", b"another")
    with pytest.raises(Q1Error, match=r"names that do not belong.*motion\.npz"):
        verify(package)


@pytest.mark.parametrize("keep", [0, 10, 300])
def test_truncated(package: Path, keep: int) -> None:
    package.write_bytes(package.read_bytes()[:keep])
    with pytest.raises(Q1Error, match="not a whole zip file"):
        verify(package)


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("train.json", {"fingerprint": "other"}, "fingerprint of train.json"),
        ("eval.json", {"fingerprint": RUN, "verdict": "fail", "hashes": {"motion": short(b"a motion")}}, "verdict"),
        ("eval.json", {"fingerprint": RUN, "verdict": "pass", "hashes": {"motion": "other"}}, "motion of eval.json"),
        ("deploy/policy.onnx", None, "deploy/policy.onnx"),
    ],
)
def test_files_of_two_runs(tmp_path: Path, file: str, content: object, what: str) -> None:
    """A manifest that fits, over files that do not belong together."""
    data = b"another policy" if content is None else json.dumps(content).encode()
    build(tmp_path / "mixed.zip", {**members(), file: data}, ABOUT)
    with pytest.raises(Q1Error) as e:
        verify(tmp_path / "mixed.zip")
    assert [f.code for f in e.value.findings] == ["package-mixed"]
    assert what in e.value.findings[0].where


def test_command(package: Path) -> None:
    def run(path: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "q1pipe", "verify", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good, bad = run(package), run(rewritten(package, lambda c: c.update({"motion.npz": b""})))
    assert good.returncode == 0
    assert f"ok; wave, 9 files, run {RUN}, verdict pass" in good.stderr
    assert bad.returncode == 2
    assert "ERROR [package-changed]" in bad.stderr
    assert "Traceback" not in bad.stderr
