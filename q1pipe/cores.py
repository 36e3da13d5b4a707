"""How many processor cores this process may keep busy."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUP, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available() -> int:
    """Cores of the affinity mask (taskset, SLURM) or of the cgroup's quota (docker --cpus), whichever is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(affinity, quota())))


def quota(cgroup: Path = CGROUP, mount: Path = MOUNT) -> float:
    """Cores that the cgroup and those above it grant, versions 1 and 2; infinite without a limit.

    Args:
        cgroup: the kernel's list of the process's cgroups, a line ``number:controllers:path`` each.
        mount: where the cgroup file systems are. In a container the paths may be the host's, which are not there; the
            container's own cgroup is then the topmost folder.
    """
    try:
        lines = cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    limits = [math.inf]
    for controllers, path in (line.split(":", 2)[1:] for line in lines):
        inside = PurePosixPath(path.lstrip("/"))
        if not controllers:
            limits += [_version_2(mount / part / "cpu.max") for part in _upwards(inside)]
        elif "cpu" in controllers.split(","):
            tops = {mount / "cpu", mount / controllers}
            limits += [_version_1(top / part) for top in tops for part in _upwards(inside)]
    return min(limits)


def _upwards(path: PurePosixPath) -> Iterator[PurePosixPath]:
    yield path
    yield from path.parents


def _version_2(file: Path) -> float:
    try:
        share, period = file.read_text(encoding="utf-8").split()
        return math.inf if share == "max" else int(share) / int(period)
    except (OSError, ValueError):
        return math.inf


def _version_1(folder: Path) -> float:
    try:
        share = int((folder / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="utf-8"))
        return share / period if share > 0 else math.inf
    except (OSError, ValueError):
        return math.inf
