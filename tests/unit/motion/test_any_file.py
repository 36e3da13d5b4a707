"""No file passes silently when it is wrong, and none brings the intake down."""

import os
import pickle
import re
import shutil
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from q1pipe.cli import app
from q1pipe.config import MotionCfg
from q1pipe.errors import MotionError
from q1pipe.motion.convert import write
from q1pipe.motion.intake import take_in
from tests.corruptions import MARKED, SINGLE, arrays_of
from tests.unit.motion.conftest import deviation

FUZZED = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SECONDS = 20  # that no file may take; most take a hundredth


@given(name=st.sampled_from(sorted(SINGLE)), seed=st.integers(0, 2**32 - 1))
@settings(FUZZED, max_examples=150)
def test_a_single_corruption_is_repaired_or_named(robot, base, tmp_path, name, seed):
    path = tmp_path / "wave.npz"
    np.savez(path, **SINGLE[name](arrays_of(base), robot, np.random.default_rng(seed)))
    try:
        taken = take_in(path, robot, MotionCfg(), 50.0)
    except MotionError as e:
        named = [f for f in e.findings if f.level == "ERROR"]
        if not named:
            raise
        return
    metres, radians = deviation(taken.clip, base)
    assert abs(taken.clip.frames - base.frames) <= 1
    assert metres <= 1e-4
    assert radians <= 1e-3
    if name != "flipped signs":  # the same rotations: nothing to be said
        assert {f.code for f in taken.findings} - {"limits"}


@given(name=st.sampled_from(sorted(MARKED)), seed=st.integers(0, 2**32 - 1))
@settings(FUZZED, max_examples=30)
def test_what_cannot_be_undone_is_named_with_its_frames(robot, base, tmp_path, name, seed):
    path = tmp_path / "wave.npz"
    arrays, code, span = MARKED[name](arrays_of(base), robot, np.random.default_rng(seed))
    np.savez(path, **arrays)
    taken = take_in(path, robot, MotionCfg(), 50.0)
    first, last = span.start, span.stop - 1
    frames = f"{first}–{last}" if last > first else f"{first}"
    assert any(f.level == "WARN" and re.search(rf"frames?:? (.*: )?{frames}\b", f.found) for f in taken.findings)
    assert code in {f.code for f in taken.findings if f.level == "WARN"}
    off = np.linalg.norm(taken.clip.body_pos_w - base.body_pos_w, axis=-1).max(axis=1)
    inside = np.zeros(base.frames, bool)
    inside[span] = True
    assert off[~inside].max() <= 1e-4
    assert off[inside].max() <= 0.3  # m: copies of a frame fall behind


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_each_corruption_really_is_one(robot, base, name):
    """A corruption that changes nothing would prove nothing."""
    good, bad = arrays_of(base), SINGLE[name](arrays_of(base), robot, np.random.default_rng(0))
    assert good.keys() != bad.keys() or any(
        np.asarray(good[k]).dtype != np.asarray(bad[k]).dtype or not np.array_equal(good[k], bad[k]) for k in good
    )


def taken_or_refused(path, robot, folder):
    """Take a file in: a clip of numbers, or a refusal; in time, and without a trace."""
    before, start = sorted(folder.rglob("*")), time.monotonic()
    try:
        clip = take_in(path, robot, MotionCfg(fps=50), 50.0).clip
        assert np.isfinite(clip.body_pos_w).all()
        assert np.isfinite(clip.body_ang_vel_w).all()
    except MotionError:
        pass
    assert time.monotonic() - start < SECONDS
    assert sorted(folder.rglob("*")) == before


@pytest.fixture(scope="module")
def files(robot, base, tmp_path_factory):
    """The bytes of a short motion in each format."""
    folder = tmp_path_factory.mktemp("files")
    arrays = {k: v[:12] if k != "fps" else v for k, v in arrays_of(base).items()}
    np.savez(folder / "plain.npz", **arrays)
    for ending in ("npz", "csv", "pkl"):
        write(base, robot, folder / f"a.{ending}")
    (folder / "a.yaml").write_text("fps: 50\nkeys:\n- {t: 0.0}\n- {t: 0.2, joints: {knee: 0.4}}\n")
    (folder / "old.pkl").write_bytes(pickle.dumps({k: np.asarray(v) for k, v in arrays.items()}, 2))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mutated(content, data):
    """Some bytes changed, cut, inserted, repeated, or the end gone."""
    content = bytearray(content)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, min(len(content) - 1, data.draw(st.sampled_from([64, 600, 10**9])))))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat", "end"]))
        if kind == "flip":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 50))]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        elif kind == "repeat":
            content[at:at] = content[at : at + 100]
        else:
            del content[max(at, 1) :]
        content = content or bytearray(b"x")
    return bytes(content)


