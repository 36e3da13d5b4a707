"""The commands that the README tells a newcomer, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.project import ROOT, TIMEOUT, TINY, Project, environment

(BLOCK,) = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = [line.partition(" #")[0].strip() for line in BLOCK.splitlines()]
FIRST_THAT_TRAINS = next(i for i, command in enumerate(COMMANDS) if "--configfile" in command)


@pytest.fixture
def shell(fresh: Project, tmp_path: Path) -> dict[str, str]:
    """An environment with `q1pipe` and `snakemake`, as an installation has it."""
    for name in ("q1pipe", "snakemake"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        script.chmod(0o755)
    return environment({"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(fresh.folder)})


def test_there_are_ten() -> None:
    assert len(COMMANDS) == 10


def said(commands: list[str], project: Project, shell: dict[str, str]) -> list[str]:
    outputs = []
    for command in commands:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=project.folder,
            env=shell,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}"
        outputs.append(result.stdout)
    return outputs


def test_those_before_the_first_training(fresh: Project, shell: dict[str, str]) -> None:
    checked, drawn, rules, settings, plan = said(COMMANDS[:FIRST_THAT_TRAINS], fresh, shell)
    assert "score" in checked
    assert "getUp.png" in drawn
    assert (fresh.folder / "getUp.png").stat().st_size
    assert "evaluate" in rules
    assert "max_iterations: 3000" in settings
    assert "rule train:" in plan


@pytest.mark.slow
def test_all_of_them(fresh: Project, shell: dict[str, str]) -> None:
    """With the tiny run in the place of the laptop's; the commands stay."""
    (fresh.folder / "config/laptop.yaml").write_bytes(TINY.read_bytes())
    *_, status, runs, _, verified = said(COMMANDS, fresh, shell)
    assert "trained" in status or "evaluated" in status
    assert "ok; getUp" in verified
