"""The growing tables: always readable, cut back to where training goes on."""

import errno
import resource
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from q1pipe.learn.events import Events
from q1pipe.learn.history import Growing, History, numbers

COLUMNS = ("iteration", "reward")


def test_rows_are_there_at_once(tmp_path: Path):
    history = History(tmp_path / "t.csv", COLUMNS, 0)
    history.append({"iteration": 1, "reward": 1 / 3, "other": 0.0})
    assert (tmp_path / "t.csv").read_text() == "iteration,reward\n1,0.333333333\n"
    history.close()


def test_cut_back_to_the_checkpoint_without_half_row_or_second_header(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("iteration,reward\n1,0.1\n2,0.2\n3,0.3\n4,0.")
    history = History(path, COLUMNS, 2)
    history.append({"iteration": 3, "reward": 0.5})
    history.close()
    assert path.read_text() == "iteration,reward\n1,0.1\n2,0.2\n3,0.5\n"
    assert numbers(path)[-1] == {"iteration": 3.0, "reward": 0.5}


def test_other_columns_start_anew(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("iteration,old\n1,0.1\n")
    History(path, COLUMNS, 5).close()
    assert path.read_text() == "iteration,reward\n"


def fill(folder: Path) -> Path:
    """Leave no room on a disk; the file that takes it."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as f:
        size = 1 << 16
        while size:
            try:
                f.write(bytes(size))
            except OSError:
                size //= 2
    return ballast


def test_rows_wait_for_room_and_none_is_half(small_disk: Path):
    history = History(small_disk / "t.csv", COLUMNS, 0)
    history.append({"iteration": 1, "reward": 0.5})
    ballast = fill(small_disk)
    for i in range(2, 1002):  # more than the last page of the file takes
        try:
            history.append({"iteration": i, "reward": 0.5})
        except OSError as e:
            assert e.errno == errno.ENOSPC  # noqa: PT017
    got = numbers(small_disk / "t.csv")
    assert 1 <= len(got) < 1001
    assert (small_disk / "t.csv").read_text().endswith("0.5\n")
    ballast.unlink()
    history.append({"iteration": 1002, "reward": 0.5})
    history.close()
    assert [row["iteration"] for row in numbers(small_disk / "t.csv")] == list(range(1, 1003))


def test_what_is_written_in_part_is_taken_back(tmp_path: Path):
    """A limit on the size of files: the write that meets it writes what fits."""
    file, (soft, hard) = Growing(tmp_path / "f"), resource.getrlimit(resource.RLIMIT_FSIZE)
    file.write(b"0123456789")
    resource.setrlimit(resource.RLIMIT_FSIZE, (15, hard))
    try:
        with pytest.raises(OSError, match="space"):
            file.write(b"abcdefghij")
        size = (tmp_path / "f").stat().st_size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert size == 10
    file.write(b"klm")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"0123456789abcdefghijklm"


def test_tensorboard_reads_what_was_written_and_not_what_was_done_anew(tmp_path: Path):
    first = Events(tmp_path)
    for i in (1, 2, 3):
        first.add("train", {"kl": i / 10, "other": 0.0}, ["kl"], i)
    first.close()
    (tmp_path / next(tmp_path.iterdir()).name).rename(tmp_path / "events.out.tfevents.1.a.1")
    second = Events(tmp_path, after=1)
    second.add("train", {"kl": 0.9}, ["kl"], 2)
    second.close()
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert [(s.step, round(s.value, 6)) for s in reader.Scalars("train/kl")] == [(1, 0.1), (2, 0.9)]
