"""What runs again when something changes: the real snakemake in a copy in which everything was really made once."""

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from q1pipe import cores
from q1pipe.config import (
    NoiseCfg,
    PolicyCfg,
    PpoCfg,
    RandomizationCfg,
    ResetCfg,
    RewardCfg,
    TrainCfg,
    load_settings,
)
from q1pipe.deploy.folder import FILES
from q1pipe.stages import motion
from tests.workflow.project import EVERYTHING, NAME, SHARED, TIMEOUT, Project

RESULTS = f"results/{NAME}"


def of_name(*rules: str) -> set[tuple[str, str]]:
    return {(rule, "" if rule in SHARED else NAME) for rule in rules}


def test_everything_is_made_and_nothing_is_left_to_do(built: Project) -> None:
    outputs = ("motion.npz", "motion.json", "smoke.json", "policy.pt", "train.csv", "train.json", "eval.json")
    exported = ("policy.onnx", "policy_with_reference.onnx", "export.json", "sim2sim.json", "trajectory.npz")
    for output in (*outputs, *exported, *(f"deploy/{name}" for name in FILES)):
        assert (built.folder / RESULTS / output).stat().st_size, output
    for output in (f"{RESULTS}/motion.json", "results/device.json", f"{RESULTS}/eval.json"):
        json.loads((built.folder / output).read_text(encoding="utf-8"))
    for rule in set(EVERYTHING) - set(SHARED):
        assert (built.folder / RESULTS / f"logs/{rule}.log").is_file()
    assert built.planned() == set()


def test_fewer_cores_than_workers_is_a_warning_and_uses_what_fits(built: Project) -> None:
    log = (built.folder / RESULTS / "logs/train.log").read_text(encoding="utf-8")
    assert "WARN [workers] config: train.num_workers — 4 workers asked for, 2 threads given" in log
    assert "16 environments in 2 workers" in log
    policy = torch.load(built.folder / RESULTS / "policy.pt", weights_only=True)
    run = built.folder / RESULTS / "runs" / policy["meta"]["fingerprint"]
    assert torch.load(run / "model_3.pt", weights_only=True)["threads"] == min(2, cores.available())


def append(path: str, text: str) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        with open(project.folder / path, "a", encoding="utf-8") as file:
            file.write(text)

    return change


def edit(path: str, old: str, new: str) -> Callable[[Project], None]:
    return lambda project: project.edit(path, old, new)


def touch_all(project: Project) -> None:
    for part in ("config", "q1pipe", "workflow"):
        for file in (project.folder / part).rglob("*"):
            file.touch()


def other_motion_with_old_date(project: Project) -> None:
    """As `cp -p`, `unzip` and `rsync -t` leave it."""
    path = project.folder / f"config/{NAME}.npz"
    path.write_bytes(path.read_bytes() + b"\0")
    os.utime(path, (0, 0))


def other_order(project: Project) -> None:
    """Every mapping of config.yaml backwards."""

    def backwards(tree: Any) -> Any:
        return {k: backwards(tree[k]) for k in reversed(tree)} if isinstance(tree, dict) else tree

    path = project.folder / CONFIG
    tree = backwards(yaml.safe_load(path.read_text(encoding="utf-8")))
    path.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), encoding="utf-8")


def other_model_with_old_date(project: Project) -> None:
    path = project.folder / "q1pipe/assets/q1/q1.xml"
    path.write_bytes(path.read_bytes() + b"<!-- -->")
    os.utime(path, (0, 0))


def override(section: str) -> Callable[[Project], None]:
    return edit(
        "config/config.yaml", "motions: {} ", f'motions: {{"{NAME}": {section}, wave: {{train: {{seed: 9}}}}}} '
    )


def both(*changes: Callable[[Project], None]) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        for one in changes:
            one(project)

    return change


