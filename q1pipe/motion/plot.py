"""The curves of a clip as one picture: an SVG, which any browser shows and no library is needed for."""

from __future__ import annotations

from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from q1pipe.config import MotionCfg
from q1pipe.motion.followability import Followability, broken, score
from q1pipe.motion.raw import runs_of

Array = NDArray[np.floating]

WIDTH, PANEL, GAP, LEFT, TOP = 900, 70, 26, 60, 40
POINTS = 1500  # of a curve; a longer clip is drawn by the largest value of each stretch


def plot(curves: Followability, cfg: MotionCfg, fps: float, title: str) -> str:
    """One panel a measure over time: curve, limit, and the frames beyond it in red.

    Returns:
        SVG text.
    """
    bad = broken(curves, cfg)
    panels = (
        ("support_gap", "m: centre of mass outside the support polygon (counts while slow)", cfg.max_support_gap),
        ("carried", "× weight: carried by nothing", cfg.max_carried),
        ("joint_speed", "rad/s: fastest joint", cfg.max_joint_speed),
        ("torque", "× limit: joint torque", cfg.max_torque),
        ("self_penetration", "m: robot in robot", cfg.max_self_penetration),
        ("skating", "m/s: foot that slides", cfg.max_skating),
    )
    frames = len(curves.carried)
    seconds = max(frames - 1, 1) / fps
    height = TOP + len(panels) * (PANEL + GAP) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}: {frames} frames, {seconds:.2f} s; '
        f"{100 * score(curves, cfg):.0f} % of the frames break no limit</text>",
    ]
    for number, (name, text, limit) in enumerate(panels):
        top = TOP + number * (PANEL + GAP) + 14
        out += _panel(getattr(curves, name), bad[name], text, limit, top)
    out.append(f'<text x="{WIDTH - 10}" y="{height - 4}" text-anchor="end">{seconds:.2f} s</text></svg>')
    return "\n".join(out) + "\n"


def _panel(values: Array, bad: NDArray[np.bool_], text: str, limit: float, top: float) -> list[str]:
    width = WIDTH - LEFT - 10
    shown = np.where(np.isfinite(values), values, 2 * limit)
    most = max(1.2 * limit, float(shown.max(initial=0)), 1e-9)
    scale_x = width / max(len(values), 1)

    def y(value: float) -> float:
        return top + PANEL * (1 - value / most)

    out = [f'<text x="{LEFT}" y="{top - 4}">{escape(text)}</text>']
    for a, b in runs_of(np.flatnonzero(bad)):
        x, w = LEFT + a * scale_x, max((b - a + 1) * scale_x, 1)
        out.append(f'<rect x="{x:.1f}" y="{top}" width="{w:.1f}" height="{PANEL}" fill="#f5b7b1"/>')
    edges = np.unique(np.linspace(0, len(shown), min(len(shown), POINTS) + 1).round().astype(int))
    points = " ".join(
        f"{LEFT + (a + 0.5) * scale_x:.1f},{y(float(shown[a:b].max())):.1f}"
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    )
    return [
        *out,
        f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" stroke="#c0392b" '
        'stroke-dasharray="4"/>',
        f'<text x="{LEFT - 6}" y="{y(limit) + 4:.1f}" text-anchor="end">{limit:g}</text>',
        f'<polyline points="{points}" fill="none" stroke="#1f4e79"/>',
        f'<rect x="{LEFT}" y="{top}" width="{width}" height="{PANEL}" fill="none" stroke="#999"/>',
    ]
