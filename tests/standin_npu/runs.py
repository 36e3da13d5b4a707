"""What tests let the real trainer do, in a process of its own: `python -m tests.standin_npu.runs NAME,NAME DEVICE`.

Prints what came of it as JSON. A process of its own, because torch never forgets a back-end.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from q1pipe import cores
from q1pipe.config import DeviceCfg, PolicyCfg, PpoCfg, RobotCfg, SmokeCfg, TrainCfg
from q1pipe.errors import Q1Error
from q1pipe.learn import checkpoint
from q1pipe.learn.buffer import LIBRARIES, bytes_needed
from q1pipe.learn.device import use
from q1pipe.learn.trainer import Trainer
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.workers import WorkerPool
from q1pipe.stages import smoke, train
from q1pipe.stopping import Stopping
from tests.clips import standing_clip
from tests.standin_npu.copies import Copies
from tests.unit.stages.test_train import TINY, rows

SHORT = TINY.model_copy(update={"max_iterations": 2, "save_interval": 9})


class InTurn(WorkerPool):
    """The plain loop: a part's step is over before anything else is done."""

    def start(self, t: int, part: int) -> None:
        super().start(t, part)
        super().wait()

    def wait(self) -> None:
        pass


class Watched(Trainer):
    """Notes what each iteration copies: while it collects, and after that."""

    iterations: list[dict[str, Any]]

    def collect(self) -> Any:
        return self.watch("collect", super().collect)

    def advance(self) -> Any:
        if self.iteration == 0:
            type(self).iterations = []
        self.iterations.append({})
        whole = self.watch("whole", super().advance)
        first, second = (self.iterations[-1][name] for name in ("whole", "collect"))
        self.iterations[-1]["rest"] = {name: first[name] - second[name] for name in first}
        return whole

    def watch(self, name: str, do: Callable[[], Any]) -> Any:
        standin = sys.modules.get("torch_npu")
        counts, operators = (standin.counts(), standin.operators()) if standin else ({}, {})
        with Copies() as copies:
            result = do()
        said = self.iterations[-1]
        said[name] = copies.counts()
        if standin:
            said[f"{name}, natively"] = {kind: standin.counts()[kind] - counts[kind] for kind in said[name]}
            now = standin.operators()
            said[f"{name}, operators"] = sorted(n for n in now if now[n] > operators.get(n, 0))
        return result


def motion(folder: Path) -> Path:
    path = folder / "motion.npz"
    standing_clip(Robot.load(RobotCfg()), frames=12).save(path)
    return path


def go(device: torch.device, folder: Path, cfg: TrainCfg, trainer: type = Trainer, pool: type = WorkerPool) -> Trainer:
    """Train in a folder, and go on where it ended."""
    folder.mkdir(exist_ok=True)
    path, robot = motion(folder), Robot.load(RobotCfg())
    before = train.Trainer, train.WorkerPool
    train.Trainer, train.WorkerPool = trainer, pool
    try:
        of = (RobotCfg(), robot, path, Clip.load(path), cfg, cores.available())
        return train.train(*of, device, folder, {}, None, Stopping())
    finally:
        train.Trainer, train.WorkerPool = before


def copies(device: str, folder: Path) -> Any:
    """What each iteration copies, in halves and whole."""
    found = {}
    for name, halves in (("halves", True), ("whole", False)):
        go(use(device), folder / name, SHORT.model_copy(update={"half_batches": halves}), Watched)
        found[name] = Watched.iterations
    return found


def halves(device: str, folder: Path) -> Any:
    """Rows of train.csv: in turn, one after the other, with several numbers of workers, interrupted."""
    cfg = SHORT.model_copy(update={"half_batches": True})
    found = {}
    for name, workers, pool in (("in turn", 1, WorkerPool), ("three workers", 3, WorkerPool), ("plain", 1, InTurn)):
        changed = cfg.model_copy(update={"num_envs": 9, "num_workers": workers})
        go(use(device), folder / name, changed, pool=pool)
        found[name] = rows(folder / name / "train.csv")
    changed = {"num_envs": 9, "num_workers": 1, "max_iterations": 1}
    go(use(device), folder / "resumed", cfg.model_copy(update=changed))
    go(use(device), folder / "resumed", cfg.model_copy(update={**changed, "num_workers": 9, "max_iterations": 2}))
    found["resumed"] = rows(folder / "resumed" / "train.csv")
    return found


