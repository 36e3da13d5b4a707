# What the rules share: where q1pipe is, which motions there are, and what makes a result stale.
#
# Staleness comes from params (settings as text, hashes of code and content), not from dates; see config/README.md.

import difflib
import os
import pathlib
import re
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
        if not pathlib.Path(clip).is_file():
            beside = {p.name.lower(): p for p in pathlib.Path(clip).parent.glob("*.*")}
            near = [
                f"did you mean {beside[n]}?"
                for n in difflib.get_close_matches(clip.rpartition("/")[2].lower(), beside, 1)
            ]
            missing = error("motion-missing", "Q1_MOTION", f"{clip} is not there", "a motion file", *(near or ["mend the path"]))
            raise WorkflowError(str(missing))
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


# In the place of show-failed-logs, which prints all of a log, hours of training as well.
LAST_LINES = 20


def _ends_of_failed_logs(of_snakemake):
    """The path and the last lines of each log that Snakemake's own log names for a job that failed."""
    for log in of_snakemake:
        text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
        for path in dict.fromkeys(re.findall(r"^ +log: (.+) \(check log file", text, re.MULTILINE)):
            if os.path.exists(path):
                lines = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
                yield "\n".join([f"The end of {path}:", *(f"    {line}" for line in lines[-LAST_LINES:])])


onerror:
    for end in _ends_of_failed_logs(log):
        logger.error(end)
