"""`q1pipe view` on what the workflow really made: the page's scene, its controls, and what a browser draws of it."""

import io
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from q1pipe.config import Settings
from q1pipe.errors import Q1Error
from q1pipe.view import command
from q1pipe.view.playback import Shown
from tests.browser import CHROMIUM, Browser
from tests.workflow.project import NAME, Project

viser = pytest.importorskip("viser", reason="the extra `view`")
SECTIONS = Settings({}).of(NAME)
ANY_PORT = 18080  # or the first free one after it


@pytest.fixture(scope="module")
def shown(built: Project) -> Shown:
    return command.of_motion(NAME, built.folder / "results", SECTIONS)


@pytest.fixture
def server() -> Iterator[Any]:
    server = viser.ViserServer(host="127.0.0.1", port=ANY_PORT, verbose=False)
    yield server
    server.stop()


@pytest.fixture
def page(server: Any, shown: Shown) -> Any:
    from q1pipe.view.page import Page

    return Page(server, shown)


def received(port: int) -> bytes:
    """What a browser gets of a page, decompressed: the names and kinds of all nodes and controls are in it."""
    import zstandard
    from websockets.sync.client import connect

    address, found = f"ws://127.0.0.1:{port}", b""
    with connect(address, subprotocols=[f"viser-v{viser.__version__}"], max_size=None) as socket:  # type: ignore[list-item]
        until = time.monotonic() + 20
        while b"sim2sim" not in found and time.monotonic() < until:
            message = socket.recv(timeout=20)
            size = int.from_bytes(message[8:16], "little")
            found += zstandard.ZstdDecompressor().decompress(message[16 : 16 + size])
    return found


def test_undisturbed_live_episodes_are_those_of_sim2sim(built: Project, shown: Shown) -> None:
    live = shown.live
    with np.load(built.folder / "results" / NAME / "trajectory.npz") as data:
        qpos = data["qpos"]
    live.episode = 0
    live.reset()
    for row in range(len(qpos)):
        live.step()
        np.testing.assert_allclose(live.qpos, qpos[row], atol=1e-5, err_msg=f"step {row}")
        assert live.error == pytest.approx(shown.recordings[0].error[row], abs=1e-4)
    ended = live.ended
    assert ended or len(qpos) == live.judge.clip.frames - 1
    live.push(1.0)
    assert np.linalg.norm(live._simulation.qvel[0, :2]) > 0.3


def test_page_has_both_robots_and_its_controls(server: Any, page: Any) -> None:
    page.tick(0.5)
    port = server.get_port()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        assert answer.status == 200
        assert b"<html" in answer.read(2000).lower()
    got = received(port)
    for node in ("/policy/1/0", f"/policy/{len(page.robot.body_names)}", "/reference/1/0", "/world/floor", "/contacts"):
        assert node.encode() in got, node
    for control in ("Moment", "Speed", "Run the policy", "Push", "Reset", "tracking error"):
        assert control.encode() in got, control


def test_the_figures_are_where_the_files_say(page: Any, built: Project) -> None:
    page.clock.playing = False
    page._scrubbed = 3
    page.tick(1.0)
    root = page.policy._bodies[page.robot.root - 1]
    with np.load(built.folder / "results" / NAME / "trajectory.npz") as data:
        np.testing.assert_allclose(root.position, data["qpos"][3, :3], atol=1e-6)
        frame = int(data["frame"][3])
    with np.load(built.folder / "results" / NAME / "motion.npz") as data:
        wanted = data["body_pos_w"][frame, page.robot.root - 1]
    np.testing.assert_allclose(page.reference._bodies[page.robot.root - 1].position, wanted, atol=1e-6)
    assert page.reference.root.position[1] == 0
    page.beside.value = "beside"
    page.tick(1.0)
    assert page.reference.root.position[1] == pytest.approx(0.9 * page.robot.standing_height)
    page.beside.value = "hidden"
    page.tick(1.0)
    assert not page.reference.root.visible
    assert "moment 3 of" in page.words.content


def test_reset_starts_the_policy_and_a_push_pushes_it(page: Any) -> None:
    page._wishes.append("reset")
    page.tick(0.03)
    assert page.is_live
    assert page.live.frame == 1
    page.tick(0.1)  # 0.13 s: six steps, and a half
    assert page.live.frame == 6
    page._wishes.append("push")
    page.tick(0.0)
    assert page.surroundings._push.visible
    page.tick(1.0)
    assert "**live**" in page.words.content
    assert page.live.frame == 6 + 12  # it catches up with 0.25 s at most


def test_what_cannot_be_shown_is_said(built: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = built.folder / "results"
    with pytest.raises(Q1Error, match="motions here: " + NAME):
        command.of_motion("wave", results, SECTIONS)
    with pytest.raises(Q1Error, match="not there"):
        command.of_dump(tmp_path / "diverged_3.npz")
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(Q1Error, match=r"viser is not installed.*pip install -e '.\[view\]'"):
        command.run(NAME, results, SECTIONS, "127.0.0.1", ANY_PORT)


def test_command_says_its_address_serves_it_and_ends_with_ctrl_c(built: Project) -> None:
    command = [sys.executable, "-m", "q1pipe", "view", NAME, f"--port={ANY_PORT}"]
    process = subprocess.Popen(
        command,
        cwd=built.folder,
        env={**os.environ, "PYTHONPATH": str(built.folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        said = process.stderr.readline()
        address = re.match(r"http://127.0.0.1:\d+", said)
        assert address, said + process.stderr.read()
        assert f"shows {NAME}: the policy in sim2sim" in said
        with urllib.request.urlopen(address[0]) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert "ended" in rest
        assert "Traceback" not in rest
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_draws_it_and_fetches_nothing_from_elsewhere(server: Any, page: Any, tmp_path: Path) -> None:
    page.clock.playing = False
    page.tick(1.0)
    address = f"http://127.0.0.1:{server.get_port()}/"
    with Browser(tmp_path) as browser:
        browser.open(address)
        browser.wait("document.body.innerText.includes('tracking error')")
        deadline = time.monotonic() + 90
        while True:  # without a graphics card the first picture takes its time
            picture = np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB")).astype(int)
            canvas = picture[150:, :900]  # without the panel and the notice about software rendering
            blue = (canvas[..., 2] - canvas[..., 0] > 60).sum()  # of the robot's torso, shins and forearms
            orange = (canvas[..., 0] - canvas[..., 2] > 40).sum()  # the ghost
            if (blue > 300 and orange > 300) or time.monotonic() > deadline:
                break
            time.sleep(1)
        browser.press("Play")
        requested = [url for url in browser.requested if not url.startswith(("data:", f"blob:{address}"))]
    assert blue > 300, "no robot"
    assert orange > 300, "no reference"
    assert len(np.unique(canvas.reshape(-1, 3), axis=0)) > 200, "blank"
    assert set(requested) == {address}
