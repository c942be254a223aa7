"""The network of a bed while a schedule runs: its switches, and what a schedule does to its links."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable

from bmv2_topos.soak.bed import BuiltBed
from bmv2_topos.soak.schedule import Schedule
from bmv2_topos.soak.strangers import damaged
from bmv2_topos.testbeds.virtual.network import HOST_PORT, Network, Trace, Wire
from hostlib import wire

_KIND = wire.FRAME_PREFIX_BYTES
_JOB = slice(_KIND + 2, _KIND + 4)
"""Where a frame says what it is, and of which job."""
START_NS = 1_000_000_000


class SwitchNode:
    """A switch of the bed, without queues: what it makes of a packet leaves at once."""

    def __init__(self, network: Network, name: str, built: BuiltBed, clock_us: int) -> None:
        self.arrived = 0
        """Packets that it was given."""
        self.damaged = 0
        """Of these, those with a damaged header."""
        self.sampled = False
        """Whether contributions are kept, the last one that entered."""
        self.sample: tuple[int, bytes] | None = None
        """A contribution, and the port that it entered by."""
        self._network = network
        self._name = name
        self._device = built.switches[name]
        self._ways = built.ways[name]
        self._clock_us = clock_us
        self._lengths: dict[int, array[int]] = {}

    def deliver(self, port: int, frame: bytes) -> None:
        """Take a packet."""
        if self.sampled and frame[_KIND] & 0x0F == wire.KIND_GRADIENT:
            self.sample = port, frame
        self.inject(port, frame)

    def deliver_damaged(self, port: int, frame: bytes) -> None:
        """Take a packet with a damaged header."""
        self.damaged += 1
        self.inject(port, frame)

    def inject(self, port: int, frame: bytes) -> None:
        """Let a packet enter, and what the switch makes of it leave."""
        self.arrived += 1
        length = len(frame)
        lengths = self._lengths.get(length)
        if lengths is None:
            lengths = self._lengths[length] = array("I", [length])
        device, network = self._device, self._network
        device.inject_batch(port, frame, lengths, self._clock_us + (network.now - START_NS) // 1000)
        for out in self._ways.get(int.from_bytes(frame[_JOB]), ()):
            data, sizes, _ = device.drain_batch(out)
            at = 0
            for size in sizes:
                network.send(self._name, out, bytes(data[at : at + size]))
                at += size


class BedNetwork(Network):
    """A network with the links of a schedule: calm in the end, and damaged headers are among the faults."""

    def __init__(self, schedule: Schedule, built: BuiltBed, trace: Trace | None = None) -> None:
        super().__init__(schedule.faults, seed=f"links {schedule.seed}", start=START_NS)
        self.trace = trace
        self.calm_from = START_NS + schedule.calm_us * 1000
        self.wires.update(built.wires)
        for host, (switch, port, link) in built.host_ports.items():
            self.wires[host] = {HOST_PORT: Wire(link, switch, port)}
        clock_us = built.rack.next_clock_us(schedule.clock_us)
        self.switches = {name: SwitchNode(self, name, built, clock_us) for name in built.switches}
        self.nodes.update(self.switches)

    def cut(self, link: int, until: int) -> None:
        """Let a link lose everything until then."""
        self.links[link].cut_until = max(until, self.links[link].cut_until)

    def corrupted(self, to: Wire, frame: bytes) -> Callable[[], None] | None:
        """Lose it; or, on the way to a switch, its addresses may be damaged before there is a frame check."""
        if to.to not in self.switches or self.random.random() >= 0.5:
            return None
        bad = damaged(frame, self.random.randrange(64))
        return functools.partial(self.switches[to.to].deliver_damaged, to.port, bad)
