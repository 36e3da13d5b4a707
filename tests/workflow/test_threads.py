"""The learner's threads are the cores that the workflow gave, and a change of them is said."""

import re
from pathlib import Path

import pytest
import torch

from q1pipe import cores
from tests.deaths import Run, end


def threads_of(run: Run, iteration: int) -> int:
    return torch.load(run.run_folder / f"model_{iteration}.pt", weights_only=True)["threads"]


@pytest.mark.skipif(cores.available() < 2, reason="needs two cores")
def test_cores_of_the_workflow_are_the_learners_threads_and_another_number_is_a_warning(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", max_iterations=2)
    code, output = end(run.snakemake(cores=1), 120)
    assert code == 0, output
    assert threads_of(run, 2) == 1
    run.train["max_iterations"] = 4
    code, output = end(run.trainer(), 120)
    assert code == 0, output
    assert threads_of(run, 4) == 2
    assert re.search(r"WARN \[threads\].*model_2.pt — 2 threads compute, 1 did before: the last digits", output), output
