"""Real runs, ended in every way: nothing is left, the same command goes on, and what comes out is the same bits."""

import csv
import os
import re
import signal
from pathlib import Path

import pytest

from tests.deaths import NAME, Run, end, group, same

LONG = 150  # iterations, where something is to happen meanwhile

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")


def finished(run: Run) -> Run:
    code, output = end(run.trainer(), 120)
    assert code == 0, output
    return run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(Run(tmp_path_factory.mktemp("undisturbed") / "run", max_iterations=LONG))


@pytest.fixture
def start(tmp_path: Path):
    runs = []

    def make(**train: int) -> Run:
        runs.append(Run(tmp_path / f"a run {len(runs)}", **train))
        return runs[-1]

    yield make
    for pid in (pid for run in runs for pid in run.processes):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def run(start) -> Run:
    return start(max_iterations=LONG)


def lose_a_worker(run: Run, number: int, past: int, seconds: float) -> tuple[int, str]:
    """Start the workflow, send a worker of its training a signal, wait for the end: its pid, what the workflow says."""
    snakemake = run.snakemake()
    run.train_past(past)
    victim = run.pid("worker")
    os.kill(victim, number)
    code, output = end(snakemake, seconds)
    run.require_nothing_left(1)
    assert code == 1
    assert (run.run_folder / f"model_{run.iteration}.pt").exists()
    return victim, output


def kill_a_worker(run: Run) -> str:
    """What the workflow says where a worker of its training is killed."""
    victim, output = lose_a_worker(run, signal.SIGKILL, past=3, seconds=20)
    assert f"(pid {victim}) — died with exit code -9 (SIGKILL" in output
    return output


def test_a_run_whose_worker_is_killed_goes_on_to_the_same_bits(start) -> None:
    run = start()
    kill_a_worker(run)
    assert end(run.trainer(), 120)[0] == 0
    assert same(run.result(), finished(start()).result())


@pytest.mark.slow
def test_one_run_dies_again_and_again(start) -> None:
    """The deaths that matter most, one after the other; each continuation is ended by the next."""
    run = start()
    trainer = run.trainer()
    run.train_past(3)
    os.kill(run.pid("trainer"), signal.SIGTERM)
    code, output = end(trainer, 10)
    run.require_nothing_left(1)
    assert code == 128 + signal.SIGTERM
    assert f"the same command goes on from model_{run.iteration}.pt" in output

    trainer = run.trainer()
    run.train_past(3)
    group(trainer, signal.SIGINT)
    code, output = end(trainer, 10)
    run.require_nothing_left(1)
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in output

    trainer = run.trainer()
    run.train_past(5)
    trainer.kill()
    run.require_nothing_left(5)

    output = kill_a_worker(run)
    assert "WARN [taken-over]" in output
    said = (run.results / "logs/train.log").read_text().splitlines()
    assert len(said) > 20
    shown = "".join(f"    {line}\n" for line in said[-20:])  # long after the first lines nobody wants all of it
    assert f"The end of results/{NAME}/logs/train.log:\n{shown}" in output

    snakemake = run.snakemake()
    run.train_past(3)
    snakemake.kill()  # alone: training is an orphan
    run.require_nothing_left(15)
    assert (run.run_folder / f"model_{run.iteration}.pt").exists()
    assert "Unlocked" in run.q1pipe("unlock").stdout

    assert end(run.trainer(), 120)[0] == 0
    assert same(run.result(), finished(start()).result())


def test_stop_is_heard_before_there_is_a_run_folder(start) -> None:
    run = start()
    trainer = run.trainer()
    done = run.q1pipe("stop", NAME)
    assert f"process {trainer.pid}, which is starting: asking to stop" in done.stdout
    assert "stopped before it trained" in done.stdout
    assert end(trainer, 10)[0] in (-signal.SIGTERM, 128 + signal.SIGTERM)
    run.require_nothing_left(1)


