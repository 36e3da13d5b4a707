"""Run an exported policy with numpy and onnxruntime only: measurements in, joint targets out. README.md says how.

Joints in the order of joint_names; rad, rad/s; quaternions wxyz. Leading axes of the arrays, if any, are robots.
"""

import json

import numpy as np
import onnxruntime


def matrix(quat):  # the rotation as a matrix
    quat = np.asarray(quat, float)[..., None, :]
    cross = np.cross(np.eye(3), quat[..., 1:])  # cross @ v is axis × v
    return np.eye(3) + 2 * (quat[..., :1] * cross + cross @ cross)


def turn(angle, axis):  # the rotation about an axis
    half = np.asarray(angle)[..., None] / 2
    return matrix(np.concatenate([np.cos(half), np.sin(half) * axis], axis=-1))


class Controller:
    def __init__(self, policy, motion):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a small network: more threads only wait for each other
        self.session = onnxruntime.InferenceSession(policy, options, providers=["CPUExecutionProvider"])
        meta, clip = self.session.get_modelmeta().custom_metadata_map, np.load(motion)
        self.joint_names, self.dt = meta["joint_names"].split(","), float(meta["control_dt"])
        self.default, self.scale = (np.float32(meta[key].split(",")) for key in ("default_joint_pos", "action_scale"))
        self.layout, self.chain = json.loads(meta["observation_layout"]), json.loads(meta["imu_to_anchor"])
        self.joint_pos, self.joint_vel = clip["joint_pos"], clip["joint_vel"]
        self.anchor = matrix(clip["body_quat_w"][:, clip["body_names"].tolist().index(meta["anchor_body_name"])])
        self.frames, self.frame, self.heading = int(meta["motion_frames"]), 0, np.eye(3)

    def measured_anchor(self, imu_quat, joint_pos):  # its orientation in the world: from the IMU along the joints
        world = matrix(imu_quat)
        for s in self.chain:
            joint = self.joint_names.index(s["joint"]) if "joint" in s else None
            world = world @ (matrix(s["quat"]) if joint is None else turn(joint_pos[..., joint] - s["zero"], s["axis"]))
        return world

    def align(self, imu_quat, joint_pos):  # once: the motion starts where the robot faces, and holds where it is
        error = self.measured_anchor(imu_quat, joint_pos) @ self.anchor[0].T
        self.heading = turn(np.arctan2(error[..., 1, 0], error[..., 0, 0]), [0, 0, 1])
        self.last_action = self.holding(joint_pos)

    def holding(self, joint_pos):  # the action whose target is where the joints are
        return ((joint_pos - self.default) / self.scale).astype(np.float32)

    def observe(self, imu_quat, gyro, joint_pos, joint_vel, frame, last_action):
        error = self.measured_anchor(imu_quat, joint_pos).swapaxes(-1, -2) @ self.heading @ self.anchor[frame]
        terms = {"reference_joint_pos": self.joint_pos[frame], "reference_joint_vel": self.joint_vel[frame]}
        terms |= {"anchor_ori": error[..., :2].reshape(*error.shape[:-2], 6), "base_ang_vel": gyro}
        terms |= {"joint_pos": joint_pos - self.default, "joint_vel": joint_vel, "last_action": last_action}
        columns = [np.broadcast_to(terms[t["name"]], (*joint_pos.shape[:-1], t["size"])) for t in self.layout]
        return np.concatenate(columns, axis=-1).astype(np.float32)

    def act(self, obs):
        return self.session.run(["actions"], {"obs": obs.reshape(-1, obs.shape[-1])})[0].reshape(*obs.shape[:-1], -1)

    def target(self, action):
        return self.default + self.scale * action

    def step(self, imu_quat, gyro, joint_pos, joint_vel):  # every dt seconds, after `align`
        self.frame = min(self.frame + 1, self.frames - 1)  # the frame that this action leads to
        self.last_action = self.act(self.observe(imu_quat, gyro, joint_pos, joint_vel, self.frame, self.last_action))
        return self.target(self.last_action)
