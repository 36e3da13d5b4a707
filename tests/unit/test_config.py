"""The configuration: the shipped files, checks, overrides, and the text that decides what is stale."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from q1pipe.config import (
    Config,
    Layer,
    Settings,
    TrainCfg,
    load_settings,
    of_arguments,
    of_file,
    settings_of,
    workers_for,
)
from q1pipe.config.show import shown
from q1pipe.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("Q1_XML", raising=False)


def problems(config: dict[str, Any], **kwargs: Any) -> list[str]:
    with pytest.raises(ConfigError) as e:
        Settings(config, **kwargs)
    return [str(f) for f in e.value.findings]


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    return {k: v for name, value in tree.items() for k, v in leaves(value, f"{path}.{name}").items()}


# --- the shipped files


def test_config_yaml_holds_every_key_with_its_default() -> None:
    written = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    assert leaves(written) == leaves(Config().model_dump(mode="json"))


def test_config_yaml_comments_every_value() -> None:
    lines = (ROOT / "config/config.yaml").read_text(encoding="utf-8").splitlines()
    bare = [line for line in lines if ":" in line and not line.rstrip().endswith(":") and "#" not in line]
    assert bare == []


@pytest.mark.parametrize("overlay", ["config/laptop.yaml", "tests/workflow/tiny.yaml"])
def test_overlays_change_what_they_say_and_nothing_else(overlay: str) -> None:
    base = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    change = yaml.safe_load((ROOT / overlay).read_text(encoding="utf-8"))
    for section, values in change.items():
        base[section] = deep(base[section], values)
    defaults, now = leaves(Config().model_dump(mode="json")), leaves(Settings(base).of().model_dump(mode="json"))
    assert {key: now[key] for key in now if now[key] != defaults[key]} == leaves(change)


def deep(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: deep(below.get(key), value) for key, value in above.items()}


# --- what is an error, and what it says


def test_unknown_key_names_the_key_that_was_meant() -> None:
    (line,) = problems({"train": {"itterations": 5}})
    assert line.startswith("ERROR [config] config: train.itterations — unknown key — train has num_envs, num_workers, ")
    assert line.endswith("— did you mean train.max_iterations? write train: {max_iterations: 5}")


def test_key_of_another_section_is_found_there() -> None:
    (line,) = problems({"train": {"learning_rate": 1e-3}})
    assert line.endswith("— did you mean train.ppo.learning_rate? write train: {ppo: {learning_rate: 0.001}}")


def test_key_of_another_section_is_found_there_by_a_near_name() -> None:
    (line,) = problems({"train": {"learning_rat": 2e-3}})
    assert line.endswith("— did you mean train.ppo.learning_rate? write train: {ppo: {learning_rate: 0.002}}")


def test_on_the_command_line_the_hint_is_an_argument() -> None:
    given = ("train__learning_rate=1e-3", "train__seeds=[0, x]", "motions__wave__train__sed=4", "smoke__iterations=few")
    with pytest.raises(ConfigError) as caught:
        Settings([of_arguments(given)])
    assert [str(f).rpartition(" — ")[2] for f in caught.value.findings] == [
        "write --config smoke__iterations=3",
        "write --config 'train__seeds=[]'",
        "did you mean train.ppo.learning_rate? write --config train__ppo__learning_rate=0.001",
        "did you mean train.seed? write --config motions__wave__train__seed=4",
    ]


def test_dots_on_the_command_line_are_told_to_be_underscores() -> None:
    with pytest.raises(ConfigError, match=r"write --config train__ppo__clip=0\.1$"):
        of_arguments(["train.ppo.clip=0.1"])


def test_a_number_that_is_none_is_told_once() -> None:
    (line,) = problems({"train": {"num_envs": "many"}})
    assert "num_envs — 'many' — a valid integer — write train: {num_envs: 1024}" in line


def test_key_that_is_in_several_sections_names_them_all() -> None:
    (line,) = problems({"report": {"seed": 3}})
    assert line.endswith("— did you mean train.seed or evaluate.seed or sim2sim.seed?")


def test_key_that_is_nowhere_is_to_be_removed() -> None:
    (line,) = problems({"train": {"quux": 3}})
    assert line.endswith("— remove it")


def test_unknown_section_names_the_sections() -> None:
    (line,) = problems({"trian": {}})
    assert line == (
        "ERROR [config] config: trian — unknown key — "
        "sections are robot, motion, device, smoke, train, evaluate, export, sim2sim, video, report, package, "
        "pin_code, motions — did you mean train? write train: {}"
    )


def test_all_problems_are_told_at_once_with_value_and_bound() -> None:
    found = problems(
        {
            "train": {
                "num_envs": 1000,
                "ppo": {"clip": -1, "learning_rate": "fast"},
                "policy": {"hidden": [64, 0]},
                "reset": {"z": [0.2, 0.1]},
                "seeed": 3,
            },
            "evaluate": {"min_success": 1.5},
            "motions": {"getUp": {"train": {"noise": {"joint_pos": -0.1}}}},
        }
    )
    assert [line.split(" — ")[0].removeprefix("ERROR [config] config: ") for line in found] == [
        "train.num_workers",
        "train.ppo.learning_rate",
        "train.ppo.clip",
        "train.policy.hidden[1]",
        "train.reset.z",
        "train.seeed",
        "evaluate.min_success",
        "motions.getUp.train.noise.joint_pos",
    ]
    assert found[2].endswith("train.ppo.clip — -1 — greater than 0 — write train: {ppo: {clip: 0.2}}")
    assert found[-1].endswith(" — write motions: {getUp: {train: {noise: {joint_pos: 0.01}}}}")


def test_uneven_split_names_both_numbers_and_the_nearest_that_work() -> None:
    (line,) = problems({"train": {"num_envs": 1000, "num_workers": 32}})
    assert line == (
        "ERROR [config] config: train.num_workers — num_envs 1000 is not divisible by num_workers 32 — "
        "the nearest that work are num_envs 992 or 1024 with 32 workers, or num_workers 25 or 40 with 1000 environments"
        " — write train: {num_envs: 1024, num_workers: 32}"
    )
    (line,) = problems({"motions": {"wave": {"train": {"num_envs": 1000}}}})
    assert line.endswith("— write motions: {wave: {train: {num_envs: 1024, num_workers: 32}}}")


@pytest.mark.parametrize(("envs", "nearest"), [(10, "num_envs 32 with 32 workers, or num_workers 10 with 10 env")])
def test_fewer_environments_than_workers_suggests_no_zero(envs: int, nearest: str) -> None:
    (line,) = problems({"train": {"num_envs": envs}})
    assert nearest in line


def test_not_a_number_and_infinity_are_refused() -> None:
    assert len(problems({"train": {"ppo": {"learning_rate": math.inf, "gamma": math.nan}}})) == 2


def test_missing_mjcf_is_told_once_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = problems({"motions": {"getUp": {"robot": {"xml": "/no/robot.xml"}}}})
    assert line.startswith("ERROR [robot-missing] config: motions.getUp.robot.xml — no file /no/robot.xml")
    monkeypatch.setenv("Q1_XML", "/no/other.xml")
    (line,) = problems({"motions": {"getUp": {"train": {"seed": 2}}}})
    assert line.startswith("ERROR [robot-missing] Q1_XML: robot.xml — no file /no/other.xml")


# --- files and command line


def layer(text: str, tmp_path: Path) -> Layer:
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    return of_file(tmp_path / "c.yaml")


def test_yaml_is_read_as_it_is_meant(tmp_path: Path) -> None:
    """PyYAML alone: text, 8, True, False, 45000, a date, True, 8."""
    text = "{a: 1e-3, b: 010, c: on, d: no, e: 12:30:00, f: 2024-01-01, on: {x: '1'}, 010: 1, h: 0x1F, i: .5, j: ~}"
    assert layer(text, tmp_path).values == {
        **{"a": 0.001, "b": 10, "c": "on", "d": "no", "e": "12:30:00", "f": "2024-01-01"},
        **{"on": {"x": "1"}, "010": 1, "h": 31, "i": 0.5, "j": None},
    }


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "---\n", "\ufefftrain: {seed: 1}\n", '{"train": {"seed": 1}}']
)
def test_empty_files_byte_order_marks_and_json_are_settings(text: str, tmp_path: Path) -> None:
    assert Settings([layer(text, tmp_path)]).of().train.seed == 1


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = "smoke: &s {iterations: 9}\nexport: {rows: 7}\nmotions: {a: {smoke: {<<: *s, num_envs: 5}}}"
    smoke = Settings([layer(text, tmp_path)]).of("a").smoke
    assert (smoke.iterations, smoke.num_envs) == (9, 5)


@pytest.mark.parametrize(("written", "meant"), [("on", True), ("yes", True), ("off", False), ("no", False)])
def test_words_for_yes_and_no_are_booleans_where_one_is_asked_for(written: str, meant: bool, tmp_path: Path) -> None:
    settings = Settings([layer(f"motion: {{strict: {written}}}\nrobot: {{imu: {written}}}\n", tmp_path)]).of()
    assert settings.motion.strict is meant
    assert settings.robot.imu == written


def test_key_twice_and_broken_yaml_name_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"c.yaml:3: train.seed — it is in line 2 too — each key once"):
        layer("train:\n  seed: 1\n  seed: 2\n", tmp_path)
    with pytest.raises(ConfigError, match=r"c.yaml — .*line 2"):
        layer("train: {", tmp_path)
    with pytest.raises(ConfigError, match=r"c.yaml — \[1\] — settings"):
        layer("- 1", tmp_path)


def test_problem_is_told_where_it_was_written(tmp_path: Path) -> None:
    base = layer("train:\n  ppo:\n    clip: 0.1\n  seed: x\n", tmp_path)
    over = Layer("--config", {"train": {"ppo": {"clip": -1}}, "motions": {"a": {"train": {"seed": 2, "clip": 1}}}})
    with pytest.raises(ConfigError) as e:
        Settings([base, over])
    assert [f.where for f in e.value.findings] == [
        f"{tmp_path}/c.yaml:4: train.seed",
        "--config: train.ppo.clip",
        "--config: motions.a.train.clip",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ['train={"seed": 7, "ppo": {"clip": 1e-1}}', "motion={strict: yes}"],
        ["train__seed=7", "train__ppo__clip=1e-1", "motion__strict=yes"],
        ["train={'seed': '7', 'ppo': {'clip': 0.1}}", "motion={'strict': True}"],  # as a profile gives it
    ],
)
def test_command_line_reaches_nested_settings(arguments: list[str]) -> None:
    settings = Settings([of_arguments(arguments)]).of()
    assert (settings.train.seed, settings.train.ppo.clip, settings.motion.strict) == (7, 0.1, True)


def test_command_line_values_may_be_empty_or_null() -> None:
    assert of_arguments(["motion__fps=", "motion__frames=null"]).values == {"motion": {"fps": None, "frames": None}}


# --- values as people and Snakemake write them


def test_numbers_as_text_are_numbers() -> None:
    """YAML 1.1 reads 1e-3 as text; Snakemake's --config leaves every nested value text."""
    train = Settings({"train": {"seed": "7", "ppo": {"learning_rate": "1e-4"}, "policy": {"hidden": ["32", "16"]}}})
    assert train.of().train.seed == 7
    assert train.of().train.ppo.learning_rate == 1e-4
    assert train.of().train.policy.hidden == (32, 16)


