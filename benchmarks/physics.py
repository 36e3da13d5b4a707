"""What the parts of the model cost: `Batch.step` of the shipped one and of variants, on the same states and targets.

    python -m benchmarks.physics

States are those of training at its beginning: the reference as policy, with exploration noise. Every variant steps
from each of them, in turns with the shipped model, so that a busy machine is busy for both.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable

import mujoco
import numpy as np
from mujoco.batch import Batch
from rich.console import Console
from rich.table import Table

from benchmarks.common import get_up, laptop
from q1pipe.robot import Robot
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.physics import VELOCITY

ENVS, WARMUP, STATES, ROUNDS = 128, 40, 12, 5
NOISE = 0.4  # of the actions: the exploration noise of a policy that has learned a little


def option(name: str, value: float) -> Callable[[mujoco.MjModel], None]:
    """A change of one field of the model's options."""
    return lambda model: setattr(model.opt, name, value)


def disable(flag: mujoco.mjtDisableBit) -> Callable[[mujoco.MjModel], None]:
    """A change that turns a feature off."""

    def change(model: mujoco.MjModel) -> None:
        model.opt.disableflags |= int(flag)

    return change


def only_floor(model: mujoco.MjModel) -> None:
    """No contacts between parts of the robot."""
    on_robot = model.geom_bodyid > 0
    model.geom_contype[on_robot] = 0


def frictionless_joints(model: mujoco.MjModel) -> None:
    """No dry friction in the joints: a constraint row less for each."""
    model.dof_frictionloss[:] = 0


def islands(model: mujoco.MjModel) -> None:
    """MuJoCo's default: look for groups of bodies that do not touch each other."""
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_ISLAND)


OWN_DATA = "an MjData per simulation"
VARIANTS: dict[str, Callable[[mujoco.MjModel], None]] = {
    "no sensors": disable(mujoco.mjtDisableBit.mjDSBL_SENSOR),
    "no contacts within the robot": only_floor,
    "no contacts": disable(mujoco.mjtDisableBit.mjDSBL_CONTACT),
    "no dry friction in joints": frictionless_joints,
    "no joint limits": disable(mujoco.mjtDisableBit.mjDSBL_LIMIT),
    "no midphase": disable(mujoco.mjtDisableBit.mjDSBL_MIDPHASE),
    "islands": islands,
    OWN_DATA: lambda model: None,
    "elliptic cones": option("cone", int(mujoco.mjtCone.mjCONE_ELLIPTIC)),
    "Euler": option("integrator", int(mujoco.mjtIntegrator.mjINT_EULER)),
    "tolerance 1e-6": option("tolerance", 1e-6),
    "5 iterations": option("iterations", 5),
    "10 line-search iterations": option("ls_iterations", 10),
    "conjugate gradients": option("solver", int(mujoco.mjtSolver.mjSOL_CG)),
    "sparse Jacobian": option("jacobian", int(mujoco.mjtJacobian.mjJAC_SPARSE)),
}


def recorded(env: TrackingEnv) -> list[tuple[np.ndarray, np.ndarray]]:
    """States (n, nstate) of training and the targets (n, nu) that follow."""
    rng, out = np.random.default_rng(0), StepBuffers.zeros(env.num_envs, env.layout)
    default, scale = env.robot.default_joint_pos, env.robot.action_scale
    env.reset_all(out)
    seen = []
    for step in range(WARMUP + STATES):
        reference = out.rows[:, env.layout.reference_joint_pos]
        action = (reference - default) / scale + NOISE * rng.standard_normal(reference.shape)
        state = env.physics.save()
        env.step(action.astype(np.float32), out)
        if step >= WARMUP:
            seen.append((state, env.physics.ctrl.copy()))
    return seen


def seconds(batch: Batch, states: list[tuple[np.ndarray, np.ndarray]], substeps: int) -> float:
    """CPU time of a control step from each state."""
    total, ctrl = 0.0, batch.bind("ctrl")
    for state, target in states:
        batch.state[:] = state
        batch.forward(np.arange(len(state)), stage=VELOCITY)
        ctrl[:] = target
        start = time.process_time()
        batch.step(nstep=substeps, stage=VELOCITY)
        total += time.process_time() - start
    return total


def main() -> None:
    """Measure and print."""
    sections = laptop()
    robot, cfg = Robot.load(sections.robot), sections.train
    env = TrackingEnv(robot, get_up(sections), cfg, np.arange(ENVS))
    states = recorded(env)
    batches = {}
    for name, change in {"shipped": lambda model: None, **VARIANTS}.items():
        model = copy.copy(env.physics.batch.model)
        change(model)
        batches[name] = Batch(model, ENVS, 1, persistent=name == OWN_DATA)
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(ROUNDS):
        for name, batch in batches.items():
            times[name].append(seconds(batch, states, cfg.substeps))
    table = Table("variant", "µs per env step", "of shipped", title=f"{ENVS} environments, medians of {ROUNDS} rounds")
    shipped = statistics.median(times["shipped"])
    for name, values in times.items():
        median = statistics.median(values)
        table.add_row(name, f"{median / len(states) / ENVS * 1e6:.1f}", f"{median / shipped:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
