"""What a page is put together from: numbers, gates, phases, the matrix, words, figures that plotly takes."""

import json
import math
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from q1pipe.report import page, plots, words
from q1pipe.report.words import TABLE, Words

REPORT = Path(words.__file__).parent
EN = Words("en")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (256, "256"),
        (1843200.0, "1,843,200"),
        (0.021249, "0.02125"),
        (1.9073486e-06, "1.907e-06"),
        (123456.7, "123,457"),
        (-2.0486, "-2.049"),
        (math.nan, "n/a"),
        (math.inf, "n/a"),
        (None, "n/a"),
        ("", "n/a"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert page.number(value) == text


def test_shares_and_durations() -> None:
    assert [page.share(x) for x in (1.0, 0.8828, None)] == ["100.0 %", "88.3 %", "n/a"]
    assert [page.duration(x) for x in (69.3, 282, 7200, None)] == ["69 s", "5 min", "2.0 h", "n/a"]


def test_gates_come_in_groups_with_names_for_people() -> None:
    names = ["nominal.success_rate", "parity.policy.onnx.real", "sim2sim.friction 0.3.success_rate"]
    names += ["sim2sim.nominal.gap_to_evaluate", "safety.command change at 500 Hz", "disturbed.finish_rate"]
    gates = [{"name": n, "value": 0.5, "allowed": ">= 0.4", "passed": n != "disturbed.finish_rate"} for n in names]
    groups = page.gate_groups(gates, EN)
    assert groups[0]["gates"][0]["limit"] == "≥ 40.0 %"
    assert groups[1]["gates"][0]["limit"] == "≥ 0.4"
    found = {g["title"]: [(x["label"], x["shown"]) for x in g["gates"]] for g in groups}
    assert found == {
        "Evaluation": [
            ("undisturbed · reached the end", "50.0 %"),
            ("disturbed · and held the final pose", "50.0 %"),
        ],
        "ONNX against torch": [("policy.onnx, real", "0.5")],
        "Safety": [("command change at 500 Hz", "0.5")],
        "sim2sim: reached the end": [
            ("friction 0.3", "50.0 %"),
            ("undisturbed · difference from evaluation", "0.5"),
        ],
    }
    assert [g["passed"] for g in groups] == [False, True, True, True]


def test_limits_have_the_form_of_what_was_measured() -> None:
    def shown(value: float | None, allowed: str) -> list[str]:
        gate = {"name": "safety.x", "value": value, "allowed": allowed, "passed": True}
        (group,) = page.gate_groups([gate], EN)
        return [group["gates"][0][key] for key in ("shown", "limit")]

    assert shown(0.02, "<= 0.05 share") == ["2.0 %", "≤ 5.0 %"]
    assert shown(5.1067, "<= 20 rad/s") == ["5.107", "≤ 20 rad/s"]
    assert shown(None, "<= 0") == ["n/a", "≤ 0"]


def test_a_rule_that_is_only_told_has_no_limit() -> None:
    rule = {"rule": "steps with a target beyond hard limits", "unit": "share", "worst": "knee", "passed": True}
    told, gate = page._rules([{**rule, "value": 0.25, "allowed": None}, {**rule, "value": 0.25, "allowed": 0.5}], EN)
    assert [told[k] for k in ("shown", "limit", "unit")] == ["25.0 %", "", ""]
    assert gate["limit"] == "50.0 %"


def test_settings_that_differ() -> None:
    defaults = {"a": 1, "b": {"c": 2, "d": [3]}, "e": 5}
    assert page.different({"a": 1, "b": {"c": 7, "d": [3]}, "e": 6}, defaults) == {"b": {"c": 7}, "e": 6}
    assert page.different(defaults, defaults) == {}


def test_colours_of_the_matrix() -> None:
    """A share is its own colour; an error is compared with the nominal world's, and better is not better than 1."""
    worlds = {
        "nominal": {"episodes": 4, "success_rate": 0.75, "r_mpkpe": 0.02},
        "push": {"episodes": 4, "success_rate": 0.25, "r_mpkpe": 0.08},
        "easy": {"episodes": 4, "success_rate": None, "r_mpkpe": 0.01},
    }
    matrix = page.heat(worlds, {})
    assert matrix["columns"] == ["success_rate", "r_mpkpe"]
    assert [[c["good"] for c in row["cells"]] for row in matrix["rows"]] == [[0.75, 1.0], [0.25, 0.25], [None, 1.0]]
    assert matrix["rows"][2]["cells"][0]["shown"] == "n/a"


def test_text_cannot_leave_a_script() -> None:
    text = page._script_json({"x": "</script><b>", "y": [math.nan, 1.5]})
    assert "<" not in text
    assert json.loads(text) == {"x": "</script><b>", "y": [None, 1.5]}


# --- words


def test_every_word_is_in_both_languages() -> None:
    assert all(len(pair) == 2 and all(pair) for key, pair in TABLE.items() if key != "quoted")  # findings are English
    for english, chinese in TABLE.values():  # the same places to fill in
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese))
        assert english.count("#") == chinese.count("#")