def test_empty_section_is_its_defaults() -> None:
    assert Settings({"train": None}).of().train == TrainCfg()


def test_null_takes_a_body_out_of_a_table() -> None:
    body_z = Settings({"train": {"termination": {"body_z": {"a": 0.1, "left_knee_link": None}}}}).of()
    assert body_z.train.termination.body_z == {"a": 0.1}


# --- one motion's overrides


def test_override_is_merged_before_it_is_checked_and_keeps_the_values_given_for_all() -> None:
    settings = Settings(
        {
            "train": {"num_envs": 64, "num_workers": 2, "ppo": {"clip": 0.3, "gamma": 0.9}},
            "motions": {"wave": {"train": {"seed": 5, "ppo": {"gamma": 0.8}}, "evaluate": None}, 2024: None},
        }
    )
    wave, others = settings.of("wave").train, settings.of("getUp").train
    assert (wave.seed, wave.num_envs, wave.ppo.clip, wave.ppo.gamma) == (5, 64, 0.3, 0.8)
    assert (others.seed, others.num_envs, others.ppo.clip, others.ppo.gamma) == (1, 64, 0.3, 0.9)
    assert settings.of("2024") == settings.of()


def test_override_that_leaves_a_section_empty_changes_nothing() -> None:
    assert Settings({"train": {"seed": 9}, "motions": {"wave": {"train": None}}}).of("wave").train.seed == 9


