"""Switches and links in virtual time.

Every switch runs the compiled program in the engine that also serves real ports, here on memory ports. The
engine's port impairments model the links, per packet and to the nanosecond: rate, queue, delay and loss, and
the queue depth by which the program marks packets (ECN).

For a cable between two switches, the sending port models rate, queue and loss, and `softswitch.engine.cables`
the delay. All other ports lead to hosts; they are called the ends of the cabling.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.network import segments
from bmv2_topos.testbeds.virtual.recorder import Recorder
from bmv2_topos.testbeds.virtual.report import Directed
from controller.vocabulary import Link, Topology
from softswitch import Impairments, PortImpairments, Switch, load, parse_port
from softswitch.compiler import ir
from softswitch.engine.cables import Cable, End, connect
from softswitch.engine.pipeline import Pipeline

# ---------------------------------------------------------------------------
# Counters of the ports of a network's switches: each is read once.


class PortCounts:
    """The counters of all ports at one time, and totals of them. Bytes count whole frames."""

    def __init__(self, topology: Topology, switches: Mapping[str, Switch]) -> None:
        self._ports = {
            (name, link.other(name)): switches[name].statistics(port)
            for name, ports in topology.ports.items()
            if name in switches
            for port, link in ports.items()
        }
        """Counters of each switch port, by the name of the switch and of the neighbour at the port."""
        self._at_hosts = [port for (_, to), port in self._ports.items() if to not in switches]
        self._at_switches = [port for (_, to), port in self._ports.items() if to in switches]
        self._switches = switches

    @property
    def dropped_packets(self) -> int:
        """Number of packets dropped because a queue was full."""
        return sum(port.tx_queue_full + port.rx_queue_full for port in self._ports.values())

    @property
    def lost_packets(self) -> int:
        """Number of packets lost through the links' own loss."""
        return sum(port.tx_lost + port.rx_lost for port in self._ports.values())

    @property
    def host_bytes(self) -> int:
        """Bytes of frames on the links of hosts, in both directions."""
        return sum(port.rx_bytes + port.tx_bytes for port in self._at_hosts)

    @property
    def trunk_bytes(self) -> int:
        """Bytes of frames on the links between switches, in both directions."""
        return sum(port.tx_bytes for port in self._at_switches)

    @property
    def link_bytes(self) -> dict[Directed, int]:
        """Bytes of frames on each link, by sender and receiver."""
        found = {}
        for (name, neighbour), port in self._ports.items():
            found[name, neighbour] = port.tx_bytes
            if neighbour not in self._switches:
                found[neighbour, name] = port.rx_bytes
        return found

    @property
    def packet_hops(self) -> int:
        """Number of packets sent over links: packets that left a switch, and packets that hosts sent."""
        left = sum(port.tx_packets for port in self._ports.values())
        return left + sum(port.rx_packets for port in self._at_hosts)


_HOST_QUEUE_PACKETS = 16384
"""Maximum number of packets in a host's queue to its link: more than any window."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ReceivedPackets:
    """Received frames: `data` holds them back to back, `lengths` the bytes of each."""

    data: bytearray
    lengths: array[int]

    def segments(self) -> Iterable[tuple[Bytes, int]]:
        """Group consecutive frames of equal length; return the bytes and the frame length of each group."""
        return segments(self.data, self.lengths)


@dataclass(frozen=True, slots=True)
class _Host:
    """A host's number, and the switch port to which the host is connected."""

    number: int
    end: End


