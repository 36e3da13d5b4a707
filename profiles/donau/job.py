"""Jobs of the Donau scheduler: dsub, djob, dkill."""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from pathlib import Path

from profiles import jobs

STATES = {
    **dict.fromkeys(("FINISHED", "SUCCEEDED", "DONE"), jobs.ENDED),
    **dict.fromkeys(("FAILED", "ABORTED", "TIMEOUT", "NODE_FAIL", "TERMINATED", "EXIT"), jobs.FAILED),
}


def hand_in(script: Path, args: argparse.Namespace, log: Path) -> str:
    """Submit; the job's number."""
    wanted = f"cpu={args.threads};mem={math.ceil(args.mem_mb / 1024)}G"
    wanted += f";{args.npu_name}={args.npu}" if args.npu else ""
    command = ["dsub", "-n", "q1pipe", *(["-q", args.queue] if args.queue else []), "-R", wanted]
    command += ["-T", str(60 * args.minutes), "-oo", str(log), str(script)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    number = re.search(r"<(\d+)>", said) or re.search(r"^\s*(\d+)", said)
    return number[1] if number else sys.exit(f"dsub gave no job number: {said}")


def ask(number: str) -> str:
    """What djob says."""
    command = ["djob", "-D", "-o", "state", "--no-header", number]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    words = asked.stdout.split()
    return STATES.get(words[0].upper(), jobs.RUNS) if asked.returncode == 0 and words else jobs.UNKNOWN


def cancel(numbers: list[str]) -> None:
    """End jobs."""
    subprocess.run(["dkill", "-y", "--force", *numbers], check=False)


if __name__ == "__main__":
    jobs.main(hand_in, ask, cancel)
