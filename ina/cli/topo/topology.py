"""``ina topo list``, ``show`` and ``draw``: list, print and draw topologies of the catalog or of files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from controller.vocabulary import CATALOG, Link, Topology, dump_topology, named, place
from ina.cli import job_files
from ina.cli.command import Declared, Listing, Reply, Result, rate, say, seconds
from ina.cli.output import check_plots

LINKS = "Links"

Name = Annotated[
    str,
    Declared(
        argument=True,
        metavar="TOPOLOGY",
        help="Use this topology of 'ina topo list', such as fat-tree:4, or this file, such as my.yaml.",
    ),
]


TargetKind = Literal["embedded", "bmv2"]
"""Kinds of switches in a testbed."""

TargetOption = Annotated[
    TargetKind,
    Declared(
        help="Use embedded switches (embedded), or simple_switch_grpc (bmv2). bmv2 needs p4c, and uses the "
        "kernel's netem for delay and loss."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Options for properties of all links; None: as in the topology."""

    rate_bps: Annotated[
        float | None,
        Declared(
            "--rate",
            metavar="BPS",
            rich_help_panel=LINKS,
            help="Limit every link to this rate, in bits per second; 0: unlimited.",
        ),
    ] = None
    delay_s: Annotated[
        float | None,
        Declared(
            "--delay",
            metavar="SECONDS",
            rich_help_panel=LINKS,
            help="Delay every packet on a link by this many seconds, each way.",
        ),
    ] = None
    queue_packets: Annotated[
        int | None,
        Declared(
            "--queue",
            metavar="PACKETS",
            rich_help_panel=LINKS,
            help="Queue at most this many packets at each switch port; drop further ones.",
        ),
    ] = None
    loss: Annotated[
        float | None,
        Declared(rich_help_panel=LINKS, help="Lose each packet on a link with this probability."),
    ] = None

    def topology(self, name: str) -> Topology:
        """Return the topology with this name or in this file, with the given properties of links.

        Raises BadSpec.
        """
        found = job_files.topology(name, "topo")
        changes = {key: value for key, value in asdict(self).items() if value is not None}
        links: tuple[Link, ...] = tuple(replace(link, **changes) for link in found.links)
        return replace(found, links=links)


def list_() -> Reply:
    """List the topologies of the catalog.

    Give the sizes of a topology after a colon, joined by x, in the order of the table: leaf-spine:2x4x2.

    Examples:
        ina topo list
    """
    rows = {}
    for name, entry in CATALOG.items():
        topology = named(name)
        rows[name] = {
            "sizes": " x ".join(f"{what} {size}" for what, size in entry.sizes.items()),
            "switches": len(topology.switches),
            "hosts": len(topology.servers),
            "summary": entry.summary,
        }
    table = Listing(
        "Topologies (hosts: includes one for the fallback server)",
        ["name", "default size", "switches", "hosts", "what it is"],
        [[name, *row.values()] for name, row in rows.items()],
    )
    return Reply(Result("topo list", {}, {"topologies": len(rows)}, rows), [table])


def show(
    *,
    name: Name,
    yaml: Annotated[
        bool, Declared("--yaml", help="Print the topology as a YAML file, to edit and use.")
    ] = False,
    links: LinkOptions,
) -> Reply:
    """Show the switches, hosts and links of a topology, or print it as a file.

    Examples:
        ina topo show fat-tree:4

        ina topo show leaf-spine:2x4x2 --rate 1e9 --yaml > mine.yaml
    """
    topology = links.topology(name)
    numbers = {
        "switches": len(topology.switches),
        "hosts": len(topology.servers),
        "links": len(topology.links),
        "workers": len(topology.servers_for("worker")),
    }
    unused_keys = job_files.unused_keys("topo", Path(name))
    setup = {"topology": topology.name, "root": topology.root}
    parts = [dump_topology(topology).rstrip("\n")] if yaml else _tables(topology)
    return Reply(Result("topo show", setup, numbers, unused_keys=unused_keys), parts)


def _tables(topology: Topology) -> list[Listing]:
    aggregates = {switch.name: switch.aggregates for switch in topology.switches}
    switches = [
        [
            name,
            ", ".join(f"{port}: {link.other(name)}" for port, link in ports.items()),
            "yes" if aggregates[name] else "no",
        ]
        for name, ports in topology.ports.items()
    ]
    hosts = [
        [host.name, topology.rack_of[host.name], host.role, topology.ip(host.name), topology.mac(host.name)]
        for host in topology.servers
    ]
    links = [
        [
            f"{link.a} - {link.b}",
            rate(link.rate_bps) if link.rate_bps else "unlimited",
            seconds(link.delay_s),
            link.queue_packets,
            f"{link.loss:g}",
        ]
        for link in topology.links
    ]
    title = f"{topology.name or 'topology'}: trees end at {topology.root}"
    return [
        Listing(title, ["switch", "port: neighbour", "sums"], switches),
        Listing("Hosts", ["host", "switch", "role", "IP", "MAC"], hosts),
        Listing("Links", ["ends", "rate", "delay", "queue", "loss"], links),
    ]


def draw(
    *,
    name: Name,
    output: Annotated[
        Path | None,
        Declared(
            "--output",
            "-o",
            writable=True,
            metavar="FILE",
            help="Draw into this file: .png, .svg or .pdf. Default: TOPOLOGY.png.",
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        Declared(metavar="FILE", help="Draw the aggregation trees of the jobs of this file, too."),
    ] = None,
    links: LinkOptions,
) -> None:
    """Draw a topology, and the aggregation trees of jobs on it.

    Each job gets hosts of its own, in the order of the file, spread evenly over the racks.

    Examples:
        ina topo draw fat-tree:4 --output fat-tree.svg

        ina topo draw leaf-spine --jobs examples/three_jobs.toml --output jobs.png
    """
    from bmv2_topos.draw import draw as draw_topology

    topology = links.topology(name)
    place_ = output or Path(Path(name).stem.replace(":", "-")).with_suffix(".png")
    check_plots("--output", place_)
    entries = job_files.jobs(jobs, "topo") if jobs else ()
    hosts = place(topology, [entry.workers for entry in entries])
    draw_topology(topology, place_, {entry.name: of for entry, of in zip(entries, hosts, strict=True)})
    say(f"ina: wrote {place_}")
