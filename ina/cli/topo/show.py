"""``ina topo show``: one topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.vocabulary import Link, Topology, dump_topology
from ina.cli import job_files, options
from ina.cli.output import table
from ina.cli.plain import Result, rate, seconds
from ina.cli.topo.topology import LinkOptions, Name

EPILOG = """Examples:

  ina topo show fat-tree:4

  ina topo show leaf-spine:2x4x2 --rate 1e9 --yaml > mine.yaml
"""


def show_(
    *,
    name: Name,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the topology as a YAML file, to edit and use.")
    ] = False,
    json: options.Json = False,
    links: LinkOptions,
) -> None:
    """Show the switches, hosts and links of a topology, or print it as a file."""
    topology = links.topology(name)
    if yaml:
        print(dump_topology(topology), end="")
    elif json:
        _result(topology).print_json(unused_keys=job_files.unused_keys("topo", Path(name)))
    else:
        _show(topology)


def _result(topology: Topology) -> Result:
    numbers = {
        "switches": len(topology.switches),
        "hosts": len(topology.servers),
        "links": len(topology.links),
        "workers": len(topology.servers_for("worker")),
    }
    return Result("topo show", {"topology": topology.name, "root": topology.root}, numbers)


def _show(topology: Topology) -> None:
    aggregates = {switch.name: switch.aggregates for switch in topology.switches}
    table(
        f"{topology.name or 'topology'}: trees end at {topology.root}",
        ["switch", "port: neighbour", "sums"],
        [
            [
                name,
                ", ".join(f"{port}: {link.other(name)}" for port, link in ports.items()),
                "yes" if aggregates[name] else "no",
            ]
            for name, ports in topology.ports.items()
        ],
    )
    table(
        "Hosts",
        ["host", "switch", "role", "IP", "MAC"],
        [
            [
                host.name,
                topology.rack_of[host.name],
                host.role,
                topology.ip(host.name),
                topology.mac(host.name),
            ]
            for host in topology.servers
        ],
    )
    table("Links", ["ends", "rate", "delay", "queue", "loss"], [_link(link) for link in topology.links])


def _link(link: Link) -> list[str]:
    fast = rate(link.rate_bps) if link.rate_bps else "unlimited"
    return [f"{link.a} - {link.b}", fast, seconds(link.delay_s), f"{link.queue_packets}", f"{link.loss:g}"]
