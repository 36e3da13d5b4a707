"""Training on a real robot and clip, tiny: what comes out does not depend on workers or interruptions."""

import csv
import json
import logging
import math
import os
import signal
import threading
import time
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

from q1pipe.config import (
    DeviceCfg,
    NoiseCfg,
    PolicyCfg,
    PpoCfg,
    RandomizationCfg,
    ResetCfg,
    RobotCfg,
    SmokeCfg,
    TerminationCfg,
    TrainCfg,
)
from q1pipe.errors import Q1Error
from q1pipe.learn import checkpoint, device
from q1pipe.learn.policy import Policy
from q1pipe.learn.trainer import Trainer
from q1pipe.robot import Robot
from q1pipe.sim.terminations import Cause
from q1pipe.sim.workers import WorkerError, WorkerPool
from q1pipe.stages import dump, smoke, train
from q1pipe.stages.episodes import Episodes
from q1pipe.stopping import Stopping
from tests.clips import standing_clip
from tests.deaths import TIME_COLUMNS
from tests.unit.learn.test_history import fill

CPU = {"device": "cpu", "name": "a processor"}
TINY = TrainCfg(
    num_envs=8,
    num_workers=1,
    max_iterations=4,
    steps_per_env=6,
    save_interval=2,
    best_episodes=2,
    autocast=None,  # the same on every machine
    policy=PolicyCfg(hidden=(16, 8)),
    reset=ResetCfg(bin_seconds=0.1),
)


@pytest.fixture(scope="session")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("motion") / "motion.npz"
    standing_clip(Robot.load(RobotCfg()), frames=12).save(path)
    return path


class Stage:
    """The stage, run in a folder of its own."""

    def __init__(self, folder: Path, motion: Path):
        self.folder, self.motion = folder, motion
        (folder / "device.json").write_text(json.dumps(CPU))

    def run(self, cfg: TrainCfg = TINY, workers: int = 1, threads: int = 1) -> list[dict[str, str]]:
        f = self.folder
        settings = {"robot": RobotCfg(), "train": cfg, "device": DeviceCfg(), "smoke": SmokeCfg()}
        published = (f / "policy.pt", f / "train.csv", f / "train.json")
        train.run(self.motion, f / "device.json", f / "smoke.json", f / "runs", *published, workers, threads, settings)
        return rows(f / "train.csv")

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "runs").iterdir())


def rows(path: Path) -> list[dict[str, str]]:
    """train.csv without what the clock says."""
    with open(path, newline="") as f:
        return [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in csv.DictReader(f)]


@pytest.fixture
def stage(tmp_path: Path, motion: Path) -> Stage:
    return Stage(tmp_path, motion)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, motion: Path) -> Stage:
    """An uninterrupted run with one worker."""
    stage = Stage(tmp_path_factory.mktemp("reference"), motion)
    stage.run()
    return stage


def test_passing_a_value_means_staying_above_it():
    rows = [{"x": x, "env_steps": 10.0 * i, "wall_s": float(i)} for i, x in enumerate([math.nan, 5, 1, 3, 4])]
    assert train.passed(rows, "x", 3) == {"env_steps": 30, "wall_s": 3.0}
    assert train.passed(rows, "x", 4.5) is None
    assert train.passed(rows[3:], "x", 3) == {"env_steps": 30, "wall_s": 3.0}


def test_score_of_what_does_not_hold_the_final_pose_is_half_its_return_less():
    cause = np.array([Cause.MOTION_END, Cause.MOTION_END, Cause.TILT, Cause.TIME_OUT], np.int8)
    held, ep_ret = np.array([True, False, True, True]), np.array([1000, 900, 80, -20], np.float32)
    nothing = np.zeros((4, 9))
    episodes = Episodes(cause, held, np.full(4, 50, np.int32), ep_ret, nothing, {}, nothing[:, 0])
    assert train.score(episodes) == (1000 + 450 + 40 - 30) / 4


