"""The switches that a job's workers are linked to, and the branches that they need. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from controller.switches.layout import Branch, Downlink
from controller.switches.model import BESIDE_UDP_PORT, INA_UDP_PORT, SWITCH_IP, SWITCH_MAC, Member
from controller.vocabulary import BadSpec, Region, Topology


def plugged(
    topology: Topology, hosts: Sequence[str], udp_ports: Sequence[int] | None = None
) -> dict[str, list[Member]]:
    """Return the workers on these hosts, rank by rank, by the switch that they are linked to.

    `udp_ports` are their UDP ports, by rank; None: all use `INA_UDP_PORT`.
    """
    members: dict[str, list[Member]] = {}
    for rank, host in enumerate(hosts):
        switch = topology.rack_of[host]
        udp_port = INA_UDP_PORT if udp_ports is None else udp_ports[rank]
        member = Member(rank, topology.port_to(switch, host), topology.mac(host), topology.ip(host), udp_port)
        members.setdefault(switch, []).append(member)
    return members


def fallback_udp_port(topology: Topology, server: str) -> int:
    """Return the UDP port of the fallback server on a machine: one of its own where workers are beside it."""
    return BESIDE_UDP_PORT if topology.server[server].serves_beside_workers else INA_UDP_PORT


def unplugged(
    members: dict[str, list[Member]], server: str, topology: Topology
) -> tuple[dict[str, list[Member]], Member | None]:
    """Return the workers without the one on a fallback server's machine, and that one; None: there is none.

    The machine has one port of a switch, which is the server's (`controller.switches.layout.Deployment`).

    Raises:
        BadSpec: no other worker is left for a switch to sum.
    """
    ip = topology.ip(server)
    beside = [member for of in members.values() for member in of if member.ip == ip]
    left = {name: [member for member in of if member not in beside] for name, of in members.items()}
    left = {name: of for name, of in left.items() if of}
    if beside and not left:
        raise BadSpec(
            f"all workers are on {server!r}, the fallback server's machine: no switch sums anything"
        )
    return left, next(iter(beside), None)


def grow(
    topology: Topology,
    root: str,
    parents: Mapping[str, str | None],
    members: Mapping[str, Sequence[Member]],
    *,
    regions: Mapping[str, Region | None],
    transit: Collection[str],
    mac: str = SWITCH_MAC,
    ip: str = SWITCH_IP,
) -> Branch:
    """Return the part of a tree that a job needs: the root, and the switches with members on or below them.

    Args:
        topology: The switches, with their cables.
        root: The root of the tree.
        parents: The switch above each other switch of the tree.
        members: The job's workers by switch (`plugged`).
        regions: The slots that a shared job may use, by switch; all slots of a switch left out.
        transit: Switches that forward the job's packets without adding.
        mac: MAC address of packets for a switch; by default the only one that a worker's UDP socket accepts.
        ip: IPv4 address of packets for a switch, likewise.
    """
    below: dict[str, list[str]] = {}
    for switch in topology.switches:
        if parent := parents.get(switch.name):
            below.setdefault(parent, []).append(switch.name)

    def branch(name: str) -> Branch:
        links = []
        for child in below.get(name, ()):
            subtree = branch(child)
            if subtree.members or subtree.links:
                links.append(Downlink(topology.port_to(name, child), subtree, topology.port_to(child, name)))
        return Branch(
            name,
            tuple(members.get(name, ())),
            tuple(links),
            region=regions.get(name),
            transit=name in transit,
            mac=mac,
            ip=ip,
        )

    return branch(root)
