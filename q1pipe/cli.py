"""The command line: one command per stage, for the workflow, and the commands for people.

Each command imports its stage when it is called, so that no command pays for another one's torch.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from q1pipe import config as configuration
from q1pipe import cores
from q1pipe.config import RobotCfg, Sections, load_settings, workers_for
from q1pipe.errors import EXIT_USER_ERROR, ConfigError, Finding, MotionError, Q1Error, error, warn
from q1pipe.log import setup

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Input = Annotated[Path, typer.Option(exists=True, dir_okay=False)]
Output = Annotated[Path, typer.Option()]
Number = Annotated[int, typer.Option(min=1)]
Motion = Annotated[str, typer.Argument(help="name of the motion")]
Results = Annotated[Path, typer.Option(help="folder of all results")]
Settings = Annotated[str, typer.Option(help="sections of the configuration, JSON")]
Log = Annotated[Path | None, typer.Option(help="file for what is printed")]
MotionFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="npz, CSV, GMR pickle, keyframe YAML")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--configfile", help="settings over config/config.yaml, as snakemake's; later over earlier"),
]
Fps = Annotated[float | None, typer.Option(help="frames per second, where the file does not say")]
Name = Annotated[str, typer.Option(help="motion; begins each line that is printed")]


@app.command()
def motion(
    source: Input,
    out_npz: Output,
    out_json: Output,
    settings: Settings,
    out_plot: Annotated[Path | None, typer.Option(help="curves, SVG")] = None,
    log: Log = None,
    name: Name = "",
) -> None:
    """Check a motion file and write it in the normalised format."""
    with _reported(log, name):
        from q1pipe.stages import motion as stage

        stage.run(source, out_npz, out_json, load_settings(settings), out_plot)


@app.command()
def device(
    out_json: Annotated[Path | None, typer.Option()] = None,
    settings: Annotated[str | None, typer.Option(help="sections of the configuration, JSON")] = None,
    config: ConfigFiles = None,
    log: Log = None,
) -> None:
    """Find the device that trains, prove that it computes, and say what else was found."""
    with _reported(log):
        from q1pipe.stages import device as stage

        sections = load_settings(settings) if settings else {"device": _sections(Path(), config, None).device}
        stage.run(out_json, sections)


@app.command()
def smoke(
    motion: Input,
    report: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="motion.json")],
    device: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="device.json")],
    out_json: Output,
    threads: Number,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Train for a moment, to see that it can be done."""
    with _reported(log, name):
        from q1pipe.stages import smoke as stage

        stage.run(motion, report, device, out_json, min(threads, cores.available()), load_settings(settings))


@app.command()
def train(
    motion: Input,
    device: Input,
    smoke: Input,
    runs_dir: Annotated[Path, typer.Option(help="folder of run folders, which are kept")],
    policy: Output,
    history: Annotated[Path, typer.Option(help="train.csv")],
    out_json: Output,
    workers: Annotated[int, typer.Option(min=1, help="physics processes asked for")],
    threads: Annotated[int, typer.Option(min=1, help="cores to use; fewer cores than workers: fewer workers")],
    settings: Settings,
    launcher: Annotated[int | None, typer.Option(help="process to leave with, everything saved")] = None,
    pinned: Annotated[Path | None, typer.Option(help="code that counts instead of the code that runs, JSON")] = None,
    log: Log = None,
    name: Name = "",
) -> None:
    """Train a policy, or go on where training stopped."""
    with _reported(log, name) as logger:
        sections = load_settings(settings)
        here = cores.available()
        count, finding = workers_for(sections["train"].num_envs, workers, threads, here)
        if finding:
            logger.warning(finding)
        from q1pipe.stages import seeds
        from q1pipe.stages import train as stage

        def one(policy: Path, history: Path, out_json: Path, sections: Mapping[str, Any]) -> None:
            inputs, outputs = (motion, device, smoke), (runs_dir, policy, history, out_json)
            stage.run(*inputs, *outputs, count, min(threads, here), sections, launcher, pinned)

        seeds.run(policy, history, out_json, sections, one)


