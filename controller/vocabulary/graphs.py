"""A testbed's topology with memory and GPUs, for policies, or with explicit addresses and ports."""

from __future__ import annotations

from dataclasses import replace

from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import Link, Switch, Topology

MAX_SLOTS = 1 << 24


def with_memory(topology: Topology, *, slots: int, lanes: int = 64, gpus: int = 1) -> Topology:
    """Return a topology with memory at its switches and GPUs at its servers.

    A switch's round-trip time is the time to the farthest server and back if each link had the longest delay
    of all links. Raises BadSpec.

    Args:
        topology: The topology.
        slots: Slots of each switch that aggregates.
        lanes: Values per packet.
        gpus: GPUs of each worker's server.
    """
    servers = tuple(replace(each, gpus=gpus) if each.gpus else each for each in topology.servers)
    delay_s = max(link.delay_s for link in topology.links)

    def switch(each: Switch) -> Switch:
        away = topology.distances({each.name: 0})
        rtt_s = max(2 * (1 + max(away[rack] for rack in topology.racks)) * delay_s, 1e-9)
        return Switch(each.name, slots if each.aggregates else 0, lanes, rtt_s)

    return replace(topology, switches=tuple(map(switch, topology.switches)), servers=servers)


# ---------------------------------------------------------------------------
# Addresses and ports of a cluster of real machines: all are explicit, so that none depends on a position.
#
# A topology fills gaps of its file by position: the first server is 10.0.0.1, the first link of a
# switch is at its port 1. Positions change when servers come and go.


def pinned(topology: Topology) -> Topology:
    """Return the same network with explicit ports for links at switches, and addresses for servers.

    >>> from controller.vocabulary import fabrics
    >>> pinned(fabrics.star(2)).server["h2"].ip
    '10.0.0.2'
    """
    numbers = {
        (switch, id(link)): port for switch, ports in topology.ports.items() for port, link in ports.items()
    }

    def with_ports(link: Link) -> Link:
        at_a, at_b = numbers.get((link.a, id(link)), 0), numbers.get((link.b, id(link)), 0)
        return replace(link, a_port=at_a, b_port=at_b)

    return replace(
        topology,
        servers=tuple(
            replace(server, ip=topology.ip(server.name), mac=topology.mac(server.name))
            for server in topology.servers
        ),
        links=tuple(map(with_ports, topology.links)),
    )


def check_pinned(topology: Topology) -> None:
    """Raise BadSpec for the first server without an explicit address, or link without an explicit port."""
    for server in topology.servers:
        for key in ("ip", "mac"):
            if not getattr(server, key):
                raise BadSpec(
                    f"server {server.name!r}: {key} is missing: 'ina host' on that machine prints it"
                )
    for link in topology.links:
        for end, port in ((link.a, link.a_port), (link.b, link.b_port)):
            if end in topology.switch and not port:
                other = link.other(end)
                leads_to_server = other in topology.server
                key = "port" if leads_to_server else "a_port" if end == link.a else "b_port"
                what = f"server {other!r}" if leads_to_server else f"link {link.a}-{link.b}"
                raise BadSpec(f"{what}: {key} is missing: the port of switch {end!r} that leads to {other!r}")