NOTHING: tuple[str, ...] = ()
PAGES = ("report", "package", "index")
EVALUATING = ("evaluate", *PAGES)
JUDGING = ("sim2sim", "policy_video", *EVALUATING)
EXPORTING = ("export", *JUDGING)
LEARNING = ("smoke", "train", *EXPORTING)
DRAWING = ("reference_video", "policy_video", *PAGES)
CONFIG = "config/config.yaml"
PIN = edit(CONFIG, "pin_code: false ", "pin_code: true ")
CHANGES: dict[str, tuple[Callable[[Project], None], tuple[str, ...]]] = {
    "all files touched": (touch_all, NOTHING),
    "comment in ppo.py": (append("q1pipe/learn/ppo.py", "\n# a comment\n"), NOTHING),
    "constant in ppo.py": (append("q1pipe/learn/ppo.py", "\nCONSTANT = 1\n"), LEARNING),
    "order of all settings": (other_order, NOTHING),
    "layout of code": (edit("q1pipe/learn/ppo.py", "from __future__", "\n\n\n# why\nfrom __future__"), NOTHING),
    "docstring of code": (edit("q1pipe/learn/ppo.py", '"""Proximal', '"""Very proximal'), NOTHING),
    "code of the motion stage": (append("q1pipe/stages/motion.py", "\nCONSTANT = 1\n"), EVERYTHING),
    "code of the smoke stage": (append("q1pipe/stages/smoke.py", "\nCONSTANT = 1\n"), LEARNING),
    "code of the train stage": (append("q1pipe/stages/train.py", "\nCONSTANT = 1\n"), LEARNING),
    "code of the export stage": (append("q1pipe/stages/export.py", "\nCONSTANT = 1\n"), EXPORTING),
    "code of the sim2sim stage": (append("q1pipe/stages/sim2sim.py", "\nCONSTANT = 1\n"), JUDGING),
    "code of the video stage": (append("q1pipe/stages/video.py", "\nCONSTANT = 1\n"), DRAWING),
    "code of the report stage": (append("q1pipe/stages/report.py", "\nCONSTANT = 1\n"), PAGES),
    "code of the package stage": (append("q1pipe/stages/package.py", "\nCONSTANT = 1\n"), ("package",)),
    "code that shows where everything stands": (append("q1pipe/status.py", "\nCONSTANT = 1\n"), NOTHING),
    "code while it is pinned": (both(append("q1pipe/learn/ppo.py", "\nCONSTANT = 1\n"), PIN), NOTHING),
    "pinning": (PIN, NOTHING),
    "a setting while code is pinned": (
        both(
            append("q1pipe/learn/ppo.py", "\nCONSTANT = 1\n"),
            PIN,
            edit(CONFIG, "hold_height: 0.9 ", "hold_height: 0.8 "),
        ),
        JUDGING,
    ),
    "a setting, and back": (
        both(
            edit(CONFIG, "target_kl: 0.01 ", "target_kl: 0.02 "), edit(CONFIG, "target_kl: 0.02 ", "target_kl: 0.01 ")
        ),
        NOTHING,
    ),
    "model of the robot with an old date": (other_model_with_old_date, EVERYTHING),
    "setting of motion": (edit(CONFIG, "max_skating: 0.3 ", "max_skating: 0.4 "), EVERYTHING),
    "control rate": (edit(CONFIG, "control_hz: 50 ", "control_hz: 25 "), EVERYTHING),
    "override of robot": (override("{robot: {soft_limit: 0.8}}"), EVERYTHING),
    "override of motion": (override("{motion: {speed: 0.9}}"), EVERYTHING),
    "override of smoke": (override("{smoke: {max_unstable: 0.002}}"), LEARNING),
    "override of train": (override("{train: {ppo: {clip: 0.3}}}"), LEARNING),
    "override of export": (override("{export: {rows: 255}}"), EXPORTING),
    "override of sim2sim": (override("{sim2sim: {mass: 0.2}}"), JUDGING),
    "override of video": (override("{video: {crf: 24}}"), DRAWING),
    "override of report": (override("{report: {language: zh}}"), ("report", "package")),
    "override of package": (override("{package: {license: CC0}}"), ("package",)),
    "code of evaluate": (append("q1pipe/stages/evaluate.py", "\nCONSTANT = 1\n"), EVALUATING),
    "code of the device stage": (append("q1pipe/stages/device.py", "\nCONSTANT = 1\n"), ("device", *LEARNING)),
    "code that says what is wrong": (append("q1pipe/errors.py", "\nCONSTANT = 1\n"), NOTHING),
    "the config module": (append("q1pipe/config/models.py", "\nCONSTANT = 1\n"), NOTHING),
    "comment in config.yaml": (append(CONFIG, "\n# a comment\n"), NOTHING),
    "number written in another way": (edit(CONFIG, "hold_tilt: 15.0 ", "hold_tilt: 1.5e+1 "), NOTHING),
    "setting removed that is the default": (edit(CONFIG, "  hold_tilt: 15.0 ", "  # hold_tilt: 15.0 "), NOTHING),
    "gate of evaluate": (edit(CONFIG, "min_finish: 0.95 ", "min_finish: 0.96 "), EVALUATING),
    "what holding the pose means": (edit(CONFIG, "hold_tilt: 15.0 ", "hold_tilt: 16.0 "), JUDGING),
    "episodes of evaluate": (edit(CONFIG, "  seed: 1000 ", "  seed: 1001 "), EXPORTING),
    "setting of export": (edit(CONFIG, "golden_rows: 100 ", "golden_rows: 101 "), EXPORTING),
    "setting of sim2sim": (edit(CONFIG, "mass: 0.1 ", "mass: 0.2 "), JUDGING),
    "threshold of safety": (edit(CONFIG, "max_speed: 20.0 ", "max_speed: 19.0 "), JUDGING),
    "gap to evaluate": (edit(CONFIG, "max_gap: 0.02 ", "max_gap: 0.03 "), JUDGING),
    "code of the exporter": (append("q1pipe/deploy/export.py", "\nCONSTANT = 1\n"), EXPORTING),
    "the controller in the deploy folder": (append("q1pipe/deploy/run_policy.py", "\nCONSTANT = 1\n"), EXPORTING),
    "code of the safety audit": (append("q1pipe/deploy/safety.py", "\nCONSTANT = 1\n"), JUDGING),
    "setting of train": (edit(CONFIG, "target_kl: 0.01 ", "target_kl: 0.02 "), LEARNING),
    "several seeds": (edit(CONFIG, "seeds: [] ", "seeds: [0, 1] "), LEARNING),
    "code that picks a seed": (append("q1pipe/stages/seeds.py", "\nCONSTANT = 1\n"), ("train", *EXPORTING)),
    "setting of smoke": (edit(CONFIG, "max_unstable: 0.001 ", "max_unstable: 0.002 "), LEARNING),
    "setting of device": (edit(CONFIG, "timeout: 120.0 ", "timeout: 121.0 "), ("device", *LEARNING)),
    "terminations": (edit(CONFIG, "tilt: 1.0 ", "tilt: 1.1 "), EVERYTHING),
    "robot": (edit(CONFIG, "damping_ratio: 2.0 ", "damping_ratio: 2.1 "), EVERYTHING),
    "model of the robot": (append("q1pipe/assets/q1/q1.xml", "<!-- -->"), EVERYTHING),
    "another motion": (other_motion_with_old_date, EVERYTHING),
    "override of this motion": (override("{evaluate: {min_finish: 0.96}}"), EVALUATING),
    "override of another motion": (override("{}"), NOTHING),
    "camera of the videos": (edit(CONFIG, "elevation: -15.0 ", "elevation: -20.0 "), DRAWING),
    "code that draws": (append("q1pipe/report/scene.py", "\nCONSTANT = 1\n"), DRAWING),
    "language of the report": (edit(CONFIG, "language: en ", "language: zh "), PAGES),
    "words of the report": (append("q1pipe/report/words.py", "\nCONSTANT = 1\n"), PAGES),
    "template of the report": (append("q1pipe/report/templates/report.html", "<!-- -->"), PAGES),
    "licence of the clip": (edit(CONFIG, 'license: "" ', 'license: "CC0" '), ("package",)),
}


