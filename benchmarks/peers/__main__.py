"""`python -m benchmarks.peers`: every contest, one table, one JSON. `--only loop` for one; `--envs 64` to try it."""

from __future__ import annotations

import json
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.peers import g1, q1
from benchmarks.peers.contest import Contestant, FailedError, compare, rounds
from benchmarks.peers.quality import quality
from benchmarks.peers.venvs import CACHE, NotInstallableError, python_of
from q1pipe import cores
from q1pipe.config import load_settings
from q1pipe.learn.device import cpu_name
from q1pipe.robot import Robot

Options = dict[str, Any]
Entries = list[dict[str, Any]]
OURS = "q1pipe"
WHOLE, HALF = {"autocast": None}, {"autocast": "bf16"}
EPISODES = 32  # that judge quality
LEVELS = (("score", 0.25), ("score", 0.5), ("score", 0.75), ("finished", 0.95))  # of `quality`
TABLE = "{:30} {:26} {:>9} {:>9} {:>9}  {:>11}  {}"


def loop(o: Options, files: Path) -> Entries:
    """Collection, update and all of it: UniLab's G1 tracking, q1pipe on the same task, and the physics alone."""
    python, shared, ours = g1_task(o, files)
    made = g1_settings(o, plain=True)
    settings = ours | {"settings": with_training(made, WHOLE), "folder": str(folder(files, "float32"))}
    half = ours | {"settings": with_training(made, HALF), "folder": str(folder(files, "bfloat16"))}
    asked = {
        "UniLab": (python, "run_unilab.py", shared),
        OURS: (sys.executable, "run_q1pipe.py", settings),
        f"{OURS}, bfloat16": (sys.executable, "run_q1pipe.py", half),
        "raw Batch.step": (sys.executable, "run_raw.py", settings),
    }
    answers, ready = contest(asked, o["rounds"])
    samples = o["envs"] * o["steps"]
    entries = []
    for what, seconds, unit in (
        ("whole loop", "seconds", "env steps/s"),
        ("collection", "collect_s", "env steps/s"),
        ("update", "update_s", "samples/s"),
    ):
        took = {name: [a.get(seconds) for a in given] for name, given in answers.items()}
        if what != "update":
            took["raw Batch.step"] = [a["seconds"] for a in answers["raw Batch.step"]]
        else:
            del took["raw Batch.step"]
        entries += table(what, unit, {name: [samples / s for s in given] for name, given in took.items()}, ready)
    return entries


def collection(o: Options, files: Path) -> Entries:
    """Steps of the Q1's physics alone, by two ways to many simulations; q1pipe's step has all the task in it."""
    python = python_of("gymnasium", o["cache"], {"mujoco": version("mujoco")})
    entries = []
    few = min(o["envs"], o["processes"])
    for peer, script, envs in (
        ("gymnasium AsyncVectorEnv", "run_gymnasium.py", few),
        ("mujoco.rollout", "run_rollout.py", o["envs"]),
    ):
        settings = q1.settings_of(envs, o["steps"])
        model, rollout = files / "q1.mjb", files / "q1.npz"
        q1.record(settings, model, rollout)
        theirs = {"model": str(model), "rollout": str(rollout), "envs": envs, "threads": cores.available()}
        asked = {
            peer: (python, script, theirs),
            OURS: (sys.executable, "run_pool.py", {"settings": settings}),
        }
        answers, ready = contest(asked, o["rounds"])
        rates = {name: [envs * o["steps"] / a["seconds"] for a in given] for name, given in answers.items()}
        entries += table(f"collection, Q1, {envs} envs", "env steps/s", rates, ready)
    return entries


def update(o: Options, files: Path) -> Entries:
    """PPO's update alone: the same batch size, mini-batches, epochs and networks."""
    python = python_of("sb3", o["cache"], {})
    sizes = {name: o[name] for name in ("envs", "steps", "hidden")} | {"threads": cores.available()}
    asked = {
        "stable-baselines3": (python, "run_sb3.py", sizes | {"epochs": 5, "mini_batches": 4}),
        OURS: (sys.executable, "run_ppo.py", sizes | {"bf16": False}),
        f"{OURS}, bfloat16": (sys.executable, "run_ppo.py", sizes | {"bf16": True}),
    }
    answers, ready = contest(asked, o["rounds"])
    samples = o["envs"] * o["steps"]
    rates = {name: [samples / a["seconds"] for a in given] for name, given in answers.items()}
    return table("PPO update", "samples/s", rates, ready)


