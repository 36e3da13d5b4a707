"""The pages and the package that the workflow really made."""

import base64
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from q1pipe.report.package import verify
from q1pipe.stages.package import FILES
from tests.workflow.project import NAME, Project


def q1pipe(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "q1pipe", *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def report(folder: Path, project: Project, **settings: object) -> subprocess.CompletedProcess[str]:
    """Write the report of a folder anew."""
    return q1pipe(
        "report",
        f"--folder={folder}",
        f"--device={project.folder / 'results/device.json'}",
        f"--out={folder / 'report.html'}",
        f"--settings={json.dumps({'report': settings})}",
        f"--name={NAME}",
        cwd=project.folder,
    )


def package(folder: Path, project: Project, out: Path) -> subprocess.CompletedProcess[str]:
    """Make a package of a folder."""
    return q1pipe(
        "package",
        f"--folder={folder}",
        f"--device={project.folder / 'results/device.json'}",
        f"--source={project.folder / 'config' / f'{NAME}.npz'}",
        f"--out={out}",
        '--settings={"package": {}}',
        f"--name={NAME}",
        cwd=project.folder,
    )


@pytest.fixture
def results(built: Project, tmp_path: Path) -> Path:
    """A copy of the results to change."""
    return shutil.copytree(built.folder / "results" / NAME, tmp_path / NAME)


@pytest.fixture(scope="module")
def page(built: Project) -> str:
    return (built.folder / "results" / NAME / "report.html").read_text(encoding="utf-8")


def scripts(page: str) -> list[str]:
    return re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)


def test_nothing_is_fetched(page: str) -> None:
    """No address but data, and a policy that forbids the browser every other."""
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href|poster)=["'](?!data:|#)[^"']*""", outside)
    assert "url(" not in outside
    assert "@import" not in outside
    assert "default-src 'none'" in page


def test_verdict_comes_first_and_its_numbers_are_those_of_eval_json(page: str, built: Project) -> None:
    record = json.loads((built.folder / "results" / NAME / "eval.json").read_text(encoding="utf-8"))
    failed = sum(not gate["passed"] for gate in record["gates"])
    assert f"{failed} of {len(record['gates'])} gates are not met." in page
    first = page.index("<h2>")
    assert page[:first].count('<td class="mark') == len(record["gates"])
    assert page[:first].count('<td class="mark bad">') == failed
    assert f"it&#39;s {NAME[-2:]}" in page  # the name is text, not markup


def test_videos_are_inside_and_play(page: str, built: Project) -> None:
    inside = re.findall(r'src="data:video/mp4;base64,([^"]+)"', page)
    folder = built.folder / "results" / NAME
    assert [base64.b64decode(x) for x in inside] == [
        (folder / f"{w}.mp4").read_bytes() for w in ("reference", "policy")
    ]


def test_charts_have_the_numbers_of_train_csv_and_their_places(page: str, built: Project) -> None:
    figures = json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)[1])
    places = re.findall(r'id="chart-(\w+)"', page)
    assert [f["id"] for f in figures] == places
    assert {"learning", "tests", "tracking", "penalties", "ends", "lr", "std", "sps", "gap", "carried"} <= set(places)
    header, *rows = (built.folder / "results" / NAME / "train.csv").read_text().splitlines()
    column = header.split(",").index("mean_rew")
    reward = next(t for t in figures[0]["data"] if t.get("yaxis") == "y2")
    assert reward["y"] == [float(row.split(",")[column]) for row in rows]
    assert sum(len(s) > 1_000_000 for s in scripts(page)) == 1  # plotly.js, once


def test_chinese(results: Path, built: Project) -> None:
    made = report(results, built, language="zh")
    assert made.returncode == 0, made.stderr
    page = (results / "report.html").read_text(encoding="utf-8")
    assert '<html lang="zh-CN"' in page
    assert "未通过" in page
    assert "摩擦系数 0.3" in page
    assert "not passed" not in page
    assert "≥ 60.0 %" in page
    assert "motion.npz, 机器人, 设置、代码" in page


def test_large_videos_stay_beside(results: Path, built: Project) -> None:
    assert report(results, built, embed_mb=0).returncode == 0
    page = (results / "report.html").read_text(encoding="utf-8")
    assert 'src="policy.mp4"' in page
    assert 'src="reference.mp4"' in page
    assert "data:video" not in page


def test_numbers_that_are_none_are_said_to_be_none(results: Path, built: Project) -> None:
    """A policy that fell at once has no metric; a csv from a diverged run has NaN."""
    record = json.loads((results / "eval.json").read_text(encoding="utf-8"))
    record["nominal"]["mpkpe"] = None
    (results / "eval.json").write_text(json.dumps(record), encoding="utf-8")
    header, first, *rest = (results / "train.csv").read_text().splitlines()
    values = first.split(",")
    values[header.split(",").index("ep_ret")] = "nan"
    (results / "train.csv").write_text("\n".join([header, ",".join(values), *rest]) + "\n")
    made = report(results, built)
    assert made.returncode == 0, made.stderr
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "n/a" in page
    assert "NaN" not in scripts(page)[2]


