"""One lock per card of this machine: two runs never share one by accident. It is gone with its process."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from q1pipe.errors import warn
from q1pipe.learn.device import VARIABLES

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # between looks for a card that has become free


def physical(device: str, environ: Mapping[str, str]) -> str:
    """The card behind a device, as the driver numbers it: ``npu:1`` under ASCEND_RT_VISIBLE_DEVICES=4,6 is npu-6."""
    kind, _, index = device.partition(":")
    variable = next((name for name, k in VARIABLES.items() if k == kind), "")
    visible = [item.strip() for item in environ.get(variable, "").split(",") if item.strip()]
    number = int(index or 0)
    return f"{kind}-{visible[number] if number < len(visible) else number}"


def lock_file(device: str) -> Path:
    """Where a card's lock is, for all users of this machine."""
    name = f"{_machine()}-{physical(device, os.environ)}.lock"
    return Path(tempfile.gettempdir()) / "q1pipe-cards" / name


def _machine() -> str:
    """The same in all containers of a machine, which have a host name each."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname()


@contextmanager
def lease(chosen: Mapping[str, Any], purpose: str, pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hold a card that nobody else holds, waiting for one if need be.

    Args:
        chosen: device.json. Where it asks for a kind of device and not for one card, any card of it will do.
        purpose: what holds it, for those who wait.
        pause: called with a time in seconds while there is none; may raise.

    Yields:
        The device, such as ``npu:1``. The CPU is everybody's.
    """
    device = chosen["device"]
    kind, cards = device.partition(":")[0], chosen.get("cards", 1)
    if kind == "cpu":
        yield device
        return
    devices = [f"{kind}:{i}" for i in range(cards)] if cards > 1 else [device]
    while not (taken := next(filter(None, map(_taken, devices)), None)):
        holders = "; ".join(f"{d}: {_holder(d)}" for d in devices)
        log.warning(warn("card-in-use", ", ".join(devices), holders, "one run per card", "waiting for a free one"))
        while not any(map(_free, devices)):
            pause(LOOK_SECONDS)
    device, descriptor = taken
    try:
        record = {"pid": os.getpid(), "purpose": purpose, "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
        yield device
    finally:
        os.close(descriptor)


def _taken(device: str) -> tuple[str, int] | None:
    """The device and the open file that holds its lock; None when somebody else does."""
    descriptor = _open(lock_file(device))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return device, descriptor


def _free(device: str) -> bool:
    if taken := _taken(device):
        os.close(taken[1])
    return taken is not None


def _open(path: Path) -> int:
    """Open a lock file that may be another user's: in a folder of all users, the kernel refuses to create over it."""
    path.parent.mkdir(exist_ok=True)
    with suppress(PermissionError):  # another user's, who has done so
        path.parent.chmod(0o1777)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor


def _holder(device: str) -> str:
    try:
        record = json.loads(lock_file(device).read_text(encoding="utf-8"))
        return f"{record['purpose']} (process {record['pid']}, since {record['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
