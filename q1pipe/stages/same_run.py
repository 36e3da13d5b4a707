"""Whether files in a results folder are of one training run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from q1pipe.errors import Q1Error, error
from q1pipe.provenance import file_sha
from q1pipe.robot import Robot


def same_run(meta: Mapping[str, Any], trained: Mapping[str, Any], robot: Robot, motion: Path, policy: Path) -> None:
    """A folder can hold files of different runs after an interruption; nothing made of a mix is worth anything.

    Raises:
        Q1Error: fingerprint, motion or robot differ.
    """
    pairs = {
        "fingerprint": (trained["fingerprint"], meta["fingerprint"]),
        "motion": (file_sha(motion), meta["motion_sha"]),
        "robot": (robot.sha, meta["robot_sha"]),
    }
    findings = [
        error(
            "mixed-run",
            str(policy),
            f"{name} of the policy is {of_policy}, here it is {here}",
            "one run",
            "train again",
        )
        for name, (here, of_policy) in pairs.items()
        if here != of_policy
    ]
    if findings:
        raise Q1Error(*findings)