def test_history_and_summary(reference: Stage):
    history = rows(reference.folder / "train.csv")
    assert [row["iteration"] for row in history] == ["1", "2", "3", "4"]
    assert history[-1]["env_steps"] == str(4 * 6 * 8)
    terms = [float(history[-1][name]) for name in train.REWARD_TERMS]
    assert len(terms) == 9
    assert sum(terms) == pytest.approx(float(history[-1]["mean_rew"]), rel=1e-4)
    assert sum(float(v) for k, v in history[-1].items() if k.startswith("end_")) == pytest.approx(1)
    summary = json.loads((reference.folder / "train.json").read_text())
    assert summary["fingerprint"] == reference.runs[0].name
    assert (summary["iterations"], summary["env_steps"]) == (4, 192)
    assert [e["iteration"] for e in summary["evaluations"]] == [2, 4]
    best = max(e["score"] for e in summary["evaluations"])
    assert summary["best_model"]["score"] == pytest.approx(best)
    assert summary["passed_published_after"]["ep_len"] is None  # 11 steps at most
    assert summary["env_steps_per_s"] > 0


def test_run_folder(reference: Stage):
    names = {p.name for p in reference.runs[0].iterdir()}
    assert {"args.yaml", "train.csv", "eval.csv", "model_2.pt", "model_4.pt", "model_best.pt", "train.log"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    args = yaml.safe_load((reference.runs[0] / "args.yaml").read_text())
    assert args["train"]["num_envs"] == 8
    assert any("last_action" in line for line in args["tables"])


def test_published_policy_is_complete_and_is_the_best(reference: Stage):
    content = torch.load(reference.folder / "policy.pt", weights_only=True)
    policy = Policy.from_record(content["policy"])
    best = torch.load(reference.runs[0] / "model_best.pt", weights_only=True)
    obs = torch.randn(3, policy.shape.actor)
    assert torch.equal(policy(obs), Policy.from_record(best["policy"])(obs))
    assert policy.shape.actor == 119
    assert policy.normalizer.count > 0
    assert content["meta"]["fingerprint"] == reference.runs[0].name
    assert content["evaluation"]["iteration"] in (2, 4)


@pytest.mark.parametrize("workers", [2, 4])
def test_history_does_not_depend_on_the_number_of_workers(reference: Stage, stage: Stage, workers: int):
    assert stage.run(workers=workers) == rows(reference.folder / "train.csv")
    assert stage.runs[0].name == reference.runs[0].name


def test_history_depends_on_the_seed(reference: Stage, stage: Stage):
    other = stage.run(TINY.model_copy(update={"seed": 2, "max_iterations": 1}))
    assert other[0] != rows(reference.folder / "train.csv")[0]


def test_more_iterations_go_on_bit_for_bit(reference: Stage, stage: Stage):
    short = stage.run(TINY.model_copy(update={"max_iterations": 3}))
    assert len(short) == 3
    whole = stage.run(workers=2)
    assert whole == rows(reference.folder / "train.csv")
    assert len({row["lr"] for row in whole}) > 1
    assert len(stage.runs) == 1
    before, after = (torch.load(s.runs[0] / "model_4.pt", weights_only=True) for s in (reference, stage))
    assert str(before["policy"]["state"]) == str(after["policy"]["state"])
    assert before["rng"]["device"].equal(after["rng"]["device"])


def test_another_number_of_threads_is_a_warning(stage: Stage, caplog: pytest.LogCaptureFixture):
    logging.getLogger("q1pipe").propagate = True
    for iterations, threads in ((1, 2), (2, 1)):
        assert "[threads]" not in caplog.text
        stage.run(TINY.model_copy(update={"max_iterations": iterations}), threads=threads)
        assert torch.get_num_threads() == threads
    assert "model_1.pt — 1 threads compute, 2 did before: the last digits may differ" in caplog.text


class StopAtFirstIteration(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("train 1/"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_stopped_by_a_signal_it_saves_and_goes_on_bit_for_bit(reference: Stage, stage: Stage):
    logger, stop = logging.getLogger("q1pipe"), StopAtFirstIteration()
    logger.setLevel(logging.INFO)
    logger.addHandler(stop)
    try:
        with pytest.raises(SystemExit) as e:
            stage.run()
    finally:
        logger.removeHandler(stop)
    assert e.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert (stage.runs[0] / "model_1.pt").exists()
    assert not (stage.folder / "train.json").exists()
    assert stage.run() == rows(reference.folder / "train.csv")


def test_stopped_while_a_worker_does_not_take_the_checkpoint(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    stage.run(TINY.model_copy(update={"max_iterations": 2}))

    class Stuck(WorkerPool):
        def load_state(self, state: dict[str, np.ndarray]) -> None:
            self.reset()  # until when there may be no process yet
            os.kill(self._processes[0].pid, signal.SIGSTOP)
            threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
            super().load_state(state)

    monkeypatch.setattr(train, "WorkerPool", Stuck)
    began = time.monotonic()
    with pytest.raises(SystemExit):
        stage.run()
    assert time.monotonic() - began < 60  # as long as it would wait for the worker: 300 s
    assert [p.name for p in sorted(stage.runs[0].glob("model_?.pt"))] == ["model_2.pt"]


def test_killed_between_checkpoints_it_goes_back_to_the_last(reference: Stage, stage: Stage):
    stage.run(TINY.model_copy(update={"max_iterations": 3, "save_interval": 1}))
    for name in ("model_3.pt", "model_2.pt"):  # the newest half written, the one before lost
        path = stage.runs[0] / name
        path.write_bytes(path.read_bytes()[:1000]) if name == "model_3.pt" else path.unlink()
    with open(stage.runs[0] / "train.csv", "a") as f:
        f.write("4,192,0.5")  # half a row
    assert stage.run() == rows(reference.folder / "train.csv")
    assert (stage.runs[0] / "model_3.pt.corrupt").exists()


def test_a_checkpoint_of_another_format_is_named_and_stays(stage: Stage):
    stage.run(TINY.model_copy(update={"max_iterations": 2}))
    path = stage.runs[0] / "model_2.pt"
    checkpoint.save(path, checkpoint.load(path) | {"format": 1})
    before = path.read_bytes()
    with pytest.raises(Q1Error, match=r"checkpoint-format.*model_2\.pt — format 1 — format 2 — .*pin_code"):
        stage.run(TINY.model_copy(update={"max_iterations": 3}))
    assert path.read_bytes() == before


def test_finished_run_is_published_again_at_once(reference: Stage, motion: Path, tmp_path: Path):
    before = {p: p.stat().st_mtime_ns for p in reference.runs[0].glob("model_*.pt")}
    policy = (reference.folder / "policy.pt").read_bytes()
    summary = (reference.folder / "train.json").read_text()
    for name in ("policy.pt", "train.csv", "train.json"):
        (reference.folder / name).unlink()
    reference.run()
    assert {p: p.stat().st_mtime_ns for p in reference.runs[0].glob("model_*.pt")} == before
    assert (reference.folder / "policy.pt").read_bytes() == policy
    assert (reference.folder / "train.json").read_text() == summary


def test_fingerprint_covers_what_decides_the_result_and_not_the_budget(motion: Path):
    robot = Robot.load(RobotCfg())

    def fingerprint(**changes: object) -> str:
        return train.provenance(motion, robot, TINY.model_copy(update=changes), CPU)["fingerprint"]

    same = fingerprint()
    assert fingerprint(max_iterations=9, save_interval=9, num_workers=2) == same
    assert train.provenance(motion, robot, TINY, {"device": "npu:0", "name": "an accelerator"})["fingerprint"] == same
    for change in ({"autocast": "bf16"}, {"autocast": "auto"}, {"half_batches": True}):
        assert fingerprint(**change) != same
    for change in ({"seed": 2}, {"num_envs": 4}, {"ppo": PpoCfg(gamma=0.9)}, {"policy": PolicyCfg(skip=False)}):
        assert fingerprint(**change) != same


def test_autocast_trains_in_bfloat16_and_keeps_float32(reference: Stage, stage: Stage) -> None:
    got = stage.run(TINY.model_copy(update={"autocast": "bf16", "max_iterations": 2}))
    exact = rows(reference.folder / "train.csv")
    assert got[0]["mean_rew"] == exact[0]["mean_rew"]  # the workers act in float32
    assert got[0]["value_loss"] != exact[0]["value_loss"]
    assert float(got[0]["value_loss"]) == pytest.approx(float(exact[0]["value_loss"]), rel=0.05)
    assert all(math.isfinite(float(row[key])) for row in got for key in ("kl", "value_loss", "surrogate_loss"))
    state = torch.load(stage.runs[0] / "model_2.pt", weights_only=True)
    kept = [*state["policy"]["state"].values(), *state["critic"].values()]
    assert {x.dtype for x in kept if isinstance(x, torch.Tensor)} == {torch.float32}


def test_autocast_auto_is_bfloat16_where_the_processor_is_fast_in_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(flags: str, iterations: int) -> list[dict[str, str]]:
        monkeypatch.setattr(device, "_of_cpu", {"flags": flags, "model name": "a processor"}.__getitem__)
        caplog.clear()
        return stage.run(TINY.model_copy(update={"autocast": "auto", "max_iterations": iterations}))

    half = run("sse4_2 amx_bf16 amx_tile", 2)
    assert "matrices are multiplied in bfloat16" in caplog.text
    assert half == stage.run(TINY.model_copy(update={"autocast": "bf16", "max_iterations": 2}))
    run("sse4_2 avx512_bf16", 3)  # the run goes on, elsewhere
    assert "model_2.pt — matrices are multiplied in float32, and were not before" in caplog.text
    assert rows(stage.runs[0] / "train.csv")[:2] == half


def test_workers_that_act_collect_what_a_learner_that_acts_does(stage: Stage) -> None:
    """But for the noise of observations, which each draws in its own way."""
    silent = NoiseCfg(**dict.fromkeys(NoiseCfg.model_fields, 0.0))
    plain = TINY.model_copy(update={"noise": silent, "max_iterations": 1})
    acted, told = (stage.run(plain.model_copy(update={"half_batches": halves})) for halves in (None, False))
    for name in ("mean_rew", "ep_len", "kl", "value_loss", "surrogate_loss"):  # other libraries, other last digits
        assert float(acted[0][name]) == pytest.approx(float(told[0][name]), rel=1e-4, abs=1e-5), name


def test_halves_in_turn_on_the_cpu_are_bit_identical_to_one_after_the_other(stage: Stage, tmp_path: Path) -> None:
    halves = TINY.model_copy(update={"half_batches": True, "max_iterations": 2})
    in_turn = stage.run(halves, workers=2)

    class Plain(train.WorkerPool):
        def start(self, t: int, part: int) -> None:
            super().start(t, part)
            super().wait()

        def wait(self) -> None:
            pass

    (tmp_path / "plain").mkdir()
    original, train.WorkerPool = train.WorkerPool, Plain
    try:
        assert Stage(tmp_path / "plain", stage.motion).run(halves) == in_turn
    finally:
        train.WorkerPool = original


def test_episodes_that_end_at_once_stop_training(stage: Stage):
    tight = TINY.model_copy(update={"termination": TerminationCfg(anchor_z=1e-5), "max_iterations": 20})
    found = r"termination-storm\].*iteration 5 .*for 5 iterations the median episode was 1 steps: anchor_z"
    with pytest.raises(Q1Error, match=found):
        stage.run(tight)
    assert (stage.runs[0] / "model_5.pt").exists()


@pytest.mark.parametrize("rate", [100.0, 1e30])
def test_divergence_stops_with_iteration_and_quantity(stage: Stage, rate: float):
    wild = TINY.model_copy(update={"ppo": PpoCfg(learning_rate=rate, learning_rate_range=(rate, rate))})
    with pytest.raises(Q1Error, match=r"not-finite\].*iteration 1 .*not finite, and again after 3 restorations"):
        stage.run(wild)
    assert not list(stage.runs[0].glob("model_*.pt"))
    with np.load(stage.runs[0] / "diverged_1.npz") as kept:  # no environment is to blame: all of them
        assert kept["env_ids"].tolist() == list(range(8))


def leaves(value: object) -> set[type]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union({type(value)}, *map(leaves, items), *([{type(k) for k in value}] if type(value) is dict else []))


def test_every_checkpoint_is_plain_and_loads_anywhere(reference: Stage):
    """YOLOX #1906: a numpy scalar in it, and torch refuses to load it; a tensor of a device, and others cannot."""
    found = [*reference.runs[0].glob("model_*.pt"), reference.folder / "policy.pt"]
    assert len(found) == 4
    for path in found:
        content = torch.load(path, weights_only=True)  # no map_location: nothing in it may be elsewhere
        assert leaves(content) <= {dict, list, str, int, float, bool, type(None), torch.Tensor}
    torch.save({"score": np.float64(1.2)}, path := reference.folder / "no.pt")
    with pytest.raises(Exception, match="weights_only|Weights only"):
        torch.load(path, weights_only=True)


def test_broken_physics_is_counted_and_training_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """mujoco #1570: MuJoCo puts such a robot into its default pose, says so in a file here, and all looks fine."""

    class Exploding(WorkerPool):
        steps = 0

        def start(self, t: int, part: int) -> None:
            self.steps += 1
            if self.steps == 8:  # in iteration 2
                self.actions[t, 3] = math.nan
            super().start(t, part)

    monkeypatch.setattr(train, "WorkerPool", Exploding)
    monkeypatch.chdir(tmp_path)
    got = stage.run(TINY.model_copy(update={"half_batches": False}))
    assert [float(row["sim_unstable"]) > 0 for row in got] == [False, True, False, False]
    assert float(got[1]["end_sim_unstable"]) > 0
    assert not list(tmp_path.rglob("MUJOCO_LOG.TXT"))


def test_when_a_worker_raises_the_run_is_saved(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    class Clumsy(Trainer):
        def collect(self) -> tuple[torch.Tensor, torch.Tensor]:
            if self.iteration == 3:
                self.pool.step(99)
            return super().collect()

    monkeypatch.setattr(train, "Trainer", Clumsy)
    with pytest.raises(WorkerError, match=r"worker 0 raised\nTraceback[\s\S]*IndexError"):
        stage.run(TINY.model_copy(update={"save_interval": 50}))
    assert [p.name for p in stage.runs[0].glob("model_*")] == ["model_3.pt"]


class Poisoned(Trainer):
    """Gets an infinite reward from environments 3 and 5 in iteration 3, as often as `times`."""

    times = 0

    def collect(self) -> tuple[torch.Tensor, torch.Tensor]:
        features = super().collect()
        if self.iteration == 2 and Poisoned.times:
            Poisoned.times -= 1
            self.rollout.rows[4, [3, 5], self.policy.shape.critic] = math.inf
        return features


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(train, "Trainer", Poisoned)


@pytest.mark.usefixtures("poisoned")
def test_bad_numbers_are_gone_back_from_with_half_the_learning_rate(
    reference: Stage, stage: Stage, caplog: pytest.LogCaptureFixture
):
    logging.getLogger("q1pipe").propagate = True
    Poisoned.times = 2
    ours, theirs = stage.run(), rows(reference.folder / "train.csv")
    assert [row["iteration"] for row in ours] == ["1", "2", "3", "4"]
    assert ours[:2] == theirs[:2]
    assert ours[2]["mean_rew"] == theirs[2]["mean_rew"]  # the same rollout
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    before = float(theirs[1]["lr"])
    for said, n in zip(warned, (1, 2), strict=True):
        assert f"iteration 3 — rewards not finite — done anew with learning rate {before / 2**n:.2g}" in str(said)
    assert torch.load(stage.runs[0] / "model_4.pt", weights_only=True)["restored"] == 2


@pytest.mark.usefixtures("poisoned")
def test_after_three_restorations_it_stops_with_a_dump_that_can_be_replayed(stage: Stage, motion: Path):
    Poisoned.times = 9
    with pytest.raises(Q1Error, match=r"not-finite\].*iteration 3 — rewards not finite, and again after 3"):
        stage.run()
    assert Poisoned.times == 9 - 4
    assert (stage.runs[0] / "model_2.pt").exists()
    path = stage.runs[0] / "diverged_3.npz"
    with np.load(path) as file:
        kept = dict(file)
    assert (int(kept["iteration"]), str(kept["quantity"]), kept["env_ids"].tolist()) == (3, "rewards", [3, 5])
    shapes = {
        "qpos": (7, 2, 7 + 22),
        "qvel": (7, 2, 6 + 22),
        "ctrl": (6, 2, 22),
        "actions": (6, 2, 22),
        "frame": (6, 2),
    }
    assert {name: kept[name].shape for name in shapes} == shapes
    again = dump.replay(path)
    good = np.isfinite(kept["rows"])
    assert (~good).sum() == 2
    assert (again["rows"][1:][good[1:]] == kept["rows"][1:][good[1:]]).all()
    assert all((again[name] == kept[name]).all() for name in ("qpos", "qvel", "ctrl", "frame"))
    made_of = json.loads(str(kept["made_of"]))
    assert made_of["motion"] == str(motion)
    made_of["motion_sha"] = "of another motion"
    np.savez(path, **{**kept, "made_of": json.dumps(made_of)})
    with pytest.raises(Q1Error, match=r"\[dump\].*or the robot is another one now — motion of another motion"):
        dump.replay(path)


@pytest.mark.usefixtures("poisoned")
def test_a_dump_is_enough_for_plain_mujoco(stage: Stage):
    """Nothing of q1pipe but the robot; each step anew from where the dump says that it began."""
    Poisoned.times = 9
    still = RandomizationCfg(push=0, foot_friction=(1, 1), torso_com=(0, 0, 0))
    with pytest.raises(Q1Error):
        stage.run(TINY.model_copy(update={"randomization": still}))
    with np.load(stage.runs[0] / "diverged_3.npz") as file:
        kept = dict(file)
    model = Robot.load(RobotCfg(**json.loads(str(kept["made_of"]))["robot"])).model
    model.opt.timestep = 0.005
    data = mujoco.MjData(model)
    compared = 0
    for t in range(6):
        for n in range(2):
            if kept["frame"][t, n] == 11 or (t and kept["frame"][t, n] != kept["frame"][t - 1, n] + 1):
                continue  # another episode begins
            mujoco.mj_resetData(model, data)
            data.qpos, data.qvel, data.ctrl = kept["qpos"][t, n], kept["qvel"][t, n], kept["ctrl"][t, n]
            mujoco.mj_step(model, data, nstep=4)
            assert data.qpos == pytest.approx(kept["qpos"][t + 1, n], abs=1e-3)
            compared += 1
    assert compared > 2


def test_a_full_disk_is_a_warning_and_training_goes_on(
    reference: Stage, motion: Path, small_disk: Path, caplog: pytest.LogCaptureFixture
):
    """Full from iteration 1 on; after the second checkpoint that finds no room, somebody makes some."""
    logger = logging.getLogger("q1pipe")
    logger.propagate, ballast = True, []
    stage = Stage(small_disk, motion)

    class Somebody(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("train 1/"):
                ballast.append(fill(small_disk))
            if "model_4.pt — No space left" in record.getMessage():
                ballast[0].unlink()

    logger.setLevel(logging.INFO)
    somebody = Somebody()
    logger.addHandler(somebody)
    try:
        got = stage.run(TINY.model_copy(update={"max_iterations": 6}))
    finally:
        logger.removeHandler(somebody)
    assert got[:4] == rows(reference.folder / "train.csv")
    assert [row["iteration"] for row in got] == [str(i) for i in range(1, 7)]
    assert sorted(p.name for p in stage.runs[0].glob("model_*")) == ["model_6.pt", "model_best.pt"]
    assert not list(stage.runs[0].glob(".*"))
    for name in ("model_2.pt", "model_4.pt"):
        assert f"/{name} — No space left on device — room on the disk — make room: training goes on" in caplog.text


def test_a_disk_that_is_full_at_the_start_and_at_the_end_is_said(motion: Path, small_disk: Path):
    stage = Stage(small_disk, motion)
    fill(small_disk)
    with pytest.raises(Q1Error, match=r"\[disk\].*No space left on device.*the same command goes on"):
        stage.run()


def test_a_step_is_one_copy_in_and_one_copy_out(motion: Path, tmp_path: Path):
    """Counts the tensor operations that touch the memory that workers and learner share."""

    class Touches(TorchDispatchMode):
        def __init__(self, trainer: Trainer):
            super().__init__()
            self.trainer, self.counts = trainer, {"rows": 0, "actions": 0, "others": 0}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            pool = self.trainer.pool
            looks = func is torch.ops.aten.lift_fresh.default  # from_numpy: no data moves
            for tensor in (a for a in args if isinstance(a, torch.Tensor) and not looks):
                for name, array in ((n, a) for n, a in vars(pool).items() if hasattr(a, "ctypes")):
                    if array.ctypes.data <= tensor.data_ptr() < array.ctypes.data + array.nbytes:
                        self.counts[name if name in self.counts else "others"] += 1
            return func(*args, **(kwargs or {}))

    counts = {}

    class Counted(Trainer):
        def collect(self) -> tuple[torch.Tensor, torch.Tensor]:
            with Touches(self) as touches:
                features = super().collect()
            counts[self.iteration] = touches.counts
            return features

    told = TINY.model_copy(update={"half_batches": False})
    original, train.Trainer = train.Trainer, Counted
    try:
        robot, clip = Robot.load(RobotCfg()), train.Clip.load(motion)
        cpu = torch.device("cpu")
        train.train(RobotCfg(), robot, motion, clip, told, 1, cpu, tmp_path, {}, None, Stopping())
    finally:
        train.Trainer = original
    assert counts == dict.fromkeys(range(4), {"rows": 6, "actions": 6, "others": 0})


def test_smoke_passes_and_says_so(stage: Stage, motion: Path, caplog: pytest.LogCaptureFixture):
    logger = logging.getLogger("q1pipe")
    logger.propagate = True
    logger.setLevel(logging.INFO)
    out = stage.folder / "smoke.json"
    settings = {"robot": RobotCfg(), "train": TINY, "device": DeviceCfg(), "smoke": SmokeCfg(num_envs=4, iterations=2)}
    smoke.run(motion, stage.folder / "motion.json", stage.folder / "device.json", out, 2, settings)
    record = json.loads(out.read_text())
    assert (record["device"], record["environments"], record["iterations"]) == ("cpu", 4, 2)
    assert record["findings"] == []
    assert record["fallbacks"] == {}
    assert "[DONE] device=cpu" in caplog.text


@pytest.mark.parametrize(
    ("lengths", "changes", "code"),
    [
        ([1, 2, 2, 9], {}, "smoke-terminations"),
        ([30], {"sim_unstable": 0.01}, "smoke-unstable"),
        ([30], {"value_loss": math.nan}, "smoke-nan"),
        ([30], {"restored": 1}, "smoke-nan"),
        ([30], {"device": "npu:0"}, "smoke-device"),
    ],
)
def test_smoke_refuses(reference: Stage, lengths: list[int], changes: dict[str, object], code: str):
    with open(reference.folder / "train.csv", newline="") as f:
        history = [{k: float(v) for k, v in row.items() if k != "device"} for row in csv.DictReader(f)]
    device = changes.pop("device", "cpu")
    restored = changes.pop("restored", 0)
    history[-1].update(changes)
    trainer = Trainer.__new__(Trainer)
    trainer.device, trainer.lengths, trainer.causes = torch.device("cpu"), lengths, ["anchor_z", "tilt", "body_z"]
    trainer.restored = restored
    findings = smoke.judge(trainer, history, device, SmokeCfg(min_median_episode=3), Path("motion.npz"))
    assert [f.code for f in findings] == [code]
