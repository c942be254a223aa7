"""Options of commands that use the running switches and the machines of a cluster file."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ina.cli.command import USAGE, Declared, Failure, refuse
from ina.cli.run_options import LINK_FAULTS, FabricOptions
from ina.run.launch.spec import ClusterSpec, FabricSpec

MACHINES = "Ranks on several machines"

ClusterFile = Annotated[
    Path | None,
    Declared(
        metavar="FILE",
        rich_help_panel=MACHINES,
        help="Find switches, ports and addresses by the machines' names in this cluster file.",
    ),
]


def cluster_of(
    path: Path, fabric: FabricSpec, asked: FabricOptions, listen: str | None = None
) -> ClusterSpec:
    """Return the running switches and the machines of a cluster file.

    Args:
        path: The cluster file.
        fabric: The switches that `asked` describes; must not come from --switch or --tree, or have faults.
        asked: The command's options.
        listen: Address of this machine to which ranks connect at their start; None: the address from which
            this machine reaches the first rank's machine.

    Raises Failure for options that contradict the file; BadSpec.
    """
    refuse(fabric.attached or fabric.tree, "--cluster, --tree and --switch are mutually exclusive")
    refuse(fabric.impairments, LINK_FAULTS)
    from controller.vocabulary.files import read_topology

    return ClusterSpec(
        topology=read_topology(path),
        tls=asked.tls.tls(""),
        secret=os.environ.get("INA_TOKEN", ""),
        listen=listen,
    )


def required(path: Path | None, option: str) -> Path:
    """Return the cluster file that `option` needs: `path`, else the path in INA_CLUSTER.

    Raises Failure if neither is given.
    """
    found = path or os.environ.get("INA_CLUSTER")
    if not found:
        raise Failure(f"{option} needs a cluster file: give --cluster, or set INA_CLUSTER", exit_code=USAGE)
    return Path(found)


def names_of(given: Sequence[str], machines: int) -> list[list[str]]:
    """Split the values of ``--machine`` into the names and addresses of each machine.

    Raises Failure unless there are `machines` values, one for each machine that has ranks.
    """
    refuse(
        len(given) != machines,
        f"--machine: the ranks are on {machines} machines, but {len(given)} are given: want one each, in "
        "the order of their lowest ranks",
    )
    return [each.split(",") for each in given]


@dataclass(frozen=True, slots=True)
class RanksOn:
    """The names of a job's machines, and the ranks on each of them."""

    machines: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(map(len, self.ranks))

    @property
    def several(self) -> bool:
        """Whether a machine has several ranks."""
        return any(len(ranks) > 1 for ranks in self.ranks)


def ranks_on(text: str, workers: int | None) -> RanksOn:
    """Return the machines of ``--hosts``, and the ranks of each, which are consecutive.

    Args:
        text: ``h1,h2:2``, or a file with a line for each machine: ``h1``, ``h1:2`` or ``h1 slots=2``.
        workers: Number of ranks on all machines together. If `text` has a number of ranks for each machine,
            the machines are filled in order, up to their numbers. Otherwise all machines get equally many
            ranks, or one more. None: each machine gets the number of ranks in `text`, or one.

    Raises Failure.
    """
    entries = _lines(Path(text)) if Path(text).is_file() else text.split(",")
    slots: dict[str, int | None] = {}
    for entry in entries:
        found = re.fullmatch(r"([^\s:=]+)(?:(?::|\s+slots=)([0-9]+))?", entry.strip())
        if not found or found[2] == "0":
            raise Failure(f"--hosts {entry.strip()!r}: want NAME, NAME:RANKS or NAME slots=RANKS", USAGE)
        refuse(found[1] in slots, f"--hosts: machine {found[1]!r} is given twice; want NAME:RANKS")
        slots[found[1]] = int(found[2]) if found[2] else None
    refuse(not slots, f"--hosts {text!r}: want names of machines, but there are none")
    if workers is None:
        counts = [each or 1 for each in slots.values()]
    elif all(slots.values()):
        room = sum(each or 0 for each in slots.values())
        refuse(workers > room, f"-np {workers}: the machines of --hosts have room for {room} ranks")
        counts, left = [], workers
        for each in slots.values():
            counts.append(min(each or 0, left))
            left -= counts[-1]
    else:
        counts = [workers // len(slots) + (at < workers % len(slots)) for at in range(len(slots))]
    first = list(itertools.accumulate(counts, initial=0))
    used = [at for at, count in enumerate(counts) if count]
    names = list(slots)
    return RanksOn(
        tuple(names[at] for at in used), tuple(tuple(range(first[at], first[at + 1])) for at in used)
    )


def _lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]
