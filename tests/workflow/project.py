"""A copy of the project, and what a test does with it."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    [f"snakemake.{name}" for name in ("cli", "dag", "persistence", "profiles", "report")]
    + ["smart_open", "pydantic", "yaml"]
)


@dataclass(frozen=True)
class Project:
    """A folder with the workflow in it."""

    folder: Path

    def snakemake(self, *args: str, cores: int = 2, **env: str) -> subprocess.CompletedProcess[str]:
        """Run snakemake there on the tiny settings; output and errors together."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *args, *options(cores)],
            cwd=self.folder,
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )

    @contextmanager
    def started(self, *args: str, cores: int = 2, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """Snakemake at work; it is killed with all its jobs where it still runs at the end."""
        command = [sys.executable, "-m", "snakemake", *args, *options(cores)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.folder, env=environment(env), start_new_session=True, **quiet)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def without_jobs(self, *args: str, cores: int = 2, **env: str) -> subprocess.CompletedProcess[str]:
        """As `snakemake`, where no job runs. In a process that has imported it already: there are many of these."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as said:
            told = (self.folder, [*args, *options(cores)], environment(env), said.name)
            process = FORKED.Process(target=snakemake_here, args=told)
            process.start()
            process.join(TIMEOUT)
            assert process.exitcode is not None, said.read()
            return subprocess.CompletedProcess(args, process.exitcode, said.read())

    def dry_run(self, *args: str, cores: int = 2, **env: str) -> str:
        """What a dry run says."""
        result = self.without_jobs("-n", *args, cores=cores, **env)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def planned(self, *args: str, **kwargs: object) -> set[tuple[str, str]]:
        """(rule, motion) of the jobs that a dry run names."""
        return jobs(self.dry_run(*args, **kwargs))  # type: ignore[arg-type]

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace the one place where a file says something."""
        file = self.folder / path
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        file.write_text(text.replace(old, new), encoding="utf-8")


def options(cores: int) -> list[str]:
    return ["--cores", str(cores), "--configfile", str(TINY), *DATES_COUNT]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    ours = ("Q1_", "PRIMEBOT_", "PYTHONPATH")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | dict(more)


def snakemake_here(folder: Path, args: list[str], env: dict[str, str], out: str) -> None:
    """Run snakemake in this process, which is no good for anything else afterwards."""
    file = os.open(out, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != ROOT]  # the copy's q1pipe, not this one
    from snakemake.cli import main

    main(args)


def jobs(said: str) -> set[tuple[str, str]]:
    """(rule, motion) of the jobs that a dry run names."""
    found = set()
    for job in re.split(r"^(?:local)?rule ", said, flags=re.MULTILINE)[1:]:
        motion = re.search(r"^    wildcards: motion=(.*)$", job, re.MULTILINE)
        found.add((job.partition(":")[0], motion[1] if motion else ""))
    assert found or "Nothing to be done" in said
    return found - {("all", "")}


def copy(folder: Path) -> Project:
    """The project without results."""
    folder.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / part, folder / part)
    return Project(folder)
