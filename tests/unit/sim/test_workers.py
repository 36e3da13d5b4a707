import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from q1pipe.config import PolicyCfg, RobotCfg, TrainCfg
from q1pipe.errors import Q1Error
from q1pipe.sim.actor import Explored, Net, Noise, act, parameters
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.observations import Layout
from q1pipe.sim.randomization import word
from q1pipe.sim.workers import WorkerError, WorkerPool, _limit_sending

ENVS, STEPS = 8, 30
RESULTS = ("rows", "final_obs", "terms", "cause", "frame", "ep_len", "ep_ret")
ACTED = ("features", "offsets", "means", "moments", "actions")
linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")


@pytest.fixture(scope="module")
def motion(clip, tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "motion.npz"
    clip.save(path)
    return path


@pytest.fixture
def busy():
    """Episodes of a third of a second, pushed three times."""
    return TrainCfg(
        num_envs=ENVS, num_workers=1, episode_seconds=0.3, randomization={"push_interval": (0.06, 0.14)}, seed=5
    )


@pytest.fixture
def pool(motion, busy):
    def start(workers=1, horizon=STEPS, mode="train", cfg=busy, **how):
        return WorkerPool(RobotCfg(), motion, cfg, workers, mode=mode, horizon=horizon, **how)

    return start


def actions(steps=STEPS):
    return np.random.default_rng(1).uniform(-4, 4, (steps, ENVS, 22)).astype(np.float32)


def run(pool, steps, first=0):
    for t in range(steps):
        pool.actions[t] = actions()[first + t]
        pool.step(t)
    return {name: getattr(pool, name).copy() for name in RESULTS}


def test_results_do_not_depend_on_the_number_of_workers(pool, robot, clip, busy):
    results = []
    for workers in (1, 2, 4):
        with pool(workers) as p:
            p.bin_probs[:] = [0.1, 0.2, 0.3, 0.4]
            p.reset()
            results.append(run(p, STEPS))
    ends = np.bincount(results[0]["cause"].ravel(), minlength=7)
    assert ends[1:5].sum() > 3
    assert ends[6] > 3
    for other in results[1:]:
        for name, array in results[0].items():
            assert (other[name] == array).all(), name

    env = TrackingEnv(robot, clip, busy, np.arange(ENVS))  # and not on there being any
    env.bin_probs[:] = [0.1, 0.2, 0.3, 0.4]
    out = StepBuffers.zeros(ENVS, env.layout)
    env.reset_all(out)
    assert (out.rows == results[0]["rows"][0]).all()
    for t, a in enumerate(actions()):
        env.step(a, out)
        assert (out.rows == results[0]["rows"][t + 1]).all()


def test_workers_that_act_take_the_same_steps_as_when_they_are_told_each_action(pool, robot, clip, busy):
    rng = np.random.default_rng(2)
    layout, (skip, explore) = Layout.of(robot), (0.05, 0.5)
    policy = {name: rng.normal(0, skip, s) for name, s in parameters(layout.actor_dim, (16, 8), 22).items()}
    policy["spread"] = rng.uniform(0.5, 2, layout.actor_dim)
    sample = rng.normal(0, explore, (STEPS, ENVS, 22))
    cfg, results = busy.model_copy(update={"policy": PolicyCfg(hidden=(16, 8))}), []
    for workers in (1, 2, 4):
        with pool(workers, cfg=cfg, acts=True) as p:
            for name, values in policy.items():
                p.policy[name][:] = values
            p.actions[:] = sample
            p.reset()
            p.play(3)
            results.append({name: getattr(p, name).copy() for name in (*RESULTS, *ACTED)})
    assert results[0]["cause"].any()
    for other in results[1:]:
        for name, array in results[0].items():
            assert (other[name] == array).all(), name

    first = results[0]
    net = Net.of({name: np.float32(x) for name, x in policy.items()})
    env, out = TrackingEnv(robot, clip, busy, np.arange(ENVS)), StepBuffers.zeros(ENVS, layout)
    env.reset_all(out)
    noise = Noise.of(word(busy.seed), layout.noise(busy.noise))
    acted = Explored(
        *(np.zeros_like(first[name][0]) for name in ("features", "offsets", "means")), 0 * first["moments"]
    )
    for t in range(STEPS):
        taken = np.float32(sample[t])
        act(net, noise, env.env_ids, 3 * STEPS + t, out.rows, 0, acted, taken)
        for name in ("features", "offsets", "means"):
            assert (first[name][t] == getattr(acted, name)).all()
        assert (first["actions"][t] == taken).all()
        env.step(taken, out)
        assert (first["rows"][t + 1] == out.rows).all()
    assert (first["moments"] == acted.moments).all()


def test_layout_of_the_results(pool):
    with pool(2) as p:
        p.reset()
        results = run(p, STEPS)
        layout = p.layout
    assert results["rows"].shape == (STEPS + 1, ENVS, layout.row_dim)
    assert results["rows"].dtype == np.float32
    assert not results["rows"][0, :, layout.reward_col :].any()
    assert results["terms"].sum(axis=2) == pytest.approx(results["rows"][1:, :, layout.reward_col], rel=1e-4, abs=1e-5)
    truncated = results["rows"][1:, :, layout.truncated_col] > 0
    assert (truncated == (results["cause"] >= 5)).all()
    assert (results["rows"][1:, :, layout.terminated_col] > 0).any()
    assert (results["final_obs"][truncated] != 0).any(axis=1).all()
    assert not results["final_obs"][~truncated].any()


def test_an_iteration_starts_where_the_last_one_ended(pool):
    with pool(2) as p:
        p.reset()
        run(p, STEPS)
        last = p.rows[-1].copy()
        p.roll()
        assert (p.rows[0, :, : p.layout.critic_dim] == last[:, : p.layout.critic_dim]).all()
        assert not p.rows[0, :, p.layout.critic_dim :].any()


def test_a_state_goes_on_bit_for_bit_with_any_number_of_workers(pool):
    with pool(1, horizon=15) as p:
        p.reset()
        run(p, 15)
        p.roll()
        state, start = p.state(), p.rows[0].copy()
        expected = run(p, 15, first=15)
    assert all(type(array) is np.ndarray and len(array) == ENVS for array in state.values())
    for workers in (1, 2):
        with pool(workers, horizon=15) as p:
            p.load_state(state)
            assert (p.rows[0] == start).all()
            got = run(p, 15, first=15)
        truncated = got["rows"][1:, :, -1] > 0
        for name in RESULTS:
            if name == "final_obs":
                assert (got[name][truncated] == expected[name][truncated]).all()
            else:
                assert (got[name] == expected[name]).all(), (workers, name)


def test_a_state_is_gone_back_to_while_a_part_steps(pool):
    """As where the device has no memory for the second half's actions."""
    with pool(2, parts=2) as p:
        p.reset()
        state, first = p.state(), p.rows[0].copy()
        p.start(0, 0)
        p.load_state(state)
        assert np.array_equal(p.rows[0], first)
        assert all(np.array_equal(p.state()[name], state[name]) for name in state)


def test_a_reset_is_always_the_same(pool):
    with pool(2, mode="disturbed") as p:
        p.reset()
        first = p.rows[0].copy()
        run(p, 5)
        p.reset()
        assert (p.rows[0] == first).all()


def test_what_a_worker_raises_is_raised_here(pool):
    with pool(2) as p:
        p.reset()
        with pytest.raises(WorkerError, match=r"worker 0 raised\nTraceback[\s\S]*IndexError"):
            p.step(STEPS)
        p.close()


def test_a_dead_worker_is_named(pool):
    with pool(2) as p:
        p.reset()
        pid = p._processes[1].pid
        os.kill(pid, signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(Q1Error, match=rf"worker 1 of 2 \(pid {pid}\) — died with exit code -9 \(SIGKILL"):
            p.step(0)
        assert time.monotonic() - started < 10


def test_a_worker_that_is_stopped_from_outside_is_named(pool):
    with pool(2) as p:
        p.reset()
        run(p, 1)
        pid = p._processes[1].pid
        os.kill(pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(Q1Error, match=rf"worker 1 of 2 \(pid {pid}\).*not answered for 8 s; it does not run"):
            p.step(0)
        assert time.monotonic() - started < 10
        assert not _alive(pid)


class Endless:
    """A message that its receiver never comes to the end of."""

    def __reduce__(self):
        return exec, ("while True: pass",)


def test_a_worker_that_loops_is_named_with_where_it_is(pool, monkeypatch):
    with pool(2) as p:
        monkeypatch.setattr("q1pipe.sim.workers.START_PATIENCE", 1.0)
        p.reset()
        pid = p._processes[0].pid
        p._pipes[0].send(Endless())
        at = r"worker 0 of 2[\s\S]*not answered for 2 s; it is at\n[\s\S]*line 1 in <module>\n[\s\S]*workers.py"
        with pytest.raises(Q1Error, match=at):
            p._answers()
        assert not _alive(pid)


def test_a_worker_that_does_not_read_what_it_is_sent_is_named(pool):
    """A state that is more than the pipe takes."""
    with pool(2) as p:
        p.reset()
        pid = p._processes[0].pid
        _limit_sending(p._pipes[0], 1)
        os.kill(pid, signal.SIGSTOP)
        said = rf"worker 0 of 2 \(pid {pid}\).*does not read what it is sent; it does not run"
        with pytest.raises(Q1Error, match=said):
            p.load_state({"physics": np.zeros((ENVS, 1 << 16))})
        assert not _alive(pid)


def test_workers_that_cannot_be_started_are_named(pool, monkeypatch, capfd):
    monkeypatch.setattr("q1pipe.sim.workers._load", os._exit)  # with arguments that are none of its own
    said = r"process that the workers are forked from — died with exit code 1"
    with pytest.raises(Q1Error, match=said), pool(2) as p:
        p.reset()
    assert "TypeError" in capfd.readouterr().err


def test_workers_that_do_not_come_are_not_awaited_for_ever(pool, monkeypatch):
    monkeypatch.setattr("q1pipe.sim.workers.START_PATIENCE", 1.0)
    monkeypatch.setattr("q1pipe.sim.workers.GOODBYE", 0.1)
    monkeypatch.setattr("q1pipe.sim.workers._load", Endless())
    said = r"process that the workers are forked from — has not forked them for 2 s"
    with pytest.raises(Q1Error, match=said), pool(2) as p:
        p.reset()
    assert not multiprocessing.active_children()


@linux
def test_workers_go_on_without_what_they_were_forked_from(pool):
    with pool(2) as p:
        p.reset()
        run(p, 1)
        pids = [process.pid for process in p._processes]
        [parent] = {int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) for pid in pids}
        assert parent != os.getpid()
        assert len(os.listdir(f"/proc/{parent}/task")) == 1  # safe to fork
        os.kill(parent, signal.SIGKILL)
        run(p, 5)
        assert [process.exitcode for process in p._processes] == [None, None]  # asked where a step takes its time
        run(p, 1)
    deadline = time.monotonic() + 5
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def test_a_step_that_is_slow_like_those_before_is_no_hang(pool, monkeypatch):
    monkeypatch.setattr("q1pipe.sim.workers.STEP_PATIENCE", 1.0)
    with pool(2) as p:
        p.reset()
        run(p, 1)
        p._slowest = 0.08  # s: 8 s are patience then
        pid = p._processes[1].pid
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(3.5, os.kill, (pid, signal.SIGCONT)).start()
        run(p, 1)


def test_an_iteration_that_goes_on_step_by_step_is_no_hang(pool, monkeypatch):
    monkeypatch.setattr("q1pipe.sim.workers.STEP_PATIENCE", 1.0)
    with pool(2, acts=True) as p:
        p.policy["spread"][:] = 1
        p.reset()
        p.play(0)
        p._slowest = 0.001
        pid = p._processes[1].pid
        os.kill(pid, signal.SIGSTOP)  # and in its place

        def go_on():
            for _ in range(4):
                p.at[-1] += 1
                time.sleep(0.8)
            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=go_on)
        thread.start()
        p.play(0)
        thread.join()
        p._slowest = 0.001
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Q1Error, match="worker 1 of 2 .* has not answered for 2 s"):
            p.play(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_asks_to_stop_is_the_learners_business(pool, number):
    with pool(2) as p:
        p.reset()
        for process in p._processes:
            os.kill(process.pid, number)
        time.sleep(0.2)
        run(p, 2)


def test_arrays_outlive_the_pool(pool):
    with pool(1) as p:
        p.reset()
        rows = p.rows
        p.close()
        p.close()
    assert np.isfinite(rows).all()


@linux
def test_workers_have_one_thread_no_accelerator_and_no_torch(pool):
    pytest.importorskip("torch")
    with pool(1) as p:
        p.reset()
        process = Path(f"/proc/{p._processes[0].pid}")
        environment = dict(e.split("=", 1) for e in (process / "environ").read_text().split("\0") if "=" in e)
        maps = (process / "maps").read_text()
    assert (
        environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "1"
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == environment["ASCEND_RT_VISIBLE_DEVICES"] == ""
    assert "libmujoco" in maps
    assert "torch" not in maps
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def test_too_little_shared_memory_is_said_before_it_is_used(pool):
    with pytest.raises(Q1Error, match=r"shared-memory.*MB free, 8 environments × 1000000000 steps need.*shm-size"):
        pool(1, horizon=10**9)


@linux
def test_workers_share_a_long_clip(tmp_path, clip, busy):
    """The reference of ten minutes is 26 MB, and none of a worker's own.

    Counted is what is a worker's own, beside that of a worker with a clip of four seconds.
    """
    tiled = {k: np.tile(v, (150, *[1] * (v.ndim - 1))) for k, v in vars(clip).items() if isinstance(v, np.ndarray)}
    long = replace(clip, **tiled)
    private = []
    for name, each in (("short", clip), ("long", long)):
        each.save(tmp_path / f"{name}.npz")
        with WorkerPool(RobotCfg(), tmp_path / f"{name}.npz", busy, 2, horizon=2) as pool:
            pool.reset()
            pool.actions[:] = 0
            pool.step(0)
            assert np.isfinite(pool.rows).all()
            text = [Path(f"/proc/{p.pid}/smaps_rollup").read_text() for p in pool._processes]
            own = [sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", t, re.MULTILINE)) for t in text]
            private.append(np.mean(own) / 1024)
    assert long.frames == 30000
    assert private[1] - private[0] < 8, private


def test_an_uneven_split_is_refused(motion, busy):
    with pytest.raises(ValueError, match="num_envs 8 is not divisible by num_workers 3"):
        WorkerPool(RobotCfg(), motion, busy, 3, horizon=1)


SCRIPT = """
import sys, os, signal
from pathlib import Path
from q1pipe.config import RobotCfg, TrainCfg
from q1pipe.sim.workers import WorkerPool
pool = WorkerPool(RobotCfg(), Path(sys.argv[1]), TrainCfg(num_envs=4, num_workers=2), 2, horizon=2)
pool.reset()
print(*(p.pid for p in pool._processes), flush=True)
"""


def script(tmp_path, motion, ending):
    """Run a user's script, without a main guard, that starts a pool and ends in some way."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT + ending)
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    done = subprocess.run(
        [sys.executable, file, motion], capture_output=True, text=True, cwd=tmp_path, timeout=60, env=_environment()
    )
    after = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    return [int(pid) for pid in done.stdout.split()], done, after - before


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in (str(Path.cwd()), *sys.path) if p)}


@pytest.mark.parametrize("ending", ["pool.step(0); pool.close()", "pool.step(0)", "sys.exit(3)"])
def test_nothing_is_left_and_nothing_is_said_at_the_end(tmp_path, motion, ending):
    pids, done, left = script(tmp_path, motion, ending)
    assert done.stderr == ""
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)
    assert not left
    assert [p.name for p in tmp_path.iterdir()] == ["script.py"]


def test_workers_leave_when_the_learner_is_killed(tmp_path, motion):
    pids, done, left = script(tmp_path, motion, "os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)
    assert not left


def test_a_worker_that_loops_leaves_too_when_the_learner_is_killed(tmp_path, motion):
    loop = "pool._pipes[0].send(type('X', (), {'__reduce__': lambda s: (exec, ('while True: pass',))})())\n"
    pids, done, _ = script(tmp_path, motion, loop + "import time; time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline = time.monotonic() + 5
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


@linux
@pytest.mark.parametrize("kilobytes", [16, 600])
def test_a_small_shared_memory_is_said_or_suffices(tmp_path, motion, kilobytes):
    """The real thing, in a mount namespace: a container without --shm-size."""
    inside = f"mount -t tmpfs -o size={kilobytes}k tmpfs /dev/shm && exec {shlex.quote(sys.executable)} script.py"
    command = ["unshare", "-m", "sh", "-c", f'{inside} "$0"', str(motion)]
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    (tmp_path / "script.py").write_text(SCRIPT + "for t in (0, 1): pool.step(t)\npool.close()")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, env=_environment())
    if kilobytes == 16:
        assert re.search(r"\[shared-memory\].*need 0 MB.*docker run --shm-size=1m", done.stderr), done.stderr
    else:
        assert done.returncode == 0, done.stderr


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())


COMPILED = """
import sys
import numpy as np
from q1pipe.config import PolicyCfg, RobotCfg, TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim import actor, draws, kernels, kinematics, turns
from q1pipe.sim.env import TrackingEnv
from q1pipe.sim.observations import Layout
from q1pipe.sim.reference import tables
from q1pipe.sim.workers import REFERENCE, _commands, _load_kernels, shared_fields

robot, clip = Robot.load(RobotCfg()), Clip.load(sys.argv[1])
modules = (actor, draws, kernels, kinematics, turns)
of_all = {f for module in modules for f in vars(module).values() if hasattr(f, "signatures")}
for share in (1, 5):
    cfg = TrainCfg(num_envs=share, num_workers=1, policy=PolicyCfg(hidden=(8,)))
    reference = tables(clip, robot, cfg)
    fields = shared_fields(Layout.of(robot), len(robot.joint_names), 4, share, 3, reference, (8,))
    views = {name: np.ones(field.shape, field.dtype) for name, field in fields.items()}
    _load_kernels(TrackingEnv(robot, clip, cfg, np.arange(min(2, share))), views)
    assert all(kernel.signatures for kernel in (actor.act, kernels.aim, kernels.settle, kernels.read))
    known = [len(kernel.signatures) for kernel in of_all]
    commands = _commands(TrackingEnv(robot, reference, cfg, np.arange(share)), views, slice(0, share))
    commands["reset"](None)
    commands["play"](0)
    print(sum(known), sum(len(kernel.signatures) for kernel in of_all))
"""


def test_what_workers_need_is_compiled_before_they_are_forked(motion):
    """Else each of them would do it for itself. Once for one environment, and once for any other number."""
    done = subprocess.run([sys.executable, "-c", COMPILED, motion], capture_output=True, text=True, check=True)
    (one, after_one), (more, after_more) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert 10 <= one == after_one < more == after_more  # what Python calls; all that these call, where nothing is kept
