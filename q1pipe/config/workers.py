"""How many physics processes to start."""

from __future__ import annotations

from q1pipe.errors import Finding, warn


def workers_for(num_envs: int, num_workers: int, threads: int, cores: int | None = None) -> tuple[int, Finding | None]:
    """How many physics processes to start: the largest divisor of num_envs that all limits allow.

    Args:
        num_envs: environments.
        num_workers: processes asked for.
        threads: given by --cores, which may be more than there are.
        cores: that there are; none: enough.

    Returns:
        The number, and a finding when it is lower than num_workers.
    """
    scarce = cores is not None and cores < min(num_workers, threads)
    most = min(num_workers, threads, cores or threads)
    workers = max(n for n in range(1, most + 1) if num_envs % n == 0)
    if workers == num_workers:
        return workers, None
    return workers, warn(
        "workers",
        "config: train.num_workers",
        f"{num_workers} workers asked for, {f'{cores} cores here' if scarce else f'{threads} threads given'}",
        f"a divisor of num_envs {num_envs} that is at most {most}",
        f"going on with {workers}; results are the same" + ("" if scarce else f", --cores {num_workers} is faster"),
    )
