"""Where the policy runs: the only file that names a back-end.

`look` decides (an explicit device is a requirement; `auto` goes by environment variables, then by what is found), and
believes a device only after it has computed in a throw-away process: ``python -m q1pipe.learn.device cuda:0``.
`require` refuses what it could not find; a person who wants to know what is there does without.
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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from q1pipe.config import DeviceCfg
from q1pipe.errors import DeviceError, Finding, error, first, warn
from q1pipe.learn import smi
from q1pipe.learn.wish import VARIABLE, wish
from q1pipe.log import PROGRESS_SECONDS

log = logging.getLogger(__name__)

KINDS = ("npu", "cuda", "cpu")  # in the order of `auto`
PATTERN = re.compile(r"cpu|(cuda|npu)(:\d+)?")
VARIABLES = {VARIABLE: None, "CUDA_VISIBLE_DEVICES": "cuda", "ASCEND_RT_VISIBLE_DEVICES": "npu"}
DEVICE_FILES = Path("/dev")  # davinci0 …: the driver's
ASCEND = Path("/usr/local/Ascend")  # where CANN and the driver are, unless somebody put them elsewhere
NVIDIA = Path("/proc/driver/nvidia/version")
CROWDED = 0.5  # share of a card's memory in use by others from which on it is worth a warning

# What torch_npu was made for, by its makers' table of versions; 2.7.1.post4 is in use with CANN 9.1 as well.
CANN_OF = {
    "2.7.1": ("8.3",),
    "2.7.1.post2": ("8.5",),
    "2.7.1.post4": ("9.0", "9.1"),
    "2.7.1.post8": ("9.1",),
    "2.8.0": ("8.3",),
    "2.8.0.post2": ("8.5",),
    "2.8.0.post4": ("9.0",),
    "2.9.0": ("8.5",),
    "2.9.0.post2": ("9.0",),
    "2.9.0.post6": ("9.1",),
    "2.10.0": ("9.0",),
    "2.10.0.post4": ("9.1",),
    "2.11.0": ("9.1",),
    "2.12.0": ("9.1",),
}
# As torch_npu words it, in several ways: an operator that the device lacks
FALLBACK = re.compile(r"operator '?(aten::\w+).*fall ?back", re.S)
HARMLESS = {"padding size": r"\d+ padding size", "owner mismatch": r"owner does not match"}
RTOL = 1e-2  # of the device's results against the CPU's; NPUs multiply matrices in reduced precision


@dataclass
class Probe:
    """What came of one try to compute on a device.

    Attributes:
        device: as asked for, with its index, such as ``npu:0``.
        ok: it computed and agreed with the CPU.
        present: something of it is there (hardware or driver package), so a failure is worth a warning.
        name: of the hardware.
        cards: how many of its kind this process sees.
        free: bytes of its memory that nobody uses; 0: unknown.
        total: bytes of its memory; 0: unknown.
        why: what failed, one line; empty when ok.
        detail: last lines of the process that failed.
    """

    device: str
    ok: bool = False
    present: bool = True
    name: str = ""
    cards: int = 0
    free: int = 0
    total: int = 0
    why: str = ""
    detail: list[str] = field(default_factory=list)


def require(record: Mapping[str, Any]) -> None:
    """Stop where `look` found no device.

    Raises:
        DeviceError: a device that was asked for, in the configuration or by the ruling variable, does not compute.
    """
    if not record["device"]:
        raise DeviceError(*(Finding(**f) for f in record["findings"] if f["level"] == "ERROR"))


def look(cfg: DeviceCfg, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Decide on a device that computes, and say what was found on the way.

    Args:
        cfg: the device asked for, and the probe's time limit.
        environ: environment variables; none: this process's.

    Returns:
        The record for device.json: device (empty: none, with an ERROR among the findings), name, why, requested,
        automatic (the choice is plainly the same without PRIMEBOT_DEVICE), cards, variables, versions, memory, tried,
        smi, findings.
    """
    environ = dict(os.environ if environ is None else environ)
    tried: list[Probe] = []
    findings: list[Finding] = []
    table = smi.read(environ)

    def attempt(device: str) -> Probe:
        tried.append(probe(device, cfg.timeout, environ))
        return tried[-1]

    asked, by = cfg.device, "config: device.device"
    if asked != "auto" and (wished := wish(environ)) not in ("", asked):
        findings.append(warn("device-variable", by, f"{asked} overrides {VARIABLE}={wished}"))
    why = ""
    try:
        if asked == "auto":
            asked, by = ruling_variable(environ)
        if asked:
            if not attempt(asked).ok:
                others = [device for device in ("npu:0", "cuda:0") if device != tried[0].device]
                exist = [p.device for p in map(attempt, others) if p.ok] + ["cpu"]
                raise DeviceError(refusal(tried[0], by, exist))
            chosen, why = tried[0], f"asked for by {by}"
        else:
            chosen = automatic(attempt, findings)
            why = "auto: " + "; ".join([f"no {p.device} ({p.why})" for p in tried[:-1]] + [f"{chosen.device} computes"])
    except DeviceError as e:
        findings += e.findings
        chosen = Probe("")
    installed = versions(environ)
    findings += series(installed) + advisory(chosen, table)
    cards = chosen.cards if asked in ("", chosen.device.partition(":")[0]) else 1
    return {
        "device": chosen.device,
        "name": chosen.name,
        "why": why,
        "requested": cfg.device,
        "automatic": cards == chosen.cards and _unasked(environ) == chosen.device,
        "cards": cards,
        "variables": {name: environ[name] for name in VARIABLES if name in environ},
        "versions": installed,
        "memory": {"free": chosen.free, "total": chosen.total},
        "tried": [asdict(p) for p in tried],
        "smi": asdict(table),
        "findings": [f.record() for f in findings],
    }


