"""How formulas of a single environment are compiled, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

# Of all that is compiled: numba looks at the file of a function alone, not at those of what it calls, and takes the
# fields of a NamedTuple for what they were
SOURCES = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call; kept in __pycache__, or the user's cache, where one of them can be written to."""
    function.__qualname__ += f"-{SOURCES}"  # part of the name of the file that it is kept in
    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "no locator available": each process compiles for itself
        return njit(error_model="numpy")(function)
