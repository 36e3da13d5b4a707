"""How low a geom reaches: the vertical extent of collision geoms, vectorised over poses."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def lowest_points(model: mujoco.MjModel, geoms: NDArray[np.integer], pos: Array, mat: Array) -> Array:
    """Height of the lowest point of each geom, m.

    Args:
        model: the model that the geoms belong to.
        geoms: ids of primitives (sphere, capsule, ellipsoid, cylinder, box) or meshes, (G,).
        pos: world positions of the geoms, ``geom_xpos``, (..., G, 3) m.
        mat: world orientations, ``geom_xmat``, (..., G, 9) or (..., G, 3, 3).

    Returns:
        (..., G) m.

    Raises:
        ValueError: a geom is of a type that has no lowest point, such as a plane.
    """
    up = mat.reshape(*pos.shape[:-1], 3, 3)[..., 2, :]  # (..., G, 3) world z in the geom's frame
    kind, size = model.geom_type[geoms], model.geom_size[geoms].astype(pos.dtype)  # (G,), (G, 3)
    rounded, box, ellipse = np.zeros_like(size[:, 0]), np.zeros_like(size), np.zeros_like(size)
    # every primitive is the sum of a ball, a box and an ellipsoid, any of which may be flat: so is its reach
    is_ball = (kind == _SPHERE) | (kind == _CAPSULE)
    is_long = (kind == _CAPSULE) | (kind == _CYLINDER)
    rounded[is_ball] = size[is_ball, 0]
    box[kind == _BOX] = size[kind == _BOX]
    box[is_long, 2] = size[is_long, 1]
    ellipse[kind == _ELLIPSOID] = size[kind == _ELLIPSOID]
    ellipse[kind == _CYLINDER, :2] = size[kind == _CYLINDER, :1]
    depth = rounded + (np.abs(up) * box).sum(axis=-1) + np.sqrt(np.square(up * ellipse).sum(axis=-1))
    for i in np.flatnonzero(~np.isin(kind, _PRIMITIVES)):
        depth[..., i] = _mesh_reach(model, int(geoms[i]), -up[..., i, :])
    return pos[..., 2] - depth


_SPHERE, _CAPSULE = int(mujoco.mjtGeom.mjGEOM_SPHERE), int(mujoco.mjtGeom.mjGEOM_CAPSULE)
_BOX, _ELLIPSOID = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)
_CYLINDER, _MESH = int(mujoco.mjtGeom.mjGEOM_CYLINDER), int(mujoco.mjtGeom.mjGEOM_MESH)
_PRIMITIVES = (_SPHERE, _CAPSULE, _BOX, _ELLIPSOID, _CYLINDER)


def _mesh_reach(model: mujoco.MjModel, geom: int, direction: Array) -> Array:
    """Furthest reach of a mesh from its origin along unit directions in its own frame. (..., 3) -> (...)."""
    if model.geom_type[geom] != _MESH:
        kind = mujoco.mjtGeom(model.geom_type[geom]).name
        raise ValueError(f"geom {model.geom(geom).name!r} is a {kind}, which has no lowest point")
    mesh = model.geom_dataid[geom]
    start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices = model.mesh_vert[start : start + count].astype(direction.dtype)
    # No matrix product: it may round a pose differently as others are computed with it
    return sum(direction[..., i, None] * vertices[:, i] for i in range(3)).max(axis=-1)