@app.command()
def export(
    policy: Input,
    train_json: Input,
    motion: Input,
    onnx: Output,
    onnx_with_reference: Output,
    recording: Annotated[Path, typer.Option(help="recording.npz, what sim2sim compares with")],
    deploy_dir: Annotated[Path, typer.Option(help="folder for what a controller on the robot needs")],
    out_json: Output,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Write a policy as ONNX, and prove that it computes the same."""
    with _reported(log, name):
        from q1pipe.stages import export as stage

        sections = load_settings(settings)
        stage.run(
            *(policy, train_json, motion, onnx, onnx_with_reference, recording, deploy_dir, out_json), name, sections
        )


@app.command()
def sim2sim(
    onnx: Input,
    recording: Input,
    motion: Input,
    out_json: Output,
    trajectory: Output,
    threads: Number,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Put an exported policy into an independent simulation, and into other worlds."""
    with _reported(log, name):
        from q1pipe.stages import sim2sim as stage

        threads = min(threads, cores.available())
        stage.run(onnx, recording, motion, out_json, trajectory, threads, load_settings(settings))


@app.command()
def evaluate(
    policy: Input,
    train_json: Input,
    motion: Input,
    export_json: Input,
    sim2sim_json: Input,
    out_json: Output,
    threads: Number,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Judge a policy over many episodes, with what export and sim2sim found."""
    with _reported(log, name):
        from q1pipe.stages import evaluate as stage

        inputs = (policy, train_json, motion, export_json, sim2sim_json)
        stage.run(*inputs, out_json, min(threads, cores.available()), load_settings(settings))


@app.command()
def reference_video(
    motion: Input,
    mp4: Output,
    poster: Output,
    sheet: Output,
    out_json: Output,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Draw a normalised clip."""
    with _reported(log, name):
        from q1pipe.report.opengl import choose

        opengl = choose()  # before anything imports mujoco
        from q1pipe.report.video import Files
        from q1pipe.stages import video as stage

        stage.reference(motion, Files(mp4, poster, sheet, out_json), name, opengl, load_settings(settings))


@app.command()
def policy_video(
    trajectory: Input,
    onnx: Input,
    motion: Input,
    train_json: Input,
    mp4: Output,
    poster: Output,
    sheet: Output,
    out_json: Output,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Draw what sim2sim measured."""
    with _reported(log, name):
        from q1pipe.report.opengl import choose

        opengl = choose()  # before anything imports mujoco
        from q1pipe.report.video import Files
        from q1pipe.stages import video as stage

        files = Files(mp4, poster, sheet, out_json)
        stage.policy(trajectory, onnx, motion, train_json, files, name, opengl, load_settings(settings))


@app.command()
def report(
    folder: Annotated[Path, typer.Option(exists=True, file_okay=False, help="results/{motion}")],
    device: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="device.json")],
    out: Output,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Write the report of a motion."""
    with _reported(log, name):
        from q1pipe.stages import report as stage

        stage.run(folder, device, out, name, load_settings(settings))


@app.command()
def index(
    out: Output,
    settings: Settings,
    motions: Annotated[list[str] | None, typer.Argument(help="names; their folders are beside the file")] = None,
    log: Log = None,
) -> None:
    """Write the overview of all motions."""
    with _reported(log):
        from q1pipe.stages import report as stage

        stage.index(out, motions or [], load_settings(settings))


@app.command()
def package(
    folder: Annotated[Path, typer.Option(exists=True, file_okay=False, help="results/{motion}")],
    device: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="device.json")],
    source: Input,
    out: Output,
    settings: Settings,
    log: Log = None,
    name: Name = "",
) -> None:
    """Put everything about a policy into one file."""
    with _reported(log, name):
        from q1pipe.stages import package as stage

        stage.run(folder, device, source, out, name, load_settings(settings))


@app.command()
def verify(package: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="package.zip")]) -> None:
    """Check that a package is whole and of one run."""
    with _reported() as logger:
        from q1pipe.report.package import verify as check

        manifest = check(package)
        about = f"{len(manifest['files'])} files, run {manifest['fingerprint']}, verdict {manifest['verdict']}"
        logger.info("%s: ok; %s, %s; sha256 %s", package, manifest["motion"], about, manifest["sha256"])