@pytest.mark.parametrize(("change", "rules"), CHANGES.values(), ids=CHANGES)
def test_change_makes_stale(project: Project, change: Callable[[Project], None], rules: tuple[str, ...]) -> None:
    change(project)
    assert project.planned() == of_name(*rules)


def test_dry_run_names_the_setting_and_the_module_and_nothing_else(project: Project) -> None:
    project.edit(CONFIG, "entropy: 0.005 ", "entropy: 0.006 ")
    append("q1pipe/learn/buffer.py", "\nCONSTANT = 1\n")(project)
    said = project.dry_run(f"{RESULTS}/smoke.json")
    (reason,) = re.findall(r"^rule smoke:.*?reason: (.*?)$", said, flags=re.MULTILINE | re.DOTALL)
    before_now = [sorted(re.findall(r"'(.*?)'", side)) for side in re.split(r"\bnow: ", reason)]
    for (module, setting), value in zip(before_now, ("0.005", "0.006"), strict=True):
        assert re.fullmatch(r"q1pipe\.learn\.buffer@[0-9a-f]{12}", module)
        assert setting == f"train.ppo.entropy={value}"


def test_edit_while_a_job_runs_is_noticed_afterwards(project: Project) -> None:
    """Snakemake itself takes dates and checksums when a job ends."""
    target = f"{RESULTS}/motion.npz"
    log = project.folder / RESULTS / "logs/motion.log"
    log.unlink()
    with project.started(target, "-R", "motion") as running:
        deadline = time.monotonic() + TIMEOUT
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running.poll() is None
        other_motion_with_old_date(project)
        assert running.wait(TIMEOUT) == 0
    assert project.planned(target) == of_name("motion")


