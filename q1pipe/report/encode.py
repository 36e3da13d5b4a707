"""Frames to a file that every player shows, by ffmpeg, and back, to see what is in it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from q1pipe.errors import Q1Error, error
from q1pipe.files import replacing

Picture = NDArray[np.uint8]

FALLBACK = "mpeg4"  # in every build of ffmpeg
BLANK = 5.0  # standard deviation of the pixels below which a picture shows nothing
INSTALL = "pip install imageio-ffmpeg"


@dataclass(frozen=True)
class Encoder:
    """An ffmpeg and one of its encoders."""

    program: str
    codec: str


def find_encoder(wanted: str) -> Encoder:
    """ffmpeg with the encoder asked for, or with mpeg4.

    Raises:
        Q1Error: there is no ffmpeg, or it has neither encoder.
    """
    try:
        import imageio_ffmpeg  # here, because everything but videos works without it

        program = imageio_ffmpeg.get_ffmpeg_exe()
        listed = subprocess.run([program, "-hide_banner", "-encoders"], capture_output=True, text=True, check=True)
    except (ImportError, RuntimeError, OSError, subprocess.CalledProcessError) as e:
        raise Q1Error(error("ffmpeg", "video", f"no ffmpeg: {e}", "ffmpeg", INSTALL)) from None
    available = {words[1] for line in listed.stdout.splitlines() if len(words := line.split()) > 1}
    for codec in (wanted, FALLBACK):
        if codec in available:
            return Encoder(program, codec)
    raise Q1Error(error("ffmpeg", "video.codec", f"{program} has no {wanted}", f"{wanted} or {FALLBACK}", INSTALL))


def write(path: Path, frames: Iterable[Picture], fps: int, encoder: Encoder, crf: int) -> int:
    """Encode frames of one even size as yuv420p with the index in front, whole or not at all.

    Args:
        path: mp4.
        frames: (height, width, 3) uint8 each.
        fps: frames per second.
        encoder: of `find_encoder`.
        crf: quality of libx264.

    Returns:
        The number of frames.

    Raises:
        Q1Error: there are no frames, or ffmpeg failed.
    """
    frames = iter(frames)
    head = next(frames, None)
    if head is None:
        raise Q1Error(error("video-empty", str(path), "0 frames", "at least 1"))
    height, width = head.shape[:2]
    quality = ["-crf", str(crf)] if encoder.codec == "libx264" else ["-q:v", "4"]
    count = 0
    with replacing(path) as temporary, tempfile.TemporaryFile() as said:
        command = [encoder.program, "-hide_banner", "-loglevel", "error", "-y"]
        command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
        command += ["-c:v", encoder.codec, *quality, "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        command += ["-map_metadata", "-1", "-fflags", "+bitexact", "-f", "mp4", f"file:{temporary}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said) as process:
            assert process.stdin
            try:
                for frame in _all(head, frames):
                    process.stdin.write(np.ascontiguousarray(frame).tobytes())
                    count += 1
                process.stdin.close()
            except BrokenPipeError:
                pass  # ffmpeg ended early and says why
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise Q1Error(error("ffmpeg", str(path), lines[-1], action="try another video.codec"))
    return count


def _all(head: Picture, rest: Iterator[Picture]) -> Iterator[Picture]:
    yield head
    yield from rest


def read(path: Path, program: str, width: int, height: int) -> Iterator[Picture]:
    """The frames of a file, (height, width, 3) uint8; none when it does not play."""
    command = [program, "-hide_banner", "-loglevel", "error", "-i", f"file:{path}"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    size = width * height * 3
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        while len(data := process.stdout.read(size)) == size:
            yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def check(path: Path, program: str, width: int, height: int, count: int) -> None:
    """Open a written file again.

    Raises:
        Q1Error: it has another number of frames than were written, or its first, middle or last one shows nothing.
    """
    found, looked_at = 0, {0, count // 2, count - 1}
    blank: list[str] = []
    for frame in read(path, program, width, height):
        if found in looked_at and frame.std() <= BLANK:
            blank.append(str(found))
        found += 1
    problems = []
    if abs(found - count) > 1:
        problems.append(error("video-frames", str(path), f"{found} frames in the file", f"{count}, as were drawn"))
    if blank:
        nothing = f"the video is blank: nothing to see in frame {', '.join(blank)}"
        problems.append(error("video-blank", str(path), nothing, "a robot", "look at video.elevation and distance"))
    if problems:
        raise Q1Error(*problems)
