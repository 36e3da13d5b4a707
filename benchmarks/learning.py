"""How soon the get-up is learned, by seed and by setting: minutes and environment steps to a finish rate of 0.95.

    python -m benchmarks.learning --curves docs/learning.svg       five seeds of the laptop configuration, and a picture
    python -m benchmarks.learning --variant "no skip" --seeds 2    what a setting does

Runs are kept below results/benchmarks and go on where they stopped. The finish rate is that of training's own 32
undisturbed test episodes (eval.csv), every save_interval iterations.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common import ROOT, laptop, prepare, train_run
from benchmarks.curves import svg
from q1pipe import cores
from q1pipe.config import merged
from q1pipe.log import setup

ENOUGH = 0.95  # finish rate
VARIANTS: dict[str, dict[str, Any]] = {
    "laptop": {},
    "no skip": {"policy": {"skip": False}},
    "std 1.5 at first": {"policy": {"init_std": 1.5}},
    "std 0.5 at first": {"policy": {"init_std": 0.5}},
    "std 0.25 at first": {"policy": {"init_std": 0.25}},
    "net 64-64": {"policy": {"hidden": [64, 64]}},
    "net 256-128-64": {"policy": {"hidden": [256, 128, 64]}},
    "net 512-256-128": {"policy": {"hidden": [512, 256, 128]}},
    "2 epochs": {"ppo": {"epochs": 2}},
    "5 epochs": {"ppo": {"epochs": 5}},
    "float32": {"autocast": None},
    "8 mini-batches": {"ppo": {"mini_batches": 8}},
    "2 mini-batches": {"ppo": {"mini_batches": 2}},
    "target KL 0.01": {"ppo": {"target_kl": 0.01}},
    "target KL 0.03": {"ppo": {"target_kl": 0.03}},
    "entropy 0": {"ppo": {"entropy": 0.0}},
    "γ 0.995": {"ppo": {"gamma": 0.995}},
    "γ 0.98": {"ppo": {"gamma": 0.98}},
    "starts not adaptive": {"reset": {"uniform": 1.0}},
    "half of the starts at frame 0": {"reset": {"from_start": 0.5}},
    "wide terminations": {"termination": {"anchor_z": 0.5, "tilt": 1.4}},
    "512 environments": {"num_envs": 512},
}


def trained(variant: str, seed: int, iterations: int | None) -> dict[str, Any]:
    """train.json of a run, which is trained as far as it is not yet."""
    budget = {"max_iterations": iterations} if iterations else {}
    sections = laptop(**merged(VARIANTS[variant], {"seed": seed}, budget))
    folder = ROOT / "results" / "benchmarks" / variant.replace(" ", "-") / f"seed-{seed}"
    prepare(folder, sections)
    return train_run(folder, sections, cores.available())


def reached(record: dict[str, Any]) -> dict[str, float] | None:
    """The first evaluation whose finish rate is ENOUGH."""
    return next((row for row in record["evaluations"] if row["finish"] >= ENOUGH), None)


def median_and_worst(values: list[float], form: str) -> str:
    """Both, worst the largest."""
    return f"{statistics.median(values):{form}}, {max(values):{form}}"


def main(
    variant: Annotated[list[str] | None, typer.Option(help="names; else laptop")] = None,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    iterations: Annotated[int | None, typer.Option(min=1, help="else the configuration's")] = None,
    curves: Annotated[Path | None, typer.Option(help="SVG, of the last of the settings")] = None,
) -> None:
    """Train and compare."""
    setup(None, "")
    table = Table(
        "setting", "seeds", f"finish ≥ {ENOUGH}", "env steps: median, worst", "minutes", "at the end", "disturbed"
    )
    for name in variant or ["laptop"]:
        records = [trained(name, seed, iterations) for seed in range(1, seeds + 1)]
        first = [row for row in map(reached, records) if row]
        ends = [record["evaluations"][-1] for record in records]
        table.add_row(
            *(name, str(seeds), f"{len(first)} of {seeds}"),
            median_and_worst([row["env_steps"] for row in first], ",.0f") if first else "–",
            median_and_worst([row["wall_s"] / 60 for row in first], ".1f") if first else "–",
            f"{statistics.median(row['finish'] for row in ends):.2f}, mean_rew "
            f"{statistics.median(row['mean_rew'] for row in ends):.2f}",
            f"{statistics.median(row['finish_disturbed'] for row in ends):.2f}",
        )
        Console().print(table)
    if curves:
        curves.write_text(svg(records, f"{name}: {seeds} seeds"), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
