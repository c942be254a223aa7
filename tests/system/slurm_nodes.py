"""Slurm on the machines of a test's cluster: slurmctld on ``p1``, and a slurmd on each other one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.system.clusters import Cluster, until

SLURM = all(map(shutil.which, ("slurmctld", "slurmd", "srun", "sbatch", "munged")))
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=p1({controller})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=2
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
{more}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def slurm_on(here: Cluster, folder: Path, *, cpus: int = 2, more: str = "") -> Iterator[dict[str, str]]:
    """Run Slurm as long as the context lasts; give the variables of its users.

    Args:
        here: The machines.
        folder: For its files.
        cpus: Of each node.
        more: Lines of its configuration.
    """
    topology = here.state.topology
    machines = topology.servers_for("worker")
    for machine in machines:
        (folder / f"spool-{machine}").mkdir()
    nodes = [
        f"NodeName={name} NodeAddr={topology.ip(name)} NodeHostname={name} CPUs={cpus}" for name in machines
    ]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(folder=folder, controller=topology.ip("p1"), nodes="\n".join(nodes), more=more)
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key": key, "socket": folder / "munge.socket", "pid": folder / "munge.pid"}
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={files['socket']}"]
    munged += [f"--pid-file={files['pid']}", f"--seed-file={folder}/munge.seed", "--log-file=/dev/null"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_running(munged))
        until(files["socket"].exists, 60.0)
        options = ["-D", "-f", str(configuration)]
        stack.enter_context(_running([*here.on("p1"), "slurmctld", *options]))
        for machine in machines:
            stack.enter_context(_running([*here.on(machine), "slurmd", *options, "-N", machine]))
        variables = {"SLURM_CONF": str(configuration)}
        user = os.environ | variables

        def all_idle() -> bool:
            asked = [*here.on("p1"), "sinfo", "-h", "-o", "%D %t"]
            said = subprocess.run(asked, capture_output=True, env=user, text=True).stdout.strip()
            return said == f"{len(machines)} idle"

        until(all_idle, 120.0)
        yield variables


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
