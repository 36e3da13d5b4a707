"""The motion tracking task for the environments of one worker; `kernels` has what is done for each of them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim import kernels, kinematics
from q1pipe.sim.observations import Layout
from q1pipe.sim.physics import Ids, Physics
from q1pipe.sim.randomization import Ranges, randomize_domain, time_limits
from q1pipe.sim.reference import Reference, RobotConstants, Step, Tables
from q1pipe.sim.rewards import REWARD_TERMS, Weights
from q1pipe.sim.sampler import bin_count
from q1pipe.sim.terminations import Limits

Floats = NDArray[np.float32]
Mode = Literal["train", "nominal", "disturbed"]


class StepBuffers(NamedTuple):
    """Where a step's results go: slices of a worker's rows of the shared block, or arrays of one's own.

    Attributes:
        rows: (n, row_dim) float32, see `observations.Layout`.
        final_obs: (n, critic_dim) float32, true final observations; written only where an episode was truncated.
        terms: (n, 9) float32, weight · value of each reward term.
        cause: (n,) int8, `terminations.Cause`.
        frame: (n,) int32, the reference frame that the step was scored on.
        ep_len: (n,) int32, control steps of the episode so far.
        ep_ret: (n,) float32, sum of its rewards so far.
    """

    rows: Floats
    final_obs: Floats
    terms: Floats
    cause: NDArray[np.int8]
    frame: NDArray[np.int32]
    ep_len: NDArray[np.int32]
    ep_ret: Floats

    @classmethod
    def zeros(cls, num_envs: int, layout: Layout) -> StepBuffers:
        """Buffers of their own."""
        return cls(
            np.zeros((num_envs, layout.row_dim), np.float32),
            np.zeros((num_envs, layout.critic_dim), np.float32),
            np.zeros((num_envs, len(REWARD_TERMS)), np.float32),
            np.zeros(num_envs, np.int8),
            np.zeros(num_envs, np.int32),
            np.zeros(num_envs, np.int32),
            np.zeros(num_envs, np.float32),
        )


class Episodes(NamedTuple):
    """Where each environment is in its episode; with the physics state, all that a step depends on.

    Attributes:
        number: (n,) episodes begun before this one.
        frame: (n,) reference frame that the robot's state belongs to.
        length: (n,) control steps so far.
        total: (n,) rewards so far.
        limit: (n,) control steps after which the episode times out.
        until_push: (n,) control steps.
        pushes: (n,) pushes so far, over all episodes.
        cause: (n,) cause of the end, where the mode leaves ended episodes alone.
        action: (n, J) last action, float32.
    """

    number: NDArray[np.int64]
    frame: NDArray[np.intp]
    length: NDArray[np.int32]
    total: Floats
    limit: NDArray[np.int32]
    until_push: NDArray[np.intp]
    pushes: NDArray[np.int64]
    cause: NDArray[np.int8]
    action: Floats

    @classmethod
    def zeros(cls, num_envs: int, joints: int) -> Episodes:
        """Before the first episode."""
        n = num_envs
        return cls(
            np.zeros(n, np.int64),
            np.zeros(n, np.intp),
            np.zeros(n, np.int32),
            np.zeros(n, np.float32),
            np.zeros(n, np.int32),
            np.zeros(n, np.intp),
            np.zeros(n, np.int64),
            np.zeros(n, np.int8),
            np.zeros((n, joints), np.float32),
        )


class TrackingEnv:
    """n environments that track one clip.

    A step is: action, physics, frame + 1, reference and `rel` with the new state, terminations, rewards, resets and
    pushes, observations. Observations look one frame ahead of the state, at the frame that the next action will be
    scored on.

    Modes: "train" starts episodes at sampled frames with noise, randomises, pushes, and begins a new episode where one
    ended. "nominal" starts every episode at frame 0 with reset noise only; "disturbed" adds randomisation and pushes.
    Neither begins a new episode by itself nor ends one for its length: an ended environment goes on, at the last frame
    if the motion is over, with its length, return and cause frozen, until `reset_all`. Observation noise is the
    caller's in every mode.

    Attributes:
        view: the last step as the rewards saw it: state, reference at the same frame, `rel`. Where mode "train" has
            begun a new episode, the state is already its, but for velocities of bodies and for forces.
        layout: columns of a row.
        bin_probs: (bins,) start distribution of mode "train"; write to it.
        episodes: where each environment is in its episode.
        physics: the simulations.
        encoder_offset: (n, J) rad, what each joint's encoder reads too much.
    """

    def __init__(
        self,
        robot: Robot,
        clip: Clip | Tables,
        cfg: TrainCfg,
        env_ids: Ids,
        mode: Mode = "train",
        nthread: int = 1,
    ):
        n, joints = len(env_ids), len(robot.joint_names)
        self.robot, self.cfg, self.mode = robot, cfg, mode
        self.env_ids = np.asarray(env_ids, np.intp)
        self.num_envs = n
        self.layout = Layout.of(robot)
        self.physics = Physics(robot, cfg, n, nthread)
        self.reference = Reference(clip, robot, cfg)
        self.episodes = Episodes.zeros(n, joints)
        self.bin_probs = np.full(bin_count(self.reference.frames, cfg.control_hz, cfg.reset), 1.0)
        self.bin_probs /= len(self.bin_probs)
        in_training = round(cfg.episode_seconds * cfg.control_hz)
        self.time_limit = in_training if mode == "train" else self.reference.frames  # evaluation sees the whole motion
        self.encoder_offset = np.zeros((n, joints), np.float32)
        if mode != "nominal":
            self.encoder_offset[:] = randomize_domain(self.physics, cfg, self.env_ids)
        self._task = kernels.Task(
            self.physics.simulated,
            self.physics.places,
            self.physics.batch.warning,
            self.physics.warnings,
            self.reference.table,
            self.reference.following,
            Weights.of(cfg.reward),
            Limits.of(robot, cfg.termination),
            Ranges.of(cfg, cfg.randomization.push if mode != "nominal" else 0.0),
            self.env_ids,
            self.episodes,
            self.time_limit,
            self.reference.starts,
            self.physics.batch.state,
            self.physics.fresh,
            kinematics.Tree.of(robot),
            self.physics.geoms,
        )
        self._rows = np.arange(n)
        now, next_ = (self.reference.at(self.episodes.frame) for _ in range(2))
        self.view = Step(
            robot=RobotConstants.of(robot),
            state=self.physics.state,
            ref=now,
            rel_pos_w=np.empty_like(now.body_pos_w),
            rel_quat_w=np.empty_like(now.body_quat_w),
            ahead=next_,
            action=self.episodes.action,
            previous_action=np.zeros_like(self.episodes.action),
            joint_zero=self.encoder_offset,
            unstable=self.physics.unstable,
        )

    def reset_all(self, out: StepBuffers, frames: NDArray[np.intp] | None = None) -> None:
        """Begin the run's first episode everywhere, the same whenever it is called. Writes observations, else 0.

        Args:
            out: where to write.
            frames: (n,) start frames; none: those of the mode.
        """
        e, starts = self.episodes, self.reference.starts
        for array in e:
            array[:] = 0
        if frames is None and self.mode == "train":
            frames = kernels.start_frames(self._task.ranges, self.env_ids, e, self._rows, self.bin_probs, starts.at)
        elif frames is None:
            frames = np.zeros(self.num_envs, np.intp)
        elif not ((frames >= 0) & (frames < self.reference.frames)).all():
            raise IndexError(f"start frames {frames} of a clip with {self.reference.frames} frames")
        kernels.begin(self._task, self.view, self._rows, frames)
        if self.mode == "train":
            e.limit[:] = time_limits(self.cfg, self.env_ids, self.time_limit)
        self.physics.forward(self._rows)
        self._look(out)
        for f in StepBuffers._fields:
            if f != "rows":
                getattr(out, f)[:] = 0
        out.rows[:, self.layout.critic_dim :] = 0

    def step(self, actions: Floats, out: StepBuffers) -> None:
        """Advance by one control step, given actions (n, J), and write the results."""
        physics, view = self.physics, self.view
        kernels.aim(actions, view, physics.places.actuators, physics.ctrl, physics.batch.warning, physics.warnings)
        failed = physics.control_step()
        self.view = view._replace(ref=view.ahead, ahead=view.ref)  # what was a frame ahead is here now
        kernels.settle(self._task, self.view, failed, self.mode == "train", self.bin_probs, out)

    def save(self) -> dict[str, NDArray[Any]]:
        """All that the next step depends on, a row per environment, but for what the seed tells."""
        episodes = {name: array.copy() for name, array in self.episodes._asdict().items()}
        return {"physics": self.physics.save(), **episodes}

    def load(self, state: dict[str, NDArray[Any]], out: StepBuffers) -> None:
        """Go on from a saved state, bit for bit. Writes observations, whose last digits may not be those of before.

        MuJoCo computes all that follows from a state here, but not after a push or where an episode began.
        """
        for name, array in self.episodes._asdict().items():
            array[:] = state[name]
        self.physics.load(state["physics"])
        self._look(out)

    def touches_floor(self, distance: float = 0.001) -> NDArray[np.bool_]:
        """Which bodies have a collision geom within a distance (m) of the floor, (n, B), all bodies but the world."""
        return self.physics.touches_floor(distance)

    def _look(self, out: StepBuffers) -> None:
        """Compare the present state with the reference, and write observations."""
        view, frame, reference = self.view, self.episodes.frame, self.reference
        kernels.look_up(reference.table, frame, self._rows, view.ref)
        kernels.look_up(reference.table, reference.following[frame], self._rows, view.ahead)
        kernels.relative(view.ref, view.state, view.robot.anchor, view.rel_pos_w, view.rel_quat_w)
        kernels.observe(view, self._rows, out.rows)
