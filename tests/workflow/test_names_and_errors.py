"""What the workflow says to a wrong name or setting, and names that shells trip over."""

import shutil

import pytest

from tests.workflow.project import CHAIN, Project

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
    result = fresh.snakemake(f"results/{asked}/eval.json")
    assert result.returncode != 0
    assert said in result.stdout


def test_wrong_settings_are_told_at_once_before_anything_starts(fresh: Project) -> None:
    fresh.edit("config/config.yaml", "  substeps: 4 ", "  substps: 4 ")
    fresh.edit("config/config.yaml", "hold_tilt: 15.0 ", "hold_tilt: -1 ")
    result = fresh.snakemake("--config", 'train={"num_envs": 1000, "num_workers": 32}')
    assert result.returncode != 0
    lines = [line for line in result.stdout.splitlines() if line.startswith("ERROR")]
    assert [line.split(" — ")[0].removeprefix("ERROR [config] config: ") for line in lines] == [
        "train.num_workers",
        "train.substps",
        "evaluate.hold_tilt",
    ]
    assert "num_envs 992 or 1024 with 32 workers, or num_workers 25 or 40 with 1000 environments" in lines[0]
    assert "did you mean substeps?" in lines[1]
    assert not (fresh.folder / "results").exists()


def test_settings_of_a_motion_without_a_file_and_no_motion_at_all_are_warnings(fresh: Project) -> None:
    fresh.edit("config/config.yaml", "motions: {} ", "motions: {getup: {train: {seed: 2}}} ")
    (fresh.folder / "config/getUp.npz").rename(fresh.folder / "wave.npz")
    result = fresh.snakemake("-n")
    assert result.returncode == 0, result.stdout
    assert "WARN [config] config: motions.getup — settings for a motion that is not there" in result.stdout
    assert "WARN [no-motion]" in result.stdout


def test_clean_removes_the_results(fresh: Project) -> None:
    folder = fresh.folder / "results/getUp/runs/0123456789ab"
    folder.mkdir(parents=True)
    result = fresh.snakemake("clean")
    assert result.returncode == 0, result.stdout
    assert not (fresh.folder / "results").exists()


def test_every_rule_says_what_it_does(fresh: Project) -> None:
    rules = [line for line in fresh.snakemake("--list").stdout.splitlines() if line.endswith(".)")]
    assert [line.partition(" (")[0] for line in rules] == [
        *("all", "clean", "device", "evaluate", "export", "index", "motion", "package", "policy_video"),
        *("reference_video", "report", "sim2sim", "smoke", "train"),
    ]
