"""Poses against MuJoCo's."""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest

from q1pipe.sim.kinematics import Tree, pose

# Two hinges on one body, none on another, anchors and axes askew, angles that count from elsewhere
CROOKED = """
<mujoco>
  <worldbody>
    <body name="root" pos="1 2 3" quat="0 1 0 0">
      <freejoint/>
      <geom size="0.1"/>
      <body pos="0.1 0.2 0.3" euler="10 20 30">
        <joint axis="1 2 3" pos="0.05 -0.02 0.01" ref="40"/>
        <joint axis="0 1 1" pos="-0.03 0.04 0.02"/>
        <geom size="0.1"/>
        <body pos="0.2 0 0" euler="0 50 0">
          <geom size="0.1"/>
          <body pos="0 0 0.4"><joint axis="0 0 1" pos="0.1 0 0"/><geom size="0.1"/></body>
        </body>
      </body>
      <body pos="-0.1 0 0"><joint axis="0 1 0"/><geom size="0.1"/></body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("crooked", [False, True])
def test_poses_and_angular_velocities_are_those_of_mujoco(robot, crooked):
    model = mujoco.MjModel.from_xml_string(CROOKED) if crooked else robot.model
    tree = Tree.of(SimpleNamespace(model=model, root=1) if crooked else robot)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:], data.qvel[:] = rng.normal(0, 1, model.nq), rng.normal(0, 1, model.nv)
        got = pose(tree, data.qpos.copy(), data.qvel.copy())
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(got.pos, data.xpos, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got.quat, data.xquat, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got.spin, data.cvel[:, :3], rtol=0, atol=1e-11)
