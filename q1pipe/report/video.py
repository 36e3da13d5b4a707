"""A trajectory as a video, with a poster, a contact sheet and a record; or a placeholder and a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
from numpy.typing import NDArray

from q1pipe.config import VideoCfg
from q1pipe.errors import Finding, Q1Error, error, warn
from q1pipe.files import replacing, write_json
from q1pipe.log import progress
from q1pipe.report import still
from q1pipe.report.encode import GIF, INSTALL, Encoder, check, find_encoder, read, read_gif, write, write_gif
from q1pipe.report.opengl import Choice
from q1pipe.robot import Robot

log = logging.getLogger(__name__)

Array = NDArray[np.floating]
Picture = NDArray[np.uint8]

POSTER_AT = 0.55  # of the way: neither the start nor the end says much of a motion
PLACEHOLDER_SECONDS = 2


@dataclass(frozen=True, eq=False)
class Shot:
    """What a video shows.

    Attributes:
        title: for placeholder and log.
        qpos: (T, nq) poses.
        fps: poses per second.
        seconds: (T,) s, the moment of each in the motion.
        ghost: (T, nq) the reference at the same moments, or none.
        lines: row of qpos, speed -> lines of the caption.
    """

    title: str
    qpos: Array
    fps: float
    seconds: Array
    ghost: Array | None
    lines: Callable[[int, float], list[str]]


@dataclass(frozen=True)
class Files:
    """Where the results go."""

    mp4: Path
    poster: Path
    sheet: Path
    json: Path

    @property
    def gif(self) -> Path:
        """Where the video goes where there is no ffmpeg; the mp4 is empty then."""
        return self.mp4.with_suffix(".gif")


def film(robot: Robot, shot: Shot, files: Files, cfg: VideoCfg, opengl: Choice) -> None:
    """Draw a shot and write its files.

    Args:
        robot: the robot.
        shot: what to draw.
        files: where to.
        cfg: how.
        opengl: what can be drawn with.

    Raises:
        Q1Error: the video came out blank or incomplete; or it cannot be made and `required` is set.
    """
    findings = list(opengl.findings)
    width, height = _even(cfg, findings)
    record: dict[str, Any] = {"drawn": False, "reason": "", "size": [width, height], "fps": cfg.fps}
    record["ghost"] = shot.ghost is not None and cfg.ghost != "none"
    encoder = find_encoder(cfg.codec)
    reason = f"no OpenGL that draws ({opengl.reason})" if opengl.name is None else ""
    if cfg.required and (reason or encoder.codec == GIF):
        found = reason or f"{encoder.why}; {INSTALL}"
        raise Q1Error(error("video", shot.title, found, "a video, because video.required is true"))
    if encoder.why:
        findings.append(warn("codec", "video.codec", encoder.why, INSTALL, f"going on with {encoder.codec}"))
    files.gif.unlink(missing_ok=True)
    if reason:
        findings.append(warn("video", shot.title, reason, "", "going on with a placeholder"))
        _placeholder(shot.title, reason, files, width, height, cfg, encoder)
        record["reason"] = reason
    else:
        count = _draw(robot, shot, files, cfg, encoder, width, height)
        record |= {"drawn": True, "frames": count, "seconds": count / cfg.fps, "codec": encoder.codec}
        made = files.gif if encoder.codec == GIF else files.mp4
        record |= {"opengl": opengl.name, "file": made.name, "bytes": made.stat().st_size}
        log.info("%s: %d frames, %.1f s, %.0f kB", made, count, count / cfg.fps, made.stat().st_size / 1e3)
    for finding in findings:
        log.warning(finding)
    write_json(files.json, {**record, "findings": [f.record() for f in findings]})


def rows(frames: int, fps: float, video_fps: float, speed: float = 1.0) -> NDArray[np.intp]:
    """Which of the poses each frame of a video shows: the one of its moment, each once where the rates agree."""
    count = max(1, round(frames * video_fps / fps / speed))
    return np.minimum(np.floor(np.arange(count) * fps * speed / video_fps + 1e-6), frames - 1).astype(np.intp)


def _draw(robot: Robot, shot: Shot, files: Files, cfg: VideoCfg, encoder: Encoder, width: int, height: int) -> int:
    """Draw every frame; returns how many."""
    from q1pipe.report.scene import Scene, follow  # needs an OpenGL to import

    poses = len(shot.qpos)
    normal = rows(poses, shot.fps, cfg.fps)
    slow = rows(poses, shot.fps, cfg.fps, cfg.slow_motion) if cfg.slow_motion else normal[:0]
    passes = [(int(row), 1.0) for row in normal] + [(int(row), cfg.slow_motion) for row in slow]
    tiled = np.linspace(0, len(normal) - 1, min(still.TILES, len(normal))).round().astype(int).tolist()
    tiles: list[Picture] = []
    poster_at = round(POSTER_AT * (len(normal) - 1))
    look_at = follow(shot.qpos, shot.fps)
    ghost = None if cfg.ghost == "none" else shot.ghost

    def frames(scene: Scene) -> Iterator[Picture]:
        last: tuple[int, Picture] | None = None
        for k, (row, speed) in enumerate(progress(passes, len(passes), f"{files.mp4.name}: frame")):
            if last is None or last[0] != row:
                last = row, scene.draw(shot.qpos[row], look_at[row], None if ghost is None else ghost[row])
            if k in tiled:
                tiles.append(still.tile(last[1], f"{shot.seconds[row]:.2f} s"))
            picture = still.caption(last[1], shot.lines(row, speed))
            if k == poster_at:
                _save(files.poster, last[1])
            yield picture

    with Scene(robot, cfg, width, height) as scene:
        if encoder.codec == GIF:
            written = write_gif(files.gif, frames(scene), cfg.fps)
            check(files.gif, read_gif(files.gif, cfg.fps), written)
            _empty(files.mp4)
        else:
            written = write(files.mp4, frames(scene), cfg.fps, encoder, cfg.crf)
            check(files.mp4, read(files.mp4, encoder.program, width, height), written)
    _save(files.sheet, still.sheet(tiles))
    return len(passes)


def _placeholder(
    title: str, reason: str, files: Files, width: int, height: int, cfg: VideoCfg, encoder: Encoder
) -> None:
    """Files of the same names that say why there is no video; the mp4 is empty where none can be written."""
    picture = still.notice(width, height, f"No video: {still.printable(title)}", reason)
    _save(files.poster, picture)
    _save(files.sheet, picture)
    if encoder.codec == GIF:
        _empty(files.mp4)
    else:
        write(files.mp4, [picture] * (PLACEHOLDER_SECONDS * cfg.fps), cfg.fps, encoder, cfg.crf)


def _empty(path: Path) -> None:
    """The workflow waits for the file, also where nothing can be in it."""
    with replacing(path) as temporary:
        temporary.write_bytes(b"")


def _even(cfg: VideoCfg, findings: list[Finding]) -> tuple[int, int]:
    """Width and height, rounded up to even: yuv420p has one colour for two by two pixels."""
    size = cfg.width + cfg.width % 2, cfg.height + cfg.height % 2
    if size != (cfg.width, cfg.height):
        found = f"{cfg.width}×{cfg.height} is odd"
        findings.append(warn("video-size", "video", found, "even width and height", f"drawing {size[0]}×{size[1]}"))
    return size


def _save(path: Path, picture: Picture) -> None:
    with replacing(path) as temporary:
        imageio.imwrite(temporary, picture, extension=".png")
