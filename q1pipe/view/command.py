"""`q1pipe view`: a page in the browser for what a motion's stages left, or for what training kept when it diverged."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from q1pipe.config import RobotCfg, Sections, TrainCfg, load_settings
from q1pipe.deploy.sim2sim import Judge, Limits
from q1pipe.errors import Q1Error, error
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.runs import Run, motion_folder, published
from q1pipe.stages.sim2sim import load
from q1pipe.view.live import Live
from q1pipe.view.playback import Shown, dumped, stored

log = logging.getLogger(__name__)

LIVE = ("policy.onnx", "recording.npz")  # what a live policy takes, besides the clip


def run(what: str, results: Path, sections: Sections, host: str, port: int) -> None:
    """Serve the page until interrupted.

    Args:
        what: a motion, or the path of a dump.
        results: folder of all results.
        sections: settings of the motion, where no training run says what it was made with.
        host: address to listen at.
        port: the first free one from this on is taken.

    Raises:
        Q1Error: viser is missing, there is no such motion, or its files are not of one run.
    """
    if importlib.util.find_spec("viser") is None:
        raise Q1Error(error("viser", "q1pipe view", "viser is not installed", "", "pip install -e '.[view]'"))
    import viser

    from q1pipe.view.page import Page

    shown = of_dump(Path(what)) if what.endswith(".npz") else of_motion(what, results, sections)
    server = viser.ViserServer(host=host, port=port, label="q1pipe", verbose=False)
    try:
        page = Page(server, shown)
        log.info("http://%s:%d shows %s; Ctrl-C ends it", host, server.get_port(), page.recording.title)
        page.run()
    except KeyboardInterrupt:
        log.info("ended")
    finally:
        server.stop()


def of_motion(motion: str, results: Path, sections: Sections) -> Shown:
    """What there is of a motion: its clip; its policy in sim2sim; its policy, live."""
    folder = motion_folder(results, motion)
    clip = folder / "motion.npz"
    if not clip.is_file():
        action = f"snakemake {folder / 'motion.npz'} --cores 2"
        raise Q1Error(error("view", str(clip), "not there", "a clip that was checked", action))
    args = Run(folder / "runs" / published(folder)).args
    robot_cfg, train = made_with(args) if args else (sections.robot, sections.train)
    robot = Robot.load(robot_cfg)
    judge = Judge(robot, Clip.load(clip).opening(), Limits(train.termination, sections.evaluate))
    live = None
    if all((folder / name).is_file() for name in LIVE):
        live = Live(judge, *load(folder / "policy.onnx", clip, robot), folder / "recording.npz")
    return Shown(robot, [stored(motion, folder, robot, judge)], live, sim2sim_table(folder / "sim2sim.json"))


def of_dump(path: Path) -> Shown:
    """What training kept when it diverged."""
    args = Run(path.parent).args
    if not path.is_file() or not args:
        found = "not there" if not path.is_file() else "there is no args.yaml beside it"
        raise Q1Error(error("view", str(path), found, "a dump in its run folder, results/*/runs/*/diverged_*.npz"))
    robot_cfg, train = made_with(args)
    robot = Robot.load(robot_cfg)
    return Shown(robot, dumped(path, robot, train.control_hz))


def made_with(args: Mapping[str, Any]) -> tuple[RobotCfg, TrainCfg]:
    """The robot of a training run, and what is needed here of its settings. `args`: args.yaml."""
    train = {key: args["train"][key] for key in ("control_hz", "termination")}
    made = load_settings(json.dumps({"robot": args["robot"], "train": train}))
    return made["robot"], made["train"]


def sim2sim_table(path: Path) -> str:
    """What sim2sim found in every world, as Markdown; empty before it ran."""
    if not path.is_file():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        f"| {name} | {100 * world['success_rate']:.0f} | {1000 * world['r_mpkpe']:.0f} |"
        for name, world in found.get("worlds", {}).items()
    ]
    head = ["| world | success, % | error, mm |", "| --- | --: | --: |"]
    return "\n".join([f"verdict: **{found['verdict']}**", "", *(head + rows if rows else [])])
