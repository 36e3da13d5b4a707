"""What asks a run to stop, in processes of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from q1pipe.stopping import Stopped, Stopping, alive

LOOP = """
import os, sys, time
from pathlib import Path
from q1pipe.stopping import Stopped, Stopping
launcher = int(sys.argv[2]) if len(sys.argv) > 2 else None
with Stopping(Path(sys.argv[1]), launcher) as stop:
    print("ready", os.getpid(), flush=True)
    try:
        while True:
            with stop.interruptible():
                time.sleep(0.05)
    except Stopped as e:
        print("saved", flush=True)
        time.sleep(float(os.environ.get("SAVING", 0)))
        sys.exit(e.code)
"""


@pytest.fixture
def loop(tmp_path: Path):
    """Start the loop, as a child of ours or of a shell of ours."""
    started = []

    def start(*arguments: str, shell: str = "", **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", LOOP, str(tmp_path / "stop"), *arguments]
        if shell:
            command = ["bash", "-c", shell, "bash", *command]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | env, start_new_session=True
        )
        started.append(process)
        process.loop = int(process.stdout.readline().split()[1])  # type: ignore[attr-defined]
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_where_it_may(loop, number):
    process = loop()
    process.send_signal(number)
    assert process.communicate(timeout=5)[0] == "saved\n"
    assert process.returncode == 128 + number


def test_under_nohup_a_terminal_that_closes_is_nothing(loop):
    process = loop(shell='exec nohup "$@" 2> /dev/null')
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 128 + signal.SIGTERM


def test_a_second_signal_leaves_at_once(loop):
    process = loop(SAVING="60")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "saved\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=2) == 128 + signal.SIGTERM


def test_the_stop_file_is_heard_and_removed(loop, tmp_path: Path):
    (tmp_path / "stop").touch()  # meant for an earlier run
    process = loop()
    time.sleep(0.5)
    assert process.poll() is None
    (tmp_path / "stop").touch()
    assert process.communicate(timeout=10)[0] == "saved\n"
    assert process.returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "stop").exists()


def test_an_orphan_leaves_with_its_launcher(loop):
    """As Snakemake does it: a shell whose parent's id is $PPID, replaced by the stage."""
    shell = 'bash -c \'exec "$@" $PPID\' bash "$@"; :'
    process = loop(shell=shell)
    process.kill()  # the outer shell, which stands for Snakemake
    assert process.stdout.readline() == "saved\n"


def test_a_wrapper_between_launcher_and_run_does_not_matter(loop):
    launcher = subprocess.Popen(["sleep", "600"])
    process = loop(str(launcher.pid))
    time.sleep(3)
    assert process.poll() is None
    launcher.kill()  # stays a zombie until it is waited for
    assert process.communicate(timeout=10)[0] == "saved\n"
    launcher.wait()


def test_without_a_launcher_the_death_of_the_parent_is_nothing(loop):
    process = loop(shell='"$@" & wait')  # as from a terminal that is closed
    process.kill()
    process.wait()
    time.sleep(3)
    assert alive(process.loop)


def test_where_it_may_not_be_interrupted_it_is_later(tmp_path: Path):
    done = []
    with pytest.raises(Stopped) as e, Stopping() as stop:  # noqa: PT012
        with stop.interruptible():
            done.append(1)
        os.kill(os.getpid(), signal.SIGTERM)
        done.append(2)
        with stop.interruptible():
            done.append(3)
    assert done == [1, 2]
    assert e.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_in_another_thread_signals_are_left_alone():
    seen = []

    def work():
        with Stopping() as stop, stop.interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_alive():
    process = subprocess.Popen(["sleep", "600"])
    assert alive(process.pid)
    process.kill()
    time.sleep(0.2)
    assert not alive(process.pid)  # a zombie
    process.wait()
    assert not alive(process.pid)
