"""Listing, cleaning and watching runs, on run folders as the trainer leaves them."""

import json
import os
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from q1pipe import control, runs, status
from q1pipe.errors import Q1Error
from q1pipe.log import span
from q1pipe.runfolder import locked

HEAD = "iteration,env_steps,mean_rew,ep_ret,sps,wall_s\n"
ARGS = {
    "motion_sha": "m1",
    "robot_sha": "r1",
    "train": {"max_iterations": 300, "num_workers": 2, "seed": 1, "ppo": {"learning_rate": 0.001}},
    "robot": {"soft_limit": 0.9},
    "code": ["q1pipe.learn.ppo@aa", "q1pipe.sim.env@bb"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "results/getUp"
    (folder / "runs").mkdir(parents=True)
    return folder


def make(folder: Path, fingerprint: str, age: float = 0.0, iterations: int = 60, **args: object) -> Path:
    """A run whose iterations took 2 s each."""
    run = folder / "runs" / fingerprint
    run.mkdir()
    rows = [f"{i},{i * 100},1.5,{i / 2},50,{2 * i}\n" for i in range(1, iterations + 1)]
    (run / "train.csv").write_text(HEAD + "".join(rows) + f"{iterations + 1},1")  # and a half row
    (run / "eval.csv").write_text("iteration,score\n25,40.5\n50,38\n")
    (run / "model_50.pt").write_bytes(bytes(2_000_000))
    (run / "args.yaml").write_text(yaml.safe_dump({**ARGS, **args}))
    (run / "lock").touch()
    at = time.time() - age
    for name in ("train.csv", "model_50.pt"):
        os.utime(run / name, (at, at))
    return run


def publish(folder: Path, fingerprint: str) -> None:
    (folder / "train.json").write_text(json.dumps({"fingerprint": fingerprint}))


def shown(table: object) -> list[str]:
    console = Console(width=300)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


A, B, C, D = ("a" * 12, "b" * 12, "c" * 12, "d" * 12)


def test_runs_are_listed_with_what_they_differ_in_from_the_published_one(folder: Path):
    make(folder, A, age=3000)
    make(folder, B, age=100, motion_sha="m2", code=["q1pipe.learn.ppo@aa", "q1pipe.sim.env@cc"])
    other = {"max_iterations": 900, "num_workers": 4, "seed": 1, "ppo": {"learning_rate": 0.0003}}
    make(folder, C, age=2000, train=other)
    (folder / "runs/notes").mkdir()
    publish(folder, A)
    with locked(folder / "runs" / B):
        lines = shown(runs.table(folder))
    assert [line.split()[0] for line in lines] == ["run", B, C, A]  # the latest first
    assert f"trains: process {os.getpid()} on" in lines[1]
    assert lines[1].endswith("motion, code of sim.env")
    assert lines[2].endswith("train.ppo.learning_rate 0.001 → 0.0003")
    assert "60 of 900" in lines[2]
    assert "published" in lines[3]
    for cell in ("60 of 300", "40.5 at 25", "2.0 MB"):
        assert cell in lines[3]


def test_clean_keeps_the_latest_the_published_and_the_one_that_trains(folder: Path):
    for age, name in enumerate((A, B, C, D)):
        make(folder, name, age=100.0 * age)
    make(folder, "e" * 12, age=900)
    (folder / "runs/notes").mkdir()
    (folder / "runs" / ("f" * 12 + runs.REMOVING)).mkdir()  # an earlier clean was killed
    publish(folder, D)
    with locked(folder / "runs" / C):
        removed, kept = runs.clean(folder, 1)
        assert (list(removed), kept) == ([B, "e" * 12], [A, C, D])
        assert removed[B] > 2_000_000
    assert sorted(p.name for p in (folder / "runs").iterdir()) == [A, C, D, "notes"]
    assert (folder / "train.json").exists()
    assert list(runs.clean(folder, 0)[0]) == [A, C]


def test_clean_keeps_the_runs_of_other_seeds(folder: Path):
    for name in (A, B, C):
        make(folder, name)
    publish(folder, A)
    record = json.loads((folder / "train.json").read_text())
    (folder / "train.json").write_text(json.dumps({**record, "seeds": [{"fingerprint": A}, {"fingerprint": B}]}))
    assert list(runs.clean(folder, 0)[0]) == [C]


def test_status_says_where_every_motion_stands(tmp_path: Path, folder: Path):
    results = tmp_path / "results"
    run = make(folder, A, age=130)
    for name, file, content in (
        ("checked", "motion.json", {}),
        ("refused", "smoke.json", {"findings": [{}]}),
        ("judged", "eval.json", {"verdict": "pass", "fingerprint": B}),
    ):
        (results / name / "logs").mkdir(parents=True)
        (results / name / file).write_text(json.dumps(content))
    (results / "judged/runs").mkdir()
    make(results / "judged", B)
    publish(results / "judged", B)
    (results / "device.json").write_text("{}")
    with locked(run):
        lines = shown(status.table(results))
    assert [line.split()[0] for line in lines[1:]] == ["checked", "getUp", "judged", "refused"]
    assert "motion checked" in lines[1]
    for cell in ("trains", "60 of 300", "1.50", "30.0", "50", "8 min", "50, 2 min ago"):
        assert cell in lines[2], lines[2]  # 240 iterations of 2 s
    assert "evaluated: pass" in lines[3]
    assert "smoke run refused" in lines[4]
    assert "training stopped" in shown(status.table(results))[2]
    publish(results / "judged", A)  # trained anew, not yet evaluated
    assert "evaluated" not in shown(status.table(results))[3]


def test_status_says_at_which_stage_a_motion_failed(tmp_path: Path, folder: Path) -> None:
    """All that Snakemake leaves of a failed stage is its log."""
    logs = folder / "logs"
    logs.mkdir()
    said = "2026-12-01 21:22:43 {}\n"
    (logs / "motion.log").write_text(said.format("350 frames"))
    assert status.stage(folder, None) == "–"
    (logs / "smoke.log").write_text(said.format("WARN [x] ERROR [y]") + said.format("ERROR [smoke-floor] a — b"))
    (logs / "reference_video.log").write_text(said.format("100%"))  # ended later, beside it
    (logs / ".smoke.log").write_text("")  # the second one, for later attempts
    assert status.stage(folder, None) == "smoke failed"
    (folder / "motion.json").write_text("{}")  # the clip was made anew since
    os.utime(logs / "smoke.log", (0, 0))
    assert status.stage(folder, None) == "motion checked"


def test_the_run_that_trains_comes_before_the_published_one(folder: Path):
    make(folder, A)
    busy = make(folder, B, age=500)
    publish(folder, A)
    assert status.current(folder).fingerprint == A
    with locked(busy):
        assert status.current(folder).fingerprint == B


def test_a_run_that_has_just_begun(folder: Path):
    (folder / "runs" / A).mkdir()
    run = runs.Run(folder / "runs" / A)
    assert (run.iteration, run.last, run.best, run.checkpoint, run.rows) == (0, 0, None, None, [])
    assert len(shown(runs.table(folder))) == 2
    assert len(shown(status.table(folder.parent))) == 2


def test_a_wrong_name_is_told_the_right_ones(folder: Path):
    with pytest.raises(Q1Error, match=r"motions here: getUp — did you mean getUp"):
        runs.motion_folder(folder.parent, "getup")


def test_stop_with_nothing_to_stop(folder: Path):
    make(folder, A)
    control.stop(folder.parent, "getUp")
    assert not (folder / "runs" / A / "stop").exists()


def test_unlock_does_nothing_where_somebody_trains(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent.parent)
    control.unlock(folder.parent)  # there is no lock
    Path(".snakemake/locks").mkdir(parents=True)
    Path(".snakemake/locks/0.input.lock").touch()
    with locked(make(folder, A)), pytest.raises(Q1Error, match=rf"process {os.getpid()} on .* works here"):
        control.unlock(folder.parent)
    assert Path(".snakemake/locks/0.input.lock").exists()


def test_spans():
    assert [span(s) for s in (40, 1500, 12600)] == ["40 s", "25 min", "3.5 h"]
