"""Hashes of code, assets and files: blind to what does not matter, and to nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from q1pipe import provenance
from q1pipe.provenance import code_of, file_sha, files_of, mjcf_sha, recall, remember

STAGE = '''
"""Doc."""
import numpy


def run(x):
    """Doc."""
    from .sub import helper

    return x + 1
'''
TYPED = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from q1pipe import unrelated
else:
    import q1pipe.deep
"""
TREE = {
    "__init__.py": "",
    "stage.py": STAGE,
    "sub/__init__.py": "",
    "sub/helper.py": "from q1pipe import other\nfrom ..deep import thing\n",
    "other.py": "import q1pipe.stage\n\nA = 1\n",
    "deep.py": "thing = 2\n",
    "unrelated.py": "B = 1\n",
    "config.py": "C = 1\n",
    "typed.py": TYPED,
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package under our name."""
    root = tmp_path / "q1pipe"
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(provenance, "PACKAGE", root)
    return root


def names(hashes: tuple[str, ...]) -> list[str]:
    return [h.partition("@")[0] for h in hashes]


def test_imports_are_followed_also_in_functions_relative_and_in_circles(package: Path) -> None:
    assert names(code_of("q1pipe.stage")) == ["q1pipe.deep", "q1pipe.other", "q1pipe.stage", "q1pipe.sub.helper"]


def test_imports_for_type_checkers_are_not_followed(package: Path) -> None:
    assert names(code_of("q1pipe.typed")) == ["q1pipe.deep", "q1pipe.typed"]


def test_code_in_a_package_itself_joins_its_modules(package: Path) -> None:
    (package / "sub/__init__.py").write_text("from q1pipe import unrelated\n")
    assert {"q1pipe.sub", "q1pipe.unrelated"} <= set(names(code_of("q1pipe.stage")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Doc."""', '"""Other."""'),
        ('    """Doc."""\n', ""),
        ("import numpy\n\n\n", "import numpy  # why\n"),
        ("return x + 1", "# because\n    return (\n        x\n        + 1\n    )"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(package: Path, old: str, new: str) -> None:
    before = code_of("q1pipe.stage")
    assert old in STAGE
    (package / "stage.py").write_text(STAGE.replace(old, new))
    assert code_of("q1pipe.stage") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1", "x + 2"),
        ("x + 1", "x - 1"),
        ("x + 1", "x + 1.0"),
        ("(x)", "(x=None)"),
        ("import numpy", "import math"),
    ],
)
def test_what_runs_counts(package: Path, old: str, new: str) -> None:
    before = code_of("q1pipe.stage")
    (package / "stage.py").write_text(STAGE.replace(old, new))
    after = code_of("q1pipe.stage")
    assert [a for a in after if a not in before] == [a for a in after if a.startswith("q1pipe.stage@")]


def test_text_that_is_not_a_docstring_counts(package: Path) -> None:
    (package / "deep.py").write_text("def f():\n    return 'a'\n")
    before = code_of("q1pipe.deep")
    (package / "deep.py").write_text("def f():\n    return 'b'\n")
    assert code_of("q1pipe.deep") != before


def test_change_of_an_import_names_that_module_only(package: Path) -> None:
    before = code_of("q1pipe.stage")
    (package / "deep.py").write_text("thing = 33\n")
    changed = [h for h in code_of("q1pipe.stage") if h not in before]
    assert names(tuple(changed)) == ["q1pipe.deep"]
    (package / "unrelated.py").write_text("B = 33\n")
    assert code_of("q1pipe.stage") == (*changed, *before[1:])


def test_settings_are_tracked_by_value_and_not_as_code(package: Path) -> None:
    (package / "deep.py").write_text("import q1pipe.config\n\nthing = 2\n")
    assert names(code_of("q1pipe.deep")) == ["q1pipe.deep"]


