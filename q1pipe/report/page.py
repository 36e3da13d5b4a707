"""report.html: one file that opens from a disk without a network, the verdict first."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from markupsafe import Markup

from q1pipe.config import ReportCfg, TrainCfg
from q1pipe.files import finite
from q1pipe.report import advice, plots
from q1pipe.report.fill import template
from q1pipe.report.numbers import NOT_AVAILABLE, SHARES, duration, metric, number, share
from q1pipe.report.results import Results
from q1pipe.report.words import Words

METRICS = "success_rate finish_rate mean_rew ep_ret ep_len mpkpe r_mpkpe joint_vel_error ee_pos_error".split()
METRICS += "ee_ori_error action_rate torque_use torque_peak soft_limit_use".split()
HEAT = ("success_rate", "finish_rate", "mpkpe", "r_mpkpe", "joint_vel_error", "torque_use", "torque_peak")
GROUPS = ("parity", "safety", "sim2sim")  # first part of a gate's name; else it is the evaluation's
CURVES = ("mean_rew", "ep_ret", "ep_len")


def render(results: Results, rows: list[dict[str, float]], cfg: ReportCfg) -> str:
    """The page.

    Args:
        results: of the motion.
        rows: of train.csv.
        cfg: language, and how large videos may be.
    """
    from plotly.offline import get_plotlyjs  # 5 MB; nothing but a report needs it

    w = Words(cfg.language)
    charts = {"training": plots.training(rows, results["train"], w), "motion": plots.motion(results["motion"], w)}
    return template("report.html").render(
        w=w,
        r=results,
        title=results.name,
        evaluation=results["eval"],
        groups=gate_groups(results["eval"]["gates"], w),
        metrics=[m for m in METRICS if m in results["eval"]["nominal"]],
        videos=[_video(results, which, cfg, w) for which in ("reference", "policy")],
        charts=charts,
        charts_json=_script_json([f for fs in charts.values() for f in fs]),
        start_end=start_end(results["train"], w),
        seed_spread=seed_spread(results["train"].get("seeds", [])),
        resources=_resources(results, rows, w),
        motion=_motion(results["motion"], w),
        rules=_rules(results["sim2sim"]["safety"]["rules"], w),
        joints=results["motion"].get("joints", {}),
        heat=heat(results["sim2sim"]["worlds"], results["sim2sim"].get("definitions", {})),
        chain=_chain(results, w),
        settings=settings_yaml(results.args["train"]),
        reproduce=advice.reproduce(results),
        advice=advice.next_steps(results, w),
        plotly=Markup(get_plotlyjs()),
        style=Markup(_asset("style.css")),
        script=Markup(_asset("page.js")),
    )


def render_index(motions: Mapping[str, Mapping[str, Any]], language: str) -> str:
    """results/index.html.

    Args:
        motions: name -> the records ``eval`` and ``train`` of a motion, and ``video``, the file of the policy's.
        language: en or zh.
    """
    w = Words(language)
    cards = [
        {
            "name": name,
            "link": quote(name),
            "video": r["video"],
            "passed": r["eval"]["verdict"] == "pass",
            "gates": r["eval"]["gates"],
            "numbers": [
                (w.success_rate, share(r["eval"]["nominal"]["success_rate"])),
                (f"{w.finish_rate} ({w.disturbed})", share(r["eval"]["disturbed"]["finish_rate"])),
                (w.mean_rew, number(r["eval"]["nominal"]["mean_rew"])),
                (w.r_mpkpe, number(r["eval"]["nominal"]["r_mpkpe"])),
                (w.wall, duration(r["train"]["wall_s"])),
                (w.env_steps, number(r["train"]["env_steps"])),
            ],
        }
        for name, r in motions.items()
    ]
    return template("index.html").render(w=w, cards=cards, style=Markup(_asset("style.css")))


# --- parts of the page


def seed_spread(seeds: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Lowest to highest of what the seeds' best models came to, by key."""
    ends = {
        key: [one[key] for one in seeds] for key in (seeds[0] if seeds else ()) if key not in ("seed", "fingerprint")
    }
    told = {key: share if key in ("success", "finish", "finish_disturbed") else number for key in ends}
    return {key: f"{told[key](min(values))} – {told[key](max(values))}" for key, values in ends.items()}


