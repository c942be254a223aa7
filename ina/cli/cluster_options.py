"""The options of commands that use running switches and machines of a cluster file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from controller.vocabulary import read_topology
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.run_options import SwitchOptions
from ina.runtime.spec import ClusterSpec, FabricSpec

MACHINES = "Ranks on several machines"

ClusterFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=MACHINES,
        help="Find switches, ports and addresses by the machines' names in this cluster file.",
    ),
]


def cluster_of(
    path: Path | None, fabric: FabricSpec, switches: SwitchOptions, tls: options.TlsOptions
) -> ClusterSpec | None:
    """Return the running switches and the machines of a file; None without one.

    Args:
        path: The file.
        fabric: What the options say of switches.
        switches: These options.
        tls: Options of the connections to the switches.

    Raises Failure, BadSpec.
    """
    if path is None:
        return None
    if fabric.attached or fabric.tree:
        raise Failure("--cluster, --tree and --switch are mutually exclusive", exit_code=USAGE)
    if fabric.impairments:
        raise Failure("link faults belong to the switch: give them to 'ina switch --impair'", exit_code=USAGE)
    return ClusterSpec(
        topology=read_topology(path),
        tls=tls.tls(""),
        replace_program=switches.replace_program,
        lease_s=switches.lease,
        secret=os.environ.get("INA_TOKEN", ""),
    )


def required(path: Path | None, option: str) -> Path:
    """Return the cluster file that an option needs: the given one, or that of INA_CLUSTER. Raises Failure."""
    found = path or os.environ.get("INA_CLUSTER")
    if not found:
        raise Failure(f"{option} needs a cluster file: give --cluster, or set INA_CLUSTER", exit_code=USAGE)
    return Path(found)
