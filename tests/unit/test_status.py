"""`q1pipe status --watch` in a terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

from rich.console import Console

from q1pipe.status import Cut, table

ROOT = Path(__file__).parents[2]
TIMEOUT = 120  # s


def test_watching_shows_what_changes_until_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "wave"
    folder.mkdir()
    (folder / "motion.json").write_text("{}")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "q1pipe", "status", "--watch", "--results", str(tmp_path)]
    size = {"COLUMNS": "120", "LINES": "20", "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | size, stdout=theirs, stderr=theirs)
    try:
        assert shown(ours, b"motion checked")
        (folder / "smoke.json").write_text("{}")
        assert shown(ours, b"smoke run passed")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_lines_end_where_the_terminal_does(tmp_path: Path) -> None:
    """None is folded into the next."""
    folder = tmp_path / "a wave of both hands"
    folder.mkdir()
    (folder / "motion.json").write_text("{}")
    console = Console(width=30, file=StringIO())
    console.print(Cut(table(tmp_path)))
    assert console.file.getvalue().splitlines() == ["motion                stage   ", "a wave of both hands  motion c"]


def shown(terminal: int, text: bytes) -> bool:
    """Whether a text comes."""
    said, deadline = b"", time.monotonic() + TIMEOUT
    while text not in said and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            said += os.read(terminal, 4096)
    return text in said
