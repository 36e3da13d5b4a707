"""Learning curves of several runs as one SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 280, 180, 46, 34, 24
PANELS = (
    ("finish", "holds the stand at the end, undisturbed", 1.0),
    ("finish_disturbed", "the same under noise, randomisation, pushes", 1.0),
    ("mean_rew", "mean reward, of at most 5, undisturbed", 5.0),
)


def svg(records: Sequence[dict[str, Any]], title: str) -> str:
    """A panel for each of PANELS over minutes of training, a line for each run.

    Args:
        records: train.json of the runs; their ``evaluations``.
        title: above all.
    """
    minutes = max(row["wall_s"] for record in records for row in record["evaluations"]) / 60
    width, height = len(PANELS) * (LEFT + WIDTH) + GAP, TOP + HEIGHT + 44
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-size="12">{title}</text>',
    ]
    for number, (name, text, most) in enumerate(PANELS):
        left = LEFT + number * (LEFT + WIDTH)
        out.append(f'<text x="{left}" y="{TOP - 5}">{text}</text>')
        for share in (0, 0.5, 1):
            y = TOP + HEIGHT * (1 - share)
            out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            out.append(f'<text x="{left - 5}" y="{y + 4}" text-anchor="end">{share * most:g}</text>')
        for minute in range(int(minutes) + 1):
            x = left + WIDTH * minute / minutes
            out.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{minute}</text>')
        out.append(f'<text x="{left + WIDTH}" y="{TOP + HEIGHT + 30}" text-anchor="end">minutes of training</text>')
        for record in records:
            points = " ".join(
                f"{left + WIDTH * row['wall_s'] / 60 / minutes:.1f},{TOP + HEIGHT * (1 - row[name] / most):.1f}"
                for row in record["evaluations"]
            )
            out.append(f'<polyline points="{points}" fill="none" stroke="#1f4e79" stroke-opacity="0.7"/>')
    return "\n".join([*out, "</svg>"]) + "\n"