def automatic(attempt: Callable[[str], Probe], findings: list[Finding]) -> Probe:
    """The first kind of device that computes; what is there and does not is among the findings."""
    for kind in KINDS:
        result = attempt(kind)
        if result.ok:
            return result
        if result.present:
            hint = f"nothing, or {_remedy(result)} and delete results/device.json"
            findings.append(warn("device-unusable", kind, _reason(result), "a device that computes", hint))
    raise DeviceError(refusal(result, "auto", []))


def ruling_variable(environ: Mapping[str, str]) -> tuple[str, str]:
    """The device that the first of VARIABLES with a wish asks for, and that variable; empty when none does.

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


def _unasked(environ: Mapping[str, str]) -> str:
    """The device that `auto` tries first without PRIMEBOT_DEVICE, of those that are not plainly absent or hidden."""
    asked, _ = ruling_variable({**environ, "PRIMEBOT_DEVICE": ""})
    return _indexed(asked or next(kind for kind in KINDS if not (_absent(kind) or hidden(kind, environ))))


def hidden(device: str, environ: Mapping[str, str]) -> str:
    """Why a visible-devices variable cannot be right, whatever the machine has; empty when it can."""
    kind = device.partition(":")[0]
    name = next((n for n, k in VARIABLES.items() if k == kind), "")
    value = environ.get(name)
    if value is None:
        return ""
    items = [item.strip() for item in value.split(",")]
    if value.strip() in ("", "-1"):
        return f"{name}='{value}' hides all cards"
    if kind == "npu" and not all(item.isdigit() for item in items):
        return f"{name}={value} is not a list of card numbers"
    if kind == "npu" and [int(i) for i in items] != sorted({int(i) for i in items}):
        return f"{name}={value} must be ascending, each card once"
    return ""


def refusal(result: Probe, by: str, exist: list[str]) -> Finding:
    """The error for a device that was asked for and does not compute."""
    found = f"{result.device} does not compute: {_reason(result)}"
    allowed = f"devices that compute here: {', '.join(exist) or 'none'}"
    return error("device", by, found, allowed, f"ask for one of these, or {_remedy(result)}")


def advisory(chosen: Probe, table: smi.Table) -> list[Finding]:
    """What the driver's own tool and the chosen card's memory are worth a warning for."""
    findings = []
    if table.state == smi.UNCLEAR:
        action = "nothing: a computation decides, not this table"
        findings.append(warn("npu-smi", "npu-smi info", f"not understood: {table.why}", action=action))
    for card in table.cards:
        if card.health not in ("OK", "") and not chosen.device.startswith("cuda"):
            found = f"card {card.number} chip {card.chip} ({card.name}): health {card.health}"
            findings.append(warn("npu-smi", "npu-smi info", found, "OK", "ask whoever runs the machine"))
    used = chosen.total - chosen.free
    if used > CROWDED * chosen.total:
        found = f"{_gb(used)} of {_gb(chosen.total)} GB are in use by others{_who(table)}"
        findings.append(
            warn("device-memory", chosen.device, found, action="wait for them, end them, or choose another card")
        )
    if table.cards and importlib.util.find_spec("torch_npu") is None:
        found = f"npu-smi lists {len(table.cards)} cards, but torch_npu is not installed"
        action = f"pip install torch_npu=={_series(torch.__version__)}.* to use them"
        findings.append(warn("device-unused", "npu-smi info", found, action=action))
    return findings


def _who(table: smi.Table) -> str:
    names = [f"process {p.pid} {p.name}, {p.mb} MB".replace(" ,", ",") for p in table.processes]
    return f": {first(names)}" if names else ""


def _gb(size: int) -> str:
    return f"{size / 2**30:.1f}"


def _remedy(result: Probe) -> str:
    """What may make a device compute."""
    if "set_env.sh" in result.why:
        return f"source {set_env()}"
    if "VISIBLE_DEVICES" in result.why:
        return "set the variable right, or unset it"
    if "not installed" in result.why:
        return f"pip install torch_npu=={_series(torch.__version__)}.* where CANN of its series is"
    return "mend it"


def set_env() -> str:
    """The script that makes CANN's libraries findable."""
    usual = ASCEND / "ascend-toolkit/set_env.sh"
    own = Path.home() / "Ascend/ascend-toolkit/set_env.sh"
    there = [path for path in (usual, ASCEND / "cann/set_env.sh", own) if path.exists()]
    return str(there[0]) if there else f"{usual} (there is none: install CANN, or use its image)"


