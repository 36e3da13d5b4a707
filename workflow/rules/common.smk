# What the rules share: where q1pipe is, which motions there are, and what makes a result stale.
#
# Staleness comes from params (settings as text, hashes of code and content), not from dates; see config/README.md.

import difflib
import os
import pathlib
import sys

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

ROOT = pathlib.Path(workflow.main_snakefile).resolve().parent


def _before(folder, variable):
    return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))


# Rules run this checkout's q1pipe with this Python, also where no environment is active and nothing is installed.
sys.path.insert(0, str(ROOT))
os.environ.update(
    PATH=_before(pathlib.Path(sys.executable).parent, "PATH"),
    PYTHONPATH=_before(ROOT, "PYTHONPATH"),
)

from q1pipe.config import Settings
from q1pipe.ending import ending
from q1pipe.errors import ConfigError, error
from q1pipe.provenance import code_of, file_sha, files_of, mjcf_sha


wildcard_constraints:
    motion=r"[^/.][^/]*",


# Motion -> its file. Q1_MOTION adds one, or takes the place of the one of its name.
def _is_keyframes(path):
    """Settings are YAML too; keyframes have `keys:`."""
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return any(line.startswith("keys:") for line in text.splitlines())


def _sources():
    found = {}
    for motion, ending in sorted(zip(*glob_wildcards("config/{motion,[^/.][^/]*}.{ending,npz|csv|pkl|yaml}"))):
        path = f"config/{motion}.{ending}"
        if ending != "yaml" or _is_keyframes(path):
            found.setdefault(motion, []).append(path)
    if clip := os.environ.get("Q1_MOTION"):
        found[pathlib.Path(clip).stem] = [clip]
    twice = [
        error("two-sources", "config", " and ".join(paths), f"one file for the motion {motion}", "remove or rename one")
        for motion, paths in found.items()
        if len(paths) > 1
    ]
    if twice:
        raise WorkflowError("\n".join(map(str, twice)))
    return {motion: found[motion][0] for motion in sorted(found)}


SOURCES = _sources()

try:
    SETTINGS = Settings(config, SOURCES)
except ConfigError as e:
    raise WorkflowError(str(e)) from None
for finding in SETTINGS.warnings:
    logger.warning(str(finding))
if not SOURCES:
    logger.warning("WARN [no-motion] config: no motion file — at least one — put one there, such as config/wave.npz")


def source(wildcards):
    """The motion file; ancient, because its content counts (motion_sha) and not its date."""
    name = wildcards.motion
    if name not in SOURCES:
        folded = {m.lower(): m for m in SOURCES}
        near = [folded[n] for n in difflib.get_close_matches(name.lower(), folded, 1)]
        hint = f" Did you mean {near[0]}?" if near else ""
        raise WorkflowError(f"There is no config/{name}.npz.{hint} Motions: {', '.join(SOURCES) or 'none'}.")
    return ancient(SOURCES[name])


def motion_sha(wildcards):
    path = SOURCES[wildcards.motion]
    return f"{wildcards.motion}{pathlib.Path(path).suffix}@{file_sha(path)}"


def robot_sha(wildcards):
    xml = SETTINGS.of(wildcards.motion).robot.xml or ROOT / "q1pipe/assets/q1/q1.xml"
    return f"{pathlib.Path(xml).name}@{mjcf_sha(xml)}"


def settings(*keys):
    """A params function: the settings of a stage as canonical JSON. `train.num_workers` is never in it."""
    return lambda wildcards: SETTINGS.stage(wildcards.get("motion"), *keys)


def num_workers(wildcards):
    return SETTINGS.of(wildcards.motion).train.num_workers


def untracked_workers(wildcards, threads):
    """As a param that changes without making anything stale: Snakemake records none that depends on threads."""
    return num_workers(wildcards)


# Threads of what judges a policy: what --cores 40 leaves beside another motion's training, so that both run at once.
JUDGING = 8


def tell_ending(logs):
    """After all that Snakemake says: which motions are done, which failed, where and why."""
    text = "".join(pathlib.Path(log).read_text(encoding="utf-8") for log in logs)
    for line in ending(text, pathlib.Path.cwd()):
        print(line, file=sys.stderr)
