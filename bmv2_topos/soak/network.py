"""The network of a bed while a schedule runs: its switches, and what a schedule does to its links."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from bmv2_topos.soak.bed import BuiltBed
from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.schedule import Schedule
from bmv2_topos.soak.strangers import damaged
from bmv2_topos.testbeds.virtual.network import HOST_PORT, Network, SwitchNode, Trace, Wire
from hostlib.wire import FRAME_PREFIX_BYTES, KIND_GRADIENT, packet_dtype

_KIND = FRAME_PREFIX_BYTES
_JOB = slice(_KIND + 2, _KIND + 4)
"""Offsets of kind and job in a frame."""
_CONTRIBUTION_BYTES = packet_dtype(LANES, framed=True).itemsize
START_NS = 1_000_000_000


class BedSwitch(SwitchNode):
    """A switch of the bed; without queues, what it makes of a packet leaves at once."""

    def __init__(self, network: Network, name: str, built: BuiltBed, clock_us: int) -> None:
        super().__init__(network, name, built.switches[name], ahead_us=clock_us - START_NS // 1000)
        self.arrived = 0
        """Packets that it was given."""
        self.damaged = 0
        """Of these, those with a damaged header."""
        self.sampled = False
        """True if contributions are kept, the last one that entered."""
        self.sample: tuple[int, bytes] | None = None
        """A contribution as hosts send it, and the port that it entered by.

        Between switches, a program of one's own may have headers that only it knows.
        """
        self._ways = built.ways[name]

    def deliver(self, port: int, frame: bytes) -> None:
        """Take a packet, and send what becomes of it."""
        if self.sampled and frame[_KIND] & 0x0F == KIND_GRADIENT and len(frame) == _CONTRIBUTION_BYTES:
            self.sample = port, frame
        self.inject(port, frame)

    def deliver_damaged(self, port: int, frame: bytes) -> None:
        """Take a packet with a damaged header."""
        self.damaged += 1
        self.inject(port, frame)

    def inject(self, port: int, frame: bytes) -> None:
        """Take a packet from anybody, and send what becomes of it."""
        self.arrived += 1
        super().deliver(port, frame)

    def ways(self, frame: bytes) -> Iterable[int]:
        """Return the ports by which packets of the same job can leave."""
        return self._ways.get(int.from_bytes(frame[_JOB]), ())


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
        self.switches = {name: BedSwitch(self, name, built, clock_us) for name in built.switches}

    def cut(self, link: int, until: int) -> None:
        """Let a link lose everything until then."""
        self.links[link].cut_until = max(until, self.links[link].cut_until)

    def corrupted(self, wire: Wire, frame: bytes) -> Callable[[], None] | None:
        """Lose it; or, on the way to a switch, its addresses may be damaged before there is a frame check."""
        if wire.to not in self.switches or self.random.random() >= 0.5:
            return None
        bad = damaged(frame, self.random.randrange(64))
        return functools.partial(self.switches[wire.to].deliver_damaged, wire.port, bad)
