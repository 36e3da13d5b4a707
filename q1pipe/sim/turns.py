"""Quaternion formulas of one robot, compiled: wxyz, of unit length; `rotations` has the same for arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.sim.compiled import compiled

Array = NDArray[Any]
Floats = NDArray[np.float32]
Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


@compiled
def of(q: Floats) -> Quaternion:
    """A row of an array, (4)."""
    return np.float64(q[0]), np.float64(q[1]), np.float64(q[2]), np.float64(q[3])


@compiled
def difference(a: Floats, b: Floats) -> Vector:
    """a − b of two rows, (3), or vectors."""
    return np.float64(a[0]) - b[0], np.float64(a[1]) - b[1], np.float64(a[2]) - b[2]


@compiled
def add(a: Vector, b: Vector) -> Vector:
    """a + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@compiled
def vector(v: Array) -> Vector:
    """A row of an array, (3)."""
    return np.float64(v[0]), np.float64(v[1]), np.float64(v[2])


@compiled
def squared(v: Vector) -> float:
    """‖v‖²."""
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2]


@compiled
def mul(a: Quaternion, b: Quaternion) -> Quaternion:
    """Hamilton product: first rotate by b, then by a."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


@compiled
def conj(q: Quaternion) -> Quaternion:
    """Inverse rotation."""
    return q[0], -q[1], -q[2], -q[3]


@compiled
def cross(a: Vector, b: Vector) -> Vector:
    """Vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@compiled
def rotate(q: Quaternion, v: Vector) -> Vector:
    """Rotate v by q."""
    w, axis = q[0], (q[1], q[2], q[3])
    x, y, z = cross(axis, v)
    t = (2 * x, 2 * y, 2 * z)
    x, y, z = cross(axis, t)
    return v[0] + w * t[0] + x, v[1] + w * t[1] + y, v[2] + w * t[2] + z


@compiled
def six(q: Quaternion) -> tuple[float, float, float, float, float, float]:
    """First two columns of the rotation matrix, row-major."""
    w, x, y, z = q
    return (
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
    )


@compiled
def up(q: Quaternion) -> Vector:
    """World z in the rotated frame."""
    w, x, y, z = q
    return 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@compiled
def yaw(q: Quaternion) -> Quaternion:
    """The rotation about world z that is in q."""
    w, x, y, z = q
    half = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)) / 2
    return math.cos(half), 0.0, 0.0, math.sin(half)


@compiled
def about(axis: Vector, angle: float) -> Quaternion:
    """The rotation about an axis of unit length, rad."""
    s = math.sin(angle / 2)
    return math.cos(angle / 2), s * axis[0], s * axis[1], s * axis[2]


@compiled
def from_euler(roll: float, pitch: float, yaw: float) -> Quaternion:
    """R_z(yaw) · R_y(pitch) · R_x(roll), rad."""
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


@compiled
def angle_between(a: Quaternion, b: Quaternion) -> float:
    """Rotation angle from one orientation to the other, 0..π rad, from the chord between them on the unit sphere."""
    squared = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2 + (a[3] - b[3]) ** 2
    return 4 * math.asin(math.sqrt(max(0.0, min(squared, 4 - squared))) / 2)
