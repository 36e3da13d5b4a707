"""One trainer per run folder."""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from q1pipe.errors import Q1Error
from q1pipe.runfolder import holder, locked

HOLD = """
import sys, time
from pathlib import Path
from q1pipe.runfolder import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path):
    """Another process that trains in tmp_path/getUp/runs/x."""
    folder = tmp_path / "getUp/runs/x"
    folder.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield folder, process
    process.kill()
    process.communicate()


def test_the_second_is_told_who_trains_and_how_to_stop_it(other):
    folder, process = other
    said = rf"process {process.pid} on {re.escape(socket.gethostname())}, since 20\d\d-.* trains .* q1pipe stop getUp"
    with pytest.raises(Q1Error, match=said), locked(folder):
        pass
    assert holder(folder).pid == process.pid


def test_the_lock_of_a_killed_process_is_taken_over_with_a_warning(other, caplog: pytest.LogCaptureFixture):
    logging.getLogger("q1pipe").propagate = True
    folder, process = other
    (folder / ".model_5.pt.123.tmp").touch()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert holder(folder) is None
    with locked(folder):
        assert holder(folder).pid == os.getpid()
    assert re.search(rf"WARN \[taken-over\].*process {process.pid} on .* did not end by itself", caplog.text)
    assert [p.name for p in folder.iterdir()] == ["lock"]  # what it left half written is gone


@pytest.mark.parametrize("error", [SystemExit(130), KeyboardInterrupt(), ValueError()])
def test_who_ends_by_itself_leaves_nothing(tmp_path: Path, error: BaseException, caplog: pytest.LogCaptureFixture):
    logging.getLogger("q1pipe").propagate = True
    with pytest.raises(type(error)), locked(tmp_path):
        raise error
    assert holder(tmp_path) is None
    with locked(tmp_path):
        pass
    assert caplog.text == ""


def test_no_folder_no_holder(tmp_path: Path):
    assert holder(tmp_path / "nothing") is None