def test_every_word_that_is_asked_for_exists() -> None:
    asked = set()
    for path in [*REPORT.glob("*.py"), *REPORT.glob("templates/*.html")]:
        asked |= set(re.findall(r"\bw\.(\w+)", path.read_text(encoding="utf-8")))
    assert asked - set(TABLE) == {"known", "phrase", "language"} & asked
    assert len(asked) > 80
    with pytest.raises(KeyError):
        _ = EN.mistyped


def test_phrases_keep_their_numbers() -> None:
    zh = Words("zh")
    assert zh.phrase("friction 0.3") == "摩擦系数 0.3"
    assert zh.phrase("joint speed after the damping command (5)") == "阻尼指令（5）后的关节速度"
    assert zh.phrase("a world of 7 suns") == "a world of 7 suns"


# --- charts


def test_phases_begin_where_most_tests_succeed() -> None:
    tests = [
        {"iteration": 25, "success": 0.2, "finish_disturbed": 0.0},
        {"iteration": 50, "success": 0.5, "finish_disturbed": 0.1},
        {"iteration": 75, "success": 0.4, "finish_disturbed": 0.3},
        {"iteration": 100, "success": 1.0, "finish_disturbed": 0.9},
    ]
    assert list(plots.phases(tests, 120)) == [
        ("phase_falls", 0, 50),
        ("phase_reaches", 50, 100),
        ("phase_holds", 100, 120),
    ]
    assert list(plots.phases(tests[:1], 30)) == [("phase_falls", 0, 30)]
    assert list(plots.phases([], 30)) == [("phase_falls", 0, 30)]
    both = [{"iteration": 25, "success": 1.0, "finish_disturbed": 1.0}]  # at once: a phase of no length is none
    assert list(plots.phases(both, 30)) == [("phase_falls", 0, 25), ("phase_holds", 25, 30)]


def rows() -> list[dict[str, float]]:
    columns = "iteration mean_rew ep_ret ep_len sps lr kl std value_loss root_pos root_ori body_pos body_ori".split()
    columns += "body_lin_vel body_ang_vel action_rate joint_limit self_collision end_tilt end_motion_end".split()
    return [{c: i + 0.1 * k for k, c in enumerate([*columns, "collect_s", "update_s"])} for i in range(1, 4)]


def test_plotly_takes_every_figure() -> None:
    train = {
        "evaluations": [
            {"iteration": 2, "success": 1.0, "finish": 0.5, "finish_disturbed": 0.0},
        ],
        "published_run": {"ep_ret": 153.7},
    }
    curves = {"com_speed": [0, 1.0], "support_gap": [0, 0.01], "carried": [0, 0.5], "contacts": [6, 2]}
    motion = {"frames": 2, "fps": {"normalised": 50.0, "file": 30.0}, "followability": {"curves": curves}}
    figures = plots.training(rows(), train, EN) + plots.motion(motion, EN)
    assert len(figures) == 12
    for figure in figures:
        text = re.sub(r"var\(--\w+\)", "red", json.dumps([figure["data"], figure["layout"]]))
        data, layout = json.loads(text)
        drawn = go.Figure(data, layout)  # refuses what plotly does not know
        assert len(drawn.data) == len(data)
    learning = figures[0]
    assert [s["x1"] for s in learning["layout"]["shapes"][:2]] == [2, 3]
    assert learning["layout"]["shapes"][-1]["y0"] == 153.7
    gap = next(f for f in figures if f["id"] == "gap")
    assert gap["data"][0]["x"] == [0, 0.02]
    assert gap["data"][0]["y"] == [0, 0.01]


def test_no_curves_no_chart() -> None:
    assert plots.motion({}, EN) == []
    train = {"evaluations": [], "published_run": {}}
    assert "tests" in {f["id"] for f in plots.training(rows(), train, EN)}
