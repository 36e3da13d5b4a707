"""Counts copies between host and device and waits for the device, on any back-end."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Copies(TorchDispatchMode):
    """While it is entered: `host_to_device` and `device_to_host`, of tensors and of numbers (`item`)."""

    def __init__(self) -> None:
        super().__init__()
        self.host_to_device = self.device_to_host = self.items = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (aten.copy_.default, aten._to_copy.default):
            source, target = (args[1], args[0]) if func is aten.copy_.default else (args[0], out)
            away = [x.device.type != "cpu" for x in (source, target)]
            self.host_to_device += away == [False, True]
            self.device_to_host += away == [True, False]
        elif func is aten._local_scalar_dense.default and args[0].device.type != "cpu":
            self.items += 1
        return out

    def counts(self) -> dict[str, int]:
        return {"host_to_device": self.host_to_device, "device_to_host": self.device_to_host + self.items}
