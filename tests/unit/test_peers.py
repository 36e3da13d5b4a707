"""The comparison with the peers: turns, ratios, and the score of a trajectory, by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import contest
from benchmarks.peers.contest import Contestant, FailedError, compare, rounds
from benchmarks.peers.quality import quality
from q1pipe.config import RobotCfg
from q1pipe.robot import Robot
from q1pipe.stopping import alive
from tests.clips import standing_clip

COUNTS = """
import json, os, sys
from serve import options, quiet, serve
descriptor, turns = quiet(), []
print("what a peer prints is in nobody's way")
def work():
    turns.append(1)
    if len(turns) > options()["lives"]:
        raise RuntimeError("enough")
    return {"turn": len(turns)}
serve(descriptor, {"pid": os.getpid()}, work)
"""


@pytest.fixture
def contestant(tmp_path, monkeypatch):
    (tmp_path / "serve.py").write_text((contest.HERE / "serve.py").read_text())
    (tmp_path / "counts.py").write_text(COUNTS)
    monkeypatch.setattr(contest, "HERE", tmp_path)
    return lambda name, lives=9: Contestant(name, sys.executable, "counts.py", {"lives": lives})


def test_rounds_go_in_turns_and_the_first_does_not_count(contestant):
    with contestant("a") as a, contestant("b") as b:
        assert rounds([a, b], 2) == {"a": [{"turn": 2}, {"turn": 3}], "b": [{"turn": 2}, {"turn": 3}]}
        status = Path(f"/proc/{a.ready['pid']}/stat").read_text()
        assert status.rpartition(")")[2].split()[0] == "T"  # stopped: not its turn
    assert not alive(a.ready["pid"])


def test_a_contestant_that_dies_says_why(contestant):
    with pytest.raises(FailedError, match=r"a died[\s\S]*enough"), contestant("a", lives=1) as a:
        rounds([a], 1)


def test_the_ratio_is_made_within_each_round():
    # 30/10, 20/20, 80/40 = 3, 1, 2: median 2; the ratio of the medians would be 30/20
    compared = compare({"theirs": [10, 20, 40], "ours": [30, 20, 80]}, "ours")
    assert compared["theirs"] == {"median": 20, "lowest": 10, "highest": 40, "ratio": 2}
    assert compared["ours"]["ratio"] == 1


@pytest.mark.parametrize("lag", [0, 1])
def test_the_score_of_a_trajectory(tmp_path, lag):
    robot = Robot.load(RobotCfg())
    clip = standing_clip(robot, frames=11)
    qpos = robot.qpos(clip.body_pos_w[:, 0], clip.body_quat_w[:, 0], clip.joint_pos)
    qpos = np.stack([qpos[lag : lag + 10]] * 2, axis=1)  # (10, 2, nq)
    tracking = np.ones((10, 2), bool)
    tracking[5:, 1] = False  # one of two fails half-way
    np.savez(tmp_path / "t.npz", qpos=qpos, tracking=tracking)
    found = quality(tmp_path / "t.npz", robot, clip)
    assert found == pytest.approx({"score": 0.75, "r_mpkpe": 0, "finished": 0.5}, abs=1e-6)
    qpos[..., 2] += 0.3  # σ: every body 0.3 m too high counts exp(-1)
    state = np.concatenate([np.zeros((10, 2, 1)), qpos, np.zeros((10, 2, robot.model.nv))], axis=2)
    np.savez(tmp_path / "t.npz", state=state, tracking=tracking)
    found = quality(tmp_path / "t.npz", robot, clip)
    assert found["score"] == pytest.approx(0.75 * np.exp(-1), abs=1e-6)
    assert found["r_mpkpe"] == pytest.approx(0.3, abs=1e-6)
