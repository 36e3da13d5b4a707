"""The page: what it shows, its controls, and the loop that moves it.

Callbacks of the browser only leave a wish; everything is done by the loop, one thing at a time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray
from viser import uplot

from q1pipe.view.live import Live
from q1pipe.view.playback import Clock, Shown, Touch
from q1pipe.view.scene import Figure, Surroundings

Array = NDArray[np.floating]

PICTURES = 30.0  # a second
WORDS = 8.0  # updates of text and plot a second
SPEEDS = {"× 0.1": 0.1, "× 0.25": 0.25, "× 0.5": 0.5, "× 1": 1.0, "× 2": 2.0}
OVERLAID, BESIDE, HIDDEN = "overlaid", "beside", "hidden"
ASIDE = 0.9  # × standing height
PLOTTED_SECONDS = 10.0  # of a live policy
ARROW_SECONDS = 0.6
LATE = 0.25  # s behind real time from which a live policy does not catch up


class Page:
    """What a browser shows.

    Args:
        server: viser's.
        shown: what can be looked at.
    """

    def __init__(self, server: viser.ViserServer, shown: Shown):
        robot = shown.robot
        self.server, self.robot, self.recordings, self.live = server, robot, shown.recordings, shown.live
        self.touch = Touch(robot)
        self.surroundings = Surroundings(server, robot)
        self.policy = Figure(server, "/policy", robot.model)
        self.reference = Figure(server, "/reference", robot.model, ghost=True)
        self._wishes: deque[str] = deque()
        self._scrubbed: int | None = None
        self._arrow: tuple[float, Array] | None = None
        self._behind = self._since_words = 0.0
        self._seen: deque[tuple[float, float]] = deque()  # time, tracking error of the live policy
        self._controls(shown.notes)
        self._choose(0)

    def _controls(self, notes: str) -> None:
        gui, first = self.server.gui, self.recordings[0]
        gui.configure_theme(control_width="medium", show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        gui.set_panel_label("q1pipe")
        self.words = gui.add_markdown("")
        self.plot = gui.add_uplot(
            (np.zeros(2), np.zeros(2), np.zeros(2)),
            (
                uplot.Series(label="s"),
                uplot.Series(label="tracking error, mm", stroke="#2563eb", width=1.5),
                uplot.Series(label="now", stroke="#dc2626", width=1.5),
            ),
            scales={"x": uplot.Scale(time=False, auto=True), "y": uplot.Scale(auto=True)},
            height=140,
        )
        self.play = gui.add_button("Pause", icon="player-pause")
        self.play.on_click(lambda _: self._wishes.append("play"))
        self.row = gui.add_slider("Moment", 0, max(1, first.moments - 1), 1, 0)
        self.row.on_update(self._scrub)
        self.speed = gui.add_dropdown("Speed", tuple(SPEEDS), initial_value="× 1")
        self.beside = gui.add_dropdown("Reference", (OVERLAID, BESIDE, HIDDEN), initial_value=OVERLAID)
        self.beside.visible = first.reference is not None
        self.contacts = gui.add_checkbox("Contacts", True)
        self.follow = gui.add_checkbox("Follow", False, hint="keep the robot in the middle")
        self.environment = gui.add_slider("Environment", 0, max(1, len(self.recordings) - 1), 1, 0)
        self.environment.visible = len(self.recordings) > 1
        with gui.add_folder("Live", visible=self.live is not None):
            self.run_live = gui.add_checkbox("Run the policy", False, hint="policy.onnx in sim2sim's nominal world")
            self.push_speed = gui.add_slider("Push, m/s", 0.1, 2.0, 0.1, 0.5)
            gui.add_button("Push", icon="wind").on_click(lambda _: self._wishes.append("push"))
            gui.add_button("Reset", icon="refresh").on_click(lambda _: self._wishes.append("reset"))
        if notes:
            with gui.add_folder("sim2sim", expand_by_default=False):
                gui.add_markdown(notes)

    def _scrub(self, event: Any) -> None:
        if event.client is not None:  # a person moved it, not the loop
            self._scrubbed = int(self.row.value)

    def _choose(self, number: int) -> None:
        """Play another recording from its beginning."""
        self.recording = self.recordings[number]
        self._chosen = number
        self.clock = Clock(self.recording.fps, self.recording.moments)
        self.row.max = max(1, self.recording.moments - 1)

    @property
    def is_live(self) -> bool:
        """Whether the policy runs, instead of a recording."""
        return self.live is not None and self.run_live.value

    def run(self) -> None:
        """Move the picture until interrupted."""
        before = time.monotonic()
        while True:
            now = time.monotonic()
            self.tick(now - before)
            before = now
            time.sleep(max(0.0, 1 / PICTURES - (time.monotonic() - now)))

    def tick(self, seconds: float) -> None:
        """Let time pass and show what is then."""
        if int(self.environment.value) != self._chosen and len(self.recordings) > 1:
            self._choose(int(self.environment.value))
        self.clock.speed = SPEEDS[self.speed.value]
        while self._wishes:
            self._grant(self._wishes.popleft())
        if self.live is not None and self.is_live:
            self._advance(self.live, seconds)
            policy = self.live.state.pos_w[0], self.live.state.quat_w[0]
            clip, frame = self.live.judge.clip, self.live.frame
            reference: tuple[Array, Array] | None = (clip.body_pos_w[frame], clip.body_quat_w[frame])
            qpos: Array | None = self.live.qpos
        else:
            if self._scrubbed is not None:
                self.clock.seek(self._scrubbed)
                self.clock.playing, self._scrubbed = False, None
            self.clock.tick(seconds)
            of, row = self.recording, self.clock.row
            policy = (of.policy.pos[row], of.policy.quat[row]) if of.policy else None  # type: ignore[assignment]
            reference = (of.reference.pos[row], of.reference.quat[row]) if of.reference else None
            qpos = of.qpos[row] if of.policy else None
        self._draw(policy, reference, qpos, seconds)
        self._since_words += seconds
        if self._since_words >= 1 / WORDS:
            self._since_words = 0.0
            self._tell()

    def _grant(self, wish: str) -> None:
        if wish == "play":
            if not self.clock.playing and self.clock.row == self.clock.moments - 1:
                self.clock.seek(0)
            self.clock.playing = not self.clock.playing
        elif self.live is not None and wish == "reset":
            self.live.reset()
            self._seen.clear()
            self._arrow = None
            self.run_live.value = True
        elif self.live is not None and wish == "push" and self.is_live and not self.live.unstable:
            self._arrow = ARROW_SECONDS, self.live.push(float(self.push_speed.value))

    def _advance(self, live: Live, seconds: float) -> None:
        """As many control steps as have become due."""
        if live.unstable or not self.clock.playing:
            return
        self._behind = min(self._behind + seconds * self.clock.speed, LATE)
        while self._behind >= live.dt and not live.unstable:
            live.step()
            self._behind -= live.dt
            at = self._seen[-1][0] + live.dt if self._seen else live.dt
            self._seen.append((at, live.error))
            while self._seen[0][0] < at - PLOTTED_SECONDS:
                self._seen.popleft()

    def _draw(
        self,
        policy: tuple[Array, Array] | None,
        reference: tuple[Array, Array] | None,
        qpos: Array | None,
        seconds: float,
    ) -> None:
        """Move the figures; all that changes reaches the browser at once."""
        where = self.beside.value
        with self.server.atomic():
            middle = np.zeros(3)
            seen = policy or reference
            if self.follow.value and seen is not None:
                middle[:2] = seen[0][self.robot.root - 1, :2]
            self.policy.show(policy is not None)
            shown = reference is not None and (where != HIDDEN or policy is None)
            self.reference.show(shown, ASIDE * self.robot.standing_height if where == BESIDE and policy else 0.0)
            if policy:
                self.policy.pose(policy[0] - middle, policy[1])
            if reference and shown:
                self.reference.pose(reference[0] - middle, reference[1])
            marked = qpos is not None and self.contacts.value
            self.surroundings.contacts(self.touch.points(qpos) - middle if marked else np.zeros((0, 3)))  # type: ignore[arg-type]
            self.surroundings.move(-middle)
            if self._arrow is not None and policy is not None:
                left, velocity = self._arrow
                self.surroundings.push(policy[0][self.robot.anchor - 1] - middle, velocity)
                self._arrow = (left - seconds, velocity) if left > seconds else None
            else:
                self.surroundings.push(middle, None)

    def _tell(self) -> None:
        """Renew text, button, slider and plot."""
        playing = self.clock.playing
        self.play.label, self.play.icon = ("Pause", "player-pause") if playing else ("Play", "player-play")
        if self.live is not None and self.is_live:
            frames = self.live.judge.clip.frames
            held = ", the last pose is held" if self.live.frame == frames - 1 else ""
            ended = f"training would have ended it: **{self.live.ended}**" if self.live.ended else "within the limits"
            lines = [
                f"**live**, episode {self.live.episode}: {ended}",
                f"frame {self.live.frame} of {frames - 1}{held}",
                _millimetres(self.live.error),
            ]
            if self.live.unstable:
                lines.append("the physics broke: press Reset")
            times, errors = np.array(self._seen or [(0.0, 0.0)]).T
            self._plot(times, errors, len(times) - 1)
        else:
            of, row = self.recording, self.clock.row
            self.row.value = row
            lines = [of.title, f"{row / of.fps:.2f} s, moment {row} of {of.moments - 1}"]
            known = np.isfinite(of.error)
            if known[row]:
                lines.append(_millimetres(of.error[row]) + f" (mean {1000 * of.error[known].mean():.0f})")
            if len(of.load):
                names, load = self.robot.body_names, of.load[row]
                on = [f"{names[b]} {load[b]:.0f} N" for b in np.argsort(-load) if load[b] > 0]
                lines.append("floor: " + (", ".join(on[:4]) + (" …" if len(on) > 4 else "") if on else "no contact"))
            if known.all():
                self._plot(np.arange(of.moments) / of.fps, of.error, row)
        self.plot.visible = self.is_live or bool(np.isfinite(self.recording.error).all())
        self.words.content = "  \n".join(lines)

    def _plot(self, times: Array, errors: Array, row: int) -> None:
        """Show the tracking error, (n,) m over (n,) s, and where in it we are."""
        now = np.zeros(len(times))  # a needle; NaN in any series leaves a plot without a scale
        now[row] = 1000 * errors[row]
        self.plot.data = times, 1000 * errors, now


def _millimetres(distance: float) -> str:
    return f"tracking error **{1000 * distance:.0f} mm**" if math.isfinite(distance) else "tracking error unknown"