def gate_groups(gates: Iterable[Mapping[str, Any]], w: Words) -> list[dict[str, Any]]:
    """The gates by what they are of, with names for people."""
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in ("evaluation", *GROUPS)}
    for gate in gates:
        head, _, rest = gate["name"].partition(".")
        group, label = (head, rest) if head in GROUPS else ("evaluation", gate["name"])
        world, _, last = label.rpartition(".")
        if group == "parity":
            label = f"{world}, {w.known(last)}"
        elif group == "safety":
            label = w.phrase(label)
        elif group == "sim2sim" and last == "success_rate":
            label = w.phrase(world)
        else:
            label = f"{w.phrase(world)} · {w.known(last)}"
        groups[group].append({**gate, "label": label, **_shown(gate, last)})
    return [
        {"title": w[f"gates_{name}"], "gates": members, "passed": all(gate["passed"] for gate in members)}
        for name, members in groups.items()
        if members
    ]


def _shown(gate: Mapping[str, Any], quantity: str) -> dict[str, str]:
    """Value and limit of a gate for people: shares as per cent, both in the same form."""
    sign, limit, *unit = gate["allowed"].split()
    show = share if quantity in SHARES or unit == ["share"] else number
    unit = [] if unit == ["share"] else unit
    sign = {">=": "≥", "<=": "≤"}.get(sign, sign)
    return {"shown": show(gate["value"]), "limit": " ".join([sign, show(float(limit)), *unit])}


def _rules(rules: Iterable[Mapping[str, Any]], w: Words) -> list[dict[str, Any]]:
    """The rows of the safety table: as the gates, with where it is worst."""
    rows = []
    for rule in rules:
        is_share = rule["unit"] == "share"
        show = share if is_share else number
        allowed = "" if rule["allowed"] is None else show(rule["allowed"])
        shown = {"label": w.phrase(rule["rule"]), "shown": show(rule["value"]), "limit": allowed}
        rows.append({**rule, **shown, "unit": "" if is_share else rule["unit"]})
    return rows


def start_end(train: Mapping[str, Any], w: Words) -> list[dict[str, str]]:
    """The rows of the table start against end."""
    curves, published = train["curves"], train.get("published_run", {})
    rows = []
    for key in CURVES:
        after = train.get("passed_published_after", {}).get(key)
        rows.append(
            {
                "name": w.known(key),
                "start": number(curves["first"][key]),
                "end": number(curves["last"][key]),
                "best": number(curves["best"][key]),
                "published": number(published.get(key)),
                "passed": number(after and after["env_steps"]),
            }
        )
    return rows


def heat(worlds: Mapping[str, Mapping[str, Any]], definitions: Mapping[str, str]) -> dict[str, Any]:
    """The matrix of worlds and metrics; the colour of a cell goes from 0, bad, to 1, perfect or as nominal."""
    names = list(worlds)
    nominal = worlds[names[0]]
    columns = [m for m in HEAT if m in nominal]
    rows = []
    for name, record in worlds.items():
        cells = []
        for column in columns:
            value: Any = record.get(column)
            base: Any = nominal[column]
            good: float | None
            if number(value) == NOT_AVAILABLE or number(base) == NOT_AVAILABLE:
                good = None
            elif column in ("success_rate", "finish_rate"):
                good = float(value)
            else:
                good = 1.0 if value <= base else base / value
            cells.append({"shown": metric(value, column), "good": good})
        rows.append({"world": name, "episodes": record.get("episodes"), "ends": record.get("ends", {}), "cells": cells})
    return {"columns": columns, "rows": rows, "definitions": definitions}


def _video(results: Results, which: str, cfg: ReportCfg, w: Words) -> dict[str, Any]:
    """A video inside the page when it is small, else beside it; or why there is none."""
    record = results[f"{which}_video"]
    made = results.folder / record.get("file", f"{which}.mp4")
    kind = "image/gif" if made.suffix == ".gif" else "video/mp4"
    title = w[f"{which}_video"] if which == "reference" or record["ghost"] else w.policy_video_plain
    inside = record["drawn"] and made.stat().st_size <= 1e6 * cfg.embed_mb
    return {
        "title": title,
        "drawn": record["drawn"],
        "reason": record["reason"],
        "plays": kind == "video/mp4",
        "source": _data(made, kind) if inside else made.name,
        "poster": _data(results.folder / f"{which}.png", "image/png"),
        "sheet": _data(results.folder / f"{which}_sheet.png", "image/png"),
        "width": record["size"][0],
        "height": record["size"][1],
    }


