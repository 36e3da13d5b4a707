"""The child's side of a contest: do a piece of work whenever asked, and say what it took.

Only the standard library, because it is imported under every peer's own Python. Whatever a peer prints goes to its log.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def options() -> dict[str, Any]:
    """What the parent says on the command line, a JSON object."""
    return json.loads(sys.argv[1])


def quiet() -> int:
    """Send everything printed from now on to stderr, and end with the parent; returns the descriptor that it reads."""
    if sys.platform == "linux":  # stopped or busy, it would not see that its stdin ends
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.stdout.flush()
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def serve(answers: int, ready: Answer, work: Callable[[], Answer]) -> None:
    """Answer `ready`, then the result of `work` for each line of stdin, until it ends."""
    say(answers, ready)
    while sys.stdin.readline():
        say(answers, work())


def say(answers: int, answer: Answer) -> None:
    """One answer, a line of JSON."""
    os.write(answers, (json.dumps(answer) + "\n").encode())
