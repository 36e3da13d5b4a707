"""Where the policy runs: the only file that names a back-end.

`choose` decides (an explicit device is a requirement; `auto` goes by environment variables, then by what is found), and
believes a device only after it has computed in a throw-away process: ``python -m q1pipe.learn.device cuda:0``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from q1pipe.config import DeviceCfg
from q1pipe.errors import DeviceError, Finding, error, warn

log = logging.getLogger(__name__)

PATTERN = re.compile(r"cpu|(cuda|npu)(:\d+)?")
VARIABLES = {"PRIMEBOT_DEVICE": None, "CUDA_VISIBLE_DEVICES": "cuda", "ASCEND_RT_VISIBLE_DEVICES": "npu"}
RTOL = 1e-2  # of the device's results against the CPU's; NPUs multiply matrices in reduced precision


@dataclass
class Probe:
    """What came of one try to compute on a device.

    Attributes:
        device: as asked for, with its index, such as ``npu:0``.
        ok: it computed and agreed with the CPU.
        present: something of it is there (hardware or driver package), so a failure is worth a warning.
        name: of the hardware.
        why: what failed, one line; empty when ok.
        detail: last lines of the process that failed.
    """

    device: str
    ok: bool = False
    present: bool = True
    name: str = ""
    why: str = ""
    detail: list[str] = field(default_factory=list)


def choose(cfg: DeviceCfg, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Decide on a device that computes.

    Args:
        cfg: the device asked for, and the probe's time limit.
        environ: environment variables; none: this process's.

    Returns:
        The record for device.json: device, name, why, requested, variables, versions, tried, findings.

    Raises:
        DeviceError: a device that was asked for, in the configuration or by the ruling variable, does not compute.
    """
    environ = dict(os.environ if environ is None else environ)
    tried: list[Probe] = []
    findings: list[Finding] = []

    def attempt(device: str) -> Probe:
        tried.append(probe(device, cfg.timeout, environ))
        return tried[-1]

    asked, by = cfg.device, "config: device.device"
    if asked == "auto":
        asked, by = ruling_variable(environ)
    elif (wish := environ.get("PRIMEBOT_DEVICE", "auto")) not in ("", "auto", asked):
        findings.append(warn("device-variable", by, f"{asked} overrides PRIMEBOT_DEVICE={wish}"))
    if asked:
        result = attempt(asked)
        if not result.ok:
            others = [kind for kind in ("npu", "cuda") if not asked.startswith(kind)]
            exist = [p.device for p in map(attempt, others) if p.ok] + ["cpu"]
            raise DeviceError(refusal(result, by, exist, environ))
        why = f"asked for by {by}"
    else:
        for kind in ("npu", "cuda", "cpu"):
            result = attempt(kind)
            if result.ok:
                break
            if result.present:
                hint = "nothing, or mend it and delete results/device.json"
                findings.append(warn("device-unusable", kind, _reason(result), "a device that computes", hint))
        else:
            raise DeviceError(refusal(result, "auto", [], environ))
        why = "auto: " + "; ".join([f"no {p.device} ({p.why})" for p in tried[:-1]] + [f"{result.device} computes"])
    installed = versions(environ)
    findings += series(installed)
    return {
        "device": result.device,
        "name": result.name,
        "why": why,
        "requested": cfg.device,
        "variables": {name: environ[name] for name in VARIABLES if name in environ},
        "versions": installed,
        "tried": [asdict(p) for p in tried],
        "findings": [f.record() for f in findings],
    }


def ruling_variable(environ: Mapping[str, str]) -> tuple[str, str]:
    """The device that the first variable of DESIGN's order asks for and that variable; empty when none does.

    A visible-devices variable asks for its kind of device, unless it hides all of them (empty or -1).

    Raises:
        DeviceError: PRIMEBOT_DEVICE is not a device.
    """
    for name, kind in VARIABLES.items():
        value = environ.get(name, "").strip()
        if kind and value not in ("", "-1"):
            return kind, f"{name}={value}"
        if not kind and value not in ("", "auto"):
            if not PATTERN.fullmatch(value):
                allowed = "auto, cpu, cuda, cuda:<n>, npu or npu:<n>"
                raise DeviceError(error("device-name", name, f"'{value}' is no device", allowed, f"unset {name}"))
            return value, f"{name}={value}"
    return "", ""


def refusal(result: Probe, by: str, exist: list[str], environ: Mapping[str, str]) -> Finding:
    """The error for a device that was asked for and does not compute."""
    found = f"{result.device} does not compute: {_reason(result)}"
    variable = next((n for n, kind in VARIABLES.items() if kind and result.device.startswith(kind)), "")
    if value := environ.get(variable, ""):
        found += f" ({variable}={value} must be ascending and below the number of cards)"
    allowed = f"devices that compute here: {', '.join(exist) or 'none'}"
    return error("device", by, found, allowed, "ask for one of these, or 'auto' with the variable unset")


def _reason(result: Probe) -> str:
    return " | ".join([result.why, *result.detail[-5:]])


