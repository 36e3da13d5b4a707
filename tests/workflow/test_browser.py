"""The pages in a real browser: nothing to complain of, nothing fetched, as wide as the window; pictures to look at."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.workflow.browser import CHROMIUM, DESKTOP, PHONE, Browser
from tests.workflow.project import NAME, Project
from tests.workflow.test_pages import report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as it:
        yield it


@pytest.fixture(scope="module")
def pages(built: Project, tmp_path_factory) -> dict[str, Path]:
    """The report in both languages, with a finding that is a line of its own, and the overview."""
    folder = shutil.copytree(built.folder / "results", tmp_path_factory.mktemp("pages") / "results")
    record = json.loads((folder / NAME / "eval.json").read_text(encoding="utf-8"))
    doubt = {"level": "WARN", "code": "versions", "where": "evaluate", "found": "trained on mujoco 3.17.0"}
    record["findings"] = [{**doubt, "allowed": "", "action": ""}]
    (folder / NAME / "eval.json").write_text(json.dumps(record), encoding="utf-8")
    pages = {"index": folder / "index.html"}
    for language in ("en", "zh"):
        assert report(folder / NAME, built, language=language).returncode == 0
        page = folder / NAME / f"report_{language}.html"
        pages[language] = (folder / NAME / "report.html").rename(page)
    return pages


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", ["en", "zh", "index"])
def test_page(browser: Browser, pages: dict[str, Path], tmp_path: Path, name: str, size, dark: bool) -> None:
    picture = tmp_path / f"{name}.png"  # pytest keeps it: look at it
    values = {
        "theme": "document.documentElement.dataset.theme",
        "charts": "document.querySelectorAll('.plot').length",
        "drawn": "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('svg path')).length",
        "videos": "[...document.querySelectorAll('video')].map(v => v.readyState > 0 && v.videoWidth)",
        "squeezed": "[...document.querySelectorAll('td:not(.mark)')].filter(c => c.offsetHeight > 1.5 * c.offsetWidth)"
        ".map(c => c.innerText).join()",
    }
    seen = browser.look(pages[name], size, dark, picture, **values)
    assert seen.said == []
    here = pages[name].parent.as_uri()
    assert seen.asked[0] == pages[name].as_uri()
    assert all(url.startswith(here) and url.endswith(".png") for url in seen.asked[1:])  # the overview's posters
    assert seen.overflow <= 0
    assert seen.values["theme"] == ("dark" if dark else "light")
    with Image.open(picture) as shot:
        corner = shot.convert("RGB").getpixel((2, 2))
        assert shot.width == size[0]
    assert (max(corner) < 60) == dark
    if name == "index":
        assert len(seen.asked) == 2
        return
    assert seen.values["drawn"] == seen.values["charts"] > 8
    assert seen.values["videos"] == [160, 160]
    assert seen.values["squeezed"] == ""  # no column of a letter a line
    assert ("请注意" in seen.text) == ("未通过" in seen.text) == (name == "zh")
    assert "trained on mujoco 3.17.0" in seen.text


def test_theme_button_and_logarithm(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    clicks = {
        "theme": "(document.getElementById('theme').click(), document.documentElement.dataset.theme)",
        "log": "(document.querySelector('[data-log=learning]').click(),"
        " document.getElementById('chart-learning').layout.yaxis.type)",
        "again": "(document.querySelector('[data-log=learning]').click(),"
        " document.getElementById('chart-learning').layout.yaxis.type)",
    }
    seen = browser.look(pages["en"], DESKTOP, False, tmp_path / "clicked.png", **clicks)
    assert seen.said == []
    assert seen.values["theme"] == "dark"
    assert (seen.values["log"], seen.values["again"]) == ("log", "linear")


def test_what_is_wrong_with_a_page_is_seen(browser: Browser, tmp_path: Path) -> None:
    """A script that throws, a picture from elsewhere, a line that is too wide: a blind check would pass everything."""
    page = tmp_path / "bad.html"
    page.write_text(
        '<body><img src="http://127.0.0.1:9/x.png"><div style="width:3000px">x</div><script>nothing.here</script>'
    )
    seen = browser.look(page, DESKTOP, False, tmp_path / "bad.png")
    assert any("nothing is not defined" in line for line in seen.said)
    assert "http://127.0.0.1:9/x.png" in seen.asked
    assert seen.overflow > 1000
