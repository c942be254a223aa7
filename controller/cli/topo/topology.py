"""The topology that ``ina topo`` works on: its name, or its file, and what links are like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from bmv2_topos import Link, Topology, find_topology

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
        """Return the topology with such links. Raises TopologyError."""
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