def test_a_gif_takes_the_place_of_a_video(results: Path, built: Project) -> None:
    """What is there without ffmpeg: in the page as a picture, in the package, and linked from the overview."""
    Image.new("P", (16, 12)).save(results / "policy.gif")
    (results / "policy.mp4").write_bytes(b"")
    record = json.loads((results / "policy_video.json").read_text(encoding="utf-8")) | {"file": "policy.gif"}
    (results / "policy_video.json").write_text(json.dumps(record), encoding="utf-8")
    assert report(results, built).returncode == 0
    page = (results / "report.html").read_text(encoding="utf-8")
    (gif,) = re.findall(r'<img src="data:image/gif;base64,([^"]+)"', page)
    assert base64.b64decode(gif) == (results / "policy.gif").read_bytes()
    assert page.count("<video") == 1
    index = results.parent / "index.html"
    assert q1pipe("index", f"--out={index}", '--settings={"report": {}}', "--", NAME, cwd=built.folder).returncode == 0
    assert 'policy.gif">gif</a>' in index.read_text(encoding="utf-8")
    made = package(results, built, results.parent / "package.zip")
    assert made.returncode == 0, made.stderr
    assert "policy.gif" in verify(results.parent / "package.zip")["files"]


def test_seeds_are_shown_with_their_spread(results: Path, built: Project) -> None:
    record = json.loads((results / "train.json").read_text(encoding="utf-8"))
    told = {"success": 1.0, "finish": 0.5, "finish_disturbed": 0.25, "mean_rew": 3.0}
    others = [{"seed": seed, "fingerprint": "other", "score": 10.0 * seed, **told} for seed in (1, 2)]
    record["seeds"] = [*others, {"seed": 7, "fingerprint": record["fingerprint"], "score": 30.0, **told}]
    (results / "train.json").write_text(json.dumps(record), encoding="utf-8")
    assert report(results, built).returncode == 0
    page = (results / "report.html").read_text(encoding="utf-8")
    table = re.sub(r"<[^>]*>", " ", page[page.index('id="seeds"') :].partition("</table>")[0])
    assert "7 (best)" in table
    assert "10 – 30" in table
    assert "50.0 % – 50.0 %" in table


def test_a_placeholder_is_shown_with_its_reason(results: Path, built: Project) -> None:
    record = json.loads((results / "policy_video.json").read_text(encoding="utf-8"))
    record |= {"drawn": False, "reason": "no OpenGL <that> draws"}
    (results / "policy_video.json").write_text(json.dumps(record), encoding="utf-8")
    assert report(results, built).returncode == 0
    assert "No video: no OpenGL &lt;that&gt; draws" in (results / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "key"), [("train.json", "fingerprint"), ("sim2sim.json", "fingerprint"), ("eval.json", "fingerprint")]
)
def test_files_of_two_runs_are_an_error(results: Path, built: Project, file: str, key: str) -> None:
    record = json.loads((results / file).read_text(encoding="utf-8"))
    before, record[key] = record[key], "0123456789ab"
    (results / file).write_text(json.dumps(record), encoding="utf-8")
    shutil.copytree(results / "runs" / before, results / "runs/0123456789ab", dirs_exist_ok=True)
    made = report(results, built)
    assert made.returncode == 2
    assert "ERROR [mixed-run]" in made.stderr
    assert f"0123456789ab in {file.removesuffix('.json')}" in made.stderr
    assert "Traceback" not in made.stderr


def test_overview_links_to_what_is_there(built: Project) -> None:
    page = (built.folder / "results/index.html").read_text(encoding="utf-8")
    from urllib.parse import unquote

    links = {unquote(link) for link in re.findall(r'(?:href|src)="(?!data:)([^"]+)"', page)}
    assert links == {f"{NAME}/{f}" for f in ("report.html", "policy.png", "policy.mp4", "package.zip", "eval.json")}
    assert all((built.folder / "results" / link).is_file() for link in links)


def test_package_verifies_in_a_clean_folder_and_is_the_same_every_time(built: Project, tmp_path: Path) -> None:
    made = built.folder / "results" / NAME / "package.zip"
    alone = shutil.copy(made, tmp_path / "package.zip")
    checked = q1pipe("verify", alone, cwd=built.folder)
    assert checked.returncode == 0, checked.stderr
    assert ": ok; " in checked.stderr
    again = package(made.parent, built, tmp_path / "again.zip")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.zip").read_bytes() == made.read_bytes()


def test_package_has_everything_and_the_texts_are_filled_in(built: Project) -> None:
    path = built.folder / "results" / NAME / "package.zip"
    manifest = verify(path)
    with zipfile.ZipFile(path) as package:
        names = set(package.namelist())
        text = package.read("CONTRIBUTION.md").decode()
        note = package.read("LICENSE.txt").decode()
    made = {"MANIFEST.json", "CONTRIBUTION.md", "LICENSE.txt", "device.json", "args.yaml", f"config/{NAME}.npz"}
    assert names == {*FILES, *made}
    assert manifest["code"] == json.loads((path.parent / "train.json").read_text(encoding="utf-8"))["code"]
    record = json.loads((path.parent / "eval.json").read_text(encoding="utf-8"))
    for gate in record["gates"]:
        assert f"| {gate['name']} |" in text
    assert "max_iterations: 3" in text
    assert manifest["fingerprint"] in text
    assert "not stated" in note


def test_rule_and_stage_name_the_same_files(built: Project) -> None:
    """What the package stage packs is what its rule waits for."""
    shown = built.dry_run("--forcerun", "package", "--quiet", "host")
    job = shown[shown.index("rule package:") :]
    inputs = job[job.index("input: ") : job.index("output: ")]
    for file in FILES:
        assert f"results/{NAME}/{file}" in inputs, file


def test_snakemake_can_report(built: Project, tmp_path: Path) -> None:
    out = tmp_path / "snakemake.html"
    made = built.without_jobs("--report", str(out))
    assert made.returncode == 0, made.stdout
    text = out.read_text(encoding="utf-8")
    assert "reference as a ghost, tracking error and reward" in text  # a caption
    assert "policy.mp4" in text
