"""Files that are whole or not there: written beside, synced to disk, renamed."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from q1pipe.errors import Q1Error, error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that becomes it when the block ends without an exception."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        with open(temporary, "rb") as f:
            os.fsync(f.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, record: Any) -> None:
    """Write plain values as JSON; a number that is not finite becomes null, because JSON has none."""
    with replacing(path) as temporary:
        text = json.dumps(finite(record), indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def require_output(out: Path, endings: Sequence[str]) -> None:
    """Make sure, before the work is done, that a person's file can be written.

    Raises:
        Q1Error: it is a folder, has another ending, or its folder is not there or not writable.
    """
    folder = out.parent
    if out.is_dir():
        problem = ("a folder", "a file", f"name the file in it: {out / f'wave{endings[0]}'}")
    elif out.suffix.lower() not in endings:
        problem = (f"ending {out.suffix or 'none'}", f"one of {', '.join(endings)}", "rename it")
    elif not folder.is_dir():
        problem = (f"there is no folder {folder}", "a folder that is there", f"mkdir -p '{folder}'")
    elif not os.access(folder, os.W_OK):
        problem = (f"the folder {folder} is not writable", "a folder that is", "write elsewhere")
    else:
        return
    raise Q1Error(error("output", str(out), *problem))


def publish(source: Path, target: Path) -> None:
    """Copy a file to where it is looked for."""
    with replacing(target) as temporary:
        temporary.write_bytes(source.read_bytes())


def finite(value: Any) -> Any:
    """Nested plain values with every number that is not finite as None, for JSON."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