def time_to_quality(o: Options, files: Path) -> Entries:
    """Training time until each tracks the clip so well for the first time, or all of its minutes.

    Starting up and judging do not count. It is judged every few iterations, the untrained policy is not.
    """
    python, shared, ours = g1_task(o, files)
    settings = g1_settings(o, plain=False)
    settings["train"] |= {"save_interval": o["judge_every"]}
    made = load_settings(json.dumps(settings))
    robot, clip = Robot.load(made["robot"]), g1.squat(Robot.load(made["robot"]))
    watched = {"iterations": o["judge_every"], "play": EPISODES}
    asked = {
        OURS: (sys.executable, "run_q1pipe.py", ours | watched | {"settings": settings, "folder": str(files)}),
        "UniLab": (python, "run_unilab.py", shared | watched),
    }
    curves: dict[str, list[dict[str, float]]] = {name: [] for name in asked}
    with ExitStack() as stack:
        contestants = [stack.enter_context(Contestant(name, *what)) for name, what in asked.items()]
        while turns := [c for c in contestants if unfinished(curves[c.name], 60 * o["cap"])]:
            for contestant in turns:
                curve, seconds = curves[contestant.name], contestant.turn()["seconds"]
                played = Path(asked[contestant.name][2]["trajectory"])
                curve.append({"seconds": spent(curve) + seconds, **quality(played, robot, clip)})
                said = "  ".join(f"{k} {v:.3f}" for k, v in curve[-1].items())
                typer.echo(f"  {contestant.name:10} {said}")
    entries = []
    for key, least in LEVELS:
        took = {name: first(curve, key, least) for name, curve in curves.items()}
        for name, curve in curves.items():
            seconds = took[name] or spent(curve)
            figures = {
                "median": seconds,
                "ratio": seconds / (took[OURS] or math.nan),
                "reached": took[name] is not None,
            }
            what = {"contest": f"time to {key} {least}", "contestant": name, "unit": "s of training"}
            entries.append({**what, **figures, "curve": curve})
    return entries


def first(curve: list[dict[str, float]], key: str, least: float) -> float | None:
    """Seconds of training until something was at least so much."""
    return next((point["seconds"] for point in curve if point[key] >= least), None)


def unfinished(curve: list[dict[str, float]], cap: float) -> bool:
    """Whether it has seconds left, and something to reach."""
    return spent(curve) < cap and any(first(curve, key, least) is None for key, least in LEVELS)


def spent(curve: list[dict[str, float]]) -> float:
    """Seconds of training so far."""
    return curve[-1]["seconds"] if curve else 0.0


CONTESTS: dict[str, Callable[[Options, Path], Entries]] = {
    "loop": loop,
    "collection": collection,
    "update": update,
    "quality": time_to_quality,
}


def g1_task(o: Options, files: Path) -> tuple[Path, Options, Options]:
    """UniLab's Python, and what both are told of the task: UniLab, q1pipe."""
    python = python_of("unilab", o["cache"], {})
    o["g1"] = g1.working_folder(python, o["cache"])
    robot = Robot.load(load_settings(json.dumps(g1_settings(o, plain=True)))["robot"])
    clip = g1.squat(robot)
    clip.save(files / "g1.npz")
    g1.save_for_unilab(clip, files / "g1-unilab.npz")
    both = {"iterations": 1, "threads": cores.available(), "play": 0}
    theirs = {name: o[name] for name in ("envs", "steps", "hidden")} | {"frames": clip.frames, "folder": str(o["g1"])}
    theirs |= {"clip": str(files / "g1-unilab.npz"), "trajectory": str(files / "unilab-played.npz")}
    ours = {"clip": str(files / "g1.npz"), "trajectory": str(files / "q1pipe-played.npz")}
    return python, both | theirs, both | ours


