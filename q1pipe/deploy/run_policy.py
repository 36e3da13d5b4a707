"""Run an exported policy with numpy and onnxruntime only: measurements in, joint targets out.

    controller = Controller("policy.onnx", "motion.npz")
    controller.align(imu_quat, joint_pos)                              # once: the motion starts where the robot faces
    target = controller.step(imu_quat, gyro, joint_pos, joint_vel)     # every controller.dt seconds

Joints in the order of controller.joint_names; rad, rad/s; quaternions wxyz. `python run_policy.py` checks itself.
"""

import json

import numpy as np
import onnxruntime


def mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:  # quaternions: first rotate by b, then by a
    w, v, x, u = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    return np.concatenate([w * x - (v * u).sum(-1, keepdims=True), w * u + x * v + np.cross(v, u)], axis=-1)


def turn(angle: np.ndarray, axis: list) -> np.ndarray:  # rotation about an axis
    return np.concatenate([np.cos(angle / 2)[..., None], np.sin(angle / 2)[..., None] * axis], axis=-1)


class Controller:  # leading axes of the arrays are robots; none: one robot
    def __init__(self, policy: str, motion: str):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a small network: more threads only wait for each other
        self.session = onnxruntime.InferenceSession(policy, options, providers=["CPUExecutionProvider"])
        meta, clip = self.session.get_modelmeta().custom_metadata_map, np.load(motion)
        self.joint_names, self.dt = meta["joint_names"].split(","), float(meta["control_dt"])
        self.default, self.scale = (np.float32(meta[k].split(",")) for k in ("default_joint_pos", "action_scale"))
        self.layout, self.imu, self.anchor = (
            json.loads(meta[k]) for k in ("observation_layout", "imu_chain", "anchor_chain")
        )
        anchor = clip["body_names"].tolist().index(meta["anchor_body_name"])
        self.joint_pos, self.joint_vel, self.quat = clip["joint_pos"], clip["joint_vel"], clip["body_quat_w"][:, anchor]
        self.frames, self.frame, self.heading = int(meta["motion_frames"]), 0, np.array([1.0, 0, 0, 0])
        self.last_action: np.ndarray = np.zeros(len(self.joint_names), np.float32)  # until `align`

    def rotation(self, chain: list, joint_pos: np.ndarray) -> np.ndarray:  # along the joints from the root to a body
        q = np.array([1.0, 0, 0, 0])
        for s in chain:
            at = self.joint_names.index(s["joint"]) if "joint" in s else None
            q = mul(q, np.array(s["quat"]) if at is None else turn(joint_pos[..., at] - s["zero"], s["axis"]))
        return q

    def anchor_quat(self, imu_quat: np.ndarray, joint_pos: np.ndarray) -> np.ndarray:  # world, from what is measured
        to_root = self.rotation(self.imu, joint_pos) * [1, -1, -1, -1]
        return mul(mul(imu_quat, to_root), self.rotation(self.anchor, joint_pos))

    def align(self, imu_quat: np.ndarray, joint_pos: np.ndarray) -> None:
        w, x, y, z = np.moveaxis(mul(self.anchor_quat(imu_quat, joint_pos), self.quat[0] * [1, -1, -1, -1]), -1, 0)
        self.heading = turn(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)), [0, 0, 1])
        self.last_action = self.holding(joint_pos)

    def holding(self, joint_pos: np.ndarray) -> np.ndarray:  # the action whose target is where the joints are
        return ((joint_pos - self.default) / self.scale).astype(np.float32)

    def observe(self, imu_quat, gyro, joint_pos, joint_vel, frame, last_action) -> np.ndarray:  # type: ignore[no-untyped-def]
        w, x, y, z = np.moveaxis(
            mul(self.anchor_quat(imu_quat, joint_pos) * [1, -1, -1, -1], mul(self.heading, self.quat[frame])), -1, 0
        )  # the reference's anchor in the robot's; the policy sees the first two columns of its matrix
        columns = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * y + w * z)]
        columns += [1 - 2 * (x * x + z * z), 2 * (x * z - w * y), 2 * (y * z + w * x)]
        terms = {
            "reference_joint_pos": self.joint_pos[frame],
            "reference_joint_vel": self.joint_vel[frame],
            "anchor_ori": np.stack(columns, axis=-1),
            "base_ang_vel": gyro,
            "joint_pos": joint_pos - self.default,
            "joint_vel": joint_vel,
            "last_action": last_action,
        }
        rows = [np.broadcast_to(terms[t["name"]], (*joint_pos.shape[:-1], t["size"])) for t in self.layout]
        return np.concatenate(rows, axis=-1).astype(np.float32)

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.session.run(["actions"], {"obs": obs.reshape(-1, obs.shape[-1])})[0].reshape(*obs.shape[:-1], -1)

    def target(self, action: np.ndarray) -> np.ndarray:
        return self.default + self.scale * action

    def step(self, imu_quat, gyro, joint_pos, joint_vel) -> np.ndarray:  # type: ignore[no-untyped-def]
        self.frame = min(self.frame + 1, self.frames - 1)  # the frame that this action leads to
        obs = self.observe(imu_quat, gyro, joint_pos, joint_vel, self.frame, self.last_action)
        self.last_action = self.act(obs)
        return self.target(self.last_action)


if __name__ == "__main__":
    golden, controller = np.load("golden.npz"), Controller("policy.onnx", "motion.npz")
    names = ("imu_quat", "gyro", "joint_pos", "joint_vel", "frame", "last_action")
    obs = controller.observe(*(golden[name] for name in names))
    action = controller.act(obs)
    for name, value in {"observation": obs, "action": action, "target": controller.target(action)}.items():
        difference = np.abs(value - golden[name]).max()
        print(
            f"{name:12} {len(value)} rows, largest difference {difference:.1e}", "ok" if difference < 1e-4 else "WRONG"
        )
