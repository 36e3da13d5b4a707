"""The parent's side of a contest: contestants in processes of their own, asked in turn, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class FailedError(RuntimeError):
    """A contestant died; the message ends with the last lines of its log."""


class Contestant:
    """One process that serves (see serve.py). While it is not its turn it is stopped: it cannot take anybody's time.

    Args:
        name: as the table says it.
        python: interpreter.
        script: file in this folder.
        asked: options of the script.

    Attributes:
        ready: what it said when it was ready.
    """

    def __init__(self, name: str, python: Path | str, script: str, asked: dict[str, Any]):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(python), str(HERE / script), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.ready = self._answer()

    def turn(self) -> dict[str, Any]:
        """Let it do one round."""
        assert self.process.stdin
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: the answer tells
        return self._answer()

    def close(self) -> None:
        """End it and all it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            last = "\n".join(self.log.read().splitlines()[-15:])
            self.close()
            raise FailedError(f"{self.name} died\n{last}")
        os.killpg(self.process.pid, signal.SIGSTOP)
        return json.loads(line)


def rounds(contestants: Sequence[Contestant], count: int, warm_up: int = 1) -> dict[str, list[dict[str, Any]]]:
    """What each contestant answered in `count` rounds of one turn each, after rounds that do not count."""
    answers: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contestants}
    for i in range(warm_up + count):
        for contestant in contestants:
            answer = contestant.turn()
            if i >= warm_up:
                answers[contestant.name].append(answer)
    return answers


def compare(rates: dict[str, list[float]], ours: str) -> dict[str, dict[str, float]]:
    """Median rate of each contestant, and the median over the rounds of our rate divided by its rate.

    The ratio is made within each round: what slows the machine for a minute slows both.

    Args:
        rates: name -> a rate for each round, more is better.
        ours: the name of q1pipe's.
    """
    return {
        name: {
            "median": statistics.median(values),
            "lowest": min(values),
            "highest": max(values),
            "ratio": statistics.median(o / v for o, v in zip(rates[ours], values, strict=True)),
        }
        for name, values in rates.items()
    }
