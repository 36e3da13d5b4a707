"""Lines of progress."""

import logging

import pytest

from q1pipe import log
from q1pipe.log import progress


def test_progress_says_how_far_and_how_long_at_most_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of the eight items takes 4 s; none is done when the first begins."""
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(log.time, "monotonic", lambda: next(clock) - 4.0)
    monkeypatch.setattr(logging.getLogger("q1pipe"), "propagate", True)
    with caplog.at_level(logging.INFO, "q1pipe"):
        assert list(progress("abcdefgh", 8, "frame")) == list("abcdefgh")
    assert [record.getMessage() for record in caplog.records] == [
        "frame 2/8 25%  36 s left",  # the clock begins one reading before the first item: 12 s for two
        "frame 5/8 62%  14 s left",
    ]
