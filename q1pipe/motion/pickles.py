"""GMR's pickles, without what makes pickles dangerous: arrays and plain values come in, anything else is refused."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import MotionError, error


class _RefusedError(Exception):
    """The pickle names something that is neither an array nor a plain value."""


def _latin1(text: str, encoding: str) -> bytes:
    """What old protocols call to write bytes."""
    if encoding != "latin1":
        raise _RefusedError(f"_codecs.encode to {encoding}")
    return text.encode("latin1")


class _Arrays(pickle.Unpickler):
    """Admits what numpy writes for an array or a number, by name; whatever else a pickle may call is not reachable."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        multiarray: Any = np.zeros(1).__reduce__()[0]
        numeric: Any = np.zeros(1).__reduce_ex__(5)[0]
        scalar: Any = np.float64(0).__reduce__()[0]
        admitted: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): _latin1,
        }
        for package in ("numpy.core", "numpy._core"):
            admitted[package + ".multiarray", "_reconstruct"] = multiarray
            admitted[package + ".multiarray", "scalar"] = scalar
            admitted[package + ".numeric", "_frombuffer"] = numeric
        if (module, name) not in admitted:
            raise _RefusedError(f"{module}.{name}")
        return admitted[module, name]


def load_pickle(path: Path) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The arrays of a pickled dict, and the keys of values that are none.

    Raises:
        MotionError: it is damaged, is no dict, or would have to run something.
    """

    def refuse(found: str, action: str) -> MotionError:
        allowed = "a dict of numpy arrays and plain values (fps, root_pos, root_rot, dof_pos)"
        return MotionError(error("container", str(path), found[:200], allowed, action))

    try:
        value = _Arrays(io.BytesIO(path.read_bytes())).load()
    except _RefusedError as e:
        raise refuse(f"a pickle that calls {e}; nothing of it was run", "save the arrays with np.savez") from None
    except Exception as e:  # bytes of a stranger: any kind of exception
        raise refuse(f"damaged pickle: {type(e).__name__}: {e}", "export it again") from None
    if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), dict):
        value = next(iter(value.values()))  # PBHC and ASAP: {name of the motion: {...}}
    if not isinstance(value, dict):
        raise refuse(f"a pickled {type(value).__name__}", "save the arrays with np.savez")
    arrays, others = {}, []
    for key, item in value.items():
        plain = isinstance(item, (int, float, str, np.number))
        flat = isinstance(item, (list, tuple)) and all(isinstance(i, (int, float, str)) for i in item)
        if plain or flat or (isinstance(item, np.ndarray) and item.dtype.kind in "fiuUSb"):
            arrays[str(key)] = np.asarray(item)
        elif item is not None:
            others.append(str(key))
    return arrays, others
