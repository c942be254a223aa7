"""Ordinary forwarding of a topology: every host reaches every other on a shortest path. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from controller.errors import UnknownName
from controller.switches import forwarding, names
from controller.switches.model import SWITCH_IP, SWITCH_MAC
from controller.switches.target import ProgramInfo, TableEntry
from controller.vocabulary import Topology


def entries(topology: Topology, switch: str, up: Topology | None = None) -> list[TableEntry]:
    """Return a switch's rows: one for each host's MAC, and one for the switch's own IP address.

    There are no rows for flooding. Paths use only the part of the topology that is `up`; a host outside that
    part gets the row of a path through the whole topology.
    """
    bridges = [
        forwarding.bridge(topology.mac(host.name), next_port(topology, switch, host.name, up))
        for host in topology.servers
    ]
    return [forwarding.own_address(topology.switch_ip or SWITCH_IP, SWITCH_MAC), *bridges]


def offered(rows: Iterable[TableEntry], program: ProgramInfo) -> list[TableEntry]:
    """Return the rows whose tables the program has; the program may lack the table for ARP.

    Raises UnknownName if the program has no bridging table.
    """
    if names.BRIDGE not in program.tables:
        raise UnknownName(f"the program has no table '{names.BRIDGE}'")
    return [row for row in rows if row.table in program.tables]


def left_hosts(macs: Iterable[str]) -> list[TableEntry]:
    """Return the rows to delete for the MAC addresses of hosts that have left the topology.

    A row is deleted by its MAC address: port 0 in the returned rows stands for any port.
    """
    return [forwarding.bridge(mac, 0) for mac in sorted(macs)]


def next_port(topology: Topology, switch: str, host: str, up: Topology | None = None) -> int:
    """Return the port of a switch that leads to a host on a shortest path; of several such ports, the lowest.

    Args:
        topology: All switches, hosts and links.
        switch: Name of the switch.
        host: Name of the host.
        up: The part of the topology that works; None: all of it.

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
    """Return the number of links from the host to each switch, and to itself (0)."""
    return {host: 0} | topology.distances({topology.rack_of[host]: 1})
