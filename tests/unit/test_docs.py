"""What the documentation says that the code says too: `make docs`."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "docs/make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_as_the_code_is(make: ModuleType) -> None:
    stale = [str(path) for path, text in make.made().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"


@pytest.mark.parametrize("name", ["config.yaml", "laptop.yaml"])
def test_settings_name_their_schema_and_pass_it(name: str) -> None:
    text = (ROOT / "config" / name).read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=schema.json\n")
    schema = json.loads((ROOT / "config/schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(text), schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trian": {}},
        {"train": {"itterations": 3}},
        {"train": {"ppo": {"clip": -1}}},
        {"video": {"ghost": "under"}},
        {"motions": {"wave": {"device": {"device": "cpu"}}}},
        {"motions": {"wave": {"train": {"sed": 1}}}},
    ],
)
def test_schema_finds_what_is_wrong(wrong: dict[str, object]) -> None:
    schema = json.loads((ROOT / "config/schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_schema_lets_overlays_be_partial() -> None:
    schema = json.loads((ROOT / "config/schema.json").read_text(encoding="utf-8"))
    overlay = {"train": {"reward": {"root_pos": {"sigma": 0.2}}, "termination": {"body_z": {"left_knee_link": None}}}}
    jsonschema.validate(overlay | {"motions": {"wave": overlay, "run": None}}, schema)
