"""Slurm and Ray on the machines of a test's cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.system.clusters import Cluster
from tests.system.command import until

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
        until(lambda: self._sinfo("%D %t") == f"{len(self.machines)} idle", state=self._state)

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
        until(files["socket"].exists)
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


# --------------------------------------------------------------------------- Ray

RAY = all(importlib.util.find_spec(name) for name in ("ray", "pyarrow", "tensorboardX"))
"""Whether Ray is installed with what Ray Train needs."""

PATIENT = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_num_prestart_python_workers": "0",
    "RAY_AUTH_MODE": "disabled",
}
"""Ray gives up on a machine that is loaded after half a minute.

From 2.59 on its head wants a token if a local Ray has left one in the user's home; its other nodes and its
clients send none unless they are told to.
"""


def ray_on(here: Cluster, cpus: Mapping[str, int]) -> str:
    """Start Ray on machines with so many CPUs; return the address of the first one, the head.

    It ends with the cluster. Skips the test if Ray itself does not start, as on a machine that is loaded.
    """
    topology, ray = here.state.topology, str(Path(sys.executable).with_name("ray"))
    head, *_ = cpus
    address = f"{topology.ip(head)}:6379"
    for machine, number in cpus.items():
        node = [ray, "start", "--block", f"--node-ip-address={topology.ip(machine)}"]
        node += [f"--node-name={machine}", f"--num-cpus={number}"]
        node += ["--object-store-memory=80000000", "--disable-usage-stats"]
        first = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={here.private}/ray"]
        more = first if machine == head else [f"--address={address}"]
        process = here.start(machine, [*node, *more], PATIENT)
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                break
        else:  # its raylet gives its agent some fifteen seconds, whatever one sets
            errors = process.communicate()[1]
            pytest.skip(f"Ray cannot be started on this machine now: {''.join(said)}{errors}"[-2000:])
    return address
