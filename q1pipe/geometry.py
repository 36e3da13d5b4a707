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
    rounded, box, ellipse = (part.astype(pos.dtype) for part in primitives(model, geoms))
    depth = rounded + (np.abs(up) * box).sum(axis=-1) + np.sqrt(np.square(up * ellipse).sum(axis=-1))
    for i, geom in enumerate(geoms.tolist()):
        if len(vertices := mesh(model, geom).astype(pos.dtype)):
            # No matrix product: it may round a pose differently as others are computed with it
            x, y, z = (-up[..., i, c, None] * vertices[:, c] for c in range(3))
            depth[..., i] = (x + y + z).max(axis=-1)
    return pos[..., 2] - depth


def primitives(model: mujoco.MjModel, geoms: NDArray[np.integer]) -> tuple[Array, Array, Array]:
    """Every primitive as the sum of a ball, a box and an ellipsoid, any of which may be flat: so is its reach.

    Args:
        model: the model that the geoms belong to.
        geoms: ids, (G,); a mesh is none of the three.

    Returns:
        radius of the ball (G,), half sizes of the box (G, 3), half axes of the ellipsoid (G, 3), m.
    """
    kind, size = model.geom_type[geoms], model.geom_size[geoms]  # (G,), (G, 3)
    rounded, box, ellipse = np.zeros_like(size[:, 0]), np.zeros_like(size), np.zeros_like(size)
    is_ball = (kind == _SPHERE) | (kind == _CAPSULE)
    is_long = (kind == _CAPSULE) | (kind == _CYLINDER)
    rounded[is_ball] = size[is_ball, 0]
    box[kind == _BOX] = size[kind == _BOX]
    box[is_long, 2] = size[is_long, 1]
    ellipse[kind == _ELLIPSOID] = size[kind == _ELLIPSOID]
    ellipse[kind == _CYLINDER, :2] = size[kind == _CYLINDER, :1]
    return rounded, box, ellipse


def mesh(model: mujoco.MjModel, geom: int) -> Array:
    """Vertices of a geom's mesh in the geom's frame, (V, 3) m; none of a primitive.

    Raises:
        ValueError: the geom is of a type that has no lowest point, such as a plane.
    """
    if model.geom_type[geom] in _PRIMITIVES:
        return np.empty((0, 3))
    if model.geom_type[geom] != _MESH:
        kind = mujoco.mjtGeom(model.geom_type[geom]).name
        raise ValueError(f"geom {model.geom(geom).name!r} is a {kind}, which has no lowest point")
    start = model.mesh_vertadr[model.geom_dataid[geom]]
    return model.mesh_vert[start : start + model.mesh_vertnum[model.geom_dataid[geom]]]


_SPHERE, _CAPSULE = int(mujoco.mjtGeom.mjGEOM_SPHERE), int(mujoco.mjtGeom.mjGEOM_CAPSULE)
_BOX, _ELLIPSOID = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)
_CYLINDER, _MESH = int(mujoco.mjtGeom.mjGEOM_CYLINDER), int(mujoco.mjtGeom.mjGEOM_MESH)
_PRIMITIVES = (_SPHERE, _CAPSULE, _BOX, _ELLIPSOID, _CYLINDER)