def g1_settings(o: Options, *, plain: bool) -> Options:
    """q1pipe's settings of the G1 task."""
    return g1.settings_of(o["g1"], o["envs"], o["steps"], o["hidden"], plain=plain)


def with_training(settings: Options, changes: Options) -> Options:
    """Settings, with some of `train` changed."""
    return settings | {"train": settings["train"] | changes}


def folder(files: Path, name: str) -> Path:
    """A new folder."""
    made = files / name
    made.mkdir()
    return made


def contest(
    asked: dict[str, tuple[Path | str, str, Options]], count: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Answers of `count` rounds, and what each said when it was ready."""
    with ExitStack() as stack:
        contestants = [stack.enter_context(Contestant(name, *what)) for name, what in asked.items()]
        return rounds(contestants, count), {c.name: c.ready for c in contestants}


def table(what: str, unit: str, rates: dict[str, list[float]], ready: dict[str, dict[str, Any]]) -> Entries:
    """Entries of one contest."""
    compared = compare(rates, OURS)
    return [
        {"contest": what, "contestant": name, "unit": unit, "rounds": rates[name], **compared[name], **ready[name]}
        for name in rates
    ]


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"contests: {', '.join(CONTESTS)}; all but quality")] = None,
    envs: Annotated[int, typer.Option(help="environments")] = 1024,
    steps: Annotated[int, typer.Option(help="control steps of an iteration")] = 24,
    hidden: Annotated[str, typer.Option(help="layers of both networks")] = "512,256,128",
    rounds_: Annotated[int, typer.Option("--rounds", help="after one that does not count")] = 5,
    processes: Annotated[int, typer.Option(help="most environments that get a process each")] = 64,
    cap: Annotated[float, typer.Option(help="most minutes of training for quality, each")] = 25.0,
    judge_every: Annotated[int, typer.Option(help="iterations, for quality")] = 20,
    cache: Annotated[Path, typer.Option(help="environments of the peers")] = CACHE,
    out: Annotated[Path, typer.Option(help="results")] = Path("results/peers.json"),
) -> None:
    """Run contests between q1pipe and its peers."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # contestants are to end with it
    o: Options = {"envs": envs, "steps": steps, "hidden": [int(h) for h in hidden.split(",")], "rounds": rounds_}
    o |= {"processes": processes, "cap": cap, "judge_every": judge_every, "cache": cache.absolute()}
    machine = f"{cpu_name()}, {cores.available()} cores"
    results: dict[str, Any] = {"machine": machine, "date": time.strftime("%Y-%m-%d %H:%M"), "skipped": {}}
    results |= {"options": {k: v if k != "cache" else str(v) for k, v in o.items()}, "entries": []}
    for name in only or [c for c in CONTESTS if c != "quality"]:
        typer.echo(f"{name}: {' '.join((CONTESTS[name].__doc__ or '').split())}")
        began, files = time.monotonic(), Path(tempfile.mkdtemp(prefix="q1pipe-peers-"))
        try:
            results["entries"] += CONTESTS[name](o, files)
        except (NotInstallableError, FailedError) as e:
            results["skipped"][name] = str(e)
            typer.echo(f"  skipped: {e}")
        finally:
            shutil.rmtree(files, ignore_errors=True)
        results.setdefault("minutes", {})[name] = (time.monotonic() - began) / 60
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    typer.echo(f"\n{machine}; medians of {rounds_} rounds; {out}\n")
    typer.echo(TABLE.format("contest", "contestant", "median", "lowest", "highest", "q1pipe ÷ it", "unit"))
    for e in results["entries"]:
        figures = [f"{e[k]:.0f}" if k in e else "" for k in ("median", "lowest", "highest")]
        beyond = "" if e.get("reached", True) else "> "  # it was not there yet
        figures[0], ratio = beyond + figures[0], "" if math.isnan(e["ratio"]) else f"{beyond}{e['ratio']:.2f}"
        typer.echo(TABLE.format(e["contest"], e["contestant"], *figures, ratio, e["unit"]))


if __name__ == "__main__":
    typer.run(main)
