"""The stress script, with fewer deaths than by hand."""

from pathlib import Path

import pytest

from tests.slow.stress import stress


@pytest.mark.slow
def test_what_comes_out_is_the_same_however_often_it_dies(tmp_path: Path) -> None:
    assert stress(tmp_path, deaths=5, seed=2)["bit-identical"] == "yes"
