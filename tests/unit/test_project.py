"""Files that say the same thing twice."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_conda_environment_and_package_ask_for_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["view"]]
    assert sorted(conda[-1]["pip"]) == sorted(wanted)


def test_conda_environment_for_the_npu_and_the_extra_ask_for_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    conda = yaml.safe_load((ROOT / "environment-npu.yml").read_text(encoding="utf-8"))["dependencies"]
    extra = project["optional-dependencies"]["npu"]
    narrowed = {re.split("[=<>]", line)[0] for line in extra}
    rest = [line for line in project["dependencies"] if re.split("[=<>]", line)[0] not in narrowed]
    assert sorted(conda[-1]["pip"]) == sorted([*rest, *extra])
    assert {"torch", "torch_npu"} <= narrowed
