"""A running testbed as a cluster file says it."""

from __future__ import annotations

from dataclasses import replace

from bmv2_topos.testbeds.netns.names import interface
from bmv2_topos.testbeds.netns.store import State
from controller.switches.model import SWITCH_IP
from controller.vocabulary import Link, Topology


def exported(state: State) -> Topology:
    """Return a testbed's topology with every address, port and interface as it is there."""
    topology = state.topology

    def port(link: Link, node: str) -> int:
        ports = topology.ports.get(node, {})
        return next((port for port, each in ports.items() if each is link), 0)

    return replace(
        topology,
        switches=tuple(
            replace(switch, p4runtime=f"unix:{state.socket(switch.name)}") for switch in topology.switches
        ),
        servers=tuple(
            replace(
                server,
                ip=topology.ip(server.name),
                mac=topology.mac(server.name),
                interface=interface(server.name),
            )
            for server in topology.servers
        ),
        links=tuple(
            replace(link, a_port=port(link, link.a), b_port=port(link, link.b)) for link in topology.links
        ),
        switch_ip=SWITCH_IP,
    )
