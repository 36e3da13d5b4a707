"""Stage 1 and the commands for people: what is written, what is said, and how long a long clip takes."""

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from q1pipe.config import MotionCfg, RobotCfg, TrainCfg
from q1pipe.errors import Q1Error
from q1pipe.motion.checks import check_limits
from q1pipe.motion.clip import Clip
from q1pipe.stages import motion as stage
from tests.corruptions import arrays_of, breadth_first, moved, rows
from tests.unit.motion.conftest import same

SETTINGS = {"robot": RobotCfg(), "motion": MotionCfg(), "train": TrainCfg()}


def test_saved_clip_loads_the_same(base, tmp_path):
    base.save(tmp_path / "a.npz")
    again = Clip.load(tmp_path / "a.npz")
    same(again, base, 0, 0)
    assert (again.fps, again.body_names) == (base.fps, base.body_names)


def test_stage_writes_clip_record_and_plot(robot, base, arrays, tmp_path):
    source = tmp_path / "base.npz"
    np.savez(source, **rows(arrays, breadth_first(robot)))
    before = source.read_bytes()
    made = [tmp_path / name for name in ("motion.npz", "motion.json", "motion.svg")]
    stage.run(source, made[0], made[1], SETTINGS, made[2])
    assert source.read_bytes() == before
    same(Clip.load(made[0]), base)
    record = json.loads(made[1].read_text())
    assert (record["frames"], record["fps"]) == (200, {"file": 50.0, "normalised": 50.0})
    assert [r["gain"] for r in record["replay"]] == [1.0, 2.0]
    assert record["floor_distance"]["max"] < 1e-6
    codes = {f["code"] for f in record["findings"]}
    assert "body-order" in codes
    # BASE stands up by magic: its centre of mass is nowhere near what touches the floor
    assert {"support", "carried", "score"} <= codes
    follow = record["followability"]
    assert {len(curve) for curve in follow["curves"].values()} == {200}
    assert set(follow["units"]) == set(follow["curves"])
    assert 0 <= follow["score"] < 0.8
    spoiled = np.zeros(200, bool)
    for spans in follow["spoiled"].values():
        for a, b in spans:
            spoiled[a : b + 1] = True
    assert follow["score"] == pytest.approx(1 - spoiled.mean())
    shapes = [e.tag.rpartition("}")[2] for e in ElementTree.parse(made[2]).getroot()]
    assert shapes.count("polyline") == 6


def test_stage_refuses_and_still_says_why(arrays, tmp_path):
    source = tmp_path / "base.npz"
    np.savez(source, **moved(arrays, [0.5, 0, 0], slice(120, None)))
    with pytest.raises(Q1Error):
        stage.run(source, tmp_path / "motion.npz", tmp_path / "motion.json", SETTINGS)
    assert not (tmp_path / "motion.npz").exists()
    (finding,) = [f for f in json.loads((tmp_path / "motion.json").read_text())["findings"] if f["level"] == "ERROR"]
    assert finding["code"] == "jump"


def test_a_termination_that_fires_on_the_reference_is_an_error(robot, base):
    """A reference whose stored heights are not where its own root and joints are: every episode would end at once."""
    pos = base.body_pos_w.copy()
    pos[100:, robot.body_names.index("left_knee_link"), 2] += 0.2
    findings = stage.check_terminations(robot, replace(base, body_pos_w=pos), TrainCfg(), "x")
    (finding,) = [f for f in findings if f.level == "ERROR"]
    assert "body_z fires on the reference itself in frames 100–199, up to 0.200 > 0.090 in frame 1" in finding.found


def test_terminations_are_the_same_in_parts(robot, base, monkeypatch):
    pos = base.body_pos_w.copy()
    pos[100:103, robot.body_names.index("left_knee_link"), 2] += 0.2
    clip = replace(base, body_pos_w=pos)
    whole = stage.check_terminations(robot, clip, TrainCfg(), "x")
    assert whole
    monkeypatch.setattr(stage, "CHUNK", 64)
    assert stage.check_terminations(robot, clip, TrainCfg(), "x") == whole


def test_a_long_clip_is_tried_in_parts_and_that_is_said(robot, base, monkeypatch):
    monkeypatch.setattr(stage, "CHUNK", 8)
    monkeypatch.setattr(stage, "LONG", 150)
    findings = stage.check_terminations(robot, base, TrainCfg(), "x")
    assert findings[-1].level == "INFO"
    # of 25 stretches of 8 frames the first, eleventh and twenty-first
    assert findings[-1].found == "plain PD was tried from 24 of 200 frames, every tenth stretch of 8"
    assert all("of 24 frames" in f.found for f in findings[:-1])


