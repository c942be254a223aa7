"""Virtual time, packet by packet: events by time, and nodes that send packets to each other over links.

A node receives packets: a switch, or a host and its stations (`Station`). A link's effect on a packet is
drawn from the network's seed; for other faults, override `Network.send` or `Network.corrupted`. Times are
nanoseconds.

`VirtualTestbed` does not use this network: its links are the engine's, with rates and queues (`fabric.py`).
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hostlib.core.driver import Arrivals
from hostlib.core.state import NEVER
from softswitch import Impairments

HOST_PORT: Final = 0
"""A host's only port."""

Trace = Callable[[int, str, str, bytes, str], None]
"""Function to call with every packet sent. Its arguments are the time, the sender, the receiver, the packet's
bytes, and a word for what the link does to the packet, such as "lost"."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Far end of a port: the number of the link, and the node and its port at the other end."""

    link: int
    to: str
    port: int = HOST_PORT


class _Link:
    """A link during a run: its impairments, and its state."""

    def __init__(self, does: Impairments) -> None:
        self.does = does
        self.delay_ns = round(does.delay_s * 1e9)
        self.quiet = not (does.loss or does.duplicate or does.reorder or does.corrupt)
        """True if the link has no impairment but delay."""
        self.cut_until = 0
        """The link loses all packets before this time."""


class Node(Protocol):
    """A receiver of packets."""

    def deliver(self, port: int, frame: bytes) -> None:
        """Receive a packet, now."""