def test_problem_of_an_override_is_told_at_the_override_and_not_at_the_base() -> None:
    (line,) = problems({"motions": {"wave": {"train": {"num_envs": 1000}}}})
    assert line.startswith("ERROR [config] config: motions.wave.train — num_envs 1000 is not divisible by")
    (line,) = problems({"train": {"seed": "x"}, "motions": {"wave": {"train": {"num_envs": 64}}}})
    assert line.startswith("ERROR [config] config: train.seed — 'x'")


def test_override_of_the_device_is_refused() -> None:
    (line,) = problems({"motions": {"wave": {"device": {"device": "cpu"}}}})
    assert line.startswith("ERROR [config] config: motions.wave.device")


@pytest.mark.parametrize("motions", [[1], "getUp", {"getUp": 3}])
def test_overrides_of_another_shape_are_refused(motions: Any) -> None:
    (line,) = problems({"motions": motions})
    assert line.startswith("ERROR [config] config: motions")


def test_override_for_a_motion_without_a_file_is_a_warning() -> None:
    settings = Settings({"motions": {"getup": {}, "wave": {}, "getUp": {}}}, motions=["getUp"])
    assert [str(w) for w in settings.warnings] == [
        "WARN [config] config: motions.getup — settings for a motion that is not there — "
        "motions are getUp — did you mean getUp?",
        "WARN [config] config: motions.wave — settings for a motion that is not there — "
        "motions are getUp — add config/wave.npz, or remove the settings",
    ]


