"""What the workflow says to a wrong name or setting, and names that shells trip over."""

import json
import re
import shlex
import shutil

import pytest

from tests.workflow.project import CHAIN, EVERYTHING, Project

NAMES = ["walk fast", "起身", "-dash", 'a"b$c']


def test_odd_names_go_through_the_shell(fresh: Project) -> None:
    """Really run; the whole chain is run for a name with a blank, a quote and another script by the session's copy."""
    for name in NAMES:
        shutil.copy(fresh.folder / "config/getUp.npz", fresh.folder / f"config/{name}.npz")
    targets = [f"results/{name}/motion.npz" for name in NAMES]
    result = fresh.snakemake(*targets)
    assert result.returncode == 0, result.stdout
    for name, target in zip(NAMES, targets, strict=True):
        assert (fresh.folder / target).is_file()
        assert (fresh.folder / f"results/{name}/logs/motion.log").is_file()
    planned = fresh.planned(*[f"results/{name}/eval.json" for name in NAMES])
    assert planned == {("device", "")} | {(rule, name) for rule in CHAIN[1:] for name in NAMES}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("getup", "There is no config/getup.npz. Did you mean getUp? Motions: getUp, walk fast."),
        ("sit", "There is no config/sit.npz. Motions: getUp, walk fast."),
    ],
)
def test_wrong_name_names_the_motions(fresh: Project, asked: str, said: str) -> None:
    shutil.copy(fresh.folder / "config/getUp.npz", fresh.folder / "config/walk fast.npz")
    result = fresh.without_jobs(f"results/{asked}/eval.json")
    assert result.returncode != 0
    assert said in result.stdout


def test_wrong_settings_are_told_at_once_before_anything_starts(fresh: Project) -> None:
    fresh.edit("config/config.yaml", "  substeps: 4 ", "  substps: 4 ")
    fresh.edit("config/config.yaml", "hold_tilt: 15.0 ", "hold_tilt: -1 ")
    result = fresh.without_jobs("--config", 'train={"num_envs": 1000, "num_workers": 32}')
    assert result.returncode != 0
    lines = [line for line in result.stdout.splitlines() if line.startswith("ERROR")]
    text = (fresh.folder / "config/config.yaml").read_text(encoding="utf-8").splitlines()
    line_of = {
        key: 1 + next(i for i, line in enumerate(text) if f"  {key}: " in line) for key in ("substps", "hold_tilt")
    }
    assert [line.split(" — ")[0].removeprefix("ERROR [config] ") for line in lines] == [
        "--config: train.num_workers",
        f"config/config.yaml:{line_of['substps']}: train.substps",
        f"config/config.yaml:{line_of['hold_tilt']}: evaluate.hold_tilt",
    ]
    assert "num_envs 992 or 1024 with 32 workers, or num_workers 25 or 40 with 1000 environments" in lines[0]
    assert lines[1].endswith("did you mean train.substeps? write train: {substeps: 4}")
    assert lines[2].endswith(" — greater than 0 — write evaluate: {hold_tilt: 15.0}")
    assert not (fresh.folder / "results").exists()


def test_settings_are_read_as_they_are_meant_from_files_and_command_line(fresh: Project) -> None:
    """PAINS E9."""
    fresh.edit("config/config.yaml", "learning_rate: 0.001 ", "learning_rate: 2e-3 ")
    fresh.edit("config/config.yaml", "best_episodes: 32 ", 'best_episodes: "010" ')
    said = fresh.dry_run(
        "results/getUp/train.json", "-p", "--config", "train__policy__hidden=[8,4]", "train__ppo__clip=1e-1"
    )
    (given,) = re.findall(r"q1pipe train .*--settings=('.*?'|\S+) --name", said)
    train = json.loads(shlex.split(given)[0])["train"]
    assert (train["ppo"]["learning_rate"], train["ppo"]["clip"]) == (0.002, 0.1)
    assert (train["policy"]["hidden"], train["best_episodes"]) == ([8, 4], 4)  # 4: tiny.yaml's


def test_name_with_braces_is_refused(fresh: Project) -> None:
    (fresh.folder / "config/getUp.npz").rename(fresh.folder / "config/a{b}.npz")
    result = fresh.without_jobs("-n")
    assert result.returncode != 0
    assert "ERROR [name] config/a{b}.npz — { or } in the name — any other character — rename it" in result.stdout


def test_settings_of_a_motion_without_a_file_and_no_motion_at_all_are_warnings(fresh: Project) -> None:
    fresh.edit("config/config.yaml", "motions: {} ", "motions: {getup: {train: {seed: 2}}} ")
    (fresh.folder / "config/getUp.npz").rename(fresh.folder / "wave.npz")
    result = fresh.without_jobs("-n")
    assert result.returncode == 0, result.stdout
    assert "motions.getup — settings for a motion that is not there" in result.stdout
    assert "WARN [no-motion]" in result.stdout


def test_clean_removes_the_results(fresh: Project) -> None:
    folder = fresh.folder / "results/getUp/runs/0123456789ab"
    folder.mkdir(parents=True)
    result = fresh.snakemake("clean")
    assert result.returncode == 0, result.stdout
    assert not (fresh.folder / "results").exists()


def test_list_of_rules_is_a_menu(fresh: Project) -> None:
    """Each stage with the file to ask for, which it makes."""
    said = fresh.without_jobs("--list").stdout
    menu = dict(re.findall(r"^(\w+) \((.*)\)$", said, re.MULTILINE))
    assert set(menu) == {*EVERYTHING, "device", "all", "clean"}
    for text in menu.values():
        assert re.match(r"Stage [1-6]: |All |Remove ", text)
    made = dict(
        re.findall(r"^(?:local)?rule (\w+):\n(?:    input: .*\n)?    output: (.*)$", fresh.dry_run(), re.MULTILINE)
    )
    for rule in (*EVERYTHING, "device"):
        assert menu[rule].partition(" -> ")[2].replace("{motion}", "getUp") in made[rule].split(", ")