@pytest.mark.slow
def test_setting_that_is_changed_back_publishes_its_old_run_in_a_moment(project: Project) -> None:
    trained = project.folder / RESULTS / "train.json"
    before = json.loads(trained.read_text(encoding="utf-8"))
    for entropy in ("0.006", "0.005"):
        result = project.snakemake(
            str(trained.relative_to(project.folder)), "--config", f"train__ppo__entropy={entropy}"
        )
        assert result.returncode == 0, result.stdout
        same = json.loads(trained.read_text(encoding="utf-8"))["fingerprint"] == before["fingerprint"]
        assert same == (entropy == "0.005")
    assert json.loads(trained.read_text(encoding="utf-8")) == before


@pytest.mark.slow
def test_each_seed_is_trained_once_and_the_best_is_published(project: Project) -> None:
    trained = project.folder / RESULTS / "train.json"
    before = json.loads(trained.read_text(encoding="utf-8"))["fingerprint"]  # of seed 1
    runs = trained.parent / "runs"
    for count, seeds in ((2, "[1,2]"), (3, "[2,3]")):
        result = project.snakemake(str(trained.relative_to(project.folder)), "--config", f"train__seeds={seeds}")
        assert result.returncode == 0, result.stdout
        record = json.loads(trained.read_text(encoding="utf-8"))
        assert [one["seed"] for one in record["seeds"]] == json.loads(seeds)
        best = max(record["seeds"], key=lambda one: one["score"])
        assert best["fingerprint"] == record["fingerprint"]
        assert (before in [one["fingerprint"] for one in record["seeds"]]) == (seeds == "[1,2]")
        assert len(list(runs.iterdir())) == count


@pytest.mark.slow
def test_pinned_code_goes_on_with_the_run_of_the_old_code(project: Project) -> None:
    trained = project.folder / RESULTS / "train.json"
    before = json.loads(trained.read_text(encoding="utf-8"))
    append("q1pipe/learn/ppo.py", "\nCONSTANT = 1\n")(project)
    longer = ("--config", "train__max_iterations=4", "pin_code=true")
    result = project.snakemake(str(trained.relative_to(project.folder)), *longer)
    assert result.returncode == 0, result.stdout
    after = json.loads(trained.read_text(encoding="utf-8"))
    assert (after["fingerprint"], after["iterations"], before["iterations"]) == (before["fingerprint"], 4, 3)


def test_rate_of_the_videos_redraws(built: Project) -> None:
    assert built.planned("--config", 'video={"fps": 6}') == of_name(*DRAWING)


@pytest.mark.parametrize("workers", ["1", "2", "8"])
def test_workers_and_cores_make_nothing_stale(built: Project, workers: str) -> None:
    config = ("--config", f'train={{"num_workers": {workers}}}')
    assert built.planned(*config) == set()
    assert built.planned(*config, cores=1) == set()


