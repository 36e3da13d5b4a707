"""SLURM on this machine: a controller and two nodes, all on loopback, in a temporary folder, as root.

    apt-get install slurmctld slurmd slurm-client munge

Each node has one accelerator that is only a number. What has to hold on a real cluster holds here: jobs are queued,
placed, preempted and queued again by the real scheduler.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
MISSING = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
NODES = ("node1", "node2")
CONFIG = """\
ClusterName=q1pipe
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog.sh
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=60
MinJobAge=3600
GresTypes=npu
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 RealMemory=256000 Gres=npu:1
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=16 RealMemory=256000 Gres=npu:1
PartitionName=cpu Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF
PartitionName=npu Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


class Slurm:
    """A cluster that is there while the context lasts."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True)
        for part in ("state", "spool.node1", "spool.node2"):
            (folder / part).mkdir()
        ports = [_free_port() for _ in range(3)]
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, host=host, ports=ports))
        # Jobs find no /etc/slurm/slurm.conf, and the plugin takes SLURM_CONF from its srun: give it one that knows.
        srun = f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec /usr/bin/srun "$@"\n'
        prolog = f'#!/bin/sh\necho "export PATH={folder}/bin:$PATH"\n'
        for path, text in {"bin/srun": srun, "prolog.sh": prolog}.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
        (folder / "gres.conf").write_text("NodeName=node[1-2] Name=npu Count=1\n")
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {name: f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log", "seed")}
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.socket",
            *files.values(),
        )
        self._start("slurmctld", "-D", "-i")
        for node in NODES:
            self._start("slurmd", "-D", "-N", node)
        until = time.monotonic() + 60
        while self("sinfo", "-h", "-N", "-p", "npu", "-o", "%T").split() != ["idle", "idle"]:
            assert time.monotonic() < until, self("sinfo", "-R") + (self.folder / "slurmctld.log").read_text()
            time.sleep(0.5)
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self("scancel", "--full", *self("squeue", "-h", "-o", "%A").split())
        for process in reversed(self._processes):  # munge last: the others speak through it
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def __call__(self, *command: str) -> str:
        """Run a command of SLURM's and return what it says."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        return done.stdout

    def job(self, what: str) -> dict[str, str]:
        """What the controller knows of the job whose comment or command has this in it; empty: no such job."""
        for text in self("scontrol", "-o", "show", "job").splitlines():
            fields = dict(part.split("=", 1) for part in text.split() if "=" in part)
            if what in fields.get("Comment", "") or what in fields.get("JobName", ""):
                return fields
        return {}

    def _start(self, *command: str) -> None:
        log = open(self.folder / f"{command[0]}.out", "ab")  # noqa: SIM115  (the process's)
        self._processes.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
