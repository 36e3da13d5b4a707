"""How long each job of the workflow took, from what Snakemake keeps about its outputs: run it after `make run`.

python -m benchmarks.stages
"""

from __future__ import annotations

import base64
import json

from rich.console import Console
from rich.table import Table

from benchmarks.common import MOTION, ROOT


def main() -> None:
    """Print a row for each job, in the order in which they ran."""
    jobs = {}  # a rule's outputs say nearly the same
    for file in (ROOT / ".snakemake" / "metadata").glob("*"):
        output = base64.b64decode(file.name).decode()
        if output.count("/") > 1 and not output.startswith(f"results/{MOTION}/"):
            continue
        kept = json.loads(file.read_text(encoding="utf-8"))
        jobs[kept["rule"]] = (kept["starttime"], kept["endtime"])
    table = Table("job", "seconds", title=f"of {MOTION}; the two videos are rendered side by side")
    for rule, (start, end) in sorted(jobs.items(), key=lambda job: job[1]):
        table.add_row(rule, f"{end - start:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
