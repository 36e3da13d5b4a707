"""Several motions at once: what runs beside what, and what is said at the end."""

import json
import re
import shutil
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path

import pytest

from q1pipe.ending import ending, why
from tests.workflow.project import Project

ON_ACCELERATOR = ("device", "smoke", "train")
Span = tuple[datetime, datetime]


def spans(output: str) -> dict[tuple[str, str], Span]:
    """(rule, motion) -> when a job began and was done, by Snakemake's clock, in seconds."""
    begun: dict[str, tuple[str, str, datetime]] = {}
    found, now, rule = {}, datetime.min, ""
    for line in output.splitlines():
        if stamp := re.fullmatch(r"\[(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\]", line):
            now = datetime.strptime(stamp[1], "%a %b %d %H:%M:%S %Y")
        elif begins := re.fullmatch(r"(?:local)?rule (\w+):", line):
            rule = begins[1]
        elif number := re.fullmatch(r"    jobid: (\d+)", line):
            begun.setdefault(number[1], (rule, "", now))
            last = number[1]
        elif motion := re.fullmatch(r"    wildcards: motion=(.*)", line):
            begun[last] = (begun[last][0], motion[1], begun[last][2])
        elif done := re.match(r"Finished jobid: (\d+)", line):
            rule_, motion_, start = begun[done[1]]
            found[rule_, motion_] = (start, now)
    return found


def together(a: Span, b: Span) -> timedelta:
    return min(a[1], b[1]) - max(a[0], b[0])


def break_clip(project: Project, name: str) -> None:
    whole = (project.folder / "config/getUp.npz").read_bytes()
    (project.folder / f"config/{name}.npz").write_bytes(whole[:3000])


