"""The ways to start two ranks of a script on each machine of a test's cluster, and their processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests import effort
from tests.system.clusters import Cluster, arguments
from tests.system.command import WORKERS

HOSTS = ("h1", "h2", "h3", "h4") if effort.THOROUGH else ("h1", "h3")
"""In two racks: each rank loads torch, which is nearly all of what a launch takes."""
RANKS = 2 * len(HOSTS)
MPIRUN = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))
_SCRIPT = str(WORKERS / "ddp.py")
_SRUN = "srun -N1 -n1 --overlap -w {host} {command}"
_PORTS = itertools.count(29700)


@dataclass(frozen=True)
class Way:
    """A launcher.

    Attributes:
        name: What people call it.
        start: Starts the ranks, given the cluster, the variables of the ranks and the launcher's own ones.
        daemon: A text in the command of its processes on each machine.
        keeps: Whether processes stay, where the launcher cannot reach them, whose ranks have ended.
    """

    name: str
    start: Callable[[Cluster, Mapping[str, str], Mapping[str, str]], list[subprocess.Popen[str]]]
    daemon: str
    keeps: bool = False


@dataclass
class Launch:
    """A running launch."""

    here: Cluster
    way: Way
    folder: Path
    processes: list[subprocess.Popen[str]]
    """The launcher's, the first one on ``h1``."""
    said: dict[int, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, here: Cluster, way: Way, folder: Path, own: Mapping[str, str], *, ends: bool) -> Launch:
        """Start one; unless it `ends` by itself, it goes on until `finish`."""
        folder.mkdir()
        variables = {"ANSWERS": str(folder)} | ({} if ends else {"UNTIL": str(folder / "stop")})
        return cls(here, way, folder, way.start(here, variables, own))

    def finish(self) -> None:
        """Have the ranks end."""
        (self.folder / "stop").touch()

    @property
    def ranks(self) -> dict[int, int]:
        """The ranks' processes that have come so far."""
        found = {}
        for file in self.folder.glob("*.pid"):
            if text := file.read_text():
                found[int(file.stem)] = int(text.split()[0])
        return found

    @property
    def going(self) -> bool:
        """Whether all ranks have trained some steps."""
        return len([*self.folder.glob("*.steps")]) == RANKS

    def alive(self) -> list[int]:
        """Return the ranks that have not ended."""
        ended = self.errors() if self.way.keeps else ()
        return [rank for rank, process in self.ranks.items() if rank not in ended and arguments(process)]

    def stepped(self, since: float) -> bool:
        """Return whether all ranks have trained a step after a time of the day."""
        with contextlib.suppress(FileNotFoundError):
            return all(file.stat().st_mtime > since for file in self.folder.glob("*.steps"))
        return False

    def errors(self) -> dict[int, str]:
        """Return what went wrong at each rank that could say it."""
        return {int(file.stem): file.read_text() for file in self.folder.glob("*.error")}

    def losses(self) -> dict[int, list[float]]:
        """Return the losses of each rank."""
        return {int(file.stem): json.loads(file.read_text()) for file in self.folder.glob("*.losses")}

    def output(self) -> str:
        """Return what the launcher's processes have written; they have ended, or are ended now."""
        found = []
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate(timeout=60)
            found.append(f"status {process.returncode}\n{out}\n{err}")
        return "\n".join(found)


def torchrun(here: Cluster, own: Mapping[str, str], more: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Start an agent of torchrun on each machine."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(len(HOSTS)),
        "--nproc-per-node",
        "2",
    ]
    command += ["--master-addr", here.state.topology.ip("h1"), "--master-port", str(next(_PORTS))]
    return [
        here.start(host, [*command, f"--node-rank={node}", _SCRIPT], {**own, **more})
        for node, host in enumerate(HOSTS)
    ]


def srun(here: Cluster, own: Mapping[str, str], more: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Start ``srun``; torch gets its variables from Slurm's."""
    variables = _store(here) | {**own, **more}
    ranks = "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS"
    where = [f"-w{','.join(HOSTS)}", f"-n{RANKS}", "--ntasks-per-node=2"]
    return [here.start("h1", ["srun", *where, *_shell(ranks)], variables)]


def mpirun(here: Cluster, own: Mapping[str, str], more: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Start ``mpirun``, with a stand-in for ssh; torch gets its variables from Open MPI's."""
    agent = here.enter.with_name("agent")
    agent.write_text(f'#!/bin/sh\nmachine=$1; shift\nexec sh {here.enter} "$machine" sh -c "$*"\n')
    agent.chmod(0o755)
    hosts = ",".join(f"{here.state.topology.ip(machine)}:2" for machine in HOSTS)
    command = [str(MPIRUN), "--allow-run-as-root", "--host", hosts, "-n", str(RANKS), "--map-by", "slot"]
    command += ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_keep_fqdn_hostnames", "1"]
    variables = _store(here) | {**own, **more}
    for name in (*variables, "INA_CLUSTER", "INA_TOKEN", "XDG_RUNTIME_DIR", "OMP_NUM_THREADS"):
        command += ["-x", name]
    ranks = "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE"
    return [here.start("h1", [*command, *_shell(ranks)], variables)]


def ina_run(
    here: Cluster, own: Mapping[str, str], more: Mapping[str, str], template: str = ""
) -> list[subprocess.Popen[str]]:
    """Start ``ina run --hosts``, by the cluster's launch command or another one."""
    options = more.get("INA_OPTIONS", "").split()
    command = [sys.executable, "-m", "ina", "run", "--hosts", ",".join(f"{host}:2" for host in HOSTS)]
    variables = [f"{name}={text}" for name, text in own.items()]
    command += ["--launch-with", template or here.template, *options]
    others = {name: text for name, text in more.items() if name != "INA_OPTIONS"}
    return [here.start("h1", [*command, "--", "env", *variables, sys.executable, _SCRIPT], others)]


def ray(here: Cluster, own: Mapping[str, str], more: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Start a driver with a ``TorchTrainer``."""
    address = f"{here.state.topology.ip('h1')}:6379"
    command = [sys.executable, str(WORKERS / "ray_jobs.py"), "train", address, str(RANKS)]
    return [here.start("h1", command, {**own, **more})]


WAYS = {
    way.name: way
    for way in (
        Way("torchrun", torchrun, "torch.distributed.run"),
        Way("srun", srun, "slurmstepd"),
        Way("mpirun", mpirun, "prted"),
        Way("ina run", ina_run, "ina.run.launch.agent"),
        Way("ina run by srun", partial(ina_run, template=_SRUN), "ina.run.launch.agent"),
        Way("Ray", ray, "raylet", keeps=True),
    )
}


def _store(here: Cluster) -> dict[str, str]:
    """Return the variables that say where torch's ranks meet: a port of the first one's machine."""
    return {"MASTER_ADDR": here.state.topology.ip("h1"), "MASTER_PORT": str(next(_PORTS))}


def _shell(exported: str) -> Sequence[str]:
    return ["sh", "-c", f"{exported} && exec {sys.executable} {_SCRIPT}"]


def wait_for(holds: Callable[[], object], patience_s: float) -> float | None:
    """Return after how many seconds something holds; None if it does not in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > patience_s:
            return None
        time.sleep(0.05)
    return time.monotonic() - began
