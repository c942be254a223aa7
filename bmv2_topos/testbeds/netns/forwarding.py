"""Ordinary forwarding of a topology: every host reaches every other on a shortest path. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from controller.errors import UnknownName
from controller.switches import forwarding, names
from controller.switches.model import SWITCH_IP, SWITCH_MAC
from controller.switches.target import ProgramInfo, TableEntry
from controller.vocabulary import Topology


def entries(topology: Topology, switch: str, up: Topology | None = None) -> list[TableEntry]:
    """Return a switch's rows: one for each host's MAC, and its own address. Nothing is flooded.

    Ways keep to the part of the topology that is `up`; hosts that it does not reach have the row that they
    have when all of it is.
    """
    bridges = [
        forwarding.bridge(topology.mac(host.name), next_port(topology, switch, host.name, up))
        for host in topology.servers
    ]
    return [forwarding.own_address(topology.switch_ip or SWITCH_IP, SWITCH_MAC), *bridges]


def offered(rows: Iterable[TableEntry], program: ProgramInfo) -> list[TableEntry]:
    """Return the rows for which a program has tables; one may leave ARP to the hosts.

    Raises UnknownName if it has none for bridging.
    """
    if names.BRIDGE not in program.tables:
        raise UnknownName(f"the program has no table '{names.BRIDGE}'")
    return [row for row in rows if row.table in program.tables]


def left_hosts(macs: Iterable[str]) -> list[TableEntry]:
    """Return rows of hosts that have left, by their MAC addresses, to be deleted wherever they led to."""
    return [forwarding.bridge(mac, 0) for mac in sorted(macs)]


def next_port(topology: Topology, switch: str, host: str, up: Topology | None = None) -> int:
    """Return the port of a switch that leads to a host on a shortest path; between several, the lowest.

    Args:
        topology: All switches, hosts and links.
        switch: A switch of it.
        host: A host of it.
        up: The part that works; None: all of it.

    >>> from controller.vocabulary.catalog import leaf_spine
    >>> [next_port(leaf_spine(2, 2, 1), switch, "h2") for switch in ("s1", "s2", "s3", "s4")]
    [2, 2, 1, 3]
    """
    ports = topology.ports[switch]
    at = {port: link.other(switch) for port, link in ports.items()}
    if up is not None and host in up.server and switch in up.switch:
        distances, at = (
            _distances(up, host),
            {port: node for port, node in at.items() if node in up.neighbours[switch]},
        )
    else:
        distances = _distances(topology, host)
    return min(at, key=lambda port: (distances.get(at[port], len(distances)), port))


def _distances(topology: Topology, host: str) -> dict[str, int]:
    """Return the distance of each switch, and of the host itself, from the host: the number of links."""
    return {host: 0} | topology.distances({topology.rack_of[host]: 1})
