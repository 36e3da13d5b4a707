"""Physics in worker processes: one `TrackingEnv` each, results in one block of shared memory.

A control step costs each worker one short message each way, and so do all the steps of an iteration where the workers
compute the policy themselves; all arrays lie in the shared block, the reference among them, so that a long clip is in
memory once. The block has no name, so nothing remains of it however the processes
end, and nobody has to sweep up: it is gone with the last process that maps it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import math
import multiprocessing
import os
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import RobotCfg, TrainCfg
from q1pipe.errors import Finding, Q1Error, error
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.actor import Explored, Net, Noise, act, parameters
from q1pipe.sim.env import Mode, StepBuffers, TrackingEnv
from q1pipe.sim.forks import Forks
from q1pipe.sim.observations import Layout
from q1pipe.sim.randomization import word
from q1pipe.sim.reference import Tables, tables
from q1pipe.sim.rewards import REWARD_TERMS
from q1pipe.sim.sampler import bin_count

Array = NDArray[Any]

SHARED_MEMORY = Path("/dev/shm")
START_PATIENCE = 300.0  # s for all that comes before the first step: reads files, on a machine that may be busy
STEP_PATIENCE = 7.0  # s for a step, which takes some ms
SLOWEST = 100  # × the slowest step lately is patience too, where that is more
FORGET = 0.99  # a step: what the slowest one still counts after it
GOODBYE = 5.0  # s for a worker to leave by itself
WHERE = signal.SIGUSR2  # makes a worker write the traceback of where it is into its pipe

# One BLAS thread per worker, no accelerator: read by libraries when they are loaded, so set before the child starts
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "ASCEND_RT_VISIBLE_DEVICES": "",
    "MUJOCO_GL": "disable",  # they draw nothing; looking for GLFW would start a Python of its own
}


class WorkerError(RuntimeError):
    """A worker raised; the message ends with its traceback."""


class Field(NamedTuple):
    """An array of the shared block."""

    shape: tuple[int, ...]
    dtype: type


REFERENCE, POLICY = "reference.", "policy."  # begin the names of the arrays that all workers read


def shared_fields(
    layout: Layout, joints: int, bins: int, num_envs: int, horizon: int, reference: Tables, hidden: Sequence[int] | None
) -> dict[str, Field]:
    """The arrays of the block, in order."""
    steps = (horizon, num_envs)
    policy = {} if hidden is None else parameters(layout.actor_dim, hidden, joints)
    explored = {
        "features": Field((*steps, layout.actor_dim), np.float32),
        "offsets": Field((*steps, joints), np.float32),
        "means": Field((*steps, joints), np.float32),
        "moments": Field((2, num_envs, layout.actor_dim), np.float64),
    }
    return {
        "rows": Field((horizon + 1, num_envs, layout.row_dim), np.float32),
        "final_obs": Field((*steps, layout.critic_dim), np.float32),
        "terms": Field((*steps, len(REWARD_TERMS)), np.float32),
        "cause": Field(steps, np.int8),
        "frame": Field(steps, np.int32),
        "ep_len": Field(steps, np.int32),
        "ep_ret": Field(steps, np.float32),
        "actions": Field((*steps, joints), np.float32),
        **({} if hidden is None else explored),
        **{POLICY + name: Field(shape, np.float32) for name, shape in policy.items()},
        "bin_probs": Field((bins,), np.float64),
        "at": Field((num_envs,), np.int32),
        **{REFERENCE + name: Field(array.shape, array.dtype.type) for name, array in reference.items()},
    }


_ALIGNMENT = 64


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _bytes(field: Field) -> int:
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def _views(block: Any, shared: dict[str, Field]) -> dict[str, Array]:
    """The block as arrays, which keep it alive."""
    views: dict[str, Array] = {}
    start = 0
    for name, field in shared.items():
        views[name] = np.frombuffer(block, field.dtype, math.prod(field.shape), start).reshape(field.shape)
        start += _aligned(_bytes(field))
    return views


class WorkerPool:
    """num_envs environments, spread evenly over worker processes; results do not depend on how many.

    Use it as a context manager. T = horizon, N = environments, J = joints.

    Attributes:
        parts: slices of the environments that step one after the other, when `start` and `wait` are used.
        layout: columns of a row.
        rows: (T+1, N, row_dim) float32; [0] is where the iteration starts (reward and flags 0); [t+1] is the result of
            step t: its reward and flags, and the observation after it (in mode "train" the next episode's, where one
            ended).
        final_obs: (T, N, critic_dim) float32, the true final observation where truncated.
        terms: (T, N, 9) float32, weight · value of each reward term; they sum to the reward.
        cause: (T, N) int8, `terminations.Cause`.
        frame: (T, N) int32, the reference frame that the step was scored on.
        ep_len: (T, N) int32, control steps of the episode, this one included.
        ep_ret: (T, N) float32, its rewards.
        actions: (T, N, J) float32, written by the learner before each step; before `play`, what is added to the mean.
        features: (T, N, actor) float32, with `acts`: what the policy's network saw.
        offsets: (T, N, J) float32, with `acts`: what was added to its output.
        means: (T, N, J) float32, with `acts`: mean actions.
        moments: (2, N, actor) float64, with `acts`: sums of what was observed and of its squares, over the T steps.
        policy: with `acts`: arrays of `actor.parameters`, written before `play`.
        bin_probs: (bins,) float64, start distribution of mode "train", written by the learner.
        at: (N,) int32, the step of `play` that each environment is at.

    Args:
        robot_cfg: the robot.
        motion_path: normalised clip.
        cfg: settings of the task; the first num_envs of its environments are used.
        num_workers: processes; must divide cfg.num_envs.
        mode: see `TrackingEnv`.
        horizon: steps that the arrays hold.
        threads: physics threads per worker.
        parts: each worker has environments of every part: all cores step one while the learner looks at another.
        acts: the workers compute the policy, which has cfg.policy.hidden layers, whole iterations by themselves.

    Raises:
        Q1Error: the shared memory does not suffice, or a worker died or hangs.
        WorkerError: a worker raised.
    """

    rows: Array
    final_obs: Array
    terms: Array
    cause: Array
    frame: Array
    ep_len: Array
    ep_ret: Array
    actions: Array
    features: Array
    offsets: Array
    means: Array
    moments: Array
    bin_probs: Array
    at: Array

    def __init__(
        self,
        robot_cfg: RobotCfg,
        motion_path: Path,
        cfg: TrainCfg,
        num_workers: int,
        *,
        mode: Mode = "train",
        horizon: int,
        threads: int = 1,
        parts: int = 1,
        acts: bool = False,
    ):
        if cfg.num_envs % num_workers:
            raise ValueError(f"num_envs {cfg.num_envs} is not divisible by num_workers {num_workers}")
        if acts and parts > 1:
            raise ValueError("workers that act have no parts")
        robot = Robot.load(robot_cfg)
        reference = tables(Clip.load(motion_path), robot, cfg)
        self.layout = Layout.of(robot)
        bins = bin_count(len(reference["frames"]), cfg.control_hz, cfg.reset)
        hidden = cfg.policy.hidden if acts else None
        shared = shared_fields(self.layout, len(robot.joint_names), bins, cfg.num_envs, horizon, reference, hidden)
        context = multiprocessing.get_context("spawn")
        block = context.RawArray(ctypes.c_byte, _room(shared, horizon, cfg.num_envs))
        self.policy: dict[str, Array] = {}
        for name, view in _views(block, shared).items():
            if name.startswith(REFERENCE):
                view[:] = reference[name.removeprefix(REFERENCE)]
            elif name.startswith(POLICY):
                self.policy[name.removeprefix(POLICY)] = view
            else:
                setattr(self, name, view)
        self.bin_probs[:] = 1 / bins
        self._pipes: list[Connection] = []
        self._forks = Forks()
        self._processes = self._forks.processes
        # Where nobody closes the pool: the workers are deaf to the signal that multiprocessing ends them with at exit
        Finalize(self, _end, (self._pipes, self._forks), exitpriority=10)
        self._slowest = 0.0  # s
        self._started: deque[float] = deque()  # when each step began that nobody has waited for
        self.parts = _split(range(cfg.num_envs), parts)
        self._shares = [_split(part, num_workers) for part in self.parts]  # of each part, of each worker
        try:
            theirs = []
            for _ in range(num_workers):
                pipe, other = context.Pipe()
                _limit_sending(pipe, START_PATIENCE)
                self._pipes.append(pipe)
                theirs.append(other)
            shares = [[part[i] for part in self._shares] for i in range(num_workers)]
            with _worker_environment():
                self._forks.start(context, theirs, _load, (block, shared, robot_cfg, cfg, shares, mode, threads))
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        """Begin the first episode everywhere; fills rows[0]. The same whenever it is called."""
        for part in range(len(self.parts)):
            self._command("reset", part)

    def step(self, t: int) -> None:
        """Advance by one control step with `actions`; writes index t of the per-step arrays and rows[t + 1]."""
        for part in range(len(self.parts)):
            self.start(t, part)
        for _ in self.parts:
            self.wait()

    def start(self, t: int, part: int) -> None:
        """Begin a part's control step t with its `actions`; what `wait` is for."""
        self._started.append(time.monotonic())
        for worker in range(len(self._pipes)):
            self._send(worker, ("step", part, t))

    def wait(self) -> None:
        """Until the step that was started first is done.

        A worker whose step takes longer than STEP_PATIENCE, and than SLOWEST times the slowest lately, hangs. Time in
        which this process does not run either, as in a suspended machine or container, does not count.
        """
        self._answers()
        self._took(time.monotonic() - self._started.popleft())

    def play(self, iteration: int) -> None:
        """All steps of an iteration, of which each worker takes its own without a look at the others.

        To the noise of actions in `actions` it adds their means, and takes the sum. That of observations depends on the
        number of the iteration.
        """
        began = time.monotonic()
        self._command("play", 0, iteration)
        self._took((time.monotonic() - began) / len(self.actions))

    def roll(self) -> None:
        """Start the next iteration where this one ended: rows[0] = the last observations, reward and flags 0."""
        self.rows[0] = self.rows[-1]
        self.rows[0, :, self.layout.critic_dim :] = 0

    def state(self) -> dict[str, Array]:
        """Plain arrays, a row per environment, from which `load_state` goes on exactly, with any number of workers."""
        saved = [state for part in range(len(self.parts)) for state in self._command("save", part) if state]
        joined = {name: np.concatenate([state[name] for state in saved]) for name in saved[0]}
        return {**joined, "rows": self.rows[0].copy()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Go on from `state`, taken between two iterations; fills rows[0]. Waits for steps that were begun."""
        while self._started:
            self.wait()
        for part, shares in enumerate(self._shares):
            for worker, share in enumerate(shares):
                theirs = {name: array[share] for name, array in state.items() if name != "rows"}
                self._send(worker, ("load", part, theirs))
            self._answers()
        self.rows[0] = state["rows"]  # to the last digit; see `TrackingEnv.load`

    def close(self) -> None:
        """End the workers. Arrays that others hold stay valid. Can be called again."""
        _end(self._pipes, self._forks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _command(self, name: str, part: int, argument: Any = None) -> list[Any]:
        for worker in range(len(self._pipes)):
            self._send(worker, (name, part, argument))
        return self._answers()

    def _took(self, seconds: float) -> None:
        """Remember what a step took."""
        self._slowest = max(FORGET * self._slowest, seconds)

    def _send(self, worker: int, message: tuple[str, int, Any]) -> None:
        """Send a worker what may be more than its pipe takes before it reads.

        Raises:
            Q1Error: it does not read, or could not be started.
        """
        if not self._processes:  # waited for here, not when they are started: the learner has much to load meanwhile
            self._await_birth()
            self._answers()
        try:
            self._pipes[worker].send(message)
        except BlockingIOError:
            self._fail(worker, f"does not read what it is sent; {self._whereabouts(worker)}")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has died: reported where its answer is awaited

    def _answers(self) -> list[Any]:
        """Wait for an answer of every worker, not for ever.

        Raises:
            Q1Error: a worker died, or does not answer.
            WorkerError: a worker raised; the pool is closed.
        """
        results, patience = [], START_PATIENCE
        if self._slowest:  # steps are known
            patience = min(patience, max(STEP_PATIENCE, SLOWEST * self._slowest))
        for i, pipe in enumerate(self._pipes):
            waited = 0  # s; counted, not read from the clock, which runs on while a machine sleeps
            seen = None  # looked at only where an answer takes long: a step is short
            while not pipe.poll(1.0):
                self._require_alive()
                at = self.at[self._shares[0][i]].copy()
                waited = waited + 1 if seen is None or (at == seen).all() else 0
                seen = at
                if waited > patience:
                    self._fail(i, f"has not answered for {waited} s; {self._whereabouts(i)}")
            try:
                kind, value = pipe.recv()
            except (EOFError, ConnectionResetError):
                self._processes[i].join(GOODBYE)
                self._require_alive()
                self._fail(i, "closed its pipe")
            if kind == "error":
                self.close()
                if isinstance(value, str):
                    raise WorkerError(f"worker {i} raised\n{value}")
                raise Q1Error(*value)
            results.append(value)
        return results

    def _await_birth(self) -> None:
        """Wait for the processes, not for ever.

        Raises:
            Q1Error: what they are forked from died, or hangs.
        """
        waited = 0  # s; counted, as for an answer
        while not self._forks.born(1.0):
            code = self._forks.origin_exitcode
            waited += 1
            if code is not None or waited > START_PATIENCE:
                what = f"has not forked them for {waited} s" if code is None else _death(code)
                raise Q1Error(_failure("the process that the workers are forked from", what))

    def _require_alive(self) -> None:
        for i, process in enumerate(self._processes):
            if process.exitcode is not None:
                self._fail(i, _death(process.exitcode))

    def _whereabouts(self, worker: int) -> str:
        """What a worker that hangs is at: its traceback, which it writes even while it computes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._processes[worker].pid, WHERE)
        text, descriptor = b"", self._pipes[worker].fileno()
        while self._pipes[worker].poll(0.5) and (part := os.read(descriptor, 1 << 16)):
            text += part
        return f"it is at\n{text.decode(errors='replace')}" if text else "it does not run: stopped from outside?"

    def _fail(self, worker: int, what: str) -> None:
        pid, count = self._processes[worker].pid, len(self._processes)
        for process in self._processes:
            process.kill()  # one that hangs does not hear that it should leave
        self.close()
        raise Q1Error(_failure(f"worker {worker} of {count} (pid {pid})", what))


