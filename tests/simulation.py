"""What a step of the task does with the physics, without the task."""

from q1pipe.sim import kernels
from q1pipe.sim.physics import Physics


def put(physics: Physics, qpos, qvel) -> None:
    """Begin anew with every robot somewhere."""
    physics.batch.state[:] = physics.fresh
    physics.qpos[:], physics.qvel[:] = qpos, qvel


def control_step(physics: Physics, target) -> None:
    """Hold position targets (n, J) rad for a control step, then read the new state."""
    physics.ctrl[:, physics.robot.actuator_ids] = target
    warning = physics.batch.warning
    kernels.count(warning, physics.warnings)
    failed = physics.control_step()
    kernels.read_step(physics.simulated, physics.places, warning, physics.warnings, physics.state, physics.unstable)
    physics.unstable[failed] = True