def probe(device: str, timeout: float, environ: Mapping[str, str]) -> Probe:
    """Let a throw-away process compute on a device: a broken driver may hang, abort or leave the device locked."""
    device = device if device == "cpu" or ":" in device else f"{device}:0"
    if why := _absent(device):
        return Probe(device, present=False, why=why)
    command = [sys.executable, "-m", "q1pipe.learn.device", device]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        command,
        env={**environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Probe(device, why=f"did not answer within {timeout:g} s", detail=_tail(err))
    try:
        return Probe(**json.loads(out.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return Probe(device, why=f"the probe ended with code {process.returncode}", detail=_tail(err))


def _tail(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()][-5:]


def use(device: str) -> torch.device:
    """Make a device ready in this process and prove that it computes.

    Args:
        device: of device.json. Where PRIMEBOT_DEVICE has changed since, a warning says that it comes too late.

    Raises:
        DeviceError: it does not.
    """
    wish = os.environ.get("PRIMEBOT_DEVICE", "auto").strip()
    if wish not in ("", "auto") and not device.startswith(wish):
        found, action = (
            f"the device check chose {device}, going on with it",
            "delete results/device.json to choose anew",
        )
        log.warning(warn("device-variable", f"PRIMEBOT_DEVICE={wish}", found, action=action))
    try:
        _load(device)
        _compute(torch.device(device))
    except Exception as e:
        found = f"{device} does not compute in this process: {type(e).__name__}: {_first_line(e)}"
        action = "delete results/device.json so that the device is chosen anew"
        raise DeviceError(error("device", "device.json", found, "the device that was checked", action)) from e
    return torch.device(device)


def _load(device: str) -> None:
    """Import what the back-end needs and select the card; raises what the back-end raises."""
    kind = device.split(":")[0]
    if kind == "npu":
        importlib.import_module("torch_npu")
    if kind != "cpu":
        getattr(torch, kind).set_device(device)


def _compute(device: torch.device) -> None:
    """One of everything that training does; raises RuntimeError where the device disagrees with the CPU."""
    host = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 256, 256, generator=host) / 16
    weight = torch.nn.Parameter(b.to(device, copy=True))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    result = torch.tanh(a.to(device) @ weight)
    result.square().sum().backward()
    optimizer.step()
    sample = torch.randn(1 << 16, device=device, generator=torch.Generator(device=device).manual_seed(0))
    synchronize(device)
    reference = torch.nn.Parameter(b.clone())
    check = torch.optim.Adam([reference], lr=0.1)
    expected = torch.tanh(a @ reference)
    expected.square().sum().backward()
    check.step()
    # Adam's first step is ±lr whatever the gradient's size; low precision may flip signs near 0: compare magnitudes.
    step, expected_step = ((w.detach().cpu() - b).abs() for w in (weight, reference))
    for what, x, y in (("tanh(a @ b)", result.detach().cpu(), expected.detach()), ("Adam step", step, expected_step)):
        difference = float((x - y).norm() / y.norm())
        if not difference <= RTOL:
            raise RuntimeError(f"{what} differs from the CPU's by {difference:.2g}, allowed is {RTOL:g}")
    mean, std = float(sample.mean()), float(sample.std())
    if not (abs(mean) < 0.05 and abs(std - 1) < 0.05):
        raise RuntimeError(f"normal samples have mean {mean:.2g} and standard deviation {std:.2g}")


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def fused_optimizer(device: torch.device) -> bool:
    """Whether torch's own fused Adam runs there (elsewhere torch takes the best that the back-end has)."""
    return device.type in ("cpu", "cuda")


def _name(device: str) -> str:
    if device == "cpu":
        return cpu_name()
    return str(getattr(torch, device.split(":")[0]).get_device_name(device))


def cpu_name() -> str:
    """The processor's model name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _absent(device: str) -> str:
    """Why there is plainly no such device here, so that `auto` need not warn; empty when there might be one."""
    if device.startswith("npu") and importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed"
    if device.startswith("cuda") and not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} is built without CUDA"
    return ""


def _first_line(e: BaseException) -> str:
    return next(iter(str(e).strip().splitlines()), "")


def versions(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Versions of what must fit together; None: not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("torch", "torch_npu", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    found["cuda"] = torch.version.cuda
    found["cann"] = cann_version(environ)
    return found


def cann_version(environ: Mapping[str, str]) -> str | None:
    """Version of the CANN toolkit whose set_env.sh was sourced, or of the one in its usual place."""
    usual = "/usr/local/Ascend/ascend-toolkit/latest"
    home = Path(environ.get("ASCEND_TOOLKIT_HOME") or environ.get("ASCEND_HOME_PATH") or usual)
    for info in sorted((*home.glob("version.*"), *home.glob("*/ascend_toolkit_install.info"))):
        with contextlib.suppress(OSError):
            if match := re.search(r"version\s*=\s*\[?\"?([\d.]+\w*)", info.read_text(errors="replace"), re.I):
                return match[1]
    return None


def series(installed: Mapping[str, str | None]) -> list[Finding]:
    """A warning where torch and torch_npu are not of one series (2.7.1 with 2.7.1.post4)."""
    torch_version, npu_version = installed.get("torch"), installed.get("torch_npu")
    if not torch_version or not npu_version or _series(torch_version) == _series(npu_version):
        return []
    found = f"torch {torch_version} with torch_npu {npu_version} and CANN {installed.get('cann') or 'not found'}"
    action = f"pip install torch=={_series(npu_version)}, or the torch_npu of torch's version"
    return [warn("device-series", "versions", found, "torch and torch_npu of one version", action)]


def _series(version: str) -> str:
    match = re.match(r"\d+\.\d+(\.\d+)?", version)
    return match[0] if match else version


def main(device: str) -> Probe:
    """The throw-away process: compute, or say what went wrong."""
    try:
        if device.startswith("cuda") and torch.cuda.device_count() == 0 and not Path("/dev/nvidiactl").exists():
            return Probe(device, present=False, why="no NVIDIA driver")
        _load(device)
        name = _name(device)
        _compute(torch.device(device))
    except Exception as e:
        why = f"{type(e).__name__}: {_first_line(e)}"
        if device.startswith("npu") and isinstance(e, (ImportError, OSError)):
            why = f"torch_npu is present but unusable ({_first_line(e)}; is CANN's set_env.sh sourced?)"
        return Probe(device, why=why, detail=[])
    return Probe(device, ok=True, name=name)


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1]))))
