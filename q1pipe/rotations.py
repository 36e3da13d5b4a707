"""The quaternion formulas, but for `sim.turns`: wxyz, batched over leading axes, in the dtype that comes in.

Every function broadcasts its leading axes. Quaternions are unit length unless a docstring says otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def mul(a: Array, b: Array) -> Array:
    """Hamilton product: first rotate by b, then by a. (..., 4), (..., 4) -> (..., 4)."""
    aw, ax, ay, az = a[..., 0], a[..., 1], a[..., 2], a[..., 3]
    bw, bx, by, bz = b[..., 0], b[..., 1], b[..., 2], b[..., 3]
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), np.result_type(a, b))
    out[..., 0] = aw * bw - ax * bx - ay * by - az * bz
    out[..., 1] = aw * bx + ax * bw + ay * bz - az * by
    out[..., 2] = aw * by - ax * bz + ay * bw + az * bx
    out[..., 3] = aw * bz + ax * by - ay * bx + az * bw
    return out


def conj(q: Array) -> Array:
    """Inverse rotation. (..., 4)."""
    return q * np.array([1, -1, -1, -1], q.dtype)


def rotate(q: Array, v: Array) -> Array:
    """Rotate v by q. (..., 4), (..., 3) -> (..., 3)."""
    t = 2 * cross(q[..., 1:], v)
    return v + q[..., :1] * t + cross(q[..., 1:], t)


def rotate_inv(q: Array, v: Array) -> Array:
    """Rotate v by the inverse of q: world to body, where q is the body's orientation. (..., 3)."""
    t = 2 * cross(v, q[..., 1:])
    return v + q[..., :1] * t + cross(t, q[..., 1:])


def cross(a: Array, b: Array) -> Array:
    """Vector product, as np.cross but several times faster on small arrays. (..., 3), (..., 3) -> (..., 3)."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), np.result_type(a, b))
    out[..., 0] = ay * bz - az * by
    out[..., 1] = az * bx - ax * bz
    out[..., 2] = ax * by - ay * bx
    return out


def angle(q: Array) -> Array:
    """Rotation angle, 0..π rad. (..., 4) -> (...)."""
    return 2 * np.arctan2(np.linalg.norm(q[..., 1:], axis=-1), np.abs(q[..., 0]))


def angle_between(a: Array, b: Array) -> Array:
    """Rotation angle from one orientation to the other, 0..π rad. (..., 4), (..., 4) -> (...).

    From the chord between them on the unit sphere: ‖a − b‖ = 2 sin(angle / 4), the shorter of ±b; as exact for small
    angles as for large ones, and cheaper than `angle` of the quotient.
    """
    difference = a - b
    squared = np.einsum("...i,...i->...", difference, difference)
    return 4 * np.arcsin(np.sqrt(np.minimum(squared, 4 - squared).clip(0)) / 2)


def yaw(q: Array) -> Array:
    """The rotation about world z that is in q (heading of the body's x axis), as a quaternion. (..., 4)."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    half = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)) / 2
    zero = np.zeros_like(half)
    return np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)


def to_matrix(q: Array) -> Array:
    """Rotation matrix. (..., 4) -> (..., 3, 3)."""
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    out = np.empty((*q.shape[:-1], 3, 3), q.dtype)
    out[..., 0, 0], out[..., 0, 1], out[..., 0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    out[..., 1, 0], out[..., 1, 1], out[..., 1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    out[..., 2, 0], out[..., 2, 1], out[..., 2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    return out


def exp(v: Array) -> Array:
    """Rotation vector (axis · angle, rad) to quaternion. (..., 3) -> (..., 4)."""
    half = np.linalg.norm(v, axis=-1, keepdims=True) / 2
    # sin(h)/h is numpy's sinc of h/π, which is exact at 0
    return np.concatenate([np.cos(half), v / 2 * np.sinc(half / np.pi)], axis=-1).astype(v.dtype, copy=False)


def log(q: Array) -> Array:
    """Rotation vector of q, the short way round, rad. (..., 4) -> (..., 3)."""
    q = np.where(q[..., :1] < 0, -q, q)
    norm = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    scale = np.where(norm > 1e-7, 2 * np.arctan2(norm, q[..., :1]) / np.maximum(norm, 1e-12), 2.0)
    return (q[..., 1:] * scale).astype(q.dtype, copy=False)


def continuous(q: Array) -> Array:
    """The same rotations with signs chosen so that neighbours along axis 0 are close. (T, ..., 4)."""
    flips = np.sum(q[1:] * q[:-1], axis=-1, keepdims=True) < 0
    sign = np.concatenate([np.ones_like(q[:1, ..., :1]), np.where(np.cumsum(flips, axis=0) % 2, -1, 1)], axis=0)
    return (q * sign).astype(q.dtype, copy=False)
