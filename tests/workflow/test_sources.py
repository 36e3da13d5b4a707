"""Which files of config/ are motions."""

import shutil

from tests.workflow.project import EVERYTHING, Project

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
    result = fresh.snakemake("-n")
    assert result.returncode != 0
    assert (
        "ERROR [two-sources] config — config/getUp.csv and config/getUp.npz — one file for the motion getUp"
        in result.stdout
    )