def test_module_that_is_not_ours_is_an_error(package: Path) -> None:
    with pytest.raises(FileNotFoundError, match="q1pipe.stages.nope is not a module"):
        code_of("q1pipe.stages.nope")


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(provenance, "_scanned", {})
    monkeypatch.setattr(provenance, "_recalled", {})
    provenance._scan.cache_clear()


def test_what_was_found_in_modules_is_recalled_by_their_content(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    found, known = code_of("q1pipe.stage"), tmp_path / "somewhere/code.json"
    remember(known)
    hashes = dict(h.split("@") for h in found)
    text = known.read_text()
    known.write_text(text.replace(hashes["q1pipe.deep"], "0" * 12).replace(hashes["q1pipe.stage"], "1" * 12))
    forget(monkeypatch)
    recall(known)
    (package / "deep.py").write_text((package / "deep.py").read_text() + "# other content of the same code\n")
    again = dict(h.split("@") for h in code_of("q1pipe.stage"))
    assert again == {**hashes, "q1pipe.stage": "1" * 12}
    remember(known)
    assert "0" * 12 not in known.read_text()  # nothing grows


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": ["b"'])
def test_what_cannot_be_recalled_is_found_anew_and_what_cannot_be_kept_is_let_go(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    forget(monkeypatch)
    found, known = code_of("q1pipe.stage"), tmp_path / "code.json"
    known.write_text(text)
    forget(monkeypatch)
    recall(known)
    assert code_of("q1pipe.stage") == found
    remember(known / "below a file")
    remember(known)
    assert "q1pipe.deep" in known.read_text()


def test_real_stages_see_what_they_run_and_not_each_other() -> None:
    seen = names(code_of("q1pipe.stages.train"))
    assert {"q1pipe.stages.train", "q1pipe.learn.ppo", "q1pipe.sim.rewards", "q1pipe.robot"} <= set(seen)
    assert not {"q1pipe.config", "q1pipe.stages.evaluate", "q1pipe.stages.smoke"} & set(seen)
    assert not [m for m in names(code_of("q1pipe.stages.motion")) if m.startswith("q1pipe.learn")]
    assert "q1pipe.learn.ppo" not in names(code_of("q1pipe.stages.device"))


def test_file_sha_follows_content_and_not_the_date(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"1")
    assert file_sha(path) == "6b86b273ff34"  # sha256 of "1"
    path.touch()
    assert file_sha(path) == "6b86b273ff34"
    path.write_bytes(b"12")
    assert file_sha(path) == "6b51d431df5d"


def test_files_of_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/x").write_bytes(b"1")
    (tmp_path / "a").write_bytes(b"12")
    assert files_of(tmp_path) == ("a@6b51d431df5d", "b/x@6b86b273ff34")


def test_mjcf_sha_covers_includes_and_meshes_and_nothing_else(tmp_path: Path) -> None:
    robot, arm, mesh = tmp_path / "r.xml", tmp_path / "arm.xml", tmp_path / "meshes/a.stl"
    mesh.parent.mkdir()
    (tmp_path / "other.xml").write_text("<mujoco/>")
    robot.write_text('<mujoco><compiler meshdir="meshes"/><include file="arm.xml"/></mujoco>')
    arm.write_text('<mujoco><asset><mesh file="a.stl"/><mesh file="gone.stl"/></asset></mujoco>')
    mesh.write_bytes(b"solid")
    hashes = [mjcf_sha(robot)]
    for path, content in (
        (mesh, "other"),
        (arm, '<mujoco><asset><mesh file="a.stl"/></asset></mujoco>'),
        (robot, "<a"),
    ):
        path.write_text(content)
        hashes.append(mjcf_sha(robot))
    assert len(set(hashes)) == 4
    arm.write_text("not referred to any more")
    (tmp_path / "other.xml").write_text("<mujoco model='x'/>")
    assert mjcf_sha(robot) == hashes[-1]


def test_import_is_cheap() -> None:
    """The Snakefile imports config and provenance whenever it is parsed."""
    code = "import sys, q1pipe.config, q1pipe.provenance; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "torch", "mujoco", "scipy", "yaml", "typer"} & set(loaded)
