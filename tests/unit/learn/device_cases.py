"""Every way to ask for a device, on every kind of machine, and what comes of it.

`test_device_cases.py` tries each; docs/ascend.md has them as a table, which `make docs` writes there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs/ascend.md"
BEGIN, END = "<!-- cases: made by tests/unit/learn/device_cases.py -->", "<!-- end of cases -->"

NOTHING, CUDA = "no accelerator", "CUDA"
ONE, TWO = "one NPU", "two NPUs"
NO_CANN, FAILS, ABORTS, HANGS = (
    f"an NPU, but {what}"
    for what in ("CANN is not found", "it fails to compute", "its driver aborts", "its driver hangs")
)

# A torch_npu that does not work: what stands in its __init__.py
BROKEN = {
    NO_CANN: 'raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")',
    FAILS: """
import types, torch
def set_device(device):
    raise RuntimeError("SetDevice failed, error code is 500001")
torch.npu = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, set_device=set_device)
""",
    ABORTS: "import os, sys; print('aclInit failed, error code is 500001', file=sys.stderr); os.abort()",
    HANGS: "import time; time.sleep(600)",
}


@dataclass(frozen=True)
class Case:
    """A machine, a wish, and what happens.

    Attributes:
        machine: one of the above.
        asked: `device.device` in the configuration.
        variables: in the environment.
        device: what is chosen; empty: an error.
        says: what the reason, the warning or the error contains.
        warns: it is a warning.
    """

    machine: str
    asked: str
    variables: dict[str, str]
    device: str
    says: str
    warns: bool = False

    def __str__(self) -> str:
        return f"{self.machine}, {self.asked}, {self.variables}"


PRIMEBOT, SEES_CUDA, SEES_NPU = "PRIMEBOT_DEVICE", "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"

CASES = [
    Case(NOTHING, "auto", {}, "cpu", "no npu:0 (torch_npu is not installed)"),
    Case(NOTHING, "auto", {PRIMEBOT: ""}, "cpu", "torch_npu is not installed"),
    Case(NOTHING, "auto", {PRIMEBOT: "auto"}, "cpu", "torch_npu is not installed"),
    Case(NOTHING, "auto", {PRIMEBOT: "cpu", SEES_CUDA: "0"}, "cpu", "asked for by PRIMEBOT_DEVICE=cpu"),
    Case(NOTHING, "auto", {PRIMEBOT: "npu:0"}, "", "npu:0 does not compute: torch_npu is not installed"),
    Case(NOTHING, "auto", {PRIMEBOT: "cuda:0", SEES_NPU: "0"}, "", "cuda:0 does not compute"),
    Case(NOTHING, "auto", {PRIMEBOT: "Ascend"}, "", "'Ascend' is no device"),
    Case(NOTHING, "auto", {PRIMEBOT: "npu:abc"}, "", "'npu:abc' is no device"),
    Case(NOTHING, "auto", {SEES_CUDA: "0"}, "", "CUDA_VISIBLE_DEVICES=0 — cuda:0 does not compute"),
    Case(NOTHING, "auto", {SEES_CUDA: ""}, "cpu", "cpu computes"),
    Case(NOTHING, "auto", {SEES_CUDA: "-1"}, "cpu", "cpu computes"),
    Case(NOTHING, "auto", {SEES_NPU: "0"}, "", "ASCEND_RT_VISIBLE_DEVICES=0 — npu:0 does not compute"),
    Case(NOTHING, "npu:0", {}, "", "devices that compute here: cpu"),
    Case(NOTHING, "cuda:9", {}, "", "devices that compute here: cpu"),
    Case(NOTHING, "gpu", {}, "", "device.device"),
    Case(NOTHING, "cpu", {PRIMEBOT: "npu:0"}, "cpu", "cpu overrides PRIMEBOT_DEVICE=npu:0", warns=True),
    Case(CUDA, "auto", {}, "cuda:0", "cuda:0 computes"),
    Case(CUDA, "auto", {SEES_CUDA: ""}, "cpu", "hides all cards"),
    Case(CUDA, "cuda:99", {}, "", "there is no card 99"),
    Case(ONE, "auto", {}, "npu:0", "auto: npu:0 computes"),
    Case(ONE, "auto", {SEES_NPU: "0"}, "npu:0", "asked for by ASCEND_RT_VISIBLE_DEVICES=0"),
    Case(ONE, "auto", {SEES_NPU: ""}, "cpu", "ASCEND_RT_VISIBLE_DEVICES='' hides all cards"),
    Case(ONE, "auto", {SEES_NPU: "4"}, "", "ASCEND_RT_VISIBLE_DEVICES=4 must name cards that exist"),
    Case(ONE, "auto", {SEES_NPU: "abc"}, "", "ASCEND_RT_VISIBLE_DEVICES=abc is not a list of card numbers"),
    Case(ONE, "auto", {SEES_CUDA: "0", SEES_NPU: "0"}, "", "CUDA_VISIBLE_DEVICES=0 — cuda:0 does not compute"),
    Case(ONE, "auto", {SEES_CUDA: "", SEES_NPU: "0"}, "npu:0", "asked for by ASCEND_RT_VISIBLE_DEVICES=0"),
    Case(ONE, "auto", {PRIMEBOT: "cpu", SEES_NPU: "0"}, "cpu", "asked for by PRIMEBOT_DEVICE=cpu"),
    Case(ONE, "cpu", {SEES_NPU: "0"}, "cpu", "asked for by config: device.device"),
    Case(ONE, "npu:1", {}, "", "there is no card 1, visible: 1 — devices that compute here: npu:0, cpu"),
    Case(TWO, "npu:1", {}, "npu:1", "asked for by config: device.device"),
    Case(TWO, "auto", {SEES_NPU: "1"}, "npu:0", "asked for by ASCEND_RT_VISIBLE_DEVICES=1"),
    Case(TWO, "auto", {SEES_NPU: "0,1"}, "npu:0", "asked for by ASCEND_RT_VISIBLE_DEVICES=0,1"),
    Case(TWO, "npu", {SEES_NPU: "1,0"}, "", "ASCEND_RT_VISIBLE_DEVICES=1,0 must be ascending"),
    Case(TWO, "auto", {SEES_NPU: "0,0"}, "", "must be ascending, each card once"),
    Case(NO_CANN, "auto", {}, "cpu", "libhccl.so", warns=True),
    Case(NO_CANN, "npu:0", {}, "", "is CANN's set_env.sh sourced?"),
    Case(FAILS, "auto", {}, "cpu", "error code is 500001", warns=True),
    Case(FAILS, "npu", {}, "", "error code is 500001"),
    Case(ABORTS, "auto", {}, "cpu", "the probe ended with code -6", warns=True),
    Case(HANGS, "npu:0", {}, "", "did not answer within"),
]


def table() -> str:
    """The cases for a person, in Markdown."""
    lines = []
    for machine, cases in itertools.groupby(CASES, lambda case: case.machine):
        lines += ["", f"**{machine[0].upper()}{machine[1:]}**", ""]
        lines += ["| `device.device` | variables | device | what it says |", "|---|---|---|---|"]
        for case in cases:
            variables = " ".join(f"`{k}={v}`" for k, v in case.variables.items())
            device = f"`{case.device}`" if case.device else "error"
            says = ("WARN: " if case.warns else "") + case.says
            lines.append(f"| `{case.asked}` | {variables} | {device} | {says} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """A text whose part between BEGIN and END is the table."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCS.write_text(with_table(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