def devices(device: str, folder: Path) -> Any:
    """A run that changes its device: what it wrote, and where its checkpoint's tensors are."""
    for asked, last in ((device, 2), ("cpu", 4), (device, 6)):
        go(use(asked), folder, TINY.model_copy(update={"max_iterations": last}))
    newest = checkpoint.newest(folder)
    assert newest
    raw = torch.load(newest[0], weights_only=True)  # where the tensors were saved from
    kinds = sorted({str(x.device) for x in raw["policy"]["state"].values() if isinstance(x, torch.Tensor)})
    return {"rows": rows(folder / "train.csv"), "kinds": kinds, "of": raw["rng"]["of"]}


def smoked(device: str, folder: Path) -> Any:
    """smoke.json of the stage."""
    path, out = motion(folder), folder / "smoke.json"
    (folder / "device.json").write_text(json.dumps({"device": device, "name": "stand-in", "cards": 1}))
    settings = {"robot": RobotCfg(), "train": TINY, "device": DeviceCfg(), "smoke": SmokeCfg(num_envs=4, iterations=2)}
    smoke.run(path, folder / "motion.json", folder / "device.json", out, 2, settings)
    return json.loads(out.read_text())


def memory(device: str, folder: Path) -> Any:
    """Peak of a run's memory against the estimate; and what happens where there is less."""
    standin = sys.modules["torch_npu"]
    target, robot = use(device), Robot.load(RobotCfg())
    # what a mini-batch needs rules
    large = {"policy": PolicyCfg(hidden=(512, 512)), "ppo": PpoCfg(mini_batches=1, epochs=2)}
    cfg = SHORT.model_copy(update={"max_iterations": 1, "num_envs": 64, "steps_per_env": 24, **large})
    standin.clear()
    go(target, folder / "free", cfg)
    peak, need = standin.peak(), bytes_needed(cfg, train.shape_of(robot)) - LIBRARIES
    messages = []

    class Kept(Trainer):
        def shrink(self, why: str) -> None:
            messages.append(why)
            super().shrink(why)

    os.environ["STANDIN_NPU_MEMORY"] = str(int(0.9 * peak))
    trainer = go(target, folder / "short", cfg, Kept)
    os.environ["STANDIN_NPU_MEMORY"] = str(int(0.7 * peak))
    findings = []
    try:
        go(target, folder / "little", cfg)
    except (Q1Error, RuntimeError) as e:
        findings = [str(e)]
    del os.environ["STANDIN_NPU_MEMORY"]
    return {
        "peak": peak,
        "need": need,
        "messages": messages,
        "mini_batches": trainer.ppo.mini_batches,
        "little": findings,
    }


def behaviour(device: str, folder: Path) -> Any:
    """What the stand-in itself does."""
    standin, npu = sys.modules["torch_npu"], torch.device(device)

    def said(do: Callable[[], Any]) -> str:
        try:
            return f"done: {do()}"
        except RuntimeError as e:
            return str(e).splitlines()[0]

    x, generator = torch.ones(3, device=npu), torch.Generator(device=npu).manual_seed(1)
    standin.clear()
    y = torch.full((3,), 2.0).to(npu)
    z = (x + y).cpu()
    item = (x * y).sum().item()
    counts, operators = standin.counts(), sorted(standin.operators())
    state = generator.get_state()
    first = torch.rand(4, generator=generator, device=npu).cpu()
    generator.set_state(state)
    return {
        "values": [*z.tolist(), item],
        "counts": counts,
        "operators": operators,
        "mixed": said(lambda: x + torch.ones(3)),
        "number": said(lambda: (x + torch.tensor(1.0)).cpu().tolist()),
        "float64": said(lambda: x.double()),
        "float64 from numpy": said(lambda: torch.from_numpy(np.zeros(3)).to(npu)),
        "another card": said(lambda: torch.zeros(3, device="npu:7")),
        "again": torch.equal(first, torch.rand(4, generator=generator, device=npu).cpu()),
        "format": said(lambda: torch.Generator().set_state(state)),
    }


def warned(device: str, folder: Path) -> Any:
    """What is counted of the back-end's warnings."""
    import warnings

    from q1pipe.learn.device import watched

    x = torch.ones(3, device=device)
    with warnings.catch_warnings(record=True) as shown, watched() as seen:
        for _ in range(2):
            torch.logcumsumexp(x, 0)
        warnings.warn("requires processing for 32 padding size, with memory allocation", stacklevel=1)
        warnings.warn("x.py owner does not match current owner", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    return {"operators": seen.operators, "harmless": seen.harmless, "shown": [str(w.message) for w in shown]}


if __name__ == "__main__":
    name, device = sys.argv[1:3]
    if importlib.util.find_spec("torch_npu"):
        use(device)
    with tempfile.TemporaryDirectory() as folder:
        result = {n: globals()[n](device, Path(folder) / n) for n in name.split(",") if not (Path(folder) / n).mkdir()}
    print(json.dumps(result))
