"""Jobs of Kubernetes, made of job.yaml, on a volume that all of them see: kubectl."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import yaml

from profiles import jobs

TEMPLATE = Path(__file__).with_name("job.yaml")


def hand_in(script: Path, args: argparse.Namespace, log: Path) -> str:
    """Create a job; its name."""
    manifest = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", 'exec "$0" > "$1" 2>&1', str(script), str(log)]
    limits = {args.npu_name: args.npu} if args.npu else {}
    wanted = {"cpu": args.threads, "memory": f"{args.mem_mb}M", **limits}
    container["resources"] = {"requests": wanted, "limits": {"memory": wanted["memory"], **limits}}
    manifest["spec"]["activeDeadlineSeconds"] = 60 * args.minutes
    said = subprocess.run(
        ["kubectl", "create", "-f", "-", "-o", "name"],
        input=json.dumps(manifest),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return said.strip().rpartition("/")[2]


def ask(name: str) -> str:
    """What kubectl says."""
    asked = subprocess.run(["kubectl", "get", "job", name, "-o", "json"], capture_output=True, text=True, check=False)
    if asked.returncode:
        return jobs.UNKNOWN
    state = json.loads(asked.stdout).get("status", {})
    return jobs.FAILED if state.get("failed") else jobs.ENDED if state.get("succeeded") else jobs.RUNS


def cancel(names: list[str]) -> None:
    """End jobs; their pods get SIGTERM first, so that training saves."""
    subprocess.run(["kubectl", "delete", "job", "--wait=false", *names], check=False)


if __name__ == "__main__":
    jobs.main(hand_in, ask, cancel)
