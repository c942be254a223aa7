"""The address at which ranks of one ``srun`` meet: their first node, at a port of their job and step."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Mapping
from typing import Final

from hostlib.addresses import Address
from hostlib.errors import ConfigError

PORTS: Final = range(12_000, 28_000)
"""Below those that kernels give to connections."""
_ASK_S: Final = 20.0


def slurm_meeting(environment: Mapping[str, str]) -> Address:
    """Return the address where the ranks of a step meet, the same for all. Raises ConfigError."""
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
    """Return the address of a node: as its name says, or else as Slurm does. Raises ConfigError."""
    if address := _resolved(node):
        return address
    try:
        command = ["scontrol", "show", "node", node, "--oneliner"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S)
        said = done.stdout or done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    found = re.search(r" NodeAddr=(\S+) ", said)
    if found and (address := _resolved(found[1])):
        return address
    raise ConfigError(
        f"the address of the first node, {node!r}, is not known: want its name to lead to one that others "
        f"reach, or set INA_MEETING to a free HOST:PORT of that node ({' '.join(said.split())[:200]})"
    )


def _resolved(name: str) -> str:
    """Return the address that a name leads to; "": none, or one by which a machine only knows itself."""
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return ""
    return "" if address.startswith("127.") else address
