"""The one-way dependencies between the parts of q1pipe, read from the imports of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from q1pipe.provenance import code_of

PACKAGE = Path(__file__).parents[2] / "q1pipe"

# What each part may import of q1pipe, besides itself. What is not named here is a failure: decide where it belongs.
BASE = {
    "config",
    "errors",
    "rotations",
    "geometry",
    "files",
    "provenance",
    "log",
    "cores",
    "stopping",
    "runfolder",
    "version",
}
MAY_IMPORT = {
    "__init__": set(),
    "errors": set(),
    "config": {"errors"},
    "rotations": set(),
    "geometry": set(),
    "files": {"errors"},
    "provenance": {"files"},
    "log": set(),
    "version": set(),
    "cores": set(),
    "stopping": set(),
    "runfolder": {"errors"},
    "ending": set(),
    "robot": BASE,
    "motion": BASE | {"robot"},
    "sim": BASE | {"robot", "motion"},
    "learn": BASE,
    "metrics": BASE | {"robot"},
    "deploy": BASE | {"robot", "motion", "metrics"},
    "stages": BASE | {"report", "robot", "motion", "sim", "learn", "metrics", "deploy"},
    "report": BASE | {"robot", "motion"},
    "runs": BASE,
    "status": BASE | {"runs"},
    "control": BASE | {"runs"},
    "view": BASE | {"robot", "motion", "metrics", "deploy", "stages", "runs"},
    "cli": BASE | {"robot", "motion", "report", "stages", "runs", "status", "control", "view"},
    "__main__": {"cli"},
}
NEVER_TORCH = [
    "config",
    "errors",
    "rotations",
    "geometry",
    "files",
    "provenance",
    "log",
    "version",
    "cores",
    "stopping",
    "runfolder",
    "ending",
    "robot",
    "motion",
    "sim",
    "metrics",
    "report",
    "runs",
    "status",
    "control",
    "view",
]
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.read_text(encoding="utf-8").strip())


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports, also inside functions."""
    package = ["q1pipe", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """Parts of q1pipe that a module imports, without its own."""
    return {name.split(".")[1] for name in imported(path) if name.startswith("q1pipe.")} - {part(path)}


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    assert ours(path) <= MAY_IMPORT[part(path)]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_simulation_never_imports_torch_and_the_learner_never_mujoco(path: Path) -> None:
    if part(path) in NEVER_TORCH:
        assert not {"torch", "torch_npu", "tensorboard"} & roots(path)
    if part(path) == "learn":
        assert "mujoco" not in roots(path)


def test_sim2sim_shares_neither_simulation_nor_learner_nor_torch_with_training() -> None:
    """All that the stage imports, directly or not: its verdict counts because it is independent."""
    used = {line.partition("@")[0] for line in code_of("q1pipe.stages.sim2sim")} - {"q1pipe"}
    assert "q1pipe.deploy.worlds" in used
    parts = {name.split(".")[1] for name in used}
    assert parts == {"stages", "deploy", "robot", "motion", "metrics", "rotations", "geometry", "files"}
    assert {name for name in used if name.startswith("q1pipe.motion")} == {"q1pipe.motion.clip"}
    for name in used:
        path = PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
        assert not {"torch", "onnx"} & roots(path), name


def test_view_runs_policies_without_the_simulation_and_the_learner_of_training() -> None:
    used = {line.partition("@")[0] for line in code_of("q1pipe.view.command")}
    assert "q1pipe.deploy.worlds" in used
    assert not {"sim", "learn"} & {name.split(".")[1] for name in used - {"q1pipe"}}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_device_module_names_a_back_end(path: Path) -> None:
    if path == PACKAGE / "learn/device.py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    text = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert not {t for t in text if t.split(":")[0] in ("cuda", "npu")} | ({"cuda", "npu"} & attributes)


def test_the_check_itself_sees_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports in functions, of packages, and relative ones: a blind check would pass everything."""
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "learn").mkdir()
    module = tmp_path / "learn/x.py"
    module.write_text("from ..sim import env\nfrom . import ppo\n\ndef f():\n    import q1pipe.motion.clip, torch.nn\n")
    assert ours(module) == {"sim", "motion"}
    assert "torch" in roots(module)
