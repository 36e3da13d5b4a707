"""Lowest points against shapes whose lowest point is known, and against MuJoCo's own distances."""

import mujoco
import numpy as np
import pytest

from q1pipe.geometry import lowest_points

MODEL = """<mujoco><asset><mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 2" scale="0.1 0.1 0.1"/></asset><worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>
<body pos="0 0 5"><freejoint/>
<geom name="sphere" size="0.1"/>
<geom name="capsule" type="capsule" size="0.1 0.3"/>
<geom name="cylinder" type="cylinder" size="0.1 0.3"/>
<geom name="box" type="box" size="0.1 0.2 0.3"/>
<geom name="ellipsoid" type="ellipsoid" size="0.1 0.2 0.3"/>
<geom name="mesh" type="mesh" mesh="m" mass="1"/>
</body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(MODEL)


def lowest(model, quat, names):
    data = mujoco.MjData(model)
    data.qpos[3:7] = quat
    mujoco.mj_kinematics(model, data)
    ids = np.array([model.geom(n).id for n in names])
    return lowest_points(model, ids, data.geom_xpos[ids], data.geom_xmat[ids]), data


def test_lying_on_the_side(model):
    """Turned by 90 degrees about x, the local y axis is vertical."""
    quat = [np.sqrt(0.5), np.sqrt(0.5), 0, 0]
    low, _ = lowest(model, quat, ["sphere", "capsule", "cylinder", "box", "ellipsoid"])
    np.testing.assert_allclose(low, 5 - np.array([0.1, 0.1, 0.1, 0.2, 0.2]), atol=1e-9)


def test_any_pose_agrees_with_mujoco(model):
    rng = np.random.default_rng(1)
    names = ["sphere", "capsule", "cylinder", "box", "ellipsoid"]
    for _ in range(20):
        quat = rng.standard_normal(4)
        low, data = lowest(model, quat / np.linalg.norm(quat), names)
        want = [mujoco.mj_geomDistance(model, data, model.geom(n).id, model.geom("floor").id, 10, None) for n in names]
        np.testing.assert_allclose(low, want, atol=2e-4)


def test_mesh_by_its_vertices(model):
    low, data = lowest(model, [0, 1, 0, 0], ["mesh"])  # upside down
    geom = model.geom("mesh")
    start, count = model.mesh_vertadr[geom.dataid[0]], model.mesh_vertnum[geom.dataid[0]]
    mat = data.geom_xmat[geom.id].reshape(3, 3)
    want = (model.mesh_vert[start : start + count] @ mat.T + data.geom_xpos[geom.id])[:, 2].min()
    np.testing.assert_allclose(low, [want], atol=1e-6)
    assert low[0] == pytest.approx(5 - 0.2, abs=1e-6)  # the tip at z 2 × 0.1 points down


def test_plane_has_none(model):
    with pytest.raises(ValueError, match="floor"):
        lowest(model, [1, 0, 0, 0], ["floor"])