# --- the text that decides what is stale


def test_equal_settings_are_equal_text_however_they_are_written() -> None:
    a = Settings({"train": {"seed": 3, "ppo": {"learning_rate": 1e-3, "clip": 1}}, "evaluate": None})
    b = Settings({"train": {"ppo": {"clip": "1.0", "learning_rate": "1.0e-3"}, "seed": "3"}})
    assert a.stage("getUp", "train", "evaluate") == b.stage("getUp", "evaluate", "train")
    assert " " not in a.stage("getUp", "train")


def test_text_is_canonical_and_keeps_other_scripts(tmp_path: Path) -> None:
    (tmp_path / "起身.xml").write_text("<mujoco/>")
    text = Settings({"robot": {"xml": f"{tmp_path}/起身.xml"}}).stage(None, "robot")
    assert "起身.xml" in text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_stage_has_its_keys_and_no_others() -> None:
    text = Settings({}).stage("getUp", "smoke", "train.seed", "train.control_hz")
    assert json.loads(text) == {
        "smoke": {"iterations": 3, "max_unstable": 0.001, "min_median_episode": 3, "num_envs": 64},
        "train": {"control_hz": 50, "seed": 1},
    }


def test_each_setting_has_its_text_and_they_say_what_the_stage_gets() -> None:
    settings = Settings({"train": {"ppo": {"clip": 0.3}}, "motions": {"a": {"train": {"termination": {"body_z": {}}}}}})
    places = settings_of("train", "evaluate.seed")
    texts = dict(settings.text("a", place).split("=", 1) for place in places)
    assert texts["train.ppo.clip"] == "0.3"
    assert "train.num_workers" not in texts
    assert [place for place in places if not place.startswith("train.")] == ["evaluate.seed"]
    told = leaves(json.loads(settings.stage("a", "train", "evaluate.seed")))
    tables = {k: v for k, v in told.items() if ".body_z" not in k}
    assert {f".{k}": json.loads(v) for k, v in texts.items() if k != "train.termination.body_z"} == tables


def test_number_of_workers_is_in_no_text() -> None:
    few, many = Settings({"train": {"num_workers": 2}}), Settings({"train": {"num_workers": 64}})
    assert few.stage("getUp", "train", "robot") == many.stage("getUp", "train", "robot")