@app.command()
def compose(
    keyframes: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="keyframes, YAML")],
    out: Annotated[Path, typer.Argument(help="motion file to write, such as config/getUp.npz")],
) -> None:
    """Make a motion file from keyframes, for the shipped robot or the one in Q1_XML."""
    with _reported() as logger:
        from q1pipe.motion.compose import compose_file

        _told(compose_file(keyframes, out, _robot()), logger)


@app.command()
def check(source: MotionFile, config: ConfigFiles = None, fps: Fps = None) -> None:
    """Say everything about a motion file: what is wrong, what would be repaired, whether physics can follow it."""
    with _reported():
        from rich.console import Console

        from q1pipe.motion.shown import summary, table
        from q1pipe.robot import Robot
        from q1pipe.stages.motion import assess

        sections = _sections(source, config, fps)
        try:
            assessed = assess(source, Robot.load(sections.robot), sections.motion, sections.train)
            score = f"score {100 * assessed.record['followability']['score']:.0f} %"
            findings, verdict = assessed.findings, f"{assessed.verdict}; {score}"
        except MotionError as e:
            findings, verdict = list(e.findings), "no motion of this robot as it is"
        console = Console(highlight=False)
        if findings:
            console.print(table(findings, source))
        console.print(f"{source.name}: {summary(findings)}; {verdict}", markup=False)
    if any(f.level == "ERROR" for f in findings):
        raise typer.Exit(EXIT_USER_ERROR)


@app.command()
def convert(
    source: MotionFile,
    out: Annotated[Path, typer.Argument(help="file to write: .npz, .csv or .pkl (GMR)")],
    config: ConfigFiles = None,
    fps: Fps = None,
) -> None:
    """Write a motion file in another format, with what is wrong repaired."""
    with _reported() as logger:
        from q1pipe.motion.convert import convert as convert_file
        from q1pipe.robot import Robot

        sections = _sections(source, config, fps)
        _told(convert_file(source, out, Robot.load(sections.robot), sections.motion), logger)


@app.command()
def sheet(
    source: MotionFile,
    out: Annotated[Path | None, typer.Argument(help="picture to write, PNG; else here, named as the motion")] = None,
    config: ConfigFiles = None,
    fps: Fps = None,
) -> None:
    """Draw a motion as one picture, which a person looks at first."""
    with _reported() as logger:
        from q1pipe.report.opengl import choose

        _told(choose().or_error(), logger)  # before anything imports mujoco
        from q1pipe.report.sheet import sheet_file

        sections = _sections(source, config, fps)
        out = out or Path(f"{source.stem}.png")
        _told(sheet_file(source, out, sections.robot, sections.motion), logger)
        logger.info(f"{out}: first frame top left, last frame bottom right")


