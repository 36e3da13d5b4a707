"""Does policy.onnx compute what the policy computes? Asked in a process that never sees torch, as on the robot.

``python -m q1pipe.deploy.parity rows.npz policy.onnx …`` compares the files with the actions in rows.npz and prints
JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Finding, error

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Difference:
    """The largest difference of one file on one set of observations.

    Attributes:
        file: name of the ONNX file.
        rows: name of the set.
        count: observations.
        largest: of all outputs.
        joint: number of the output where it is.
    """

    file: str
    rows: str
    count: int
    largest: float
    joint: int


def compare(files: list[Path], observations: Mapping[str, Floats], actions: Mapping[str, Floats]) -> list[Difference]:
    """Compare each file with the policy's own actions, in a process without torch.

    Args:
        files: ONNX files.
        observations: name of a set -> (N, D).
        actions: the same names -> (N, J), what the policy gave.

    Raises:
        RuntimeError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="q1pipe-parity-") as folder:
        rows = Path(folder) / "rows.npz"
        both = {
            f"{kind}.{name}": x for kind, sets in (("obs", observations), ("act", actions)) for name, x in sets.items()
        }
        np.savez(rows, **both)  # type: ignore[arg-type]
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "q1pipe.deploy.parity", str(rows), *map(str, files)]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the process that runs the ONNX files ended with code {done.returncode}:\n{done.stderr}")
    return [Difference(**record) for record in json.loads(done.stdout)]


def findings(differences: list[Difference], joints: tuple[str, ...], allowed: float) -> list[Finding]:
    """An ERROR for each difference that is too large, with the joint whose output it is."""
    return [
        error(
            "parity",
            d.file,
            f"{d.largest:.3g} from the policy at {joints[d.joint]}, on {d.count} {d.rows} observations",
            f"at most {allowed:g}",
            "the export does not compute what was trained: report it",
        )
        for d in differences
        if not d.largest <= allowed  # nor NaN
    ]


def session_of(file: str | bytes) -> Any:
    """An inference session of one thread. By itself onnxruntime takes all of the host's cores, and binds them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def main(rows: str, *files: str) -> None:
    """The other process: run the files, print the differences."""
    result = []
    with np.load(rows) as data:
        sets = {
            key.removeprefix("obs."): (data[key], data[key.replace("obs.", "act.", 1)]) for key in data if key[0] == "o"
        }
    for file in files:
        session = session_of(file)
        for name, (obs, wanted) in sets.items():
            if len(session.get_inputs()) == 1:
                actions = session.run(["actions"], {"obs": obs})[0]
            else:  # with the reference: one robot at a time
                frame = np.zeros((1, 1), np.float32)
                each = [session.run(["actions"], {"obs": row[None], "time_step": frame})[0] for row in obs]
                actions = np.concatenate(each)
            difference = np.abs(actions - wanted).max(axis=0)
            worst = int(difference.argmax())  # NaN counts as the largest
            result.append(Difference(Path(file).name, name, len(obs), float(difference[worst]), worst))
    assert "torch" not in sys.modules, "something here imports torch"
    print(json.dumps([asdict(d) for d in result]))


if __name__ == "__main__":
    main(*sys.argv[1:])
