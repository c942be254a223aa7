"""Slurm on the machines of a test's cluster: slurmctld on ``p1``, and a slurmd on each other one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
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
SlurmdTimeout=30
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
{more}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass
class Slurm:
    """A running Slurm."""

    here: Cluster
    configuration: Path
    machines: tuple[str, ...]
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The slurmd of each machine."""

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables of its users."""
        return {"SLURM_CONF": str(self.configuration)}

    def mend(self) -> None:
        """Cancel all jobs, start the nodes that are not there; wait until all can be used."""
        self._ask("scancel", "--user=root")
        for machine in self.machines:
            node = self.nodes.get(machine)
            if node is None or node.poll() is not None:
                command = ["slurmd", "-D", "-f", str(self.configuration), "-N", machine]
                self.nodes[machine] = _started([*self.here.on(machine), *command])
        until(lambda: self._sinfo("%D %t") == f"{len(self.machines)} idle", 120.0, self._state)

    def _state(self) -> str:
        return self._sinfo("%N %T %E") + f"\n{ {name: node.poll() for name, node in self.nodes.items()} }"

    def _sinfo(self, form: str) -> str:
        return self._ask("sinfo", "-h", "-o", form)

    def _ask(self, *command: str) -> str:
        user = os.environ | self.variables
        done = subprocess.run([*self.here.on("p1"), *command], capture_output=True, env=user, text=True)
        return (done.stdout or done.stderr).strip()

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes.values():
            _end(node)


@contextlib.contextmanager
def slurm_on(here: Cluster, folder: Path, *, cpus: int = 2, more: str = "") -> Iterator[Slurm]:
    """Run Slurm as long as the context lasts.

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
        slurm = Slurm(here, configuration, machines)
        stack.callback(slurm.close)
        slurm.mend()
        yield slurm


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = _started(command)
    try:
        yield
    finally:
        _end(process)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
