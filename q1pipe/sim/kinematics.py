"""Where the bodies of one robot are, compiled: MuJoCo's formulas, for poses that nothing is simulated from yet.

`Batch.forward` finds contacts and forces as well, and loads a simulation for it that is in no cache; for the one or two
robots that begin an episode in a step, that took ten times as long.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import mujoco
import numpy as np
from numpy.typing import NDArray

from q1pipe.geometry import mesh, primitives
from q1pipe.robot import Robot
from q1pipe.sim import turns
from q1pipe.sim.compiled import compiled

Array = NDArray[Any]
Ids = NDArray[np.intp]


class Tree(NamedTuple):
    """Bodies and hinges. B bodies, the world and the root, whose joint is free, among them; H hinges.

    Attributes:
        root: body id.
        parent: (B,) body ids; a body comes after its parent.
        pos: (B, 3) m in the parent's frame.
        quat: (B, 4).
        first_hinge: (B,) of a body, which turn it one after the other.
        hinges: (B,) how many.
        qpos_adr: (H,).
        qvel_adr: (H,).
        zero: (H,) rad, the angle at which a body is as in `pos` and `quat`.
        anchor: (H, 3) m in the body's frame.
        axis: (H, 3).
    """

    root: int
    parent: Ids
    pos: Array
    quat: Array
    first_hinge: Ids
    hinges: Ids
    qpos_adr: Ids
    qvel_adr: Ids
    zero: Array
    anchor: Array
    axis: Array

    @classmethod
    def of(cls, robot: Robot) -> Self:
        """Those of a robot."""
        m = robot.model
        hinge = np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
        bodies = np.arange(m.nbody)
        first = np.searchsorted(m.jnt_bodyid[hinge], bodies)
        count = np.searchsorted(m.jnt_bodyid[hinge], bodies, side="right") - first
        qpos_adr = m.jnt_qposadr[hinge].astype(np.intp)
        return cls(
            robot.root,
            m.body_parentid.astype(np.intp),
            m.body_pos.copy(),
            m.body_quat.copy(),
            first,
            count,
            qpos_adr,
            m.jnt_dofadr[hinge].astype(np.intp),
            m.qpos0[qpos_adr],
            m.jnt_pos[hinge],
            m.jnt_axis[hinge],
        )


class Pose(NamedTuple):
    """Of B bodies in the world.

    Attributes:
        pos: (B, 3) m, link origins.
        quat: (B, 4) wxyz.
        spin: (B, 3) rad/s.
    """

    pos: Array
    quat: Array
    spin: Array


@compiled
def pose(tree: Tree, qpos: Array, qvel: Array) -> Pose:
    """What follows from qpos (nq,) and qvel (nv,)."""
    bodies = len(tree.parent)
    out = Pose(np.zeros((bodies, 3)), np.zeros((bodies, 4)), np.zeros((bodies, 3)))
    out.quat[0, 0] = 1
    for b in range(1, bodies):
        parent = tree.parent[b]
        if b == tree.root:
            w, x, y, z = turns.of(qpos[3:7])
            length = math.sqrt(w * w + x * x + y * y + z * z)
            quat, at = (w / length, x / length, y / length, z / length), turns.vector(qpos[:3])
            spin = turns.rotate(quat, turns.vector(qvel[3:6]))  # a free joint's is in the body's frame
        else:
            above = turns.of(out.quat[parent])
            quat, at = turns.mul(above, turns.of(tree.quat[b])), turns.rotate(above, turns.vector(tree.pos[b]))
            at, spin = turns.add(turns.vector(out.pos[parent]), at), turns.vector(out.spin[parent])
        for h in range(tree.first_hinge[b], tree.first_hinge[b] + tree.hinges[b]):
            anchor, axis = turns.vector(tree.anchor[h]), turns.vector(tree.axis[h])
            held = turns.add(at, turns.rotate(quat, anchor))
            x, y, z = turns.rotate(quat, axis)
            speed = qvel[tree.qvel_adr[h]]
            spin = turns.add(spin, (speed * x, speed * y, speed * z))
            quat = turns.mul(quat, turns.about(axis, qpos[tree.qpos_adr[h]] - tree.zero[h]))
            at = turns.difference(held, turns.rotate(quat, anchor))
        for c in range(3):
            out.pos[b, c], out.spin[b, c] = at[c], spin[c]
        for c in range(4):
            out.quat[b, c] = quat[c]
    return out


class Geoms(NamedTuple):
    """Collision geoms: each the sum of a ball, a box and an ellipsoid, any of which may be flat, and of a mesh.

    Attributes:
        body: (G,) body ids.
        pos: (G, 3) m in the body's frame.
        quat: (G, 4).
        ball: (G,) m, radius.
        box: (G, 3) m, half sizes.
        ellipsoid: (G, 3) m, half axes.
        first_vertex: (G,) of the mesh's vertices.
        vertex_count: (G,) of them; 0: it has no mesh.
        vertices: (V, 3) m in the mesh's frame.
        floor: m, height of the floor.
    """

    body: Ids
    pos: Array
    quat: Array
    ball: Array
    box: Array
    ellipsoid: Array
    first_vertex: Ids
    vertex_count: Ids
    vertices: Array
    floor: float

    @classmethod
    def of(cls, robot: Robot) -> Self:
        """Those of a robot."""
        model, geoms = robot.model, robot.geoms
        meshes = [mesh(model, geom) for geom in geoms.tolist()]
        counts = np.array([len(vertices) for vertices in meshes], np.intp)
        return cls(
            model.geom_bodyid[geoms].astype(np.intp),
            model.geom_pos[geoms],
            model.geom_quat[geoms],
            *primitives(model, geoms),
            np.cumsum(counts) - counts,
            counts,
            np.concatenate(meshes).astype(np.float64),
            float(model.geom_pos[robot.floor, 2]),
        )


@compiled
def heights(pos: Array, quat: Array, geoms: Geoms, out: Array) -> None:
    """Write the height of the lowest point of each geom above the floor, (n, G) m; as `geometry.lowest_points`.

    Args:
        pos: of the bodies, (n, B, 3) m.
        quat: of the bodies, (n, B, 4).
        geoms: of the robot.
        out: where to write.
    """
    for i in range(len(out)):
        for g in range(len(geoms.body)):
            out[i, g] = height(pos[i], quat[i], geoms, g)


@compiled
def height(pos: Array, quat: Array, geoms: Geoms, g: int) -> Any:
    """`heights` of one geom, from body poses (B, 3) m and (B, 4)."""
    of_body = turns.of(quat[geoms.body[g]])
    z = pos[geoms.body[g], 2] + turns.rotate(of_body, turns.vector(geoms.pos[g]))[2]
    up, box, ellipsoid = turns.up(turns.mul(of_body, turns.of(geoms.quat[g]))), geoms.box[g], geoms.ellipsoid[g]
    depth, flattened = geoms.ball[g], 0.0
    for c in range(3):
        depth += abs(up[c]) * box[c]
        flattened += (up[c] * ellipsoid[c]) ** 2
    depth += math.sqrt(flattened)
    if geoms.vertex_count[g]:
        reach = -math.inf
        for v in range(geoms.first_vertex[g], geoms.first_vertex[g] + geoms.vertex_count[g]):
            vertex = geoms.vertices[v]
            reach = max(reach, -up[0] * vertex[0] - up[1] * vertex[1] - up[2] * vertex[2])
        depth += reach
    return z - depth - geoms.floor