class Network:
    """The clock, the events, and the packets in flight."""

    def __init__(self, links: Iterable[Impairments], *, seed: int | str, start: int = 0) -> None:
        """Make a network of links with these impairments in both directions, except rate and jitter."""
        self.now = start
        self.coalesce_us = 0
        """Hosts process together the packets that arrive within this time; 0: each by itself, on arrival."""
        self.nodes: dict[str, Node] = {}
        self.links = [_Link(each) for each in links]
        self.wires: dict[str, dict[int, Wire]] = {}
        """By node and port: the far end of the port."""
        self.random = random.Random(seed)
        self.calm_from = NEVER
        """Time from which on links have no impairment but delay."""
        self.trace: Trace | None = None
        self.counts: Counter[str] = Counter()
        """Number of packets by their fate: lost, duplicated, held back and so on."""
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        """Heap of the calls of `call_at`: time, order of the call for equal times, function, arguments."""
        self._added = 0

    # ------------------------------------------------------------------ time

    def call_at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` at a time, after calls that were added earlier for the same time."""
        self._added += 1
        heapq.heappush(self._events, (time, self._added, action, arguments))

    def step(self) -> bool:
        """Process the next event; return False if there is none."""
        if not self._events:
            return False
        due, _, action, arguments = heapq.heappop(self._events)
        self.now = max(self.now, due)
        action(*arguments)
        return True

    @property
    def pending(self) -> bool:
        """True if there is an event to process."""
        return bool(self._events)

    # ------------------------------------------------------------------ packets

    def send(self, node: str, port: int, frame: bytes) -> None:
        """Send a packet from a port of a node, now."""
        wire, now = self.wires[node][port], self.now
        link = self.links[wire.link]
        if now < link.cut_until:
            self.counts["lost in a cut"] += 1
            self._note(node, wire, frame, "cut")
            return
        deliver, arrival = self.nodes[wire.to].deliver, now + link.delay_ns
        if link.quiet or now >= self.calm_from:
            self._note(node, wire, frame, "")
            self.call_at(arrival, deliver, wire.port, frame)
            return
        does, chance = link.does, self.random.random
        copies = 1
        if chance() < does.duplicate:
            copies = 2
            self.counts["duplicated"] += 1
        for _ in range(copies):
            if chance() < does.loss:
                self.counts["lost"] += 1
                self._note(node, wire, frame, "lost")
                continue
            if chance() < does.corrupt:
                happens = self.corrupted(wire, frame)
                fate = "corrupted" if happens is None else "damaged"
                self.counts[fate] += 1
                self._note(node, wire, frame, fate)
                if happens is not None:
                    self.call_at(arrival, happens)
                continue
            later = 0
            if chance() < does.reorder:
                later = self.random.randrange(round(does.reorder_s * 1e9))
                self.counts["held back"] += 1
            self._note(node, wire, frame, f"held back {later / 1000:.1f} us" if later else "")
            self.call_at(arrival + later, deliver, wire.port, frame)

    def send_all(self, host: str, packets: NDArray[np.uint8], count: int, length: int) -> None:
        """Send packets from a host; for the parameters see `Fabric.send`."""
        data = packets[: count * length].tobytes()
        for at in range(0, len(data), length):
            self.send(host, HOST_PORT, data[at : at + length])

    def corrupted(self, wire: Wire, frame: bytes) -> Callable[[], None] | None:
        """Return an action that delivers a corrupted packet.

        None: drop the packet, because its frame check sequence is wrong.
        """
        return None

    def _note(self, node: str, wire: Wire, frame: bytes, fate: str) -> None:
        if self.trace is not None:
            self.trace(self.now, node, wire.to, frame, fate)


class PortedSwitch(Protocol):
    """A switch with memory ports: `softswitch.Switch`, or a model of one."""

    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None:
        """Deliver frames to a port."""

    def drain(self, port: int) -> list[bytes]:
        """Remove and return the frames that have left by a port."""

    def advance(self, now_us: int) -> None:
        """Process all events that are due at `now_us`."""

    def next_event_us(self) -> int | None:
        """Return the time of the next event; None if there is none."""


class SwitchNode:
    """A switch in the network; its clock is `ahead_us` microseconds ahead of the network's clock."""

    def __init__(self, network: Network, name: str, device: PortedSwitch, *, ahead_us: int = 0) -> None:
        self._network = network
        self._name = name
        self._device = device
        self._ahead_us = ahead_us
        network.nodes[name] = self

    def deliver(self, port: int, frame: bytes) -> None:
        """Process a packet, and send the resulting packets."""
        self._device.inject(port, (frame,), self._network.now // 1000 + self._ahead_us)
        self._send(self.ways(frame))

    def ways(self, frame: bytes) -> Iterable[int]:
        """Return the ports by which packets can leave when this packet arrives: by default, all ports."""
        return self._network.wires[self._name]

    def _advance(self) -> None:
        self._device.advance(self._network.now // 1000 + self._ahead_us)
        self._send(self._network.wires[self._name])

    def _send(self, ports: Iterable[int]) -> None:
        """Send the packets that have left by these ports, and schedule the switch's next event."""
        for port in ports:
            for frame in self._device.drain(port):
                self._network.send(self._name, port, frame)
        event_us = self._device.next_event_us()
        if event_us is not None:
            self._network.call_at((event_us - self._ahead_us) * 1000, self._advance)


Serve = Callable[[int, Arrivals], int]
"""Function of the time and the arrived packets; returns when to call it again if nothing arrives."""


class Station:
    """A host in the network: calls `serve` when packets have arrived, and when `serve` is due."""

    def __init__(
        self,
        network: Network,
        name: str,
        serve: Serve,
        *,
        ring: Callable[[], None] | None = None,
    ) -> None:
        """Make a host that collects the packets that arrive within `Network.coalesce_us`; 0: no collecting.

        `ring` is called before `serve` when `serve` is due, but not when packets arrive.
        """
        self._network = network
        self._serve = serve
        self._coalesce_ns = network.coalesce_us * 1000
        self._ring = ring
        self._frames: list[bytes] = []
        self._due = NEVER
        network.nodes[name] = self

    def deliver(self, port: int, frame: bytes) -> None:
        """Receive a packet."""
        self._frames.append(frame)
        if not self._coalesce_ns:
            self.serve()
        elif len(self._frames) == 1:
            self._network.call_at(self._network.now + self._coalesce_ns, self.serve)

    def serve(self) -> None:
        """Call the function `serve` now, with the packets collected so far."""
        frames, self._frames = self._frames, []
        arrivals = segments(b"".join(frames), [len(frame) for frame in frames])
        self.wake(self._serve(self._network.now, arrivals))

    def wake(self, due: int) -> None:
        """Call `serve` at the time `due` at the latest; without effect if an earlier time is set already."""
        if due < self._due:
            self._due = max(due, self._network.now)
            self._network.call_at(self._due, self._alarm, self._due)

    def _alarm(self, due: int) -> None:
        if due == self._due:
            self._due = NEVER
            if self._ring is not None:
                self._ring()
            self.serve()


def segments(data: bytes | bytearray, lengths: Sequence[int]) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Group consecutive frames of equal length; yield the bytes and the frame length of each group."""
    whole = np.frombuffer(data, np.uint8)
    start = at = 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] != lengths[start]:
            end = at + (i - start) * lengths[start]
            yield whole[at:end], lengths[start]
            start, at = i, end
