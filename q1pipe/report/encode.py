"""Frames to a file that every player shows, by ffmpeg or at worst as a GIF, and back, to see what is in it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from q1pipe.errors import Q1Error, error
from q1pipe.files import replacing

Picture = NDArray[np.uint8]

FALLBACK = "mpeg4"  # in nearly every build of ffmpeg
GIF = "gif"  # needs no ffmpeg
GIF_FPS, GIF_WIDTH = 25, 320  # at most: a GIF hardly compresses
BLANK = 5.0  # standard deviation of the pixels below which a picture shows nothing
INSTALL = "pip install imageio-ffmpeg"


@dataclass(frozen=True)
class Encoder:
    """An ffmpeg and one of its encoders, or GIF without one; and why it is not the encoder that was asked for."""

    program: str
    codec: str
    why: str = ""


def find_encoder(wanted: str) -> Encoder:
    """ffmpeg with the encoder asked for; else with mpeg4; else a GIF."""
    try:
        import imageio_ffmpeg  # here, because everything but videos works without it

        program = imageio_ffmpeg.get_ffmpeg_exe()
        listed = subprocess.run([program, "-hide_banner", "-encoders"], capture_output=True, text=True, check=True)
    except (ImportError, RuntimeError, OSError, subprocess.CalledProcessError) as e:
        return Encoder("", GIF, f"no ffmpeg: {e}")
    available = {words[1] for line in listed.stdout.splitlines() if len(words := line.split()) > 1}
    if wanted in available:
        return Encoder(program, wanted)
    if FALLBACK in available:
        return Encoder(program, FALLBACK, f"{program} has no {wanted}")
    return Encoder("", GIF, f"{program} has neither {wanted} nor {FALLBACK}")


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


def write_gif(path: Path, frames: Iterable[Picture], fps: int) -> int:
    """Write frames as a GIF that repeats: smaller, and of a fast video only every few.

    Returns:
        The number of frames in it.

    Raises:
        Q1Error: there are no frames.
    """
    every = -(-fps // GIF_FPS)
    small = (_small(frame) for k, frame in enumerate(frames) if k % every == 0)
    head = next(small, None)
    if head is None:
        raise Q1Error(error("video-empty", str(path), "0 frames", "at least 1"))
    count = 1

    def rest() -> Iterator[Image.Image]:
        nonlocal count
        for image in small:
            count += 1
            yield image

    with replacing(path) as temporary:
        head.save(temporary, "GIF", save_all=True, append_images=rest(), duration=_gif_ms(fps), loop=0)
    return count


def read_gif(path: Path, fps: int) -> Iterator[Picture]:
    """The frames of what `write_gif` wrote; one that stays as it is is in the file once, with its time."""
    with Image.open(path) as image:
        for frame in ImageSequence.Iterator(image):
            picture = np.asarray(frame.convert("RGB"))
            yield from [picture] * round(frame.info["duration"] / _gif_ms(fps))


def _small(frame: Picture) -> Image.Image:
    height, width = frame.shape[:2]
    image = Image.fromarray(frame)
    if width > GIF_WIDTH:
        image = image.resize((GIF_WIDTH, round(GIF_WIDTH * height / width)), Image.Resampling.LANCZOS)
    return image.convert("P", palette=Image.Palette.ADAPTIVE)


def _gif_ms(fps: int) -> int:
    """Of a frame: a GIF counts in hundredths of a second."""
    return 10 * round(100 * -(-fps // GIF_FPS) / fps)


def check(path: Path, frames: Iterable[Picture], count: int) -> None:
    """Look at the frames that a written file gives back.

    Args:
        path: the file, for findings.
        frames: of `read` or `read_gif`.
        count: how many were written.

    Raises:
        Q1Error: it has another number of frames than were written, or its first, middle or last one shows nothing.
    """
    found, looked_at = 0, {0, count // 2, count - 1}
    blank: list[str] = []
    for frame in frames:
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
