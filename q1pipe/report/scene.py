"""Poses of the robot as pictures: a camera that follows, the floor, contact points, the reference as a ghost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.config import VideoCfg
from q1pipe.robot import Robot

Array = NDArray[np.floating]
Picture = NDArray[np.uint8]

GHOST = (0.95, 0.55, 0.15, 0.22)
CONTACT = (0.90, 0.10, 0.15, 1.0)
NEAR = 0.005  # m from the floor that counts as contact
LOOK_AT = 0.38  # × standing height
FLOOR_STEP = 20.0  # m, a multiple of the floor's squares
FOLLOW_SECONDS = 1.0  # over which the camera's way is smoothed
VISIBLE = 3  # geom groups 0, 1, 2 are drawn, as in MuJoCo's viewer; collision geoms often are in 3
SHADOWS = 2048  # pixels of the shadow map; MuJoCo's 4096 takes half as long again without a graphics card


class Scene:
    """What is drawn of a robot. Close it, or use it as a context: it holds an OpenGL context.

    Args:
        robot: the robot.
        cfg: size and camera.
        width: pixels.
        height: pixels.
    """

    def __init__(self, robot: Robot, cfg: VideoCfg, width: int, height: int):
        self.robot, self.cfg = robot, cfg
        self.model = robot.model.__copy__()
        self.model.vis.global_.offwidth = max(width, self.model.vis.global_.offwidth)
        self.model.vis.global_.offheight = max(height, self.model.vis.global_.offheight)
        self.model.vis.headlight.active = 1
        self.model.vis.quality.shadowsize = min(SHADOWS, self.model.vis.quality.shadowsize)
        self.model.vis.rgba.contactpoint = CONTACT
        self.model.vis.scale.contactwidth, self.model.vis.scale.contactheight = 0.3, 0.08
        self.model.geom_margin[robot.floor] = NEAR  # contacts are then listed from this distance on
        still = self.model.geom_bodyid == 0
        self.endless = still.sum() == 1 and not self.model.geom_size[robot.floor, 0]  # the floor, and nothing else
        self._lights = [i for i in range(self.model.nlight) if self.model.light_bodyid[i] == 0]
        self._light_pos = self.model.light_pos.copy()
        self.data, self.ghost = mujoco.MjData(self.model), mujoco.MjData(self.model)
        self.camera = mujoco.MjvCamera()
        self.camera.azimuth, self.camera.elevation = cfg.azimuth, cfg.elevation
        self.camera.distance = cfg.distance * robot.standing_height
        self.option, self.ghost_option = mujoco.MjvOption(), mujoco.MjvOption()
        self.option.flags[mujoco.mjtVisFlag.mjVIS_CONTACTPOINT] = cfg.contacts
        if not (self.model.geom_group[self.model.geom_bodyid > 0] < VISIBLE).any():
            self.option.geomgroup[:] = self.ghost_option.geomgroup[:] = 1
        self.aside = np.zeros(2)
        if cfg.ghost == "beside":  # to the left in the picture
            heading = math.radians(cfg.azimuth)
            self.aside = 0.9 * robot.standing_height * np.array([-math.sin(heading), math.cos(heading)])
            self.camera.distance *= 1.25
        self.renderer = mujoco.Renderer(self.model, height, width)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.renderer.close()

    def draw(self, qpos: Array, look_at: Sequence[float] | Array, ghost: Array | None = None) -> Picture:
        """One picture, (height, width, 3).

        Args:
            qpos: (nq,) pose.
            look_at: (2,) m, point of the floor that the camera follows.
            ghost: (nq,) the reference, drawn translucent.
        """
        home = np.zeros(2)
        if self.endless:  # a floor without end is drawn only so far from its middle: draw where it looks the same
            home = FLOOR_STEP * np.round(np.asarray(look_at) / FLOOR_STEP)
        middle = np.asarray(look_at) - home
        self.data.qpos[:] = qpos
        self.data.qpos[:2] -= home
        self.camera.lookat[:] = [*middle, LOOK_AT * self.robot.standing_height]
        for light in self._lights:  # shadows reach only so far from a light
            self.model.light_pos[light, :2] = self._light_pos[light, :2] + middle
        mujoco.mj_forward(self.model, self.data)
        if ghost is not None:
            self.camera.lookat[:2] += self.aside / 2
        self.renderer.update_scene(self.data, self.camera, self.option)
        if ghost is not None:
            self._add(ghost, home)
        return self.renderer.render()

    def _add(self, qpos: Array, home: Array) -> None:
        """Draw a second pose of the robot, translucent."""
        self.ghost.qpos[:] = qpos
        self.ghost.qpos[:2] += self.aside - home
        mujoco.mj_kinematics(self.model, self.ghost)
        scene = self.renderer.scene
        before = scene.ngeom
        moving = int(mujoco.mjtCatBit.mjCAT_DYNAMIC)
        mujoco.mjv_addGeoms(self.model, self.ghost, self.ghost_option, mujoco.MjvPerturb(), moving, scene)
        for geom in scene.geoms[before : scene.ngeom]:
            geom.rgba[:] = GHOST
            geom.matid = -1
            geom.transparent = 1


def follow(way: Array, fps: float) -> Array:
    """Where a calm camera looks that follows a root, (T, 2) m: the mean over a second. `way`: (T, 2 or more) m."""
    half = max(0, round(FOLLOW_SECONDS * fps / 2))
    padded = np.pad(way[:, :2], ((half, half), (0, 0)), mode="edge")
    total = np.cumsum(np.concatenate([np.zeros((1, 2)), padded]), axis=0)
    return (total[2 * half + 1 :] - total[: -2 * half - 1]) / (2 * half + 1)
