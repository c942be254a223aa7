"""The topology that ``ina topo`` works on: its name, or its file, and what links are like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.switches.programs import is_file
from controller.vocabulary import Link, Topology, find_topology
from ina.cli.errors import Failure

if TYPE_CHECKING:
    from bmv2_topos.testbeds.netns import Program, State

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


class Target(StrEnum):
    """Kinds of switches."""

    EMBEDDED = "embedded"
    BMV2 = "bmv2"


TargetOption = Annotated[
    Target,
    typer.Option(
        help="Use embedded switches, or bmv2: simple_switch_grpc, which needs p4c and has no delay "
        "and no loss."
    ),
]
Lanes = Annotated[
    int | None,
    typer.Option(help="Put this many values into each packet: 32, 64 or 256. Default: 256, or 32 on BMv2."),
]


Pcap = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Capture the headers of what passes each switch port into this directory, for 'ina trace'.",
    ),
]


def program_of(
    name: str, lanes: int | None, target: Target, *, seed: int = 0, pcap: Path | None = None
) -> Program:
    """Return what the switches of a testbed run. Raises Failure if there can be no such folder."""
    from bmv2_topos.testbeds.netns import TARGETS, Program

    if pcap is not None:
        try:
            pcap.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"--pcap {pcap}: {error.strerror}") from error
    where = str(pcap.resolve()) if pcap else ""
    own = str(Path(name).resolve()) if is_file(name) else name  # who uses it later may stand elsewhere
    return Program(own, lanes or TARGETS[target.value].lanes, seed, target.value, where)


class LiveRunner(StrEnum):
    """Makers of the namespaces of a testbed."""

    NETNS = "netns"
    MININET = "mininet"


def bring_up(runner: LiveRunner) -> Callable[..., State]:
    """Return the function that starts a testbed, such as `bmv2_topos.testbeds.netns.up`."""
    match runner:
        case LiveRunner.NETNS:
            from bmv2_topos.testbeds import netns

            return netns.up
        case LiveRunner.MININET:
            from bmv2_topos.testbeds import mininet

            return mininet.up


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """What all links are like; None: as the topology says."""

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
        """Return the topology with such links. Raises BadSpec."""
        found = find_topology(name)
        given = {
            "rate_bps": self.rate_bps,
            "delay_s": self.delay,
            "queue_packets": self.queue,
            "loss": self.loss,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        links: tuple[Link, ...] = tuple(replace(link, **changes) for link in found.links)  # type: ignore[arg-type]
        return replace(found, links=links)