def test_only_evaluate_and_the_pages_really_run_when_only_its_settings_change(project: Project) -> None:
    kept = [project.folder / RESULTS / name for name in ("policy.pt", "policy.onnx", "policy.mp4")]
    before = [path.stat().st_mtime_ns for path in kept]
    project.edit(CONFIG, "min_finish: 0.95 ", "min_finish: 0.96 ")
    result = project.snakemake()
    assert result.returncode == 0, result.stdout
    assert "1 of 5 steps" in result.stdout  # evaluate, the pages and all
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert project.planned() == set()


def test_new_motion_gets_its_whole_chain_and_nothing_else_runs(project: Project) -> None:
    shutil.copy(project.folder / f"config/{NAME}.npz", project.folder / "config/again.npz")
    assert project.planned() == {(rule, "" if rule in SHARED else "again") for rule in EVERYTHING}


def test_motion_and_robot_from_the_environment_are_tracked_by_content(project: Project, tmp_path: Path) -> None:
    source = project.folder / f"config/{NAME}.npz"
    wave, replaced = shutil.copy(source, tmp_path / "wave.npz"), tmp_path / source.name
    assert project.planned(Q1_MOTION=str(wave)) == {(rule, "" if rule in SHARED else "wave") for rule in EVERYTHING}
    replaced.write_bytes(source.read_bytes() + b"\0")
    assert project.planned(Q1_MOTION=str(replaced)) == of_name(*EVERYTHING)
    robot = shutil.copytree(project.folder / "q1pipe/assets/q1", tmp_path / "robot") / "q1.xml"
    assert project.planned(Q1_XML=str(robot)) == set()  # the same, elsewhere
    robot.write_text(robot.read_text(encoding="utf-8") + "<!-- -->", encoding="utf-8")
    assert project.planned(Q1_XML=str(robot)) == of_name(*EVERYTHING)


def test_device_of_the_environment_is_asked_for_only_where_another_would_be_chosen(project: Project) -> None:
    """Which another is, and what the device stage says of it, is in unit/learn/test_wish.py."""
    auto, target = ("--config", "device__device=auto"), "results/device.json"
    path = project.folder / target
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (record["requested"], record["device"]) == ("cpu", "cpu")
    as_if = {**record, "requested": "auto", "variables": {"PRIMEBOT_DEVICE": "cpu"}, "automatic": False}
    path.write_text(json.dumps(as_if), encoding="utf-8")
    assert project.snakemake("--touch", "--forceall", *auto, PRIMEBOT_DEVICE="cpu").returncode == 0
    assert project.planned(*auto, PRIMEBOT_DEVICE="cpu") == set()
    for variables in ({}, {"PRIMEBOT_DEVICE": "npu:7"}):
        assert project.planned(*auto, **variables) == of_name("device", *LEARNING)


def test_motion_stage_depends_only_on_the_training_settings_that_its_rule_tracks(
    built: Project, tmp_path: Path
) -> None:
    """What it read beyond them would have its default there, whatever the user says."""
    shown = built.dry_run("-p", "-R", "motion")
    command = re.search(r"exec python -m q1pipe motion (.*)", shown)
    assert command
    options = dict(word[2:].split("=", 1) for word in shlex.split(command[1]))
    settings = load_settings(options["settings"])
    others = {
        "num_envs": 3,
        "max_iterations": 7,
        "steps_per_env": 5,
        "save_interval": 1,
        "seed": 99,
        "seeds": (5, 6),
        "episode_seconds": 1.0,
        "best_episodes": 1,
        "half_batches": True,
        "autocast": "bf16",
        "ppo": PpoCfg(epochs=1),
        "policy": PolicyCfg(skip=False),
        "reward": RewardCfg(action_rate=-5.0),
        "reset": ResetCfg(joint=0.3, bin_seconds=0.5, from_start=1.0),
        "randomization": RandomizationCfg(foot_friction=(0.1, 0.1), push_interval=(0.1, 0.1)),
        "noise": NoiseCfg(joint_pos=1.0),
    }
    tracked = json.loads(options["settings"])["train"]
    assert set(TrainCfg.model_fields) == {*others, *tracked, "num_workers"}
    settings["train"] = settings["train"].model_copy(update=others)
    made = tmp_path / "motion.npz", tmp_path / "motion.json"
    motion.run(built.folder / options["source"], *made, settings)
    for path in made:
        assert path.read_bytes() == (built.folder / RESULTS / path.name).read_bytes()