@given(data=st.data())
@settings(FUZZED, max_examples=250)
def test_mutated_bytes(robot, files, tmp_path, data):
    name = data.draw(st.sampled_from(sorted(files)))
    path = tmp_path / name
    path.write_bytes(mutated(files[name], data))
    taken_or_refused(path, robot, tmp_path)


@given(data=st.data())
@settings(FUZZED, max_examples=30)
def test_the_command_writes_into_results_only_whatever_it_is_given(files, tmp_path, monkeypatch, data):
    """The command of the workflow, in this process. A pickle that wants to write is among the files."""
    monkeypatch.chdir(tmp_path)
    name = data.draw(st.sampled_from(sorted(files)))
    content = data.draw(st.sampled_from([files[name], mutated(files[name], data), BOMB]))
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / name).write_bytes(content)
    shutil.rmtree(tmp_path / "results", ignore_errors=True)
    before = _outside_results(tmp_path)
    outs = {"out-npz": "motion.npz", "out-json": "motion.json", "out-plot": "motion.svg", "log": "logs/motion.log"}
    args = [f"--{option}=results/wave/{out}" for option, out in outs.items()]
    result = CliRunner().invoke(app, ["motion", f"--source=config/{name}", f"--settings={SETTINGS}", *args])
    assert result.exit_code in (0, 2), result.output
    assert "Traceback" not in (tmp_path / "results/wave/logs/motion.log").read_text()
    assert _outside_results(tmp_path) == before
    folder = tmp_path / "results/wave"
    made = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    logs = {"logs/motion.log", "logs/.motion.log"}
    assert made == logs | ({"motion.npz", "motion.json", "motion.svg"} if result.exit_code == 0 else {"motion.json"})


def _outside_results(folder):
    """Files and when they were changed, and folders."""
    paths = [p for p in folder.rglob("*") if "results" not in p.relative_to(folder).parts]
    return {p: p.stat().st_mtime_ns if p.is_file() else 0 for p in paths}


class _Bomb:
    def __reduce__(self):
        return os.mkdir, ("made by a pickle",)


BOMB = pickle.dumps({"fps": 50, "dof_pos": _Bomb()})
SETTINGS = '{"robot": {}, "motion": {"fps": 50}, "train": {}}'
VALUES = st.sampled_from([0, 1, -1, 3.5, 1e-300, 1e30, -1e300, np.nan, np.inf, 2**62])
DTYPES = ["float32", "float64", "float16", "int8", "uint64", "bool", "complex64", "U5", "S3", "M8[s]"]


@given(data=st.data())
@settings(FUZZED, max_examples=250)
def test_mutated_arrays(robot, base, tmp_path, data):
    arrays = {k: v[:12].copy() if k != "fps" else v for k, v in arrays_of(base).items()}
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(arrays)))
        array = np.asarray(arrays[key])
        kind = data.draw(st.sampled_from(["value", "dtype", "shape", "axis", "remove", "rename", "scale"]))
        if kind == "value" and array.size and array.dtype.kind == "f":
            array = array.copy()
            with np.errstate(over="ignore"):
                array.flat[:: data.draw(st.integers(1, 50))] = data.draw(VALUES)
        elif kind == "dtype" and array.dtype.kind in "fiu":
            with np.errstate(all="ignore"):
                array = np.nan_to_num(array).astype("int64").astype(data.draw(st.sampled_from(DTYPES)))
        elif kind == "shape":
            shape = data.draw(st.lists(st.integers(0, 30), max_size=4))
            array = np.zeros(shape, array.dtype)
        elif kind == "axis" and array.ndim > 1:
            array = np.swapaxes(array, 0, data.draw(st.integers(0, array.ndim - 1)))
        elif kind == "scale" and array.dtype.kind == "f":
            with np.errstate(all="ignore"):
                array = array * data.draw(VALUES)
        arrays[key] = array
        if kind == "remove":
            del arrays[key]
        elif kind == "rename":
            arrays[data.draw(st.text(min_size=1, max_size=6, alphabet="abcfps_"))] = arrays.pop(key)
        if not arrays:
            break
    path = tmp_path / "wave.npz"
    np.savez(path, **arrays)
    taken_or_refused(path, robot, tmp_path)
