"""What the NPU driver's own tool says: advice for a person, never a decision. Its table looks different everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

TOOL = "npu-smi"
PATIENCE = 5.0  # s
ABSENT, SILENT, REFUSED, UNCLEAR, READ = "absent", "no answer", "refused", "not understood", "read"

VERSION = re.compile(r"npu-smi\s+\S+\s+Version:\s*(\S+)")
NAMED = re.compile(r"^\|\s*(\d+)\s+([A-Za-z0-9]*[A-Za-z][\w-]*)\s*\|\s*([A-Za-z]+)\s*\|")  # NPU Name | Health |
PLACED = re.compile(r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*([0-9A-F]{4}:[0-9A-F:.]+)\s*\|(.*)\|", re.I)  # Chip | Bus-Id |
USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")  # used / total, MB; the last pair is the memory that tensors are in
# NPU Chip, pid, name, MB
PROCESS = re.compile(r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*(\d+)\s*\|\s*(\S*)\s*\|\s*(\d+)\s*\|")


@dataclass(frozen=True)
class Card:
    """A chip: two rows of the table."""

    number: int
    chip: int
    name: str
    health: str
    bus: str
    used_mb: int
    total_mb: int


@dataclass(frozen=True)
class Process:
    """Who uses a chip."""

    number: int
    pid: int
    name: str
    mb: int


@dataclass(frozen=True)
class Table:
    """What was read.

    Attributes:
        state: ABSENT, SILENT, REFUSED, UNCLEAR or READ.
        why: what makes it none of READ.
        driver: version of the tool, which comes with the driver.
        cards: all of them, or none: never a part as if it were all.
        processes: those that the tool may see; in a container none.
    """

    state: str
    why: str = ""
    driver: str = ""
    cards: list[Card] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)


def read(environ: Mapping[str, str]) -> Table:
    """Ask the tool, with a time limit."""
    path = shutil.which(TOOL, path=environ.get("PATH"))
    if not path:
        return Table(ABSENT)
    try:
        done = subprocess.run([path, "info"], env=dict(environ), capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return Table(SILENT, f"nothing within {PATIENCE:g} s")
    except OSError as e:
        return Table(REFUSED, str(e))
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode:
        return Table(REFUSED, f"code {done.returncode}: {' '.join(text.split())[:200]}")
    return parse(text)


def parse(text: str) -> Table:
    """Cards and processes of a table, row by row."""
    cards: list[Card] = []
    processes: list[Process] = []
    named: list[str] = []  # the first row of a card whose second is awaited
    torn = 0
    for line in text.splitlines():
        if row := NAMED.match(line):
            torn += bool(named)
            named = list(row.groups())
        elif row := PLACED.match(line):
            usage = USAGE.findall(row[4])
            if named and usage:
                used, total = usage[-1]
                npu, name, health = named
                cards.append(Card(int(npu), int(row[1]), name, health, row[3], int(used), int(total)))
            else:
                torn += 1
            named = []
        elif row := PROCESS.match(line):
            processes.append(Process(int(row[1]), int(row[3]), row[4], int(row[5])))
    version = VERSION.search(text)
    driver = version[1] if version else ""
    torn += bool(named)
    if torn or not cards:
        lines = [line for line in text.splitlines() if line.strip()]
        return Table(UNCLEAR, f"{len(cards)} whole and {torn} torn cards in {len(lines)} lines", driver)
    return Table(READ, "", driver, cards, processes)
