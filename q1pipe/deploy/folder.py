"""The deploy folder: everything that a controller on the robot needs, and the means to check it there."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from q1pipe.deploy import check, run_policy
from q1pipe.deploy.contract import Contract
from q1pipe.files import publish, replacing
from q1pipe.robot import Robot

FILES = (
    "policy.onnx",
    "motion.npz",
    "deploy.yaml",
    "golden.npz",
    "golden.csv",
    "run_policy.py",
    "check.py",
    "README.md",
)
DAMPING = 5.0  # N·m·s/rad, of the SDK's last command


def write(
    folder: Path, onnx: Path, motion: Path, robot: Robot, contract: Contract, golden: Mapping[str, NDArray[Any]]
) -> None:
    """Fill the folder with FILES.

    Args:
        folder: where.
        onnx: policy.onnx.
        motion: motion.npz.
        robot: the model.
        contract: of the policy.
        golden: arrays by name, a row per sample: what is measured, then ``observation``, ``action``, ``target``.
    """
    publish(onnx, folder / "policy.onnx")
    publish(motion, folder / "motion.npz")
    for module in (run_policy, check):
        publish(Path(str(module.__file__)), folder / Path(str(module.__file__)).name)
    with replacing(folder / "golden.npz") as temporary, open(temporary, "wb") as f:
        np.savez_compressed(f, **golden)  # type: ignore[arg-type]
    _text(folder / "golden.csv", _csv(contract, golden))
    _text(folder / "deploy.yaml", deploy_yaml(contract, robot))
    _text(folder / "README.md", readme(contract, len(golden["action"])))


def deploy_yaml(contract: Contract, robot: Robot) -> str:
    """Everything that a controller needs, with a comment on each."""
    joints = "\n".join(
        f"  {name}: {{default: {_n(d)}, action_scale: {_n(a)}, stiffness: {_n(k)}, damping: {_n(b)}, "
        f"effort: {_n(e)}, lower: {_n(low)}, upper: {_n(high)}}}"
        for name, d, a, k, b, e, low, high in zip(
            contract.joint_names,
            contract.default_joint_pos,
            contract.action_scale,
            contract.joint_stiffness,
            contract.joint_damping,
            contract.joint_effort_limits,
            contract.joint_lower_limits,
            contract.joint_upper_limits,
            strict=True,
        )
    )
    size, meaning = (
        contract.observation_size,
        {
            "reference_joint_pos": "rad, of the motion at the frame that the coming action leads to",
            "reference_joint_vel": "rad/s, at the same frame",
            "anchor_ori": "first two columns, row by row, of the reference's anchor in the robot's anchor frame",
            "base_ang_vel": "rad/s, gyroscope, in the IMU's frame",
            "joint_pos": "rad, measured minus default",
            "joint_vel": "rad/s, measured",
            "last_action": "the action before, as the network gave it; at the start, (measured pos - default) / scale",
        },
    )
    terms = "\n".join(
        f"  - {{name: {t['name']}, start: {t['start']}, size: {t['size']}, noise: {_n(t['noise'])}}}"
        f"  # {meaning[t['name']]}"
        for t in contract.observation_layout
    )
    return f"""\
# What a controller needs to run policy.onnx; the same numbers are in its metadata. They are those of the training.
robot: {_y(contract.robot)}
policy: policy.onnx                 # input obs (N, {size}) float32, output actions (N, {len(contract.joint_names)})
motion: motion.npz                  # {contract.motion_frames} frames at {contract.motion_fps:g} per second
run: {_y(contract.run_path)}        # motion / fingerprint of the training
iteration: {contract.iteration}
control_dt: {_n(contract.control_dt)}                   # s, from one action to the next
quaternion_order: {contract.quaternion_order}

# target = default + action_scale · action, rad, not clamped, held for control_dt;
# torque = stiffness · (target - position) - damping · velocity, limited to effort.
# Order of the joints in every array; address them by name. rad, N·m/rad, N·m·s/rad, N·m, limits rad.
joints:
{joints}

