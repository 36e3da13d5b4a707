"""Pictures without OpenGL: a caption on a frame, a contact sheet of frames, and what stands in for a video."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]

COLUMNS = 8
TILES = 32
TILE_WIDTH = 240  # pixels
SHADE = 0.35  # brightness that is left behind a caption
PAPER, INK = (236, 239, 243), (40, 48, 60)


def caption(picture: Picture, lines: Sequence[str]) -> Picture:
    """A picture with lines of white text on a dark strip over its lower edge; the size stays."""
    height, width = picture.shape[:2]
    size = max(9, min(height // 32, width // 44))
    font = ImageFont.load_default(size)
    strip = round(1.35 * size * len(lines) + 0.6 * size)
    result = picture.copy()
    result[-strip:] = (result[-strip:] * SHADE).astype(np.uint8)
    image = Image.fromarray(result)
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        draw.text((0.6 * size, height - strip + (0.3 + 1.35 * i) * size), line, (255, 255, 255), font)
    return np.asarray(image)


def printable(text: str) -> str:
    """A text as far as the built-in font goes; nothing where it has none of the script."""
    shown = "".join(c for c in text if c.isascii() and c.isprintable())
    return shown if shown == text else ""


def tile(picture: Picture, label: str) -> Picture:
    """A small copy with a label in its upper left corner."""
    height, width = picture.shape[:2]
    image = Image.fromarray(picture).resize((TILE_WIDTH, round(TILE_WIDTH * height / width)), Image.Resampling.LANCZOS)
    ImageDraw.Draw(image).text((6, 4), label, INK, ImageFont.load_default(13))
    return np.asarray(image)


def sheet(tiles: Sequence[Picture]) -> Picture:
    """Tiles in rows, first to last; the last row is filled up with paper."""
    columns = min(COLUMNS, len(tiles))
    blank = np.full_like(tiles[0], 0) + np.array(PAPER, np.uint8)
    filled = [*tiles, *[blank] * (-len(tiles) % columns)]
    return np.concatenate([np.concatenate(filled[i : i + columns], axis=1) for i in range(0, len(filled), columns)])


def notice(width: int, height: int, title: str, text: str) -> Picture:
    """What stands where a video would: a title and a reason."""
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    size = max(9, min(height // 24, width // 40))
    draw.text((size, size), title, INK, ImageFont.load_default(round(1.4 * size)))
    wrapped = textwrap.wrap(text, max(10, round(1.7 * width / size)))
    draw.multiline_text((size, 4 * size), "\n".join(wrapped), INK, ImageFont.load_default(size), spacing=size // 2)
    return np.asarray(image)
