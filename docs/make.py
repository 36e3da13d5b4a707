"""What the documentation says that the code says too: `make docs` writes it, a test compares it.

- config/schema.json, for editors;
- the tables of all settings in config/README.md, and the rule graph in README.md, between their markers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from q1pipe.config import Config, Sections  # noqa: E402
from q1pipe.config.layers import at  # noqa: E402
from q1pipe.config.models import places, section_of  # noqa: E402
from q1pipe.config.settings import FOR_ALL  # noqa: E402

MARKERS = "<!-- {} (make docs) -->\n", "<!-- end of {} -->\n"


def made() -> dict[Path, str]:
    """The files as they should be."""
    manual, readme = ROOT / "config/README.md", ROOT / "README.md"
    return {
        ROOT / "config/schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        manual: between(manual.read_text(encoding="utf-8"), "settings", "\n".join(tables())),
        readme: between(readme.read_text(encoding="utf-8"), "rule graph", rule_graph()),
    }


def between(text: str, name: str, new: str) -> str:
    """A text with something else between two markers."""
    begin, end = (marker.format(name) for marker in MARKERS)
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"no markers for {name}"
    return f"{before}{begin}\n{new}\n{end}{after}"


def schema() -> dict[str, Any]:
    """The JSON schema of config.yaml and its overlays, in which nothing is required and a name's null removes it."""
    result = Config.model_json_schema()
    for model in (result, *result["$defs"].values()):
        model.pop("required", None)
        for field in model["properties"].values():
            field.pop("title", None)
            if "$ref" in field:
                field.pop("default", None)  # each setting says its own
            if (named := field.get("additionalProperties", {})).get("type") == "number":
                field["additionalProperties"] = {"anyOf": [named, {"type": "null"}]}
    sections = {key: value for key, value in result["properties"].items() if key not in (*FOR_ALL, "motions")}
    result["properties"]["motions"]["additionalProperties"] = {
        "anyOf": [{"type": "object", "additionalProperties": False, "properties": sections}, {"type": "null"}]
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **result, "title": "Settings of q1pipe"}


def tables() -> Iterator[str]:
    """A table for each section: key, default, what is allowed, what it is."""
    full, defaults = Config.model_json_schema(), Sections().model_dump(mode="json")
    for name, field in Sections.model_fields.items():
        section = section_of(field)
        if section is None:
            kind, value = allowed(full["properties"][name]), json.dumps(defaults[name])
            yield f"**{name}**, `{value}` ({kind}): {field.description}\n"
            continue
        yield f"### {name}\n\n{section.__doc__}\n\n| key | default | allowed | |\n|---|---|---|---|"
        for loc, inner in places(section, (name,)):
            if section_of(inner) is not None:
                continue
            field_schema = full
            for part in loc:
                field_schema = resolved(full, field_schema)["properties"][part]
            value = json.dumps(at(defaults, loc), ensure_ascii=False)
            told = f"`{value}`" if len(value) < 60 else "see config.yaml"
            meaning = (inner.description or "").replace("|", "\\|")
            yield f"| `{'.'.join(loc[1:])}` | {told} | {allowed(field_schema)} | {meaning} |"
        yield ""


def resolved(full: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of a schema, or what it refers to."""
    ref = part.get("$ref", "")
    return full["$defs"][ref.rpartition("/")[2]] if ref else part


def allowed(field: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    if "anyOf" in field:
        return ", or ".join("null" if kind.get("type") == "null" else allowed(kind) for kind in field["anyOf"])
    if words := re.fullmatch(r"\^\(([\w|]+)\)\$", field.get("pattern", "")):
        return ", ".join(f"`{word}`" for word in words[1].split("|"))
    if field["type"] == "array":
        items = field.get("prefixItems", [field.get("items", {})])
        inner = allowed(items[0])
        return f"{len(items)} × {inner}" if "prefixItems" in field else f"list of {inner}"
    if field["type"] == "object":
        return f"name: {allowed(field['additionalProperties'])}"
    kind = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true, false"}[field["type"]]
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field]
    return " ".join([kind, ", ".join(bounds)]).strip()


def rule_graph() -> str:
    """The rules as a mermaid flowchart, without arrows that others imply."""
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "mermaid-js", "--cores", "1", "--quiet"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = dict(re.findall(r"^\s*(id\d+)\[(\w+)\]$", said, re.MULTILINE))
    after: dict[str, set[str]] = {name: set() for name in names.values()}
    for one, other in re.findall(r"^\s*(id\d+) --> (id\d+)$", said, re.MULTILINE):
        after[names[one]].add(names[other])

    def reach(name: str) -> set[str]:
        return after[name] | {far for near in after[name] for far in reach(near)}

    lines = [
        f"    {one} --> {other}"
        for one in sorted(after)
        for other in sorted(after[one])
        if not any(other in reach(between) for between in after[one] - {other})
    ]
    return "\n".join(["```mermaid", "flowchart LR", *lines, "```", ""])


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text, encoding="utf-8")
