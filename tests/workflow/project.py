"""A copy of the project, and what a test does with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "environment.yml", "config", "profiles", "q1pipe", "workflow")
TINY = ROOT / "tests/workflow/tiny.yaml"
NAME = "it's 起身"  # the one motion of the copy: every shell line meets a blank, a quote and another script
DATES_COUNT = ("--max-checksum-file-size", "1")  # as for long clips: Snakemake takes checksums of small files only
TIMEOUT = 420  # s
CHAIN = ("motion", "smoke", "train", "export", "sim2sim", "evaluate")  # up to the verdict
EVERYTHING = (*CHAIN, "reference_video", "policy_video", "report", "package", "index")
SHARED = ("device", "index")  # rules that are one for all motions


@dataclass(frozen=True)
class Project:
    """A folder with the workflow in it."""

    folder: Path

    def snakemake(self, *args: str, cores: int = 2, **env: str) -> subprocess.CompletedProcess[str]:
        """Run snakemake there on the tiny settings; output and errors together."""
        options = ["--cores", str(cores), "--configfile", str(TINY), *DATES_COUNT]
        command = [sys.executable, "-m", "snakemake", *args, *options]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("Q1_", "PRIMEBOT_", "PYTHONPATH"))}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=clean | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )

    def planned(self, *args: str, **kwargs: object) -> set[tuple[str, str]]:
        """(rule, motion) of the jobs that a dry run names."""
        result = self.snakemake("-n", *args, **kwargs)  # type: ignore[arg-type]
        assert result.returncode == 0, result.stdout
        jobs = set()
        for job in re.split(r"^(?:local)?rule ", result.stdout, flags=re.MULTILINE)[1:]:
            motion = re.search(r"^    wildcards: motion=(.*)$", job, re.MULTILINE)
            jobs.add((job.partition(":")[0], motion[1] if motion else ""))
        assert jobs or "Nothing to be done" in result.stdout
        return jobs - {("all", "")}

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace the one place where a file says something."""
        file = self.folder / path
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        file.write_text(text.replace(old, new), encoding="utf-8")


def copy(folder: Path) -> Project:
    """The project without results."""
    folder.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / part, folder / part)
    return Project(folder)
