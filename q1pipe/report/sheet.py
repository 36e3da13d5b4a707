"""A contact sheet: a motion as one picture, which a person looks at first."""

from __future__ import annotations

from pathlib import Path

import imageio.v3 as imageio
import mujoco
import numpy as np

from q1pipe.config import MotionCfg, RobotCfg
from q1pipe.errors import Finding
from q1pipe.files import replacing, require_output
from q1pipe.motion.clip import Clip
from q1pipe.motion.followability import clip_qpos
from q1pipe.motion.intake import take_in
from q1pipe.robot import Robot

WIDTH, HEIGHT = 240, 200  # of a tile, pixels
COLUMNS = 8
TILES = 32


def sheet_file(source: Path, out: Path, robot_cfg: RobotCfg, cfg: MotionCfg) -> list[Finding]:
    """Draw a motion file of any kind.

    Args:
        source: motion file.
        out: PNG.
        robot_cfg: the robot.
        cfg: how the file is read.

    Returns:
        What was found in the file.

    Raises:
        Q1Error: the file is not a motion of this robot, or the picture cannot be written.
    """
    require_output(out, (".png",))
    robot = Robot.load(robot_cfg)
    taken = take_in(source, robot, cfg, None)
    picture = draw(robot, taken.clip)
    with replacing(out) as temporary:
        imageio.imwrite(temporary, picture, extension=".png")
    return taken.findings


def draw(robot: Robot, clip: Clip) -> np.ndarray:
    """Evenly spaced frames in rows, first to last, seen from the side. (height, width, 3) uint8."""
    frames = np.linspace(0, clip.frames - 1, min(TILES, clip.frames)).round().astype(int)
    qpos, data = clip_qpos(robot, clip), mujoco.MjData(robot.model)
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation, camera.distance = 235, -15, 1.7 * robot.standing_height
    tiles = []
    with mujoco.Renderer(robot.model, HEIGHT, WIDTH) as renderer:
        for frame in frames:
            data.qpos[:] = qpos[frame]
            mujoco.mj_forward(robot.model, data)
            camera.lookat[:] = [*qpos[frame, :2], 0.45 * robot.standing_height]
            renderer.update_scene(data, camera)
            tiles.append(renderer.render())
    blank = np.full_like(tiles[0], 255)
    tiles += [blank] * (-len(tiles) % COLUMNS)
    rows = [np.concatenate(tiles[i : i + COLUMNS], axis=1) for i in range(0, len(tiles), COLUMNS)]
    return np.concatenate(rows)