class Fabric:
    """The switches of a topology, and the clock of all of them. Times are microseconds."""

    def __init__(
        self,
        topology: Topology,
        program: ir.Program,
        *,
        seed: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        self.topology = topology
        self._recorder = recorder
        self.now_us = 0
        self.registers = program.registers.keys()
        self.pipelines: dict[str, Pipeline] = {}
        self.switches: dict[str, Switch] = {}
        self._hosts: dict[str, _Host] = {}
        self._cables: list[Cable] = []
        self._lengths: dict[tuple[int, int], array[int]] = {}
        with ExitStack() as made:
            for number, switch in enumerate(topology.switches):
                made.enter_context(self._add_switch(switch.name, program, seed=seed * 1000 + number))
            ends = [host.end for host in self._hosts.values()]
            self.cabling = connect(tuple(self.switches.values()), self._cables, ends)
            self._open = made.pop_all()
        self._open.callback(self.cabling.close)

    def _add_switch(self, name: str, program: ir.Program, *, seed: int) -> Switch:
        topology, impairments = self.topology, {}
        number = topology.number_of[name]
        for port, link in topology.ports[name].items():
            neighbour = link.other(name)
            between = neighbour in topology.number_of
            impairments[port] = PortImpairments(
                rx=Impairments() if between else _model(link, delay=True, queue=_HOST_QUEUE_PACKETS),
                tx=_model(link, delay=not between, queue=link.queue_packets),
            )
            if between:
                far = topology.number_of[neighbour], topology.port_to(neighbour, name)
                delay_us = max(1, round(link.delay_s * 1e6))
                self._cables.append(Cable(number, port, *far, delay_us))
            else:
                self._hosts[neighbour] = _Host(len(self._hosts), End(number, port))
        switch = Switch(
            {port: parse_port("memory") for port in impairments}, seed=seed, impairments=impairments
        )
        self.switches[name] = switch
        self.pipelines[name] = load(program, seed=seed)
        switch.load(self.pipelines[name])
        if self._recorder is not None:
            self._recorder.watch(switch)
        return switch

    def counted(self) -> PortCounts:
        """Return the present counters of all ports."""
        return PortCounts(self.topology, self.switches)

    def close(self) -> None:
        """Close the switches."""
        self._open.close()

    # ------------------------------------------------------------------ time

    def next_event_us(self) -> int | None:
        """Return the time of the next event; None: there is none."""
        return self.cabling.next_event_us()

    def advance(self, now_us: int) -> None:
        """Process all events up to `now_us`."""
        if self._recorder is None:
            self.now_us = self.cabling.advance(now_us)
            return
        while self.now_us < now_us:
            self.now_us = self.cabling.advance(now_us, one_step=True)
            for name, switch in self.switches.items():
                self._recorder.collect(name, switch)

    # ------------------------------------------------------------------ hosts

    @property
    def hosts(self) -> int:
        """Number of hosts; each host is at one end of the cabling."""
        return len(self._hosts)

    def end_of(self, host: str) -> int:
        """Return a host's number; the `End` of its cable has the same number in `Cabling`."""
        return self._hosts[host].number

    def receive(self, host: str) -> ReceivedPackets | None:
        """Remove and return the frames that have arrived at a host; None: there are none."""
        at = self._hosts[host]
        switch = self.switches[self.topology.switches[at.end.switch].name]
        data, lengths, times_us = switch.drain_batch(at.end.port)
        if not lengths:
            return None
        if self._recorder is not None:
            self._recorder.arrived(host, data, lengths, times_us)
        return ReceivedPackets(data, lengths)

    def send(self, host: str, packets: Bytes, count: int, length: int) -> None:
        """Send packets from a host, now.

        Args:
            host: Name of the host.
            packets: The packets, back to back.
            count: Number of packets.
            length: Bytes of each packet.
        """
        data = packets[: count * length].tobytes()
        if self._recorder is not None:
            self._recorder.sent(host, self.now_us, data, length)
        lengths = self._lengths.get((count, length))
        if lengths is None:
            lengths = self._lengths[count, length] = array("I", [length] * count)
        self.cabling.send(self._hosts[host].number, data, lengths, self.now_us)

    def discard(self, host: str) -> int:
        """Discard the frames that have arrived at a host; return their number."""
        if self._recorder is None:
            return self.cabling.discard(self._hosts[host].number)
        arrival = self.receive(host)
        return 0 if arrival is None else len(arrival.lengths)

    def send_later(self, host: str, frame: bytes, times_us: array[int]) -> None:
        """Send a frame from a host at each of these times, in µs (``array("Q")``), now or in the future."""
        self.cabling.send_later(self._hosts[host].number, frame, times_us)

    def set_loss(self, a: str, b: str, probability: float) -> None:
        """Add this probability to the own loss of the link between two nodes, from now on."""
        for name, switch in self.switches.items():
            for port, link in self.topology.ports[name].items():
                if {link.a, link.b} == {a, b}:
                    loss = min(1.0, link.loss + probability)
                    switch.set_loss(port, rx=0.0 if link.other(name) in self.switches else loss, tx=loss)


def _model(link: Link, *, delay: bool, queue: int) -> Impairments:
    return Impairments(
        loss=link.loss,
        duplicate=link.duplicate,
        reorder=link.reorder,
        reorder_s=link.reorder_s,
        delay_s=link.delay_s if delay else 0.0,
        rate_bps=link.rate_bps,
        queue_packets=queue,
    )
