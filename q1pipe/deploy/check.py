"""Does run_policy.py compute here what it must? `python check.py` in this folder compares all golden rows."""

import numpy as np


def main() -> None:
    """Print a line for each of observation, action and target; exit code 1 when one is wrong."""
    from run_policy import Controller  # type: ignore[import-not-found]  # the file beside this one, in the folder

    golden, controller = np.load("golden.npz"), Controller("policy.onnx", "motion.npz")
    measured = ("imu_quat", "gyro", "joint_pos", "joint_vel", "frame", "last_action")
    obs = controller.observe(*(golden[name] for name in measured))
    action = controller.act(obs)
    wrong = False
    for name, value in {"observation": obs, "action": action, "target": controller.target(action)}.items():
        difference = np.abs(value - golden[name]).max()
        good = difference < 1e-4  # nor NaN
        wrong |= not good
        print(f"{name:12} {len(value)} rows, largest difference {difference:.1e}", "ok" if good else "WRONG")
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
