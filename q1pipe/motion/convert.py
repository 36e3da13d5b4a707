"""Write a clip for other tools: npz as mjlab and whole_body_tracking read it, CSV, or GMR's pickle."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from q1pipe.config import MotionCfg
from q1pipe.errors import Finding, MotionError, error
from q1pipe.files import replacing, require_output
from q1pipe.motion.clip import Clip
from q1pipe.motion.intake import take_in
from q1pipe.robot import Robot

FORMATS = (".npz", ".csv", ".pkl")


def convert(source: Path, out: Path, robot: Robot, cfg: MotionCfg) -> list[Finding]:
    """Read any motion file, repair it, and write it in the format that the name of `out` says, at its own rate.

    Raises:
        Q1Error: the file cannot be used, or `out` cannot be written.
    """
    require_output(out, FORMATS)
    if out.exists() and out.samefile(source):
        raise MotionError(error("format", str(out), "the file itself", "another file", "your file is never changed"))
    taken = take_in(source, robot, cfg, None)
    write(taken.clip, robot, out)
    return taken.findings


def write(clip: Clip, robot: Robot, out: Path) -> None:
    """Write a clip in the format that a name says."""
    if out.suffix.lower() == ".npz":
        clip.save(out)
        return
    root = robot.root - 1
    pos, quat = clip.body_pos_w[:, root], clip.body_quat_w[:, root][:, [1, 2, 3, 0]]
    with replacing(out) as temporary:
        if out.suffix.lower() == ".csv":
            columns = ["root_x", "root_y", "root_z", "root_qx", "root_qy", "root_qz", "root_qw", *clip.joint_names]
            rows = np.concatenate([pos, quat, clip.joint_pos], axis=1)
            with temporary.open("w", encoding="utf-8") as f:
                f.write(f"# fps: {clip.fps:g}\n{','.join(columns)}\n")
                np.savetxt(f, rows, fmt="%.9g", delimiter=",")
        else:
            record = {"fps": clip.fps, "root_pos": pos, "root_rot": quat, "dof_pos": clip.joint_pos}
            temporary.write_bytes(pickle.dumps(record))
