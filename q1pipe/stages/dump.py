"""A rollout whose numbers went bad, in a file that has all that a script needs to show it and to simulate it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import RobotCfg, TrainCfg
from q1pipe.errors import Q1Error, error
from q1pipe.files import replacing
from q1pipe.motion.clip import Clip
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv

Array = NDArray[Any]

STATE = "state_"  # begins the names of what the rollout started with


def write(path: Path, motion: Path, robot: Robot, clip: Clip, cfg: TrainCfg, rollout: Mapping[str, Any]) -> None:
    """Keep a rollout of n environments and T steps, with what its robots did.

    Args:
        path: npz with the arrays of the rollout, those that `replay` returns but for ``rows``, which are the learner's,
            and ``made_of``: motion, robot and settings, JSON.
        motion: motion.npz, which must be there when the rollout is simulated again.
        robot: robot.
        clip: content of `motion`.
        cfg: settings of the run.
        rollout: see `DivergedError`.
    """
    settings = {"robot": robot.cfg.model_dump(mode="json"), "train": cfg.model_dump(mode="json")}
    made_of = {"motion": str(motion.absolute()), "motion_sha": file_sha(motion), "robot_sha": robot.sha, **settings}
    arrays = {**_simulated(robot, clip, cfg, rollout), **rollout, "made_of": np.array(json.dumps(made_of))}
    with replacing(path) as temporary, open(temporary, "wb") as f:
        np.savez_compressed(f, **arrays)


def replay(path: Path) -> dict[str, Array]:
    """Simulate the rollout of a dump again, bit for bit.

    Returns:
        qpos (T+1, n, nq), qvel (T+1, n, nv) and rows (T+1, n, row_dim) at the start and after each step, where an
        episode ended those of the next one; ctrl (T, n, nu), the position targets of each step, rad, and frame (T, n),
        the reference frame that it was scored on.

    Raises:
        Q1Error: the motion or the robot is not the same any more.
    """
    with np.load(path) as file:
        dump = dict(file)
    made_of = json.loads(str(dump["made_of"]))
    motion, robot = Path(made_of["motion"]), Robot.load(RobotCfg(**made_of["robot"]))
    if not motion.is_file() or (file_sha(motion), robot.sha) != (made_of["motion_sha"], made_of["robot_sha"]):
        allowed = f"motion {made_of['motion_sha']} and robot {made_of['robot_sha']}"
        raise Q1Error(error("dump", str(path), f"{motion} or the robot is another one now", allowed, "put them back"))
    return _simulated(robot, Clip.load(motion), TrainCfg(**made_of["train"]), dump)


def _simulated(robot: Robot, clip: Clip, cfg: TrainCfg, rollout: Mapping[str, Any]) -> dict[str, Array]:
    env = TrackingEnv(robot, clip, cfg, rollout["env_ids"], "train")
    env.bin_probs[:] = rollout["bin_probs"]
    out = StepBuffers.zeros(env.num_envs, env.layout)
    env.load({name.removeprefix(STATE): a for name, a in rollout.items() if name.startswith(STATE)}, out)
    ctrl = np.zeros((len(rollout["actions"]), env.num_envs, robot.model.nu))
    ctrl[..., robot.actuator_ids] = robot.default_joint_pos + robot.action_scale * rollout["actions"]
    ctrl[..., robot.actuator_ids] -= env.encoder_offset
    states, frames = [(env.physics.qpos.copy(), env.physics.qvel.copy(), out.rows.copy())], []
    for action in rollout["actions"]:
        env.step(action, out)
        states.append((env.physics.qpos.copy(), env.physics.qvel.copy(), out.rows.copy()))
        frames.append(out.frame.copy())
    qpos, qvel, rows = (np.stack(x) for x in zip(*states, strict=True))
    return {"qpos": qpos, "qvel": qvel, "rows": rows, "ctrl": ctrl, "frame": np.stack(frames)}
