"""A copy of the project in which the workflow really ran, and copies of that to edit."""

import shutil
from pathlib import Path

import pytest

from tests.workflow.project import NAME, Project, copy


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project in which everything was made for NAME; not to be changed."""
    project = copy(tmp_path_factory.mktemp("workflow") / "a folder")
    (project.folder / "config/getUp.npz").rename(project.folder / f"config/{NAME}.npz")
    result = project.snakemake()
    assert result.returncode == 0, result.stdout
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """A copy of the built project to edit; the results and what Snakemake knows of them come along."""
    shutil.copytree(built.folder, tmp_path / "project")
    return Project(tmp_path / "project")


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    """The project with getUp and without results."""
    return copy(tmp_path / "fresh")