def test_joints_beyond_their_limits_are_named(robot, base):
    joints = base.joint_pos.copy()
    joints[10, 3] = robot.limits[3, 1] + 0.2
    (finding,) = check_limits(robot, replace(base, joint_pos=joints), "x.npz")
    assert finding.level == "WARN"
    assert f"{robot.joint_names[3]} by 0.200 rad" in finding.found
    assert "joint range" in finding.found


# --- commands


def q1pipe(*args, cwd):
    command = [sys.executable, "-m", "q1pipe", *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder from which q1pipe can be run."""
    monkeypatch.setenv("PYTHONPATH", str(__import__("pathlib").Path(__file__).parents[3]))
    monkeypatch.delenv("Q1_XML", raising=False)
    return tmp_path


def test_check_and_convert(here, base, arrays, robot):
    np.savez(here / "wave.npz", **rows(arrays, breadth_first(robot)))
    result = q1pipe("check", "wave.npz", cwd=here)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80
    # a row: level, code, field, and the first words of what was found
    assert re.search(r"^WARN +body-order +body_pos_w +bodies are in breadth-first", result.stdout, re.MULTILINE)
    words = " ".join(result.stdout.split())
    assert re.search(r"wave.npz: 0 errors, \d warnings; 200 frames, .* score \d+ %", words)
    result = q1pipe("convert", "wave.npz", "wave.csv", cwd=here)
    assert result.returncode == 0, result.stderr
    assert (here / "wave.csv").read_text().startswith("# fps: 50\nroot_x,root_y,root_z,root_qx,")
    result = q1pipe("check", "wave.csv", cwd=here)
    assert result.returncode == 0, result.stderr
    assert "body-order" not in result.stdout
    for out, said in (("wave.txt", "one of .npz, .csv, .pkl"), ("wave.npz", "the file itself")):
        result = q1pipe("convert", "wave.npz", out, cwd=here)
        assert result.returncode == 2
        assert said in result.stderr


def test_check_refuses_with_exit_code_2_and_reads_the_settings_of_the_motion(here, arrays):
    del arrays["fps"]
    np.savez(here / "wave.npz", **arrays)
    result = q1pipe("check", "wave.npz", cwd=here)
    assert result.returncode == 2
    assert result.stderr == ""
    rows = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert rows[0][:3] == ["level", "code", "field"]
    assert rows[1] == ["ERROR", "fps", "file", "no", "fps"]
    assert rows[-1] == "wave.npz: 1 error, 0 warnings; no motion of this robot as it is".split()
    assert "→ set motions.wave.motion.fps: 30" in " ".join(result.stdout.split())
    assert q1pipe("check", "wave.npz", "--fps", "50", cwd=here).returncode == 0
    (here / "config").mkdir()
    (here / "config/config.yaml").write_text("motions: {wave: {motion: {fps: 50}}}\n")
    assert q1pipe("check", "wave.npz", cwd=here).returncode == 0
    assert sorted(p.name for p in here.iterdir()) == ["config", "wave.npz"]


# --- long clips

LONG = """
    import sys, time
    from pathlib import Path
    from q1pipe.config import MotionCfg, RobotCfg
    from q1pipe.motion.intake import take_in
    from q1pipe.robot import Robot
    robot, start = Robot.load(RobotCfg()), time.monotonic()
    clip = take_in(Path(sys.argv[1]), robot, MotionCfg(), 50.0).clip
    # not of getrusage, which begins with what the process had that this one was forked from
    (peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(clip.frames, time.monotonic() - start, int(peak) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_ten_minutes_take_seconds_and_less_than_a_gigabyte(here, base):
    """BASE forwards and backwards, 75 times over: no jumps. The bound on time is generous: five were measured."""
    arrays = {
        key: np.tile(np.concatenate([v, v[::-1] * (-1 if "vel" in key else 1)]), (75, *[1] * (v.ndim - 1)))
        for key, v in arrays_of(base).items()
        if key != "fps"
    }
    np.savez(here / "long.npz", fps=50, **arrays)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LONG), here / "long.npz"], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    frames, seconds, megabytes = map(float, result.stdout.split())
    assert frames == 30000
    assert seconds < 60
    assert megabytes < 1000
