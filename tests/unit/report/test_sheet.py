"""The contact sheet shows the motion: right size, a robot in every tile, first and last tile unlike."""

import os
import subprocess
import sys

import imageio.v3 as imageio
import numpy as np

from q1pipe.config import RobotCfg
from q1pipe.report.sheet import COLUMNS, HEIGHT, TILES, WIDTH
from q1pipe.robot import Robot
from tests.clips import base_clip


def sheet(source, out, **env):
    """The command, in a process of its own: MuJoCo chooses its OpenGL when it is imported."""
    clean = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable, "-m", "q1pipe", "sheet", source, out]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True)


def test_every_tile_shows_the_robot_where_it_is(tmp_path):
    base_clip(Robot.load(RobotCfg())).save(tmp_path / "base.npz")
    result = sheet(tmp_path / "base.npz", tmp_path / "base.png")
    assert result.returncode == 0, result.stderr
    picture = imageio.imread(tmp_path / "base.png").astype(int)
    assert picture.shape == (HEIGHT * TILES // COLUMNS, WIDTH * COLUMNS, 3)
    tiles = picture.reshape(TILES // COLUMNS, HEIGHT, COLUMNS, WIDTH, 3).swapaxes(1, 2).reshape(TILES, HEIGHT, WIDTH, 3)
    # nothing of floor and sky is bright blue; the robot's torso and shins are
    blue = (tiles[..., 2] - tiles[..., 0] > 60).sum(axis=(1, 2))
    assert blue.min() > 50
    # from lying to upright: what is blue moves up
    height = [np.nonzero(t[..., 2] - t[..., 0] > 60)[0].min() for t in (tiles[0], tiles[-1])]
    assert height[1] < height[0] - HEIGHT / 10


def test_without_opengl_it_says_what_is_missing(tmp_path, no_opengl):
    base_clip(Robot.load(RobotCfg())).save(tmp_path / "base.npz")
    result = sheet(tmp_path / "base.npz", tmp_path / "base.png", **no_opengl)
    assert result.returncode == 2
    assert "ERROR [opengl] MUJOCO_GL — nothing draws (egl: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "base.png").exists()


def test_not_a_motion(tmp_path):
    (tmp_path / "x.npz").write_text("no")
    result = sheet(tmp_path / "x.npz", tmp_path / "x.png")
    assert result.returncode == 2
    assert "ERROR [container]" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "x.png").exists()
