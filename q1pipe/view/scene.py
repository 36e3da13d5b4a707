"""Robots, floor and contacts in the browser's scene."""

from __future__ import annotations

import mujoco
import numpy as np
import viser
from numpy.typing import NDArray

from q1pipe.robot import Robot
from q1pipe.view.shapes import shapes

Array = NDArray[np.floating]
Colour = tuple[int, int, int]

GHOST: Colour = (242, 140, 38)  # as in the videos
GHOST_OPACITY = 0.35
CONTACT: Colour = (230, 26, 38)
PUSH: Colour = (200, 30, 160)


class Figure:
    """A robot below a node of its own; a frame for each body, its shapes below that.

    Args:
        server: whose scene.
        name: of its node, such as ``/policy``.
        model: the robot's.
        ghost: drawn in one colour, translucent.
    """

    def __init__(self, server: viser.ViserServer, name: str, model: mujoco.MjModel, ghost: bool = False):
        scene = server.scene
        self.root = scene.add_frame(name, show_axes=False)
        self._bodies = []
        for body in range(1, model.nbody):
            node = f"{name}/{body}"  # names of bodies may hold a slash
            self._bodies.append(scene.add_frame(node, show_axes=False))
            for i, shape in enumerate(shapes(model, body)):
                colour = GHOST if ghost else tuple(round(255 * c) for c in shape.rgba[:3])
                opacity = GHOST_OPACITY if ghost else shape.rgba[3] if shape.rgba[3] < 1 else None
                mesh = dict(color=colour, opacity=opacity, cast_shadow=not ghost)
                scene.add_mesh_simple(f"{node}/{i}", shape.vertices, shape.faces, **mesh)

    def pose(self, pos: Array, quat: Array) -> None:
        """Put the bodies where they are: (B, 3) m, (B, 4), all bodies but the world."""
        for body, p, q in zip(self._bodies, pos, quat, strict=True):
            body.position, body.wxyz = p, q

    def show(self, visible: bool, aside: float = 0.0) -> None:
        """Show or hide it, moved to its side by so many m."""
        self.root.visible, self.root.position = visible, (0.0, aside, 0.0)


class Surroundings:
    """What stands still, where the camera is, and the marks of contacts and pushes."""

    def __init__(self, server: viser.ViserServer, robot: Robot):
        scene, height = server.scene, robot.standing_height
        scene.set_up_direction("+z")
        scene.configure_environment_map(None)  # the lights below are enough, and need no picture
        scene.configure_default_lights(cast_shadow=True)
        scene.add_light_ambient("/light", intensity=0.9)
        self._world = scene.add_frame("/world", show_axes=False)
        floor = float(robot.model.geom_pos[robot.floor, 2])
        scene.add_grid(
            "/world/floor",
            infinite_grid=True,
            position=(0, 0, floor),
            cell_size=0.5,
            fade_distance=30.0,
            plane_color=(214, 219, 224),
            plane_opacity=1.0,
            shadow_opacity=0.35,
        )
        for i, shape in enumerate(shapes(robot.model, 0)):
            colour = tuple(round(255 * c) for c in shape.rgba[:3])
            scene.add_mesh_simple(f"/world/{i}", shape.vertices, shape.faces, color=colour)
        server.initial_camera.position = (1.9 * height, -1.9 * height, 1.2 * height)
        server.initial_camera.look_at = (0.0, 0.0, 0.4 * height)
        server.initial_camera.fov = 0.7
        nothing = np.zeros((0, 3), np.float32)
        size = dict(point_size=0.03 * height, point_shape="circle", precision="float32")
        self._contacts = scene.add_point_cloud("/contacts", nothing, CONTACT, **size)
        self._push = scene.add_arrows("/push", np.zeros((1, 2, 3)), PUSH, visible=False)

    def move(self, by: Array) -> None:
        """Move what stands still, (3,) m, to keep a robot in the middle."""
        self._world.position = by

    def contacts(self, points: Array) -> None:
        """Mark points, (k, 3) m."""
        self._contacts.points = points.astype(np.float32)

    def push(self, at: Array, velocity: Array | None) -> None:
        """Show a push as an arrow that ends at a point (3,) m and is as long as the velocity, m/s; None: hide it."""
        self._push.visible = velocity is not None
        if velocity is not None:
            self._push.points = np.stack([at - velocity, at])[None].astype(np.float32)