@app.command()
def bench(
    source: MotionFile,
    config: ConfigFiles = None,
    workers: Annotated[str, typer.Option(help="numbers of workers to try, such as 8,16,32; else all that fit")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="of each; figures are medians")] = 5,
    out: Annotated[Path | None, typer.Option(help="JSON file")] = None,
) -> None:
    """Measure how fast this machine trains a motion, by number of workers, and where the time goes."""
    with _reported() as logger:
        from rich.console import Console

        from q1pipe.stages import bench as stage

        try:
            tried = [int(word) for word in workers.split(",") if word]
        except ValueError:
            raise ConfigError(error("workers", "--workers", workers, "numbers such as 8,16,32")) from None
        for chatty in ("q1pipe.stages.train", "q1pipe.learn.trainer"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        record = stage.run(source, _sections(source, config, None), tried, rounds, out)
        for table in stage.tables(record):
            Console().print(table)
        logger.info("train.num_workers: %d is the fastest here", record["recommended_workers"])


def _sections(source: Path, config: list[Path] | None, fps: float | None) -> Sections:
    """The settings that the workflow would use for a motion file: those of its name, and `Q1_XML`."""
    layers = [configuration.of_file(path) for path in [*_config_yaml(), *(config or [])]]
    if fps is not None:
        layers.append(configuration.Layer("--fps", {"motions": {source.stem: {"motion": {"fps": fps}}}}))
    return configuration.Settings(layers).of(source.stem)


def _config_yaml() -> list[Path]:
    return [path for path in [Path("config/config.yaml")] if path.is_file()]


@app.command("config")
def show_config(
    motion: Annotated[str | None, typer.Argument(help="name of a motion; else what holds for all")] = None,
    configfile: ConfigFiles = None,
    config: Annotated[list[str] | None, typer.Option(help="as snakemake's: train__seed=2; once for each")] = None,
) -> None:
    """Show all settings, and where each one is from; the output is YAML."""
    with _reported() as logger:
        from q1pipe.config.show import shown

        if motion and not any(Path("config").glob(f"{glob.escape(motion)}.*")):
            logger.warning(warn("motion", "config", f"no motion file {motion}", "", "these settings would be its"))
        files = [configuration.of_file(path) for path in [*_config_yaml(), *(configfile or [])]]
        settings = configuration.Settings([*files, configuration.of_arguments(config or [])])
        typer.echo("\n".join(shown(settings, motion)))


def _told(findings: list[Finding], logger: logging.Logger) -> None:
    """Print findings, the worst first."""
    levels = {"ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO}
    for finding in sorted(findings, key=lambda f: -levels[f.level]):
        logger.log(levels[finding.level], finding)


@app.command()
def status(
    results: Results = Path("results"),
    watch: Annotated[bool, typer.Option("--watch", help="go on showing it, until Ctrl-C")] = False,
) -> None:
    """Where every motion stands: stage, iteration, reward, speed, time left, last checkpoint."""
    with _reported():
        from q1pipe import status as stand

        if watch:
            stand.watch(results, every=2.0)
        else:
            _show(stand.table(results), f"nothing was made yet in {results}")


@app.command()
def runs(motion: Motion, results: Results = Path("results")) -> None:
    """The training runs of a motion, and what they differ in."""
    with _reported():
        from q1pipe.runs import motion_folder, table

        _show(table(motion_folder(results, motion)), f"no training runs yet of {motion}")


@app.command()
def clean(
    motion: Motion,
    keep: Annotated[int, typer.Option(min=0, help="how many of the latest stay")],
    results: Results = Path("results"),
) -> None:
    """Remove a motion's old training runs; never the published one, never one that trains."""
    with _reported() as logger:
        from q1pipe.runs import clean, motion_folder

        removed, kept = clean(motion_folder(results, motion), keep)
        freed = f"{', '.join(removed)}: {sum(removed.values()) / 1e6:.1f} MB" if removed else "nothing"
        logger.info("removed %s; kept %s", freed, ", ".join(kept) or "nothing")


@app.command()
def stop(motion: Motion, results: Results = Path("results")) -> None:
    """Make a motion's training save and end."""
    with _reported():
        from q1pipe.control import stop

        stop(results, motion)


@app.command()
def unlock(results: Results = Path("results")) -> None:
    """Remove the locks of a snakemake that was killed in this folder."""
    with _reported():
        from q1pipe.control import unlock

        unlock(results)


@app.command()
def view(
    what: Annotated[str, typer.Argument(help="a motion, or diverged_*.npz of a training run")],
    results: Results = Path("results"),
    config: ConfigFiles = None,
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0: others can look, too")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="the first free one from this on is taken")] = 8080,
) -> None:
    """Look at reference and policy in the browser, and push the policy about."""
    with _reported():
        from q1pipe.view import command

        command.run(what, results, _sections(Path(f"{what}.npz"), config, None), host, port)


def _show(table: Table, nothing: str) -> None:
    """Print a table with nothing cut or folded: where the terminal is narrower, that breaks the lines."""
    from rich.console import Console

    Console(width=10_000).print(table if table.row_count else nothing)


def _robot() -> RobotCfg:
    """The robot of `compose`, which reads no configuration."""
    return RobotCfg(xml=os.environ.get("Q1_XML") or None)


@contextmanager
def _reported(log: Path | None = None, name: str = "") -> Iterator[logging.Logger]:
    """Print and log what goes wrong: a person's mistake as its findings, exit code 2; a bug with its traceback, 1."""
    logger = setup(log, f"[{name}] " if name else "")
    try:
        yield logger
    except Q1Error as e:
        for finding in e.findings:
            logger.error(finding)
        raise typer.Exit(EXIT_USER_ERROR) from None
    except Exception:
        logger.exception("this is a bug in q1pipe, not a mistake of yours:")
        raise typer.Exit(1) from None


def main() -> None:
    """Entry point of the console script."""
    app()
