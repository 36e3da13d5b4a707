"""Machines that lack something."""

from pathlib import Path

import pytest


@pytest.fixture
def no_opengl(tmp_path: Path) -> dict[str, str]:
    """An environment in which no back-end imports."""
    for name in ("OpenGL", "glfw"):
        (tmp_path / "hidden" / name).mkdir(parents=True)
        (tmp_path / "hidden" / name / "__init__.py").write_text(f"raise ImportError('no {name} here')")
    return {"PYTHONPATH": str(tmp_path / "hidden")}
