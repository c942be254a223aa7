"""Virtual time, and the links of a bed: who hears of a packet, when, and how often."""

from __future__ import annotations

import heapq
import random
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from bmv2_topos.soak.bed import BuiltBed
from bmv2_topos.soak.schedule import Schedule
from bmv2_topos.soak.strangers import damaged
from hostlib import wire

_KIND = wire.FRAME_PREFIX_BYTES
_JOB = slice(_KIND + 2, _KIND + 4)
"""Where a frame says what it is, and of which job."""
START_NS = 1_000_000_000

Trace = Callable[[int, str, str, bytes, str], None]
"""Told of every packet that is sent: when, from, to, its bytes, what becomes of it."""


class Host(Protocol):
    """What hangs on a link and is no switch."""

    def deliver(self, frame: bytes) -> None:
        """Take a packet, now."""
        ...


class Network:
    """The clock, what is due when, and the packets under way."""

    def __init__(self, schedule: Schedule, built: BuiltBed, trace: Trace | None = None) -> None:
        self.now = START_NS
        self.built = built
        self.hosts: dict[str, Host] = {}
        self.counts: Counter[str] = Counter()
        """What happened to packets under way."""
        self.arrived: Counter[str] = Counter()
        """Packets that each switch was given."""
        self.damaged: Counter[str] = Counter()
        """Of these, those with a damaged header."""
        self.samples: dict[str, tuple[int, bytes]] = {}
        """By switch, a contribution that has entered it, and its port."""
        self._random = random.Random(f"links {schedule.seed}")
        self._faults = schedule.faults
        self._quiet = [
            not (faults.loss or faults.duplicate or faults.reorder or faults.corrupt)
            for faults in schedule.faults
        ]
        self._calm_from = START_NS + schedule.calm_us * 1000
        self._cut_until = [0] * len(schedule.faults)
        self._clock_us = built.rack.next_clock_us(schedule.clock_us)
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._lengths: dict[int, array[int]] = {}
        self._trace = trace

    # ------------------------------------------------------------------ time

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at a time, after all that was asked for earlier."""
        self._order += 1
        heapq.heappush(self._events, (time, self._order, action, arguments))

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._events:
            return False
        time, _, action, arguments = heapq.heappop(self._events)
        if time > self.now:
            self.now = time
        action(*arguments)
        return True

    @property
    def pending(self) -> bool:
        """Whether anything will happen."""
        return bool(self._events)

    # ------------------------------------------------------------------ packets

    def send(self, host: str, frame: bytes) -> None:
        """Let a host send a packet."""
        switch, port, link = self.built.host_ports[host]
        self._transmit(link, host, switch, port, frame)

    def cut(self, link: int, until: int) -> None:
        """Let a link lose everything until then."""
        self._cut_until[link] = max(until, self._cut_until[link])

    def inject(self, switch: str, port: int, frame: bytes) -> None:
        """Let a packet enter a switch, and what it makes of it leave."""
        self.arrived[switch] += 1
        device = self.built.switches[switch]
        length = len(frame)
        lengths = self._lengths.get(length)
        if lengths is None:
            lengths = self._lengths[length] = array("I", [length])
        device.inject_batch(port, frame, lengths, self._clock_us + (self.now - START_NS) // 1000)
        wires = self.built.wires[switch]
        for out in self.built.ways[switch].get(int.from_bytes(frame[_JOB]), ()):
            data, sizes, _ = device.drain_batch(out)
            at = 0
            wire = wires[out]
            for size in sizes:
                self._transmit(wire.link, switch, wire.to, wire.port, bytes(data[at : at + size]))
                at += size

    def _transmit(self, link: int, source: str, to: str, port: int | None, frame: bytes) -> None:
        faults = self._faults[link]
        delay = faults.delay_us * 1000
        if self.now < self._cut_until[link]:
            self.counts["lost in a cut"] += 1
            self._note(source, to, frame, "cut")
            return
        if self._quiet[link] or self.now >= self._calm_from:
            self._note(source, to, frame, "")
            self.at(self.now + delay, self._arrive, to, port, frame)
            return
        chance = self._random.random
        copies = 1
        if chance() < faults.duplicate:
            copies = 2
            self.counts["duplicated"] += 1
        for _ in range(copies):
            if chance() < faults.loss:
                self.counts["lost"] += 1
                self._note(source, to, frame, "lost")
                continue
            if chance() < faults.corrupt:
                # a bad frame check is a loss; on the way to a switch, addresses may also be damaged before
                if port is not None and chance() < 0.5:
                    self.counts["damaged"] += 1
                    self._note(source, to, frame, "damaged")
                    bad = damaged(frame, self._random.randrange(64))
                    self.at(self.now + delay, self._arrive_damaged, to, port, bad)
                else:
                    self.counts["corrupted"] += 1
                    self._note(source, to, frame, "corrupted")
                continue
            later = 0
            if chance() < faults.reorder:
                later = self._random.randrange(faults.reorder_us * 1000)
                self.counts["held back"] += 1
            self._note(source, to, frame, f"held back {later / 1000:.1f} us" if later else "")
            self.at(self.now + delay + later, self._arrive, to, port, frame)

    def _arrive(self, to: str, port: int | None, frame: bytes) -> None:
        if port is None:
            self.hosts[to].deliver(frame)
            return
        if to in self.samples and frame[_KIND] & 0x0F == wire.KIND_GRADIENT:
            self.samples[to] = port, frame
        self.inject(to, port, frame)

    def _arrive_damaged(self, to: str, port: int, frame: bytes) -> None:
        self.damaged[to] += 1
        self.inject(to, port, frame)

    def _note(self, source: str, to: str, frame: bytes, fate: str) -> None:
        if self._trace is not None:
            self._trace(self.now, source, to, frame, fate)
