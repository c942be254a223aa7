"""The topology that ``ina topo`` works on: its name, or its file, and what links are like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.vocabulary import Link, Topology, find_topology
from ina.cli.errors import Failure

if TYPE_CHECKING:
    from bmv2_topos.testbeds.netns import Program, State

LINKS = "Links"

Name = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY", help="Of the catalog ('ina topo list'), as fat-tree:4; or a file, as my.yaml."
    ),
]

Testbed = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Name of the testbed; unless given, the topology's, or the only one."
    ),
]


class Target(StrEnum):
    """Kinds of switches."""

    EMBEDDED = "embedded"
    BMV2 = "bmv2"


TargetOption = Annotated[
    Target,
    typer.Option(
        help="The switches: embedded, or bmv2 (simple_switch_grpc, which needs p4c, too; no delay, no loss)."
    ),
]
Lanes = Annotated[
    int | None,
    typer.Option(help="Values per packet: 32, 64 or 256; unless given 256, or 32 on BMv2."),
]


Pcap = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write the headers of what passes each port of each switch there, for ina trace."
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
    return Program(name, lanes or TARGETS[target.value].lanes, seed, target.value, where)


class LiveRunner(StrEnum):
    """Makers of the namespaces of a testbed."""

    NETNS = "netns"
    MININET = "mininet"


def bring_up(runner: LiveRunner) -> Callable[..., State]:
    """Return what brings a testbed up, as `bmv2_topos.testbeds.netns.up`."""
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
            "--rate", metavar="BPS", rich_help_panel=LINKS, help="Rate of every link, bits/s; 0: unlimited."
        ),
    ] = None
    delay: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", rich_help_panel=LINKS, help="Delay of every link, one way."),
    ] = None
    queue: Annotated[
        int | None,
        typer.Option(metavar="PACKETS", rich_help_panel=LINKS, help="Longest queue at a switch's port."),
    ] = None
    loss: Annotated[
        float | None,
        typer.Option(rich_help_panel=LINKS, help="Probability that a packet is lost, on every link."),
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
