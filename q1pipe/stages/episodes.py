"""Play deterministic episodes from frame 0 and measure them: the one way in which training and evaluation judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from q1pipe import rotations
from q1pipe.config import EvaluateCfg
from q1pipe.learn.policy import Policy
from q1pipe.log import progress
from q1pipe.metrics import EpisodeMeans, tracking_errors
from q1pipe.motion.clip import Clip
from q1pipe.motion.followability import touching_floor
from q1pipe.sim.env import StepBuffers, TrackingEnv
from q1pipe.sim.terminations import Cause

Array = NDArray[np.floating]

ROBOT_TOUCH, REFERENCE_TOUCH = 0.002, 0.02  # m: the clip gets the benefit of the doubt


@dataclass(frozen=True, eq=False)
class Episodes:
    """What n episodes gave.

    Attributes:
        cause: (n,) `Cause` of the end.
        held: (n,) whether the final pose was held.
        ep_len: (n,) control steps.
        ep_ret: (n,) sum of rewards.
        terms: (n, 9) sums of the reward terms.
        means: name of a metric -> mean of each episode, (n,).
        torque_peak: (n,) largest share of a joint's torque limit.
    """

    cause: NDArray[np.int8]
    held: NDArray[np.bool_]
    ep_len: NDArray[np.int32]
    ep_ret: Array
    terms: Array
    means: dict[str, Array]
    torque_peak: Array

    @property
    def success(self) -> NDArray[np.bool_]:
        """(n,) reached the end of the clip."""
        return self.cause == Cause.MOTION_END

    @property
    def finish(self) -> NDArray[np.bool_]:
        """(n,) reached the end and held the final pose."""
        return self.success & self.held

    def summary(self) -> dict[str, float]:
        """Plain numbers by the names of `metrics.DEFINITIONS`."""
        return {
            "success_rate": float(self.success.mean()),
            "finish_rate": float(self.finish.mean()),
            "mean_rew": float(self.ep_ret.sum(dtype=np.float64) / self.ep_len.sum()),
            "ep_ret": float(self.ep_ret.mean(dtype=np.float64)),
            "ep_len": float(self.ep_len.mean()),
            **{name: float(value.mean()) for name, value in self.means.items()},
            "torque_peak": float(self.torque_peak.mean()),
        }


@torch.no_grad()
def play(
    policy: Policy, env: TrackingEnv, clip: Clip, cfg: EvaluateCfg, device: torch.device, noise_seed: int | None = None
) -> Episodes:
    """One episode in every environment, from frame 0 to the clip's end.

    Args:
        policy: on `device`; deterministic actions.
        env: mode "nominal" or "disturbed".
        clip: the environment's clip.
        cfg: what counts as holding the final pose.
        device: where the policy is.
        noise_seed: of the observation noise of training; None: no noise.
    """
    n, layout, robot = env.num_envs, env.layout, env.robot
    scale = layout.noise(env.cfg.noise)
    rng = np.random.default_rng(noise_seed)
    ends = np.array([robot.tracked.tolist().index(b) for b in robot.end_effectors])
    on_floor = touching_floor(robot, clip, REFERENCE_TOUCH)
    last = clip.frames - max(1, round(cfg.hold_seconds * env.cfg.control_hz))
    out, means = StepBuffers.zeros(n, layout), EpisodeMeans(n)
    held, terms, torque_peak = np.ones(n, bool), np.zeros((n, out.terms.shape[1])), np.zeros(n)
    env.reset_all(out)
    for frame in progress(range(1, clip.frames), clip.frames - 1, f"{n} episodes, frame"):
        active = out.cause == Cause.NONE
        if not active.any():
            break
        obs = out.rows[:, : layout.actor_dim]
        if noise_seed is not None:
            obs = obs + scale * rng.uniform(-1, 1, obs.shape).astype(np.float32)
        env.step(policy(torch.from_numpy(obs).to(device)).cpu().numpy(), out)
        view, effort = env.view, np.abs(env.view.state.torque) / robot.effort
        errors = tracking_errors(
            view.state.body_pos_w,
            view.state.body_quat_w,
            view.ref.body_pos_w,
            view.rel_pos_w,
            view.rel_quat_w,
            view.state.joint_vel,
            view.ref.joint_vel,
            ends,
        )
        joints, (low, high) = view.state.joint_pos, robot.soft_limits.T
        means.add(
            {
                **errors,
                "action_rate": np.sum((view.action - view.previous_action) ** 2, axis=-1),
                "torque_use": effort.mean(axis=-1),
                "soft_limit_use": ((joints < low) | (joints > high)).any(axis=-1).astype(float),
            },
            active,
        )
        terms[active] += out.terms[active]
        torque_peak[active] = np.maximum(torque_peak, effort.max(axis=-1))[active]
        if frame >= last:
            held &= _holds(env, cfg, on_floor[frame])
    return Episodes(out.cause.copy(), held, out.ep_len.copy(), out.ep_ret.copy(), terms, means.result(), torque_peak)


def _holds(env: TrackingEnv, cfg: EvaluateCfg, on_floor: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) whose anchor is as high and as upright as the reference's, and who touch the floor only where it does.

    Args:
        env: after a step.
        cfg: limits.
        on_floor: (B,) bodies that touch the floor in the reference.
    """
    view, a = env.view, env.robot.tracked_anchor
    high = view.state.body_pos_w[:, a, 2] >= cfg.hold_height * view.ref.body_pos_w[:, a, 2]
    down = np.array([0, 0, -1], np.float32)
    gravity, reference = (rotations.rotate_inv(s.body_quat_w[:, a], down) for s in (view.state, view.ref))
    upright = (gravity * reference).sum(axis=-1) >= np.cos(np.radians(cfg.hold_tilt))
    elsewhere = (env.physics.touches_floor(ROBOT_TOUCH) & ~on_floor).any(axis=-1)
    return high & upright & ~elsewhere