def test_a_broken_motion_does_not_stop_the_others_and_the_end_says_so(fresh: Project) -> None:
    break_clip(fresh, "broken")
    shutil.copy(fresh.folder / "config/getUp.npz", fresh.folder / "config/it's.npz")
    targets = [f"results/{motion}/motion.npz" for motion in ("broken", "getUp", "it's")]
    result = fresh.snakemake(*targets)
    assert result.returncode != 0
    said = result.stdout[result.stdout.index("q1pipe: ") :].splitlines()[:5]
    assert said[0] == "q1pipe: 2 of 3 motions done"
    assert said[1].startswith("  broken  FAILED at motion: ERROR [container] config/broken.npz — truncated zip")
    assert said[2].strip() == "results/broken/logs/motion.log"
    assert said[3:] == ["  getUp   as far as was asked for", "  it's    as far as was asked for"]
    assert (fresh.folder / targets[1]).exists()
    assert (fresh.folder / targets[2]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("accelerators", [1, 2])
def test_motions_share_the_accelerators_and_overlap_in_the_rest(fresh: Project, accelerators: int) -> None:
    """As many cores as two trainings and a sim2sim want; how many there are does not matter to who starts when."""
    break_clip(fresh, "broken")
    shutil.copy(fresh.folder / "config/getUp.npz", fresh.folder / "config/wave.npz")
    longer = "motions={wave: {train: {max_iterations: 60}}}"
    last = "sim2sim" if accelerators == 1 else "train"
    targets = [f"results/{motion}/{last}.json" for motion in ("broken", "getUp", "wave")]
    result = fresh.snakemake(*targets, "--resources", f"npu={accelerators}", "--config", longer, cores=16)
    assert "q1pipe: 2 of 3 motions done" in result.stdout, result.stdout
    ran = spans(result.stdout)
    assert {(last, "getUp"), (last, "wave")} <= set(ran)
    busy = [span for (rule, _), span in ran.items() if rule in ON_ACCELERATOR]
    assert len(busy) == 5
    shared = max(together(a, b) for a, b in combinations(busy, 2))
    if accelerators == 1:
        assert shared <= timedelta(0)
        other = {"getUp": "wave", "wave": "getUp"}
        beside = [
            rule
            for (rule, motion), span in ran.items()
            for trained in ("getUp", "wave")
            if motion == other[trained] and together(span, ran["train", trained]) > timedelta(0)
        ]
        assert set(beside) & {"export", "sim2sim"}
    else:
        assert together(ran["train", "getUp"], ran["train", "wave"]) > timedelta(0)


START = """\
[Tue Dec  1 18:14:22 2026]
rule train:
    input: results/{motion}/motion.npz
    log: results/{motion}/logs/train.log
    jobid: {number}
    wildcards: motion={motion}
    resources: tmpdir=/tmp
"""
FAIL = """\
Error in rule train:
    message: None
    jobid: {number}
    log: results/{motion}/logs/train.log (check log file(s) for error details)
    shell:
        exec python
"""


def test_what_failed_first_and_was_done_by_a_retry_is_done(tmp_path: Path) -> None:
    a, b = dict(motion="a", number=4), dict(motion="wave", number=11)
    text = START.format(**a) + FAIL.format(**a) + START.format(**b) + START.format(**a)
    text += "Finished jobid: 4 (Rule: train)\n" + FAIL.format(**b)
    text += (START + FAIL).replace("train", "video").format(motion="wave", number=12)  # the first failure is the cause
    logs = tmp_path / "results/wave/logs"
    logs.mkdir(parents=True)
    (logs / "train.log").write_text("2026-12-01 18:14:31 ERROR [nan] a — b\n2026-12-01 18:14:31 ERROR [nan] c — d\n")
    assert ending(text, tmp_path) == [
        "q1pipe: 1 of 2 motions done",
        "  a     as far as was asked for",
        "  wave  FAILED at train: ERROR [nan] a — b (and 1 more)",
        "        results/wave/logs/train.log",
    ]


def test_the_verdict_on_an_earlier_policy_is_not_told(tmp_path: Path) -> None:
    folder = tmp_path / "results/wave"
    folder.mkdir(parents=True)
    (folder / "eval.json").write_text(json.dumps({"verdict": "pass", "fingerprint": "a"}))
    said = []
    for trained in ("a", "b"):
        (folder / "train.json").write_text(json.dumps({"fingerprint": trained}))
        said += ending(START.format(motion="wave", number=4), tmp_path)[1:]
    assert said == ["  wave  verdict: pass  results/wave/eval.json", "  wave  as far as was asked for"]


def test_chinese_names_take_two_columns_for_each_character(tmp_path: Path) -> None:
    text = START.format(motion="起身", number=4) + START.format(motion="wave", number=11)
    assert ending(text, tmp_path)[1:] == ["  wave  as far as was asked for", "  起身  as far as was asked for"]


def test_what_the_scheduler_says_counts_where_the_stage_was_silent(tmp_path: Path) -> None:
    logs = tmp_path / "results/wave/logs"
    logs.mkdir(parents=True)
    (logs / "train.log").write_text("2026-12-01 18:14:31 iteration 7\n")
    outside = tmp_path / "7.log"
    outside.write_text(
        "Building DAG\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED DUE TO TIME LIMIT ***\nWorkflowError:\n"
    )
    fail = FAIL.replace(" (check", f", {outside} (check").format(motion="wave", number=4)
    assert ending(START.format(motion="wave", number=4) + fail, tmp_path) == [
        "q1pipe: 0 of 1 motion done",
        "  wave  FAILED at train: slurmstepd: error: *** JOB 7 ON n1 CANCELLED DUE TO TIME LIMIT ***",
        "        results/wave/logs/train.log",
        f"        {outside}",
    ]


def test_a_stage_that_is_one_for_all_holds_up_all(tmp_path: Path) -> None:
    text = START.format(motion="wave", number=4) + "Finished jobid: 4 (Rule: train)\n"
    text += "rule device:\n    log: results/device.log\n    jobid: 2\nError in rule device:\n    jobid: 2\n"
    assert ending(text, tmp_path) == [
        "q1pipe: 0 of 1 motion done",
        "  all motions  FAILED at device: ended before it said anything: killed, or out of memory",
        "               results/device.log",
        "  wave  waits for device",
    ]


def test_nothing_to_do_is_not_spoken_of(tmp_path: Path) -> None:
    assert ending("Building DAG of jobs...\nNothing to be done\n", tmp_path) == []
    only_all = "localrule all:\n    jobid: 0\nFinished jobid: 0 (Rule: all)\n"
    assert ending(only_all, tmp_path) == []


def test_the_last_words_of_a_stage_that_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("2026-12-01 18:14:31 iteration 7\n\n")
    assert why(log) == "ended without saying why; its last words: iteration 7"
