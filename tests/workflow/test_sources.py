"""Which files of config/ are motions."""

import hashlib
import json
import shutil

import onnx

from q1pipe.learn import checkpoint
from q1pipe.provenance import file_sha
from tests.workflow.project import EVERYTHING, NAME, Project

KEYFRAMES = "fps: 50\nkeys:\n  - {t: 0.0}\n  - {t: 1.0, joints: {knee: 0.4}}\n"


def test_every_format_is_found_and_settings_are_no_motion(fresh: Project) -> None:
    config = fresh.folder / "config"
    shutil.move(config / "getUp.npz", config / "wave.npz")
    (config / "run.csv").write_text("1,2,3\n")
    (config / "jump.pkl").write_bytes(b"\x80")
    (config / "squat.yaml").write_text(KEYFRAMES)
    planned = fresh.planned()
    assert {motion for _, motion in planned} == {"", "wave", "run", "jump", "squat"}
    assert {rule for rule, motion in planned if motion == "squat"} == {*EVERYTHING} - {"index"}


def test_keyframes_become_a_motion(fresh: Project) -> None:
    (fresh.folder / "config/squat.yaml").write_text(KEYFRAMES)
    result = fresh.snakemake("results/squat/motion.npz")
    assert result.returncode == 0, result.stdout
    for name in ("motion.npz", "motion.json", "motion.svg"):
        assert (fresh.folder / "results/squat" / name).stat().st_size


def test_two_files_of_one_name_are_an_error(fresh: Project) -> None:
    (fresh.folder / "config/getUp.csv").write_text("1,2,3\n")
    result = fresh.without_jobs("-n")
    assert result.returncode != 0
    assert (
        "ERROR [two-sources] config — config/getUp.csv and config/getUp.npz — one file for the motion getUp"
        in result.stdout
    )


def test_a_motion_elsewhere_that_is_not_there_is_never_replaced_by_another(fresh: Project) -> None:
    result = fresh.without_jobs("-n", Q1_MOTION=str(fresh.folder / "config/getup.npz"))
    assert result.returncode != 0
    said = f"ERROR [motion-missing] Q1_MOTION — {fresh.folder}/config/getup.npz is not there — a motion file — "
    assert said + f"did you mean {fresh.folder}/config/getUp.npz?" in result.stdout


def test_all_that_was_made_names_the_motion_that_it_was_made_of(built: Project) -> None:
    """By its hash: checkpoint, training, metadata of the policy, verdict, package, page."""
    folder = built.folder / "results" / NAME
    sha = file_sha(folder / "motion.npz")
    assert checkpoint.load(folder / "policy.pt")["meta"]["motion_sha"] == sha
    for name in ("train.json", "eval.json"):
        assert json.loads((folder / name).read_text(encoding="utf-8"))["hashes"]["motion"] == sha
    metadata = {p.key: p.value for p in onnx.load(folder / "policy.onnx").metadata_props}
    assert metadata["motion_sha256"] == hashlib.sha256((folder / "motion.npz").read_bytes()).hexdigest()
    assert sha in (folder / "report.html").read_text(encoding="utf-8")
