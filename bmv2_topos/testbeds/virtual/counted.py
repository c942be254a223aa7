"""What the ports of a network's switches have counted: each is read once."""

from __future__ import annotations

from collections.abc import Mapping

from bmv2_topos.testbeds.virtual.report import Directed
from controller.vocabulary import Topology
from softswitch import Switch


class Counted:
    """The counters of all ports at one time, and sums of them. Bytes are those of whole frames."""

    def __init__(self, topology: Topology, switches: Mapping[str, Switch]) -> None:
        self._ports = {
            (name, link.other(name)): switches[name].statistics(port)
            for name, ports in topology.ports.items()
            if name in switches
            for port, link in ports.items()
        }
        """Of the port of each switch towards each neighbour."""
        self._at_hosts = [port for (_, to), port in self._ports.items() if to not in switches]
        self._at_switches = [port for (_, to), port in self._ports.items() if to in switches]
        self._switches = switches

    @property
    def dropped_packets(self) -> int:
        """Packets that found a queue full."""
        return sum(port.tx_queue_full + port.rx_queue_full for port in self._ports.values())

    @property
    def lost_packets(self) -> int:
        """Packets that the links have lost by themselves."""
        return sum(port.tx_lost + port.rx_lost for port in self._ports.values())

    @property
    def host_bytes(self) -> int:
        """Bytes on the links of hosts, both ways."""
        return sum(port.rx_bytes + port.tx_bytes for port in self._at_hosts)

    @property
    def trunk_bytes(self) -> int:
        """Bytes on the links between switches, both ways."""
        return sum(port.tx_bytes for port in self._at_switches)

    @property
    def link_bytes(self) -> dict[Directed, int]:
        """Bytes on each link, by whom it leads from and to."""
        found = {}
        for (name, neighbour), port in self._ports.items():
            found[name, neighbour] = port.tx_bytes
            if neighbour not in self._switches:
                found[neighbour, name] = port.rx_bytes
        return found

    @property
    def packet_hops(self) -> int:
        """Packets that left a switch, and that came to one from a host."""
        left = sum(port.tx_packets for port in self._ports.values())
        return left + sum(port.rx_packets for port in self._at_hosts)
