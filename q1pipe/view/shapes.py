"""A body's geoms as triangles, from the arrays of the compiled model: primitives and meshes."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

from q1pipe import rotations

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

VISIBLE = 3  # geom groups 0, 1, 2 are drawn, as in MuJoCo's viewer; collision geoms often are in 3
ROUND = 16  # sections of a circle


@dataclass(frozen=True, eq=False)
class Shape:
    """Triangles of one colour in a body's frame.

    Attributes:
        vertices: (V, 3) m.
        faces: (F, 3) rows of vertices, counter-clockwise from outside.
        rgba: 0..1.
    """

    vertices: Floats
    faces: Ints
    rgba: tuple[float, float, float, float]


def shapes(model: mujoco.MjModel, body: int) -> list[Shape]:
    """What is drawn of a body, one shape for each of its colours; planes and height fields are left out."""
    moving = model.geom_bodyid > 0
    groups = model.geom_group < VISIBLE
    if not (groups & moving).any():  # a model with collision geoms only
        groups = np.ones_like(groups)
    of_colour: dict[tuple[float, ...], list[tuple[Floats, Ints]]] = {}
    for geom in np.flatnonzero((model.geom_bodyid == body) & groups):
        if (found := triangles(model, int(geom))) is not None:
            vertices = rotations.rotate(model.geom_quat[geom], found[0]) + model.geom_pos[geom]
            of_colour.setdefault(_colour(model, int(geom)), []).append((vertices.astype(np.float32), found[1]))
    return [_joined(parts, colour) for colour, parts in of_colour.items() if colour[3] > 0]


def triangles(model: mujoco.MjModel, geom: int) -> tuple[NDArray[np.float64], Ints] | None:
    """Vertices (V, 3) m and faces (F, 3) of a geom in its own frame; None for a kind that has no triangles.

    Corners are doubled where there is an edge, so that it is not shaded round.
    """
    kind, size = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        return _mesh(model, int(model.geom_dataid[geom]))
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        mesh = trimesh.creation.icosphere(subdivisions=3, radius=size[0])
    elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        mesh = trimesh.creation.icosphere(subdivisions=3)
        mesh.vertices *= size
    elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        mesh = trimesh.creation.capsule(height=2 * size[1], radius=size[0], count=(ROUND, ROUND))
        mesh.vertices -= mesh.bounds.mean(axis=0)  # where its origin is depends on the version of trimesh
    elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        mesh = trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=2 * ROUND)
        mesh.unmerge_vertices()
    elif kind == mujoco.mjtGeom.mjGEOM_BOX:
        mesh = trimesh.creation.box(extents=2 * size)
        mesh.unmerge_vertices()
    else:
        return None
    return np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int32)


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[NDArray[np.float64], Ints]:
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    corners = model.mesh_face[face : face + faces]  # rows of this mesh's vertices
    vertices = model.mesh_vert[first : first + count][corners.reshape(-1)].astype(float)
    return vertices, np.arange(len(vertices), dtype=np.int32).reshape(-1, 3)


def _colour(model: mujoco.MjModel, geom: int) -> tuple[float, ...]:
    material = int(model.geom_matid[geom])
    rgba = model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]
    return tuple(round(float(v), 4) for v in rgba)


def _joined(parts: list[tuple[Floats, Ints]], rgba: tuple[float, ...]) -> Shape:
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in parts)])
    faces = [f + start for (_, f), start in zip(parts, starts[:-1], strict=True)]
    vertices = np.concatenate([v for v, _ in parts])
    red, green, blue, alpha = rgba
    return Shape(vertices, np.concatenate(faces).astype(np.int32), (red, green, blue, alpha))