def heard(run: Run) -> bool:
    """Whether the trainer has heard the first signal; a second one before that would be the same one."""
    return "saving and leaving" in (run.run_folder / "train.log").read_text()


def goes_on(run: Run, undisturbed: Run) -> None:
    """The same command ends with the same bits; a folder that a killed snakemake left locked is unlocked first."""
    run.q1pipe("unlock")
    code, output = end(run.snakemake(), 120)
    assert code == 0, output
    assert same(run.result(), undisturbed.result())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_signal_to_the_group(undisturbed: Run, run: Run, number: signal.Signals) -> None:
    snakemake = run.snakemake()
    run.train_past(9)
    group(snakemake, number)
    run.require_nothing_left(10)
    goes_on(run, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
@pytest.mark.parametrize("victim", ["trainer", "worker"])
def test_signal_to_a_process_of_training(undisturbed: Run, run: Run, victim: str, number: signal.Signals) -> None:
    snakemake = run.snakemake()
    run.train_past(9)
    os.kill(run.pid(victim), number)
    code, _ = end(snakemake, 60)
    run.require_nothing_left(1)
    assert (code == 0) == (victim == "worker" and number != signal.SIGKILL)  # workers leave that to the trainer
    goes_on(run, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_signal_to_snakemake_alone_only_makes_it_wait_and_stop_ends_it(
    undisturbed: Run, run: Run, number: signal.Signals
) -> None:
    snakemake = run.snakemake()
    run.train_past(3)
    snakemake.send_signal(number)
    run.train_past(3)
    done = run.q1pipe("stop", NAME)
    assert done.returncode == 0, done.stdout
    assert f"stopped; the workflow goes on from model_{run.iteration}.pt" in done.stdout
    end(snakemake, 20)
    run.require_nothing_left(1)
    goes_on(run, undisturbed)


@pytest.mark.slow
def test_ctrl_c_twice(undisturbed: Run, run: Run) -> None:
    """Snakemake leaves at the second one without waiting for training, which saves what it can."""
    snakemake = run.snakemake()
    run.train_past(9)
    group(snakemake, signal.SIGINT)
    run.wait(lambda: heard(run), 5)
    group(snakemake, signal.SIGINT)
    end(snakemake, 20)
    run.require_nothing_left(5)
    goes_on(run, undisturbed)


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_within_ten_seconds_and_the_run_is_saved(undisturbed: Run, run: Run) -> None:
    worker, output = lose_a_worker(run, signal.SIGSTOP, past=9, seconds=30)
    assert re.search(rf"\(pid {worker}\) — has not answered for [789] s; it does not run", output), output
    goes_on(run, undisturbed)


@pytest.mark.slow
def test_second_signal_leaves_at_once(undisturbed: Run, run: Run) -> None:
    """A worker that does not answer holds up the first one."""
    trainer = run.trainer()
    run.train_past(9)
    worker = run.pid("worker")
    os.kill(worker, signal.SIGSTOP)
    trainer.send_signal(signal.SIGINT)
    run.wait(lambda: heard(run), 5)
    trainer.send_signal(signal.SIGINT)
    assert trainer.wait(2) == 128 + signal.SIGINT
    os.kill(worker, signal.SIGCONT)
    run.require_nothing_left(5)
    goes_on(run, undisturbed)


@pytest.mark.slow
def test_two_trainers_never_write_one_folder(undisturbed: Run, run: Run) -> None:
    first = run.trainer()
    run.train_past(3)
    code, output = end(run.trainer(), 30)
    assert code == 2
    assert f"process {first.pid} on " in output
    assert "q1pipe stop" in output
    assert end(first, 120)[0] == 0
    with open(run.results / "train.csv", newline="") as f:
        assert [int(row["iteration"]) for row in csv.DictReader(f)] == list(range(1, run.train["max_iterations"] + 1))
    assert same(run.result(), undisturbed.result())
