"""The table of npu-smi in the shapes that it has been seen in; it is advice only."""

import time
from pathlib import Path

import pytest

from q1pipe.learn import smi

HEAD = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc3.7               Version: 24.1.rc3.7                                           |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
"""
SINGLE = """\
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B2C              | OK            | 97.2        46                0    / 0             |
| 0                         | 0000:5A:00.0  | 0           0    / 0          60334/ 65536         |
+===========================+===============+====================================================+
| 1     910B2C              | Warning       | 102.0       48                0    / 0             |
| 0                         | 0000:19:00.0  | 0           0    / 0          3378 / 65536         |
+===========================+===============+====================================================+
"""
DUAL = """\
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 178.8       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3397 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3186 / 65536         |
+===========================+===============+====================================================+
"""
SMALL = """\
| Chip    Device            | Bus-Id        | AICore(%)   Memory-Usage(MB)                       |
+===========================+===============+====================================================+
| 8     310P3               | OK            | NA          45                0     / 0            |
| 0     0                   | 0000:82:00.0  | 0           1670 / 21527                           |
+===========================+===============+====================================================+
"""
PROCESSES = """\
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4711          | python3                  | 57021                   |
| No running processes found in NPU 1                                                            |
"""
BY_ID = """\
| NPU ID                    | Process id    | Process name             | Process memory(MB)      |
| 0                         | 4711          |                          | 57021                   |
"""


@pytest.mark.parametrize("noise", ["", "[WARNING] driver log is full\n"])
def test_single_dies_with_processes(noise: str) -> None:
    table = smi.parse(noise + HEAD + SINGLE + PROCESSES)
    assert (table.state, table.driver) == (smi.READ, "24.1.rc3.7")
    assert table.cards == [
        smi.Card(0, 0, "910B2C", "OK", "0000:5A:00.0", 60334, 65536),  # the numbers glued together
        smi.Card(1, 0, "910B2C", "Warning", "0000:19:00.0", 3378, 65536),
    ]
    assert table.processes == [smi.Process(0, 4711, "python3", 57021)]


def test_dual_dies_of_one_card() -> None:
    table = smi.parse(HEAD + DUAL + BY_ID)
    assert [(c.number, c.chip, c.used_mb) for c in table.cards] == [(0, 0, 3397), (0, 1, 3186)]
    assert table.processes == [smi.Process(0, 4711, "", 57021)]


def test_small_cards_without_hbm() -> None:
    (card,) = smi.parse(HEAD + SMALL).cards
    assert (card.name, card.used_mb, card.total_mb) == ("310P3", 1670, 21527)


@pytest.mark.parametrize("line", range(4, 9))
def test_a_torn_table_is_not_a_shorter_one(line: int) -> None:
    """One row less, or half of one: never the other card alone, as if it were all."""
    lines = (HEAD + SINGLE).splitlines(keepends=True)
    rows = [i for i, text in enumerate(lines) if text[2].isdigit()]
    del lines[rows[line % 4]]
    table = smi.parse("".join(lines))
    assert (table.state, table.cards) == (smi.UNCLEAR, [])


def script(folder: Path, text: str) -> dict[str, str]:
    (folder / "npu-smi").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "npu-smi").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_tool_that_is_not_there(tmp_path: Path) -> None:
    assert smi.read({"PATH": str(tmp_path)}) == smi.Table(smi.ABSENT)


def test_tool_that_reads(tmp_path: Path) -> None:
    table = smi.read(script(tmp_path, f"cat <<'EOF'\n{HEAD}{DUAL}\nEOF"))
    assert (table.state, len(table.cards)) == (smi.READ, 2)


def test_tool_that_refuses_in_a_container(tmp_path: Path) -> None:
    table = smi.read(script(tmp_path, "echo 'dcmi module initialize failed. ret is -8020'; exit 1"))
    assert table == smi.Table(smi.REFUSED, "code 1: dcmi module initialize failed. ret is -8020")


def test_tool_that_says_something_else(tmp_path: Path) -> None:
    table = smi.read(script(tmp_path, "echo hello"))
    assert (table.state, table.why) == (smi.UNCLEAR, "0 whole and 0 torn cards in 1 lines")


def test_tool_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "PATIENCE", 0.5)
    began = time.monotonic()
    table = smi.read(script(tmp_path, "exec sleep 60"))
    assert table.state == smi.SILENT
    assert time.monotonic() - began < 30
