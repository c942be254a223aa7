"""The process that holds a Mininet network: ``python -m bmv2_topos.testbeds.mininet.hold TESTBED``.

Once the network is up, it prints one line of JSON: the process ids of nodes and of switches. At SIGTERM or
SIGINT, or when the shell of any node has ended, it removes the network and ends.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from bmv2_topos.testbeds.mininet.switch import Bmv2Switch, EmbeddedSwitch
from bmv2_topos.testbeds.netns import store
from bmv2_topos.testbeds.netns.commands import BMV2, subnet
from bmv2_topos.testbeds.netns.names import interface
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.targets import target_of

from mininet.link import Link  # isort: skip - found by the import of EmbeddedSwitch
from mininet.net import Mininet  # isort: skip


def main() -> None:
    """Run the network of the testbed that the argument names, until a signal."""
    state = store.load(sys.argv[1])
    ends = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    network = make(state)
    try:
        network.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        nodes = {node.name: node.pid for node in (*network.hosts, *network.switches)}
        switches = {switch.name: switch.process.pid for switch in network.switches}
        print(json.dumps({"nodes": nodes, "switches": switches}), flush=True)
        while signal.sigwait(ends) == signal.SIGCHLD and _whole(network):
            pass
    finally:
        network.stop()


def _whole(network: Mininet) -> bool:
    """Return True if the shells of all nodes still run.

    The switches' processes may have ended. Their exit statuses are read, so that no zombie processes remain.
    """
    for switch in network.switches:
        switch.process.poll()
    return all(node.shell.poll() is None for node in (*network.hosts, *network.switches))


def make(state: State) -> Mininet:
    """Return the Mininet network of a testbed, with interface names and addresses as in the runner netns."""
    topology = state.topology
    network = Mininet(link=Link, controller=None, build=False)
    for number, switch in enumerate(topology.ports):
        network.addSwitch(switch, dpid=f"{number + 1:x}", inNamespace=True, **_switch(state, switch))
    for host in topology.servers:
        network.addHost(
            host.name,
            ip=f"{topology.ip(host.name)}/{subnet(topology, host.name)}",
            mac=topology.mac(host.name),
        )
    for link in topology.links:
        numbers = [
            next((port for port, candidate in topology.ports.get(end, {}).items() if candidate is link), 0)
            for end in (link.a, link.b)
        ]
        names = [interface(end, number) for end, number in zip((link.a, link.b), numbers, strict=True)]
        network.addLink(*(network[link.a], network[link.b], *numbers), intfName1=names[0], intfName2=names[1])
    network.build()
    return network


def _switch(state: State, switch: str) -> dict[str, Any]:
    """Return the class and the parameters of a switch that runs the same command as with runner netns."""
    kind = Bmv2Switch if state.program.target == BMV2 else EmbeddedSwitch
    socket = state.socket(switch)
    command = target_of(state.program).argv(state.topology, switch, state.program, socket)
    return {"cls": kind, "flood": False, "socket": socket, "command": command}


if __name__ == "__main__":
    main()
