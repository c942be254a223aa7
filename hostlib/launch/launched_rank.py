"""Read a process's rank from the variables of its launcher: torchrun, mpirun, srun, or `ina run`.

=========  ======================================================================  =========================
launcher   rank, size, local rank, local size                                      identity of a launch
=========  ======================================================================  =========================
torchrun   ``RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE``                         run, restart, port, log
                                                                                   folder
mpirun     ``OMPI_COMM_WORLD_RANK`` ``…_SIZE`` ``…_LOCAL_RANK`` ``…_LOCAL_SIZE``   PMIx namespace, its
                                                                                   server's folder
srun       ``SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_TASKS_PER_NODE``        job, step, restart, port
=========  ======================================================================  =========================

If several launchers' variables are set, the first launcher of the table counts. Only this launcher's
variables identify a launch, not the parent process. So the ranks of a launch find each other even if a
script of its own starts each rank. `mpirun` is Open MPI's: ranks of MPICH's, of Intel MPI's and of horovodrun
are refused, because no variable of theirs identifies a launch, and so are ranks with torchrun's variables
but no ``LOCAL_RANK``, which were set by hand or by a controller of a cluster.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hostlib.addresses import Address
from hostlib.errors import ConfigError, refuse

TORCH_VARIABLES: Final = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_PMIX: Final = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
_STEP: Final = (
    *("SLURM_JOB_ID", "SLURM_STEP_ID"),
    *("SLURM_RESTART_COUNT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_CLUSTER_NAME"),
)
_REFUSED: Final = {
    "PMI_SIZE": "the mpirun of MPICH or Intel MPI",
    "HOROVOD_SIZE": "horovodrun",
    "WORLD_SIZE": "a launch by other means",
}


@dataclass(frozen=True, slots=True)
class LaunchedRank:
    """One process among the ranks that a launcher started."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    """Number of ranks on this machine."""
    launch: str
    """Text that is the same for all ranks of this launch on this machine, and for no other launch there."""


def launched_rank(environment: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """Return this process's rank among the ranks that a launcher started; None without a launcher.

    Raises:
        ConfigError: a variable is not a valid number, or the variables that identify the launch are missing,
            as in MPICH's mpirun, in horovodrun, and in a launch by hand.
    """
    for read in (_torchrun, _openmpi, _slurm):
        if found := read(environment):
            _check(found)
            return found
    for variable, launcher in _REFUSED.items():
        if (size := environment.get(variable, "1")) != "1":
            raise ConfigError(
                f"this is one of {size} ranks of {launcher} ({variable}), which does not identify a launch: "
                "start them with `ina run`, torchrun, srun, or the mpirun of Open MPI"
            )
    return None


def torch_variables(rank: int, size: int, store: tuple[str, int]) -> dict[str, str]:
    """Return the variables that ``torch.distributed`` expects of a launcher of `size` ranks on a machine.

    `store` is the address where rank 0 will listen.
    """
    return dict(zip(TORCH_VARIABLES, map(str, (rank, size, rank, size, *store)), strict=True))


def _torchrun(environment: Mapping[str, str]) -> LaunchedRank | None:
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= environment.keys():
        return None
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
    # …/RUN_RANDOM/attempt_N/LOCAL_RANK/error.json: each launch creates a new first folder
    folder = "/".join(environment.get("TORCHELASTIC_ERROR_FILE", "").split("/")[:-3])
    return LaunchedRank(
        "torchrun",
        _number(environment, "RANK"),
        _number(environment, "WORLD_SIZE"),
        _number(environment, "LOCAL_RANK"),
        _number(environment, "LOCAL_WORLD_SIZE"),
        f"{_identity('torchrun', environment, names, needed=('MASTER_PORT',))} {folder}",
    )


def _openmpi(environment: Mapping[str, str]) -> LaunchedRank | None:
    if "OMPI_COMM_WORLD_RANK" not in environment:
        return None
    return LaunchedRank(
        "mpirun",
        _number(environment, "OMPI_COMM_WORLD_RANK"),
        _number(environment, "OMPI_COMM_WORLD_SIZE"),
        _number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        _identity("mpirun", environment, (*_PMIX, "PMIX_SERVER_TMPDIR"), needed=_PMIX),
    )


def _slurm(environment: Mapping[str, str]) -> LaunchedRank | None:
    # A batch script has its job's variables, too, but no step's: it is no task.
    if not {"SLURM_STEP_ID", "SLURM_PROCID"} <= environment.keys():
        return None
    return LaunchedRank(
        "srun",
        _number(environment, "SLURM_PROCID"),
        _number(environment, "SLURM_NTASKS"),
        _number(environment, "SLURM_LOCALID"),
        _tasks_here(environment),
        _identity("srun", environment, _STEP, needed=_STEP[:1]),
    )


def _tasks_here(environment: Mapping[str, str]) -> int:
    """Return the number of tasks on this node, from ``SLURM_TASKS_PER_NODE``, such as "4" or "2(x3),1"."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    counts: list[int] = []
    try:
        for part in text.split(","):
            tasks, _, nodes = part.partition("(x")
            counts += [int(tasks)] * (int(nodes.rstrip(")")) if nodes else 1)
        return counts[int(environment.get("SLURM_NODEID", "0"))]
    except (ValueError, IndexError):
        raise ConfigError(f"SLURM_TASKS_PER_NODE is {text!r}, must be as in 4 or 2(x3),1") from None