# The observation: these terms one after the other. noise: ± uniform, in training only.
observation:
{terms}

# The anchor's orientation in the world is the IMU's · imu_to_anchor; a joint turns about its axis by (position - zero).
# Multiply in order; an empty chain is no rotation.
root: {_y(contract.root_body_name)}
anchor: {_y(contract.anchor_body_name)}
imu: {_y(robot.cfg.imu)}
imu_to_anchor: {_y(contract.imu_to_anchor)}

# Commands to the robot (vendor SDK): all joints by name in each, 500 to 1000 a second, from target to target in a
# straight line, never more than max_change from one to the next, the first from the measured pose. The last command,
# also after a failure, is `end`: the robot sinks down. Hold it.
command:
  rate: [500, 1000]                 # Hz
  max_change: 0.2                   # rad per command
  end: {{stiffness: 0.0, damping: {DAMPING}}}
"""


def readme(contract: Contract, rows: int) -> str:
    """What is in the folder and how to use it."""
    return f"""\
# {contract.motion}: a policy for {contract.robot}

Training run {contract.fingerprint}, iteration {contract.iteration}. Whether it is fit to run is in `eval.json` beside
this folder (evaluation, parity, sim2sim, safety): read its verdict first.

| file | |
|---|---|
| `policy.onnx` | the policy, normaliser included; its metadata holds everything in `deploy.yaml` |
| `motion.npz` | the motion that it follows, {contract.motion_frames} frames at {contract.motion_fps:g} per second |
| `deploy.yaml` | gains, limits, observation, commands, with comments |
| `run_policy.py` | a controller in Python, 50 lines; needs `numpy` and `onnxruntime`, nothing else |
| `check.py` | compares it with the golden rows |
| `golden.npz`, `golden.csv` | {rows} rows: measurement, observation, action, target, to check an implementation |

1. Check the machine: `python check.py` in this folder compares all golden rows and says `ok` three times.
2. Check your implementation: feed it a golden row's `imu_quat`, `gyro`, `joint_pos`, `joint_vel`, `frame` and
   `last_action`. Its observation, action and target must agree within 1e-4, term by term.
3. On the robot, hung up or held first:
   - start lying or standing as the motion starts; read the state, call `align` once;
   - every {contract.control_dt * 1000:g} ms call `step` with the newest measurement and send its target:

         controller = Controller("policy.onnx", "motion.npz")
         controller.align(imu_quat, joint_pos)
         target = controller.step(imu_quat, gyro, joint_pos, joint_vel)   # order of controller.joint_names

   - send commands at 500 to 1000 Hz, all joints by name, in a straight line from the last target to the new one, the
     first from the measured pose, with each joint's stiffness and damping, velocity and torque 0; never more than
     0.2 rad from one command to the next;
   - at the end of the motion the last frame is held; to end, and whenever something fails, send stiffness 0 and damping
     {DAMPING:g} for all joints: the robot sinks down.

Actions: {contract.action_semantics}.
"""


def _csv(contract: Contract, golden: Mapping[str, NDArray[Any]]) -> str:
    """Golden vectors for people and other languages: a column per number, its name in the first line."""
    names, columns = [], []
    for key, values in golden.items():
        flat = values.reshape(len(values), -1)
        if key == "observation":
            parts = [f"{t['name']}[{i}]" for t in contract.observation_layout for i in range(t["size"])]
        elif flat.shape[1] == len(contract.joint_names):
            parts = list(contract.joint_names)
        else:
            parts = [str(i) for i in range(flat.shape[1])] if flat.shape[1] > 1 else [""]
        names += [f"{key}.{part}".rstrip(".") for part in parts]
        columns.append(flat)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in range(len(columns[0])):
        writer.writerow([str(v) for c in columns for v in c[row]])
    return text.getvalue()


def _text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _n(value: float) -> str:
    """A number with all its digits, as YAML 1.1 reads numbers."""
    return _y(float(value))


def _y(value: Any) -> str:
    """A value on one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
