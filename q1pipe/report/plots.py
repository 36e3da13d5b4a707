"""The charts of a report as plotly figures, plain dictionaries: data and layout without colours of paper and ink.

The page draws them with the colours of its theme; ``log`` says for which axis it offers a logarithmic scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from q1pipe.report.words import Words

Rows = Sequence[Mapping[str, float]]
Figure = dict[str, Any]

TRACKING = ("root_pos", "root_ori", "body_pos", "body_ori", "body_lin_vel", "body_ang_vel")
PENALTIES = ("action_rate", "joint_limit", "self_collision")
MOST = 0.5  # share of the test episodes that makes a phase


def training(rows: Rows, train: Mapping[str, Any], w: Words) -> list[Figure]:
    """Charts over the iterations.

    Args:
        rows: of train.csv.
        train: train.json.
        w: words.
    """
    x = [row["iteration"] for row in rows]
    ends = [key for key in rows[0] if key.startswith("end_")]
    learning = _figure("learning", w.chart_learning, x, rows, {"ep_ret": w.ep_ret}, {"mean_rew": w.mean_rew}, w)
    _mark_phases(learning, train, len(rows), w)
    figures = [
        learning,
        _tests(train, w),
        _figure("length", w.chart_length, x, rows, {"ep_len": w.ep_len}, {}, w),
        _figure("tracking", w.chart_tracking, x, rows, {k: k for k in TRACKING}, {}, w),
        _figure("penalties", w.chart_penalties, x, rows, {k: k for k in PENALTIES}, {}, w) | {"log": None},  # negative
        _stacked("ends", w.chart_ends, x, rows, {k: w.known(k.removeprefix("end_")) for k in ends}, w),
        _figure("lr", w.chart_lr, x, rows, {"lr": w.lr}, {"kl": w.kl}, w, log=True),
        _figure("std", w.chart_std, x, rows, {"std": w.std}, {"value_loss": w.value_loss}, w),
        _figure("sps", w.chart_sps, x, rows, {"sps": w.sps}, {}, w),
        _stacked("times", w.chart_times, x, rows, {"collect_s": w.collect_s, "update_s": w.update_s}, w),
    ]
    return [f for f in figures if f["data"]]


def motion(record: Mapping[str, Any], w: Words) -> list[Figure]:
    """Charts over the seconds of a clip. `record`: motion.json."""
    curves = record.get("followability", {}).get("curves", {})
    if not curves:
        return []
    fps = record["fps"]["normalised"]
    x = [i / fps for i in range(record["frames"])]
    rows = [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]
    gap = _figure("gap", w.chart_gap, x, rows, {"support_gap": w.support_gap}, {"com_speed": w.com_speed}, w)
    carried = _figure("carried", w.chart_carried, x, rows, {"carried": w.carried}, {"contacts": w.contacts}, w)
    for figure in (gap, carried):
        figure["log"] = None  # mostly zero
        figure["layout"]["xaxis"]["title"]["text"] = w.seconds
    return [gap, carried]


def phases(evaluations: Rows, iterations: int) -> Iterator[tuple[str, float, float]]:
    """What the policy could do when, by its test episodes: (word, first iteration, last iteration).

    A phase begins with the first test in which most episodes do what it is named after.
    """
    marks = {"phase_falls": 0.0}
    for name, key in {"phase_reaches": "success", "phase_holds": "finish_disturbed"}.items():
        first = next((row["iteration"] for row in evaluations if row[key] >= MOST), None)
        if first is not None:
            marks[name] = max(first, *marks.values())
    starts = list(marks.items())
    for (name, start), end in zip(starts, [*[s for _, s in starts[1:]], float(iterations)], strict=True):
        if end > start:
            yield name, start, end


def _mark_phases(figure: Figure, train: Mapping[str, Any], iterations: int, w: Words) -> None:
    shapes, notes = [], []
    found = list(phases(train["evaluations"], iterations))
    for i, (name, start, end) in enumerate(found):
        band = {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1}
        shapes.append({**band, "layer": "below", "line": {"width": 0}, "fillcolor": f"var(--phase{i})"})
        step = 0.075 * (len(found) - 1 - i)  # a phase may be too short for its name: one line each
        place = {"xref": "x", "yref": "paper", "x": start, "y": 1 + step, "xanchor": "left", "yanchor": "bottom"}
        notes.append({**place, "text": w[name], "showarrow": False, "font": {"size": 11}})
    if "ep_ret" in train.get("published_run", {}):
        value = train["published_run"]["ep_ret"]
        line = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": value, "y1": value}
        shapes.append({**line, "line": {"dash": "dot", "width": 1, "color": "var(--muted)"}})
        place = {"xref": "paper", "yref": "y", "x": 1, "y": value, "xanchor": "right", "yanchor": "bottom"}
        notes.append({**place, "text": w.published_end, "showarrow": False, "font": {"size": 10}})
    figure["layout"] |= {"shapes": shapes, "annotations": notes}


def _tests(train: Mapping[str, Any], w: Words) -> Figure:
    rows = train["evaluations"]
    names = {"success": w.test_success, "finish": w.test_finish, "finish_disturbed": w.test_disturbed}
    figure = _figure("tests", w.chart_tests, [row["iteration"] for row in rows], rows, names, {}, w)
    for trace in figure["data"]:
        trace["mode"] = "lines+markers"
    figure["layout"]["yaxis"] |= {"range": [-0.03, 1.03], "tickformat": ".0%"}
    figure["log"] = None
    return figure


def _figure(
    name: str,
    title: str,
    x: Sequence[float],
    rows: Rows,
    left: Mapping[str, str],
    right: Mapping[str, str],
    w: Words,
    log: bool = False,
) -> Figure:
    """Lines over x: columns of rows on the left axis, and on the right one. Column -> its name for people."""
    data: list[dict[str, Any]] = []
    for axis, columns in (("y", left), ("y2", right)):
        for key, label in columns.items():
            y = [row.get(key) for row in rows]
            line = {"dash": "dot"} if axis == "y2" else {}
            data.append({"type": "scatter", "mode": "lines", "name": label, "x": list(x), "y": y, "line": line})
            if axis == "y2":
                data[-1]["yaxis"] = axis
    layout: dict[str, Any] = {
        "hovermode": "x unified",
        "showlegend": len(data) > 1,
        "xaxis": {"title": {"text": w.iteration}},
        "yaxis": {"title": {"text": next(iter(left.values())) if len(left) == 1 else ""}},
    }
    if log:
        layout["yaxis"]["type"] = "log"
    if right:
        title_ = {"text": next(iter(right.values()))}
        second = {"overlaying": "y", "side": "right", "showgrid": False, "tickmode": "auto"}
        layout["yaxis2"] = {"title": title_, **second}
    return {"id": name, "title": title, "data": data, "layout": layout, "log": "log" if log else "linear"}


def _stacked(name: str, title: str, x: Sequence[float], rows: Rows, columns: Mapping[str, str], w: Words) -> Figure:
    """Areas on top of each other."""
    figure = _figure(name, title, x, rows, columns, {}, w)
    for trace in figure["data"]:
        trace |= {"stackgroup": "all", "line": {"width": 0.5}}
    figure["log"] = None
    return figure