def test_environment_variable_is_the_robot_of_every_motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = tmp_path / "mine.xml", tmp_path / "other.xml"
    mine.write_text("<mujoco/>")
    other.write_text("<mujoco/>")
    monkeypatch.setenv("Q1_XML", str(mine))
    settings = Settings({"robot": {"xml": str(other)}, "motions": {"wave": {"robot": {"xml": str(other)}}}})
    assert settings.of().robot.xml == settings.of("wave").robot.xml == str(mine)


# --- the way back into a stage


def test_settings_come_back_as_they_were() -> None:
    settings = Settings({"train": {"num_envs": 6, "num_workers": 3, "seed": 9, "termination": {"body_z": {"a": 0.5}}}})
    loaded = load_settings(settings.stage(None, "train", "robot"))
    assert set(loaded) == {"train", "robot"}
    assert loaded["robot"] == settings.of().robot
    assert loaded["train"] == settings.of().train.model_copy(update={"num_workers": 1})


def test_settings_by_hand_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"--settings: train.itterations — unknown key"):
        load_settings('{"train":{"itterations":5}}')
    with pytest.raises(ConfigError, match="--settings — Expecting"):
        load_settings("{train: 5}")


@pytest.mark.parametrize(
    ("envs", "workers", "threads", "expected"),
    [(1024, 32, 64, 32), (1024, 32, 32, 32), (1024, 32, 24, 16), (1000, 40, 7, 5), (256, 2, 1, 1), (7, 7, 6, 1)],
)
def test_workers_are_the_largest_divisor_that_fits(envs: int, workers: int, threads: int, expected: int) -> None:
    count, finding = workers_for(envs, workers, threads)
    assert count == expected
    assert (finding is None) == (expected == workers)
    if finding:
        assert finding.level == "WARN"
        assert f"{workers} workers asked for, {threads} threads given" in str(finding)


@pytest.mark.parametrize(
    ("threads", "cores", "expected", "said"),
    [
        (40, 2, 2, "32 workers asked for, 2 cores here"),
        (8, 16, 8, "32 workers asked for, 8 threads given"),
        (64, 64, 32, ""),
    ],
)
def test_workers_are_no_more_than_cores(threads: int, cores: int, expected: int, said: str) -> None:
    count, finding = workers_for(1024, 32, threads, cores)
    assert count == expected
    assert said in str(finding or "")
    assert ("--cores 32 is faster" in str(finding)) == (cores > threads)  # where that would help


# --- what `q1pipe config` shows


def test_each_setting_is_shown_with_its_origin_and_the_whole_is_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMEBOT_DEVICE", "cpu")
    defaults = yaml.safe_dump(Config().model_dump(mode="json", exclude={"motions"}), sort_keys=False)
    base = layer(
        defaults.replace("  seed: 1\n", "  seed: 4\n") + "motions: {wave: {train: {num_envs: 64}}}\n", tmp_path
    )
    over = Layer("laptop.yaml", {"train": {"ppo": {"clip": 0.2}, "seed": 1}})
    settings = Settings([base, over, of_arguments(["evaluate__seed=7"])])
    lines = list(shown(settings, "wave"))
    in_file = defaults.count("\n") + 1
    assert f"  num_envs: 64{' ' * 34}  # {tmp_path}/c.yaml:{in_file}, motions.wave" in lines
    assert f"    clip: 0.2{' ' * 35}  # laptop.yaml" in lines  # named there, although it is the default
    assert f"  seed: 1{' ' * 39}  # laptop.yaml" in lines  # over what config.yaml says
    assert f"  seed: 7{' ' * 39}  # --config" in lines
    assert f"  device: auto{' ' * 34}  # default: PRIMEBOT_DEVICE=cpu decides" in lines
    assert yaml.safe_load("\n".join(lines)) == settings.of("wave").model_dump(mode="json")


def test_robot_of_the_environment_is_shown_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.xml").write_text("<mujoco/>")
    monkeypatch.setenv("Q1_XML", str(tmp_path / "r.xml"))
    settings = Settings({"motions": {"wave": {"robot": {"xml": "other.xml"}}}})
    assert next(line for line in shown(settings, "wave") if "xml" in line).endswith("  # Q1_XML")
