"""A copy of the project in which the workflow really ran, and copies of that to edit."""

import shutil
from pathlib import Path

import pytest

from tests.workflow.project import NAME, Project, copy

FOLDER = '-机器人 q1\'s "dir" $HOME/ü'  # of the copy: every command and every library meets it

# In the copy, a stage that reads a setting which its rule does not track fails, instead of getting the default: then
# what runs again after a change is all that depends on it. The motion stage may: it makes an environment, in which most
# settings do not matter; test_motion_stage_depends_only_on_the_training_settings_that_its_rule_tracks looks at it.
# Sections that are not in this list go to stages whole.
ALL_SECTIONS = "    return {name: getattr(sections, name) for name in values or {}}\n"
ONLY_TRACKED = (
    """    for name in set(values) & {"train", "evaluate", "export", "sim2sim"} if "motion" not in values else ():
        section = getattr(sections, name)
        for key in set(type(section).model_fields) - set(values[name]):
            del section.__dict__[key]
"""
    + ALL_SECTIONS
)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project in which everything was made for NAME; not to be changed."""
    project = copy(tmp_path_factory.mktemp("workflow") / FOLDER)
    (project.folder / "config/getUp.npz").rename(project.folder / f"config/{NAME}.npz")
    project.edit("q1pipe/config/settings.py", ALL_SECTIONS, ONLY_TRACKED)
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
