"""The topology that ``ina topo`` works on: its name, or its file, and the properties of its links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from controller.vocabulary import Link, Topology
from ina.cli import job_files
from ina.cli.errors import USAGE, Failure
from p4src.programs import is_file

if TYPE_CHECKING:
    from bmv2_topos.testbeds.netns import Program

LINKS = "Links"

Name = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="Name a topology of 'ina topo list', such as fat-tree:4, or a file, such as my.yaml.",
    ),
]

Testbed = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Name the testbed. Default: the name of the topology, or the only testbed that is up.",
    ),
]


def one_name(argument: str | None, option: str | None) -> str | None:
    """Return the testbed's name, given as NAME or as ``--name``; None: neither. Raises Failure for two."""
    from bmv2_topos.testbeds import netns

    if argument and option and netns.slug(argument) != option:
        raise Failure(f"NAME {argument} and --name {option} are two testbeds: give one", exit_code=USAGE)
    return netns.slug(argument) if argument else option


class Target(StrEnum):
    """Kinds of switches."""

    EMBEDDED = "embedded"
    BMV2 = "bmv2"


TargetOption = Annotated[
    Target,
    typer.Option(
        help="Use embedded switches, or bmv2: simple_switch_grpc, which needs p4c, and the kernel's netem "
        "for delay and loss."
    ),
]
Lanes = Annotated[
    int | None,
    typer.Option(help="Put this many values into each packet: 32, 64 or 256. Default: 256, or 32 on BMv2."),
]


Pcap = Annotated[
    Path | None,
    typer.Option(
        writable=True,
        metavar="DIR",
        help="Capture the headers of packets at each switch port into this directory, for 'ina trace'.",
    ),
]


def program_of(
    name: str, lanes: int | None, target: Target, *, seed: int = 0, pcap: Path | None = None
) -> Program:
    """Return the program of a testbed's switches.

    Args:
        name: Name of the program.
        lanes: Values per packet; None: the program's default.
        target: Kind of switches.
        seed: Of the links' impairments.
        pcap: Folder for captures; None: none.

    Raises Failure if the folder cannot be made.
    """
    from bmv2_topos.testbeds.netns import TARGETS, Program

    if pcap is not None:
        try:
            pcap.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"--pcap {pcap}: {error.strerror}") from error
    where = str(pcap.resolve()) if pcap else ""
    own = str(Path(name).resolve()) if is_file(name) else name  # who uses it later may stand elsewhere
    return Program(own, lanes or TARGETS[target.value].lanes, seed, target.value, where)


def made_by(runner: str) -> ModuleType:
    """Return the package that makes testbeds so: with `up`, and `planned` for what that would run."""
    from bmv2_topos.testbeds import mininet, netns

    return {"netns": netns, "mininet": mininet}[runner]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Properties of all links; None: as in the topology."""

    rate_bps: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="BPS",
            rich_help_panel=LINKS,
            help="Limit every link to this rate, in bits per second; 0: unlimited.",
        ),
    ] = None
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=LINKS,
            help="Delay every packet on a link by this many seconds, each way.",
        ),
    ] = None
    queue: Annotated[
        int | None,
        typer.Option(
            metavar="PACKETS",
            rich_help_panel=LINKS,
            help="Queue at most this many packets at each switch port; drop further ones.",
        ),
    ] = None
    loss: Annotated[
        float | None,
        typer.Option(rich_help_panel=LINKS, help="Lose each packet on a link with this probability."),
    ] = None

    def topology(self, name: str) -> Topology:
        """Return the topology with links of these properties. Raises BadSpec."""
        found = job_files.topology(name, "topo")
        given = {
            "rate_bps": self.rate_bps,
            "delay_s": self.delay,
            "queue_packets": self.queue,
            "loss": self.loss,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        links: tuple[Link, ...] = tuple(replace(link, **changes) for link in found.links)  # type: ignore[arg-type]
        return replace(found, links=links)