def _identity(
    launcher: str, environment: Mapping[str, str], names: Sequence[str], *, needed: Sequence[str]
) -> str:
    """Return the variables `names`, which identify a launch, as a text.

    Raises ConfigError if all variables of `needed` are missing.
    """
    if not any(environment.get(name) for name in needed):
        raise ConfigError(
            f"{launcher} has set a rank, but not {' or '.join(needed)}: the ranks of this launch cannot be "
            "distinguished from other ranks on this machine; let them inherit all of the launcher's variables"
        )
    return " ".join([launcher, *(f"{name}={environment.get(name, '')}" for name in names)])


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name)
    if text is None or not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"{name} is {text!r}, must be a whole number")
    return int(text)


def _check(found: LaunchedRank) -> None:
    places = (("rank", found.rank, found.size), ("local rank", found.local_rank, found.local_size))
    for what, rank, size in places:
        refuse(rank >= size, f"{found.launcher}: {what} is {rank}, must be 0..{size - 1} of {size}")
    refuse(
        found.local_size > found.size,
        f"{found.launcher}: {found.local_size} ranks on this machine, of {found.size} in all: too many",
    )


PORTS: Final = range(12_000, 28_000)
"""Ports at which ranks may meet: below the range that kernels assign to connections."""
_ASK_S: Final = 20.0


def slurm_meeting(environment: Mapping[str, str]) -> Address:
    """Return the address, the same at all ranks, where the ranks of a Slurm step meet. Raises ConfigError."""
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    first = first_node(nodes)
    number = int(environment["SLURM_JOB_ID"]) * 8 + int(environment["SLURM_STEP_ID"])
    return _address_of(first), PORTS[number % len(PORTS)]


def first_node(nodes: str) -> str:
    """Return the first of Slurm's list of nodes.

    >>> first_node("rack1-n[03-05,9],n7")
    'rack1-n03'
    """
    return re.split(r",", re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes))[0]


def _address_of(node: str) -> str:
    """Return the address of a node, by its name or else from Slurm. Raises ConfigError."""
    if address := _resolved(node):
        return address
    try:
        command = ["scontrol", "show", "node", node, "--oneliner"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S)
        reply = done.stdout or done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        reply = str(error)
    found = re.search(r" NodeAddr=(\S+) ", reply)
    if found and (address := _resolved(found[1])):
        return address
    raise ConfigError(
        f"the address of the first node, {node!r}, is not known: its name must resolve to an address that "
        f"others reach, or set INA_MEETING to a free HOST:PORT of that node ({' '.join(reply.split())[:200]})"
    )


def _resolved(name: str) -> str:
    """Return the address to which a name resolves; "" if there is none that other machines reach."""
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return ""
    return "" if address.startswith("127.") else address
