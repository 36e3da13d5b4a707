"""Which packages a stage ran with, and a warning where the training ran with others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from q1pipe.errors import Finding, warn


def installed(*packages: str) -> dict[str, str]:
    """Package -> its version here."""
    return {name: version(name) for name in packages}


def differing(trained: Mapping[str, str], here: Mapping[str, str], stage: str) -> list[Finding]:
    """A WARN when packages that both know differ: no version of MuJoCo or torch promises the numbers of another.

    Args:
        trained: package -> version, of the training.
        here: package -> version, of this stage.
        stage: its name.
    """
    names = [name for name in here if name in trained and trained[name] != here[name]]
    if not names:
        return []
    then, now = (", ".join(f"{name} {versions[name]}" for name in names) for versions in (trained, here))
    found = f"trained on {then}, here {now}: results may differ"
    return [warn("versions", stage, found, "the versions of the training", "install them to compare numbers")]
