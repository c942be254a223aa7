"""A running testbed as a cluster file says it."""

from __future__ import annotations

from dataclasses import replace

from bmv2_topos.testbeds.netns.names import interface
from bmv2_topos.testbeds.netns.store import State
from controller.switches.model import SWITCH_IP
from controller.vocabulary import Topology
from controller.vocabulary.graphs import pinned


def exported(state: State) -> Topology:
    """Return a testbed's topology with every address, port and interface as it is there."""
    topology = pinned(state.topology)
    return replace(
        topology,
        switches=tuple(
            replace(switch, p4runtime=f"unix:{state.socket(switch.name)}") for switch in topology.switches
        ),
        servers=tuple(replace(server, interface=interface(server.name)) for server in topology.servers),
        switch_ip=SWITCH_IP,
    )