def _resources(results: Results, rows: list[dict[str, float]], w: Words) -> list[tuple[str, str]]:
    train, device = results["train"], results["device"]
    collect, update = (sum(row[key] for row in rows) for key in ("collect_s", "update_s"))
    busy = max(collect + update, 1e-9)
    return [
        (w.wall, duration(train["wall_s"])),
        (w.device_hours, number(train["device_hours"])),
        (w.env_steps, number(train["env_steps"])),
        (w.sps, number(round(train["env_steps_per_s"]))),
        (w.iterations, number(train["iterations"])),
        (w.kept_model, number(results["eval"]["policy"]["iteration"])),
        (w.collect_share, f"{share(collect / busy)} / {share(update / busy)}"),
        (w.device, f"{train['device']} ({train['device_name']})"),
        (w.device_why, device["why"]),
    ]


def _motion(record: Mapping[str, Any], w: Words) -> list[tuple[str, str]]:
    """What was measured of the clip."""
    facts = []
    if "frames" in record:
        fps = record["fps"]
        numbers = {"frames": record["frames"], "seconds": number(record["seconds"])}
        numbers |= {"fps": number(fps["normalised"]), "file_fps": number(fps["file"])}
        facts.append((w.clip, w.clip_facts.format(**numbers)))
    if follow := record.get("followability"):
        facts.append((w.worst_gap, f"{number(1e3 * follow['support_gap_slow'])} mm"))
        facts.append((w.worst_carried, f"{number(follow['carried_95'])} ×"))
    for replay in record.get("replay", [])[:1]:
        lost = min(replay["lost"].items(), key=lambda item: item[1], default=None)
        facts.append((w.plain_pd, w.pd_frame.format(frame=lost[1], body=lost[0]) if lost else w.pd_never))
    return facts


def _chain(results: Results, w: Words) -> list[tuple[str, str, str]]:
    """(file, hash, what it was made of), from the clip to the verdict."""
    hashes, train = results.hashes, results["train"]
    source = results["motion"]
    export = results["export"]["hashes"]
    return [
        (source["source"], source["hashes"]["source"], ""),
        (w.robot, train["hashes"]["robot"], ""),
        ("motion.npz", hashes["motion.npz"], f"{source['source']}, {w.robot}"),
        (f"runs/{train['fingerprint']}", train["fingerprint"], f"motion.npz, {w.robot}, {w.settings_and_code}"),
        ("policy.pt", hashes["policy.pt"], f"runs/{train['fingerprint']}"),
        ("policy.onnx", hashes["policy.onnx"], f"policy.pt, {w.robot}, motion.npz"),
        ("policy_with_reference.onnx", export["policy_with_reference.onnx"], "policy.pt, motion.npz"),
        ("recording.npz", export["recording.npz"], "policy.pt, motion.npz"),
        ("sim2sim.json", "", "policy.onnx, recording.npz, motion.npz"),
        ("eval.json", "", "policy.pt, motion.npz, export.json, sim2sim.json"),
    ]


def settings_yaml(train: Mapping[str, Any]) -> str:
    """The training settings that are not the defaults, as YAML that can be laid over config.yaml."""
    changed = different(train, TrainCfg().model_dump(mode="json"))
    changed.pop("num_workers", None)  # results do not depend on it
    return yaml.safe_dump({"train": changed}, sort_keys=False, allow_unicode=True) if changed else ""


def different(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves that differ, as nested mappings."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            if inner := different(value, default):
                result[key] = inner
        elif value != default:
            result[key] = value
    return result


# --- how a page is put together


def _asset(name: str) -> str:
    return (resources.files("q1pipe") / "report/templates" / name).read_text(encoding="utf-8")


def _data(path: Path, kind: str) -> str:
    """A file as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _script_json(value: Any) -> Markup:
    """JSON that no text in it can break out of; what is not finite becomes null."""
    text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
