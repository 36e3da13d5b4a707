"""The stand-in as a package: importing it gives torch a device type `npu`, as importing the real torch_npu does.

What the real one takes from the driver comes from environment variables:

    STANDIN_NPU_CARDS     cards in the machine (1)
    STANDIN_NPU_MEMORY    bytes on each (unlimited); more is out of memory
    STANDIN_NPU_USED      bytes of them that somebody else holds
    STANDIN_NPU_ANNOUNCE  operators, comma-separated, of which it is said that they fall back to the CPU
"""

import ctypes
import os
import sys
import types
from pathlib import Path

import torch

LIBRARY = Path(__file__).parent / "backend.so"
COPIES = ("host_to_device", "device_to_host", "on_device", "waits")

torch.ops.load_library(str(LIBRARY))
_c = ctypes.CDLL(str(LIBRARY))
for _name in ("standin_count", "standin_bytes", "standin_allocated", "standin_peak"):
    getattr(_c, _name).restype = ctypes.c_int64
_c.standin_operators.restype = ctypes.c_char_p


def _visible() -> int:
    """Cards that ASCEND_RT_VISIBLE_DEVICES leaves; as with the real one, a bad list leaves none."""
    cards = int(os.environ.get("STANDIN_NPU_CARDS", "1"))
    listed = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if listed is None:
        return cards
    try:
        numbers = [int(n) for n in listed.split(",")] if listed else []
    except ValueError:
        return 0
    ascending = numbers == sorted(set(numbers))
    return len(numbers) if ascending and all(0 <= n < cards for n in numbers) else 0


_cards = _visible()
_c.standin_cards(_cards)
for _operator in filter(None, os.environ.get("STANDIN_NPU_ANNOUNCE", "").split(",")):
    _c.standin_announce(_operator.encode())


def counts() -> dict[str, int]:
    """Copies and waits since `clear`."""
    return {name: _c.standin_count(kind) for kind, name in enumerate(COPIES)}


def copied_bytes() -> dict[str, int]:
    """Bytes of those copies."""
    return {name: _c.standin_bytes(kind) for kind, name in enumerate(COPIES)}


def operators() -> dict[str, int]:
    """Operators that the device was asked for since `clear`, and how often."""
    lines = _c.standin_operators().decode().splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines)}


def peak() -> int:
    """Most bytes that were in use at once since `clear`."""
    return _c.standin_peak()


def clear() -> None:
    """Count anew."""
    _c.standin_clear()


def _index(device: object = None) -> int:
    if device is None:
        return _c.standin_current()
    device = torch.device("npu", device) if isinstance(device, int) else torch.device(device)
    return device.index or 0


npu = types.ModuleType("torch.npu")
npu.is_available = lambda: _cards > 0
npu.device_count = lambda: _cards
npu.current_device = _c.standin_current
npu.get_device_name = lambda device=None: f"stand-in NPU {_index(device)}"
npu.synchronize = lambda device=None: _c.standin_wait()
npu.memory_allocated = lambda device=None: _c.standin_allocated()
npu.empty_cache = lambda: None
npu.is_initialized = lambda: True
npu._is_in_bad_fork = lambda: False
npu._lazy_init = lambda: None
npu.manual_seed_all = lambda seed: None
npu.manual_seed = lambda seed: None
npu.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]


def _set_device(device: object) -> None:
    index = _index(device)
    if not 0 <= index < _cards:
        raise RuntimeError(f"Invalid device ID {index}: {_cards} cards are visible")
    _c.standin_select(index)


def _mem_get_info(device: object = None) -> tuple[int, int]:
    total = int(os.environ.get("STANDIN_NPU_MEMORY", 64 << 30))
    return total - int(os.environ.get("STANDIN_NPU_USED", "0")) - _c.standin_allocated(), total


npu.set_device = _set_device
npu.mem_get_info = _mem_get_info

torch.utils.rename_privateuse1_backend("npu")
torch._register_device_module("npu", npu)
sys.modules["torch.npu"] = npu
torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=[torch.float64])
