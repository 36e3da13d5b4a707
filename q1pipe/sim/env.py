"""The motion tracking task for the environments of one worker, vectorised: no loop over environments."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import TrainCfg
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.sim.observations import Layout, observe
from q1pipe.sim.physics import Ids, Physics
from q1pipe.sim.randomization import push, randomize_domain, time_limits
from q1pipe.sim.reference import Reference, ReferenceFrames, Step, Tables, relative
from q1pipe.sim.rewards import REWARD_TERMS, reward_terms
from q1pipe.sim.sampler import bin_count
from q1pipe.sim.starts import NextStarts
from q1pipe.sim.terminations import Cause, causes, failed, truncated

Floats = NDArray[np.float32]
Mode = Literal["train", "nominal", "disturbed"]


@dataclass
class StepBuffers:
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


@dataclass
class Episodes:
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
            begun a new episode, the state is already its.
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
        self.pushed = mode != "nominal" and cfg.randomization.push > 0
        self.encoder_offset = np.zeros((n, joints), np.float32)
        if mode != "nominal":
            self.encoder_offset[:] = randomize_domain(self.physics, cfg, self.env_ids)
        self._default = robot.default_joint_pos.astype(np.float32)
        self._scale = robot.action_scale.astype(np.float32)
        self._rows = np.arange(n)
        self._starts = NextStarts(self.physics, self.reference, cfg, self.env_ids)
        self.view: Step = self._look(np.zeros((n, joints), np.float32))

    def reset_all(self, out: StepBuffers, frames: NDArray[np.intp] | None = None) -> None:
        """Begin the run's first episode everywhere, the same whenever it is called. Writes observations, else 0.

        Args:
            out: where to write.
            frames: (n,) start frames; none: those of the mode.
        """
        self.episodes = Episodes.zeros(self.num_envs, len(self.robot.joint_names))
        self._begin(self._rows, frames)
        if self.mode == "train":
            self.episodes.limit[:] = time_limits(self.cfg, self.env_ids, self.time_limit)
        self.physics.forward(self._rows)
        self.view = self._look(self.episodes.action)
        for f in fields(out):
            getattr(out, f.name)[:] = 0
        observe(self.view, self.layout, out.rows)

    def step(self, actions: Floats, out: StepBuffers) -> None:
        """Advance by one control step, given actions (n, J), and write the results."""
        e, cfg = self.episodes, self.cfg
        previous, e.action = e.action, np.array(actions, np.float32)
        self.physics.control_step(self._default + self._scale * e.action - self.encoder_offset)
        running = e.cause == Cause.NONE
        e.frame = self.reference.following[e.frame]
        at_end = self.reference.following[e.frame] == e.frame  # of the motion, or of a part of it that ends by a jump
        e.length += running

        self.view = self._look(previous, self.view.ahead)  # what was a frame ahead is here now
        cause = causes(self.view, cfg.termination, at_end, e.length >= e.limit)
        e.cause = np.where(running, cause, e.cause)
        reward_terms(self.view, cfg.reward, out.terms)
        reward = out.terms.sum(axis=1)
        e.total += reward * running
        self._report(reward, running, out)

        self._disturb()
        observe(self.view, self.layout, out.rows)

    def save(self) -> dict[str, NDArray[Any]]:
        """All that the next step depends on, a row per environment, but for what the seed tells."""
        return {"physics": self.physics.save(), **{f.name: getattr(self.episodes, f.name) for f in fields(Episodes)}}

    def load(self, state: dict[str, NDArray[Any]], out: StepBuffers) -> None:
        """Go on from a saved state, bit for bit. Writes observations."""
        for f in fields(Episodes):
            getattr(self.episodes, f.name)[:] = state[f.name]
        self.physics.load(state["physics"])
        self.view = self._look(self.episodes.action)
        observe(self.view, self.layout, out.rows)

    def touches_floor(self, distance: float = 0.001) -> NDArray[np.bool_]:
        """Which bodies have a collision geom within a distance (m) of the floor, (n, B), all bodies but the world."""
        return self.physics.touches_floor(distance)

    def _look(self, previous_action: Floats, ref: ReferenceFrames | None = None) -> Step:
        """Compare the present state with the reference, which may be known already."""
        state, frame = self.physics.state, self.episodes.frame
        ref = ref or self.reference.at(frame)
        rel_pos_w, rel_quat_w = relative(ref, state, self.robot.tracked_anchor)
        return Step(
            robot=self.robot,
            state=state,
            ref=ref,
            rel_pos_w=rel_pos_w,
            rel_quat_w=rel_quat_w,
            ahead=self.reference.at(self.reference.following[frame]),
            action=self.episodes.action,
            previous_action=previous_action,
            joint_zero=self.encoder_offset,
            unstable=self.physics.unstable,
        )

    def _report(self, reward: Floats, running: NDArray[np.bool_], out: StepBuffers) -> None:
        """Write what the step led to, before anything begins anew."""
        e, layout = self.episodes, self.layout
        cut = truncated(e.cause)
        out.rows[:, layout.reward_col] = reward
        out.rows[:, layout.terminated_col] = failed(e.cause)
        out.rows[:, layout.truncated_col] = cut
        out.cause[:], out.frame[:], out.ep_len[:], out.ep_ret[:] = e.cause, e.frame, e.length, e.total
        ids = np.flatnonzero(cut & running)
        if len(ids):
            final = np.empty((len(ids), layout.critic_dim), np.float32)
            observe(self.view.take(ids), layout, final)
            out.final_obs[ids] = final

    def _disturb(self) -> None:
        """Begin new episodes where they ended, in mode "train", and push whom it is time to push."""
        e = self.episodes
        changed = [self._rows[:0]]
        if self.pushed:
            e.until_push -= 1
            due = np.flatnonzero((e.until_push == 0) & (e.cause == Cause.NONE))
            if len(due):
                e.until_push[due] = push(self.physics, due, self.cfg, self.env_ids[due], e.pushes[due])
                e.pushes[due] += 1
                changed.append(due)
        if self.mode == "train":
            ended = np.flatnonzero(e.cause)
            if len(ended):
                e.number[ended] += 1
                self._begin(ended)
                self.view.ahead = self.reference.at(self.reference.following[e.frame])
                changed.append(ended)
        ids = np.sort(np.concatenate(changed))
        if len(ids):
            self.physics.forward(ids)

    def _begin(self, ids: Ids, frame: NDArray[np.intp] | None = None) -> None:
        """Put environments at the start of an episode. The physics needs a `forward` afterwards."""
        e = self.episodes
        if frame is None and self.mode == "train":
            coming = e.number + 1
            coming[ids] = e.number[ids]
            start = self._starts.sampled(ids, coming, self.bin_probs)
        else:
            start = self._starts.at(ids, e.number[ids], np.zeros(len(ids), np.intp) if frame is None else frame)
        self.physics.write(ids, start.qpos, start.qvel)
        e.frame[ids], e.until_push[ids] = start.frame, start.until_push
        e.length[ids], e.total[ids], e.cause[ids] = 0, 0, 0
        # As if the robot had been held where it is: action 0 would be the default pose, far from a robot that lies.
        measured = start.qpos[:, self.robot.qpos_adr] + self.encoder_offset[ids]
        e.action[ids] = (measured - self._default) / self._scale
        e.limit[ids] = self.time_limit
