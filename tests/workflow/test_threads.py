"""Workers and learner take what the workflow and the machine give, whatever the settings ask for."""

import os
import re
from pathlib import Path

import pytest
import torch

from q1pipe import cores
from tests.deaths import Run, end


@pytest.mark.slow
@pytest.mark.skipif(cores.available() < 2 or not hasattr(os, "sched_setaffinity"), reason="needs two cores, and Linux")
def test_threads_are_the_cores_given_and_another_number_of_them_is_a_warning(tmp_path: Path) -> None:
    """Cores by --cores, then all; then `--cores 40` in a container of one core, which Snakemake believes."""
    run = Run(tmp_path / "run", max_iterations=2)
    said, threads = [], []
    everywhere = os.sched_getaffinity(0)
    for iterations, given, affinity in ((2, 1, everywhere), (4, 2, everywhere), (6, 40, {min(everywhere)})):
        run.set(max_iterations=iterations)
        os.sched_setaffinity(0, affinity)
        try:
            snakemake = run.snakemake(cores=given)
        finally:
            os.sched_setaffinity(0, everywhere)
        code, output = end(snakemake, 120)
        assert code == 0, output
        said.append(output)
        threads.append(torch.load(run.run_folder / f"model_{iterations}.pt", weights_only=True)["threads"])
    assert threads == [1, 2, 1]
    assert re.search(r"WARN \[workers\].* 2 workers asked for, 1 threads given", said[0])
    assert "8 environments in 2 workers" in said[1]
    assert re.search(r"WARN \[threads\].*model_2.pt — 2 threads compute, 1 did before: the last digits", said[1])
    assert re.search(r"WARN \[workers\].* 2 workers asked for, 1 cores here", said[2])

    before = {path: path.stat().st_mtime_ns for path in run.run_folder.glob("model_*.pt")}
    code, output = end(run.snakemake("--forcerun", "train"), 120)  # deletes what it declares: nothing is lost
    assert code == 0, output
    assert "going on from" not in output
    assert {path: path.stat().st_mtime_ns for path in run.run_folder.glob("model_*.pt")} == before
