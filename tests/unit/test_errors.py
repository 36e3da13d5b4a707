"""What q1pipe says when something is wrong, and how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from q1pipe.errors import ConfigError, MotionError, Q1Error, error, first, warn

ROOT = Path(__file__).parents[2]


def test_finding_is_one_line_of_what_where_value_bound_and_remedy() -> None:
    finding = error("fps", "config/wave.npz: fps", "no fps", "one number", "add it")
    assert str(finding) == "ERROR [fps] config/wave.npz: fps — no fps — one number — add it"
    assert str(warn("order", "a.npz", "19 rows moved")) == "WARN [order] a.npz — 19 rows moved"


def test_record_is_the_same_in_plain_text() -> None:
    assert warn("order", "a.npz", "19 rows moved", "model order").record() == {
        "level": "WARN",
        "code": "order",
        "where": "a.npz",
        "found": "19 rows moved",
        "allowed": "model order",
        "action": "",
    }


def test_error_carries_every_finding() -> None:
    a, b = error("a", "x", "1"), error("b", "y", "2")
    raised = MotionError(a, b)
    assert raised.findings == (a, b)
    assert str(raised) == f"{a}\n{b}"
    assert isinstance(raised, Q1Error)
    assert not isinstance(raised, ConfigError)


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (2, "0, 1"), (5, "0, 1, 2, 3, 4"), (8, "0, 1, 2, 3, 4 and 3 more")]
)
def test_first_names_and_how_many_more(count: int, text: str) -> None:
    assert first(range(count)) == text


def q1pipe(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "q1pipe", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}, cwd=ROOT)


def test_mistake_ends_with_code_2_its_lines_and_no_traceback(tmp_path: Path) -> None:
    motion, log = tmp_path / "wave.npz", tmp_path / "logs/motion.log"
    motion.write_bytes(b"")
    settings = '{"motion":{"max_carried":-1,"max_carryed":1}}'
    result = q1pipe(
        "motion",
        f"--source={motion}",
        f"--out-npz={tmp_path}/o.npz",
        f"--out-json={tmp_path}/o.json",
        f"--settings={settings}",
        f"--log={log}",
        "--name=wave",
    )
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    written = "greater than or equal to 0 — write motion: {max_carried: 0.5}"
    assert lines[0] == f"[wave] ERROR [config] --settings: motion.max_carried — -1 — {written}"
    assert lines[1].startswith("[wave] ERROR [config] --settings: motion.max_carryed — unknown key")
    logged = log.read_text(encoding="utf-8").splitlines()
    assert [line[20:] for line in logged] == [line.removeprefix("[wave] ") for line in lines]
    assert not list(tmp_path.glob("o.*"))


def test_bug_ends_with_code_1_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    """A device file that is not JSON can only come from a bug: no person writes it."""
    for name in ("motion.npz", "motion.json", "device.json"):
        (tmp_path / name).write_bytes(b"\0")
    log = tmp_path / "smoke.log"
    result = q1pipe(
        "smoke",
        f"--motion={tmp_path}/motion.npz",
        f"--report={tmp_path}/motion.json",
        f"--device={tmp_path}/device.json",
        f"--out-json={tmp_path}/smoke.json",
        "--threads=1",
        '--settings={"robot":{},"train":{},"smoke":{},"device":{}}',
        f"--log={log}",
    )
    assert result.returncode == 1
    assert "Traceback" in log.read_text()
    assert "bug in q1pipe" in result.stderr


def test_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = q1pipe("compose", tmp_path / "nope.yaml", tmp_path / "out.npz")
    assert result.returncode == 2
    assert "nope.yaml' does not exist" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_stage_is_a_command_and_help_needs_no_torch() -> None:
    code = "import sys, q1pipe.cli as c; print(*(x.name or x.callback.__name__ for x in c.app.registered_commands)); "
    code += "print('torch' in sys.modules or 'mujoco' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"motion", "device", "smoke", "train", "evaluate", "compose"} <= set(out[0].split())
    assert out[1] == "False"
