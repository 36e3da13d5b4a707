"""`q1pipe view`: a page in the browser for what a motion's stages left, or for what training kept when it diverged."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from q1pipe.config import RobotCfg, Sections, TrainCfg, load_settings
from q1pipe.deploy.sim2sim import Judge, Limits
from q1pipe.errors import Q1Error, error
from q1pipe.motion.clip import Clip
from q1pipe.robot import Robot
from q1pipe.runs import Run, motion_folder, published

if TYPE_CHECKING:
    import viser

    from q1pipe.view.page import Page

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
    server = serve(host, port)
    try:
        page = dump_page(server, Path(what)) if what.endswith(".npz") else motion_page(server, what, results, sections)
        log.info("http://%s:%d shows %s; Ctrl-C ends it", host, server.get_port(), page.recording.title)
        page.run()
    except KeyboardInterrupt:
        log.info("ended")
    finally:
        server.stop()


def serve(host: str, port: int) -> viser.ViserServer:
    """Start viser's server.

    Raises:
        Q1Error: viser is not installed.
    """
    if importlib.util.find_spec("viser") is None:
        raise Q1Error(error("viser", "q1pipe view", "viser is not installed", "", 'pip install "viser>=1,<2"'))
    import viser

    return viser.ViserServer(host=host, port=port, label="q1pipe", verbose=False)


def motion_page(server: viser.ViserServer, motion: str, results: Path, sections: Sections) -> Page:
    """The page of a motion: its clip; its policy in sim2sim; its policy, live."""
    from q1pipe.view.page import Page
    from q1pipe.view.playback import stored

    folder = motion_folder(results, motion)
    clip = folder / "motion.npz"
    if not clip.is_file():
        action = f"snakemake {folder / 'motion.npz'} --cores 2"
        raise Q1Error(error("view", str(clip), "not there", "a clip that was checked", action))
    args = Run(folder / "runs" / published(folder)).args
    robot_cfg, train = made_with(args) if args else (sections.robot, sections.train)
    robot = Robot.load(robot_cfg)
    judge = Judge(robot, Clip.load(clip), Limits(train.termination, sections.evaluate))
    live = None
    if all((folder / name).is_file() for name in LIVE):
        from q1pipe.stages.sim2sim import load
        from q1pipe.view.live import Live

        live = Live(judge, *load(folder / "policy.onnx", clip, robot), folder / "recording.npz")
    return Page(server, robot, [stored(motion, folder, robot, judge)], live, sim2sim_table(folder / "sim2sim.json"))


def dump_page(server: viser.ViserServer, path: Path) -> Page:
    """The page of what training kept when it diverged."""
    from q1pipe.view.page import Page
    from q1pipe.view.playback import dumped

    args = Run(path.parent).args
    if not path.is_file() or not args:
        found = "not there" if not path.is_file() else "there is no args.yaml beside it"
        raise Q1Error(error("view", str(path), found, "a dump in its run folder, results/*/runs/*/diverged_*.npz"))
    robot_cfg, train = made_with(args)
    robot = Robot.load(robot_cfg)
    return Page(server, robot, dumped(path, robot, train.control_hz))


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
