"""The hosts' network interfaces: they deliver a frame to its worker, fallback server or sink.

The stations of a host (workers, fallback servers, sinks) share its link. The switch writes the UDP port of
the receiving station into each frame.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bmv2_topos.testbeds.virtual.fabric import Bytes, Fabric, ReceivedPackets
from bmv2_topos.testbeds.virtual.placement import Placement, Ports
from bmv2_topos.testbeds.virtual.settings import TestbedError
from controller.switches.model import INA_UDP_PORT

_LAST_PORT = 65535
_UDP_DESTINATION = 36  # offset in a frame; all frames have plain Ethernet and IPv4 headers


@dataclass(frozen=True, slots=True)
class Assignment:
    """The UDP ports of all receivers in a testbed."""

    jobs: tuple[Ports, ...]
    sinks: tuple[int, ...]

    @classmethod
    def of(cls, placements: Sequence[Placement], sinks: Sequence[str]) -> Assignment:
        """Assign a UDP port to every worker and fallback server, and to every sink of ordinary traffic.

        `sinks` has the host of each sink. The first station of a host gets `INA_UDP_PORT`. A sink never gets
        it, because switches treat packets to that port as packets to aggregate.

        Raises:
            TestbedError: a host has more workers, fallback servers and sinks than UDP ports.
        """
        used: Counter[str] = Counter()

        def take(host: str) -> int:
            port = INA_UDP_PORT + used[host]
            used[host] += 1
            if port > _LAST_PORT:
                raise TestbedError(
                    f"host {host!r} has more workers, servers and sinks than the {_LAST_PORT - INA_UDP_PORT}"
                    " UDP ports for them"
                )
            return port

        jobs = []
        for placement in placements:
            workers = tuple(take(host) for host in placement.workers)
            jobs.append(
                Ports(workers) if placement.server is None else Ports(workers, take(placement.server))
            )
        used.update({host: 1 for host in set(sinks) if not used[host]})
        return cls(tuple(jobs), tuple(take(host) for host in sinks))


class Interfaces:
    """Network interfaces of all hosts: received frames by UDP port."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._open: dict[str, set[int]] = {}
        self._waiting: dict[tuple[str, int], ReceivedPackets] = {}

    def open(self, host: str, port: int) -> Socket:
        """Bind a UDP port of a host, and return its socket."""
        self._open.setdefault(host, set()).add(port)
        return Socket(host, port, self)

    def alone(self, host: str) -> bool:
        """Return whether a host has just one open port, which gets all frames that arrive."""
        return len(self._open[host]) == 1

    def holds(self, host: str) -> bool:
        """Return whether a host has received frames that its stations have not taken yet."""
        return any((host, port) in self._waiting for port in self._open[host])

    def receive(self, host: str, port: int) -> ReceivedPackets | None:
        """Remove and return the frames that have arrived at a port; None: there are none."""
        arrival = self.fabric.receive(host)
        if self.alone(host):
            return arrival
        if arrival is not None:
            self._sort(host, arrival)
        return self._waiting.pop((host, port), None)

    def _sort(self, host: str, arrival: ReceivedPackets) -> None:
        for data, length in arrival.segments():
            frames = data.reshape(-1, length)
            ports = frames[:, _UDP_DESTINATION : _UDP_DESTINATION + 2].copy().view(">u2")[:, 0]
            for port in self._open[host].intersection(ports.tolist()):
                chosen = frames[ports == port]
                waiting = self._waiting.setdefault((host, port), ReceivedPackets(bytearray(), array("I")))
                waiting.data.extend(chosen.tobytes())
                waiting.lengths.extend([length] * len(chosen))


@dataclass(frozen=True, slots=True)
class Socket:
    """One UDP port of a host, to send and receive."""

    host: str
    port: int
    _interfaces: Interfaces

    def receive(self) -> ReceivedPackets | None:
        """Remove and return the frames that have arrived at the port; None: there are none."""
        return self._interfaces.receive(self.host, self.port)

    def discard(self) -> int:
        """Discard the frames that have arrived at the port; return their number."""
        if self._interfaces.alone(self.host):
            return self._interfaces.fabric.discard(self.host)
        arrival = self.receive()
        return 0 if arrival is None else len(arrival.lengths)

    def send(self, packets: Bytes, count: int, length: int) -> None:
        """Send `count` packets of `length` bytes, back to back in `packets`, now."""
        self._interfaces.fabric.send(self.host, packets, count, length)