def _limit_sending(pipe: Connection, seconds: float) -> None:
    """Let `send` raise BlockingIOError where the other end does not read for so long."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), 0))


def _split(envs: range | slice, count: int) -> list[slice]:
    """Slices of environments in order, as equal as can be; some are empty where there are fewer than `count`."""
    size = envs.stop - envs.start
    bounds = [envs.start + size * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def _end(pipes: list[Connection], forks: Forks) -> None:
    """End workers."""
    for pipe in pipes:
        pipe.close()  # a worker leaves when its pipe ends
    forks.end(GOODBYE)
    pipes.clear()


def _failure(who: str, what: str) -> Finding:
    return error(
        "worker",
        who,
        what,
        "workers that live as long as the run",
        "look for the out-of-memory killer (dmesg) and at train.num_envs",
    )


def _death(code: int) -> str:
    if code < 0:
        return f"died with exit code {code} ({signal.Signals(-code).name}{', out of memory?' if code == -9 else ''})"
    return f"died with exit code {code}"


def _room(shared: dict[str, Field], horizon: int, num_envs: int) -> int:
    """Bytes of the block.

    Raises:
        Q1Error: /dev/shm, where it exists, has less. Without this check the first write would be a bus error.
    """
    sizes = {name: _aligned(_bytes(field)) for name, field in shared.items()}
    need = sum(sizes.values())
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else need
    if need > free:
        fixed = sum(size for name, size in sizes.items() if name.startswith((REFERENCE, POLICY)))
        fitting = max(0, int(num_envs * (free - fixed) / (need - fixed)))
        raise Q1Error(
            error(
                "shared-memory",
                str(SHARED_MEMORY),
                f"{free / 1e6:.0f} MB free, {num_envs} environments × {horizon} steps need {need / 1e6:.0f} MB",
                "room for the arrays that workers and learner share",
                f"docker run --shm-size={math.ceil(need / 2**20 * 1.2)}m …, or train.num_envs of at most {fitting}",
            )
        )
    return need


@contextlib.contextmanager
def _worker_environment() -> Iterator[None]:
    """What children that start meanwhile see: WORKER_ENVIRONMENT, and no main module of ours to run again.

    A spawned child re-imports its parent's main module, which would drag the learner's libraries into every worker,
    and run a user's script again where it has no `if __name__ == "__main__"`. The workers' target is importable
    without it.
    """
    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    # What asks to stop may go to the whole group: held back here meanwhile, and from the children for good, as the
    # learner decides
    resource_tracker.ensure_running()  # which the first child would start, and that lets the signals through again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    os.environ.update(WORKER_ENVIRONMENT)
    main.__spec__ = main.__file__ = None
    try:
        yield
    finally:
        main.__spec__, main.__file__ = spec, file
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _load(
    block: Any,
    shared: dict[str, Field],
    robot_cfg: RobotCfg,
    cfg: TrainCfg,
    shares: list[list[slice]],
    mode: Mode,
    threads: int,
) -> Callable[[int, Connection], None]:
    """What all workers need, once; returns a worker: shares are its environments of each part, of each worker."""
    robot, views = Robot.load(robot_cfg), _views(block, shared)
    reference = {n.removeprefix(REFERENCE): view for n, view in views.items() if n.startswith(REFERENCE)}
    for view in reference.values():
        view.flags.writeable = False  # it is everyone's

    def environment(mine: slice) -> TrackingEnv:
        return TrackingEnv(robot, reference, cfg, np.arange(mine.start, mine.stop), mode, threads)

    share = max(envs.stop - envs.start for of_worker in shares for envs in of_worker)
    _load_kernels(environment(slice(0, min(2, share))), views)
    return lambda worker, pipe: _work(pipe, views, shares[worker], environment)


def _load_kernels(env: TrackingEnv, views: dict[str, Array]) -> None:
    """Do once what workers do, or each of them would spend half a second on loading what is compiled.

    With two environments, where workers have more: the arrays of a single one are laid out in another way, which is
    compiled for by itself.
    """
    n, scratch = slice(0, env.num_envs), {}
    for name, view in views.items():
        if not name.startswith(REFERENCE):
            whole = name.startswith(POLICY) or view.ndim == 1
            scratch[name] = np.ones_like(view if whole else view[: 2 if name in ("rows", "moments") else 1, n])
    commands = _commands(env, scratch, n)
    commands["reset"](None)
    commands["play" if "play" in commands else "step"](0)


def _work(
    pipe: Connection, views: dict[str, Array], shares: list[slice], environment: Callable[[slice], TrackingEnv]
) -> None:
    """A worker: build the environments, then do as told until the pipe ends."""
    faulthandler.register(WHERE, pipe.fileno(), all_threads=False)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            commands = [_commands(environment(mine), views, mine) if mine.start < mine.stop else {} for mine in shares]
            pipe.send(("ready", None))
            while True:
                name, part, argument = pipe.recv()
                do = commands[part].get(name)  # nothing, where the part has fewer environments than there are workers
                pipe.send(("done", do(argument) if do else None))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Q1Error as e:
            pipe.send(("error", e.findings))
        except Exception:
            pipe.send(("error", traceback.format_exc()))


def _leave_with_parent() -> None:
    """In a thread: leave when the learner is gone, also while the worker is busy and does not look at its pipe."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _commands(env: TrackingEnv, views: dict[str, Array], mine: slice) -> dict[str, Callable[[Any], Any]]:
    """What a worker can be told, on its own columns of the shared arrays."""
    env.bin_probs = views["bin_probs"]
    per_step = ("final_obs", "terms", "cause", "frame", "ep_len", "ep_ret")
    actions = views["actions"][:, mine]
    results = [
        StepBuffers(views["rows"][t + 1, mine], *(views[name][t, mine] for name in per_step))
        for t in range(len(actions))
    ]
    start = StepBuffers.zeros(env.num_envs, env.layout)._replace(rows=views["rows"][0, mine])
    commands = {
        "reset": lambda _: env.reset_all(start),
        "step": lambda t: env.step(actions[t], results[t]),
        "save": lambda _: env.save(),
        "load": lambda state: env.load(state, start),
    }
    policy = {name.removeprefix(POLICY): view for name, view in views.items() if name.startswith(POLICY)}
    if policy:
        net, reference = Net.of(policy), env.layout.reference_joint_pos.start
        noise = Noise.of(word(env.cfg.seed), env.layout.noise(env.cfg.noise))
        rows, moments, at = views["rows"][:, mine], views["moments"][:, mine], views["at"][mine]
        features, offsets, means = (views[name][:, mine] for name in ("features", "offsets", "means"))
        explored = [Explored(features[t], offsets[t], means[t], moments) for t in range(len(actions))]

        def play(iteration: int) -> None:
            first = iteration * len(results)
            moments[:] = 0
            for t, result in enumerate(results):
                at[:] = t
                act(net, noise, env.env_ids, first + t, rows[t], reference, explored[t], actions[t])
                env.step(actions[t], result)

        commands["play"] = play
    return commands
