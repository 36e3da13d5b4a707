"""Geoms as triangles, against volumes and sizes worked out by hand."""

import math

import mujoco
import numpy as np
import pytest

from q1pipe.config import RobotCfg
from q1pipe.robot import Robot
from q1pipe.rotations import rotate

trimesh = pytest.importorskip("trimesh", reason="comes with viser")
from q1pipe.view.shapes import shapes, triangles  # noqa: E402

XML = """
<mujoco>
  <asset>
    <material name="red" rgba="1 0 0 1"/>
    <mesh name="tetra" vertex="0 0 0  0.3 0 0  0 0.3 0  0 0 0.3" face="0 2 1  0 1 3  0 3 2  1 2 3"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="b" pos="5 5 5">
      <geom name="box" type="box" size="0.1 0.2 0.3" pos="1 0 0" rgba="0 1 0 1"/>
      <geom name="ball" type="sphere" size="0.2" material="red"/>
      <geom name="egg" type="ellipsoid" size="0.1 0.2 0.3"/>
      <geom name="pill" type="capsule" size="0.1 0.2"/>
      <geom name="tin" type="cylinder" size="0.1 0.2"/>
      <geom name="tetra" type="mesh" mesh="tetra" pos="0 0 2" euler="0 0 90" rgba="0 1 0 1"/>
      <geom name="unseen" type="box" size="9 9 9" group="3"/>
    </body>
  </worldbody>
</mujoco>
"""
VOLUMES = {
    "box": 8 * 0.006,
    "ball": 4 / 3 * math.pi * 0.008,
    "egg": 4 / 3 * math.pi * 0.006,
    "pill": math.pi * 0.01 * 0.4 + 4 / 3 * math.pi * 0.001,
    "tin": math.pi * 0.01 * 0.4,
    "tetra": 0.027 / 6,
}
HALVES = {
    "box": (0.1, 0.2, 0.3),
    "ball": [0.2] * 3,
    "egg": (0.1, 0.2, 0.3),
    "pill": (0.1, 0.1, 0.3),
    "tin": (0.1, 0.1, 0.2),
}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.mark.parametrize("name", VOLUMES)
def test_volume_and_size_are_those_of_the_geom(model: mujoco.MjModel, name: str) -> None:
    """A volume that is right and positive: closed, and every face seen from outside."""
    vertices, faces = triangles(model, model.geom(name).id)
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    assert mesh.volume == pytest.approx(VOLUMES[name], rel=0.04)  # a round thing of flat faces is smaller
    if name in HALVES:
        np.testing.assert_allclose(vertices.max(axis=0), HALVES[name], rtol=0.02)
        np.testing.assert_allclose(vertices.min(axis=0), -np.array(HALVES[name]), rtol=0.02)


def test_a_plane_has_no_triangles(model: mujoco.MjModel) -> None:
    assert triangles(model, model.geom("floor").id) is None


def test_a_body_is_one_shape_per_colour_where_the_file_puts_it(model: mujoco.MjModel) -> None:
    found = {shape.rgba: shape for shape in shapes(model, 1)}
    assert set(found) == {(0, 1, 0, 1), (1, 0, 0, 1), (0.5, 0.5, 0.5, 1)}  # a material's colour comes before the geom's
    green = found[0, 1, 0, 1]
    box = [(1.1, 0.2, 0.3), (0.9, -0.2, -0.3)]
    tetra = [(0, 0, 2), (0, 0.3, 2), (-0.3, 0, 2), (0, 0, 2.3)]  # MuJoCo moves a mesh's origin, not the mesh
    for corner in np.array(box + tetra):
        assert np.abs(green.vertices - corner).max(axis=1).min() < 1e-5
    assert green.faces.max() == len(green.vertices) - 1


def test_a_model_with_collision_geoms_only_is_drawn() -> None:
    only = '<mujoco><worldbody><body><geom type="sphere" size="1" group="3"/></body></worldbody></mujoco>'
    assert len(shapes(mujoco.MjModel.from_xml_string(only), 1)) == 1


def test_the_robot_stands_on_the_floor_as_high_as_it_is() -> None:
    robot = Robot.load(RobotCfg())
    data = mujoco.MjData(robot.model)
    data.qpos[2], data.qpos[3] = robot.default_root_height, 1
    data.qpos[robot.qpos_adr] = robot.default_joint_pos
    mujoco.mj_kinematics(robot.model, data)
    z = np.concatenate(
        [
            (rotate(data.xquat[body], shape.vertices.astype(float)) + data.xpos[body])[:, 2]
            for body in range(1, robot.model.nbody)
            for shape in shapes(robot.model, body)
        ]
    )
    assert z.min() == pytest.approx(0, abs=1e-3)
    assert z.max() == pytest.approx(robot.standing_height, abs=2e-3)
