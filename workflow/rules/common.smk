# What the rules share: where q1pipe is, which motions there are, and what makes a result stale.
#
# Staleness comes from params (settings as text, hashes of code and content), not from dates; see config/README.md.

import functools
import gc
import inspect
import json
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

from q1pipe.config import Settings, of_arguments, of_file, settings_of
from q1pipe.config.problems import near
from q1pipe.ending import ending, last_words
from q1pipe.errors import ConfigError, error, warn
from q1pipe.files import write_json
from q1pipe.learn.wish import tracked
from q1pipe.provenance import code_of, file_sha, files_of, mjcf_sha, recall, remember

# With many motions Snakemake makes millions of objects that stay: to look through them again and again for some that
# nobody needs would be a tenth of a dry run.
gc.set_threshold(100_000)


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
            beside = {p.name: p for p in pathlib.Path(clip).parent.glob("*.*")}
            meant = near(clip.rpartition("/")[2], beside)
            action = f"did you mean {beside[meant]}?" if meant else "mend the path"
            missing = error("motion-missing", "Q1_MOTION", f"{clip} is not there", "a motion file", action)
            raise WorkflowError(str(missing))
        found[pathlib.Path(clip).stem] = [clip]
    twice = [
        error("two-sources", "config", " and ".join(paths), f"one file for the motion {motion}", "remove or rename one")
        for motion, paths in found.items()
        if len(paths) > 1
    ]
    braces = [
        error(
            "name",
            paths[0],
            "{ or } in the name",
            "any other character",
            "rename it; Snakemake means wildcards by them",
        )
        for motion, paths in found.items()
        if set("{}") & set(motion)
    ]
    if twice or braces:
        raise WorkflowError("\n".join(map(str, twice + braces)))
    return {motion: found[motion][0] for motion in sorted(found)}


SOURCES = _sources()


def _layers():
    """Settings by origin, read again: Snakemake's `config` is by YAML 1.1, and does not know what is from where."""
    given = list(workflow.overwrite_configfiles)
    files = [*(path for path in workflow.configfiles if path not in given), *given]
    names = [os.path.relpath(path) if pathlib.Path(path).is_relative_to(pathlib.Path.cwd()) else path for path in files]
    return [*map(of_file, names), of_arguments(workflow.config_settings.config_args)]


try:
    SETTINGS = Settings(_layers(), SOURCES)
except ConfigError as e:
    raise WorkflowError(str(e)) from None
for finding in SETTINGS.warnings:
    logger.warning(str(finding))
if any(pathlib.Path("results").glob("*/motion.json")) and not any(pathlib.Path(".snakemake/metadata").glob("*")):
    found = "results/ is there, but not what Snakemake knew of it"
    action = "copy it too; or accept the results as they are: snakemake --cores 1 --touch --forceall"
    logger.warning(str(warn("copy", ".snakemake", found, "both, else only dates tell what is stale", action)))
if not SOURCES:
    logger.warning("WARN [no-motion] config: no motion file — at least one — put one there, such as config/wave.npz")


def source(wildcards):
    """The motion file; ancient, because its content counts (motion_sha) and not its date."""
    name = wildcards.motion
    if name not in SOURCES:
        meant = near(name, SOURCES)
        hint = f" Did you mean {meant}?" if meant else ""
        raise WorkflowError(f"There is no config/{name}.npz.{hint} Motions: {', '.join(SOURCES) or 'none'}.")
    return ancient(SOURCES[name])


def motion_sha(wildcards):
    path = SOURCES[wildcards.motion]
    return f"{wildcards.motion}{pathlib.Path(path).suffix}@{file_sha(path)}"


def by_motion(of):
    """A param made of a motion's name by `of`: text where it is the same for all motions, else a function.

    Snakemake calls each function for each job, and looks up its signature thrice: with many motions that is much of the
    time of a dry run. Text with braces would be filled in with wildcards.
    """
    everywhere = {of(motion) for motion in ("", *SETTINGS.overrides)}
    if len(everywhere) == 1 and not {"{", "}"} & set(*everywhere):
        return everywhere.pop()
    return _told(lambda wildcards: of(wildcards.get("motion")))


def _told(function):
    """A function whose signature needs no looking up."""
    function.__signature__ = inspect.signature(function)
    return function


_robot_content = functools.cache(mjcf_sha)


def _robot(motion):
    """By content: where the MJCF lies does not count."""
    return f"robot@{_robot_content(SETTINGS.of(motion).robot.xml or ROOT / 'q1pipe/assets/q1/q1.xml')}"


robot_sha = by_motion(_robot)


# Hashes of code, as in the last run without `pin_code`, or as it is. By stage, because Snakemake compares them all.
PIN = pathlib.Path("results/code.json")
PINNED = json.loads(PIN.read_text(encoding="utf-8")) if SETTINGS.of().pin_code and PIN.exists() else {}
CODE = {}
SCANNED = pathlib.Path(".snakemake/code.json").absolute()
recall(SCANNED)


def code(stage):
    """Params of a rule: `module@hash` for each module that a stage runs."""
    CODE[stage] = PINNED.get(stage) or code_of(stage)
    return CODE[stage]


def templates():
    """The same for the files that pages are made from."""
    CODE["templates"] = PINNED.get("templates") or files_of(ROOT / "q1pipe/report/templates")
    return CODE["templates"]


def pinned_code(wildcards, output):
    """For the trainer, whose run folder is named by its code, too."""
    return f"--pinned={PIN}" if PINNED else ""


onstart:
    write_json(PIN, CODE)


def settings(*keys):
    """Params of a rule: a text for each setting in these sections or at these keys, and all of them as `cfg`.

    Snakemake records no param that depends on the output, so `cfg` is not tracked, and a dry run names the settings that
    changed. On the threads would do as well, but they cost each job all its resources.
    """
    texts = {
        place.replace(".", "_"): by_motion(functools.partial(SETTINGS.text, place=place))
        for place in settings_of(*keys)
        if place != "robot.xml"
    }
    whole = functools.cache(lambda motion: SETTINGS.stage(motion, *keys))

    def cfg(wildcards, output):
        motion = wildcards.get("motion")
        return whole(motion if motion in SETTINGS.overrides else None)

    return texts | {"cfg": _told(cfg)}


def num_workers(wildcards):
    return SETTINGS.of(wildcards.motion).train.num_workers


def untracked_workers(wildcards, output):
    """As a param that changes without making anything stale: Snakemake records none that depends on the output."""
    return num_workers(wildcards)


def asked_device(wildcards):
    """Changes with PRIMEBOT_DEVICE where another device would be chosen."""
    return tracked(SETTINGS.of().device.device, pathlib.Path("results/device.json"), os.environ)


# Threads of what judges a policy: what --cores 40 leaves beside another motion's training, so that both run at once.
JUDGING = 8


def tell_ending(logs):
    """After all that Snakemake says: the ends of failed logs; which motions are done, which failed, where and why."""
    text = "".join(pathlib.Path(log).read_text(encoding="utf-8", errors="replace") for log in logs)
    for line in (*last_words(text, pathlib.Path.cwd()), *ending(text, pathlib.Path.cwd())):
        print(line, file=sys.stderr)