def _reason(result: Probe) -> str:
    return " | ".join([result.why, *result.detail[-5:]])


def probe(device: str, timeout: float, environ: Mapping[str, str]) -> Probe:
    """Let a throw-away process compute on a device: a broken driver may hang, abort or leave the device locked."""
    device = _indexed(device)
    if why := _absent(device):
        return Probe(device, present=device.startswith("npu") and any(DEVICE_FILES.glob("davinci[0-9]*")), why=why)
    if why := hidden(device, environ):
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
    waited = 0.0
    while True:
        try:
            out, err = process.communicate(timeout=min(PROGRESS_SECONDS, timeout - waited))
            break
        except subprocess.TimeoutExpired:
            waited += PROGRESS_SECONDS
        if waited < timeout:
            log.info("%s: no answer yet, %g s of %g", device, waited, timeout)
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Probe(device, why=f"did not answer within {timeout:g} s", detail=_tail(err))
    try:
        return Probe(**json.loads(out.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return Probe(device, why=f"the probe ended with code {process.returncode}", detail=_tail(err))


def _indexed(device: str) -> str:
    return device if device == "cpu" or ":" in device else f"{device}:0"


def _tail(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()][-5:]


def use(device: str, need: int = 0) -> torch.device:
    """Make a device ready in this process and prove that it computes.

    Args:
        device: of device.json. Where PRIMEBOT_DEVICE has changed since, a warning says that it comes too late.
        need: bytes of its memory that the run takes.

    Raises:
        DeviceError: it does not, or has less memory free than the run takes.
    """
    wished = wish(os.environ)
    if not device.startswith(wished):
        found, action = (
            f"the device check chose {device}, going on with it",
            "`snakemake results/device.json` chooses anew",
        )
        log.warning(warn("device-variable", f"{VARIABLE}={wished}", found, action=action))
    try:
        _load(device)
        _compute(torch.device(device))
        free, total = memory(device)
    except Exception as e:
        found = f"{device} does not compute in this process: {type(e).__name__}: {_first_line(e)}"
        action = "delete results/device.json so that the device is chosen anew"
        raise DeviceError(error("device", "device.json", found, "the device that was checked", action)) from e
    if total and free < need:
        raise DeviceError(memory_short(device, f"{_gb(free)} of {_gb(total)} GB are free, the run needs {_gb(need)}"))
    return torch.device(device)


def memory_short(device: str, found: str) -> Finding:
    """The error for a run that does not fit into a device's memory."""
    found += _who(smi.read(os.environ))
    action = "end what holds it (q1pipe stop <motion>, kill <pid>), another card, or a smaller train.num_envs"
    return error("device-memory", device, found, "room for the rollout, the networks and a mini-batch", action)


def out_of_memory(e: BaseException) -> bool:
    """Whether a device had no room; not every back-end has its own exception for it."""
    return isinstance(e, RuntimeError) and "out of memory" in str(e).lower()


def memory(device: str) -> tuple[int, int]:
    """Bytes free and in all on a device; zeros where the back-end does not tell, as for the CPU."""
    module = getattr(torch, device.partition(":")[0])
    if device == "cpu" or not hasattr(module, "mem_get_info"):
        return 0, 0
    free, total = module.mem_get_info(device)
    return int(free), int(total)


@dataclass
class Fallbacks:
    """What a back-end warned of while it was watched.

    Attributes:
        operators: names of those that ran on the CPU instead, and how often it was said.
        harmless: warnings that mean nothing, by what they are about.
    """

    operators: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def watched() -> Iterator[Fallbacks]:
    """Count a back-end's warnings of what it cannot do itself, and of nothing; others are shown as ever."""
    seen, show = Fallbacks(), warnings.showwarning

    def look_at(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        about = next((name for name, pattern in HARMLESS.items() if re.search(pattern, text)), "")
        if about:
            seen.harmless[about] += 1
        elif match := FALLBACK.search(text):
            seen.operators[match[1]] += 1
        else:
            show(message, *args, **kwargs)

    with warnings.catch_warnings():
        for known in (*HARMLESS.values(), FALLBACK.pattern):  # python shows a warning once; here each counts
            warnings.filterwarnings("always", message=f"(?s:.*){known}")
        warnings.showwarning = look_at
        yield seen


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


def fast_in_bf16(device: torch.device) -> bool:
    """Whether it is known to multiply matrices much faster in bfloat16: a processor with AMX."""
    return device.type == "cpu" and "amx_bf16" in _of_cpu("flags").split()


def _name(device: str) -> str:
    if device == "cpu":
        return cpu_name()
    return str(getattr(torch, device.split(":")[0]).get_device_name(device))


def cpu_name() -> str:
    """The processor's model name."""
    return _of_cpu("model name") or platform.processor() or platform.machine()


def _of_cpu(field: str) -> str:
    """What Linux says of the first processor; empty where it says nothing."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(field):
                return line.split(":", 1)[1].strip()
    return ""


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
    found["npu_driver"] = _version_in(ASCEND / "driver/version.info", r"^Version\s*=\s*(\S+)")
    found["cuda_driver"] = _version_in(NVIDIA, r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)")
    return found


def _version_in(file: Path, pattern: str) -> str | None:
    with contextlib.suppress(OSError):
        if match := re.search(pattern, file.read_text(errors="replace"), re.I | re.M):
            return match[1]
    return None


def cann_version(environ: Mapping[str, str]) -> str | None:
    """Version of the CANN toolkit whose set_env.sh was sourced, or of the one in its usual place."""
    usual = ASCEND / "ascend-toolkit/latest"
    home = Path(environ.get("ASCEND_TOOLKIT_HOME") or environ.get("ASCEND_HOME_PATH") or usual)
    for info in sorted((*home.glob("version.*"), *home.glob("*/ascend_toolkit_install.info"))):
        if version := _version_in(info, r"version\s*=\s*\[?\"?([\d.]+\w*)"):
            return version
    return None


def series(installed: Mapping[str, str | None]) -> list[Finding]:
    """Warnings where torch, torch_npu and CANN are not of one series (2.7.1 with 2.7.1.post8 and 9.1)."""
    torch_version, npu_version = installed.get("torch"), installed.get("torch_npu")
    if not torch_version or not npu_version:
        return []
    cann, findings = installed.get("cann"), []
    found = f"torch {torch_version} with torch_npu {npu_version} and CANN {cann or 'not found'}"
    if _series(torch_version) != _series(npu_version):
        action = f"pip install torch=={_series(npu_version)}, or the torch_npu of torch's version"
        findings.append(warn("device-series", "versions", found, "torch and torch_npu of one version", action))
    made_for = CANN_OF.get(npu_version, ())
    if cann and made_for and not cann.startswith(made_for):
        fitting = [v for v, canns in CANN_OF.items() if cann.startswith(canns) and _series(v) == _series(torch_version)]
        action = f"install CANN {made_for[-1]}" + (f", or torch_npu {fitting[-1]}" if fitting else "")
        findings.append(warn("device-series", "versions", found, f"CANN {' or '.join(made_for)}", action))
    return findings


def _series(version: str) -> str:
    match = re.match(r"\d+\.\d+(\.\d+)?", version)
    return match[0] if match else version


def main(device: str) -> Probe:
    """The throw-away process: compute, or say what went wrong."""
    kind, _, index = device.partition(":")
    cards = 0
    try:
        if kind == "cuda" and torch.cuda.device_count() == 0 and not Path("/dev/nvidiactl").exists():
            return Probe(device, present=False, why="no NVIDIA driver")
        if kind == "npu":
            importlib.import_module("torch_npu")
        if kind != "cpu":
            cards = int(getattr(torch, kind).device_count())
            if int(index) >= cards:
                return Probe(device, cards=cards, why=_too_few(kind, int(index), cards))
        _load(device)
        name = _name(device)
        _compute(torch.device(device))
        free, total = memory(device)
    except Exception as e:
        why = f"{type(e).__name__}: {_first_line(e)}"
        if kind == "npu" and isinstance(e, (ImportError, OSError)):
            why = f"torch_npu is present but unusable ({_first_line(e)}; is CANN's set_env.sh sourced?)"
        return Probe(device, cards=cards, why=why, detail=[])
    return Probe(device, ok=True, name=name, cards=cards, free=free, total=total)


def _too_few(kind: str, index: int, cards: int) -> str:
    """Why there is no card of this number, with the variable that may have hidden it."""
    name = next(n for n, k in VARIABLES.items() if k == kind)
    shown = f"; {name}={os.environ[name]} must name cards that exist" if name in os.environ else ""
    return f"there is no card {index}, visible: {cards}{shown}"


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1]))))
