"""The growing tables: always readable, cut back to where training goes on."""

from pathlib import Path

from q1pipe.learn.history import History, numbers

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
