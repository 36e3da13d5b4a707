"""What a person types next: to get the same again, or to get further."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from q1pipe.report.results import Results
from q1pipe.report.words import Words


class Step(NamedTuple):
    """A reason and the command that follows from it; the command may be empty."""

    why: str
    command: str


def reproduce(results: Results) -> list[str]:
    """Commands that make the same policy. Settings that differ are saved as run.yaml first."""
    name = results.name
    return [
        f"cp {shlex.quote(results['motion']['source'])} config/",
        f"snakemake {shlex.quote(f'results/{name}/eval.json')} --cores {results.args['train']['num_workers']}"
        " --configfile run.yaml",
    ]


def next_steps(results: Results, w: Words) -> list[Step]:
    """What the gates and the curves suggest, the most urgent first."""
    return list(_steps(results, w))


def _steps(results: Results, w: Words) -> Iterator[Step]:
    evaluation, train = results["eval"], results["train"]
    target = shlex.quote(f"results/{results.name}/report.html")
    failed = {gate["name"].split(".")[0] for gate in evaluation["gates"] if not gate["passed"]}
    longer = f"snakemake {target} --cores all --config 'train={{\"max_iterations\": {2 * train['iterations']}}}'"
    warned = [f for f in results["motion"].get("findings", []) if f["level"] != "INFO"]
    if "safety" in failed:
        yield Step(w.next_safety, "")
    if warned and failed:
        yield Step(w.next_motion, f"q1pipe sheet {shlex.quote(results['motion']['source'])} sheet.png")
    if "nominal" in failed:
        yield Step(w.next_longer, longer)
    elif "disturbed" in failed:
        yield Step(w.next_disturbed, longer)
    elif "sim2sim" in failed:
        config = '{"randomization": {"push": 1.5}}'
        yield Step(w.next_sim2sim, f"snakemake {target} --cores all --config 'train={config}'")
    if not failed:
        yield Step(w.next_deploy, f"cd {shlex.quote(f'results/{results.name}/deploy')} && python check.py")
        yield Step(w.next_package, f"q1pipe verify {shlex.quote(f'results/{results.name}/package.zip')}")
        seed = results.args["train"]["seed"] + 1
        yield Step(w.next_seed, f"snakemake {target} --cores all --config 'train={{\"seed\": {seed}}}'")
    yield Step(w.next_slow, f"snakemake {target} --cores all --config 'video={{\"slow_motion\": 0.25}}'")
