"""Switches and links in virtual time.

Every switch is a real one: the engine that serves real ports, on memory ports, running the compiled program.
Its port impairments are the links: rate, queue, delay and loss, and the queue depth that the program marks
ECN by, are the engine's own, per packet, to the nanosecond.

A cable between two switches has its rate, queue and loss in the port that sends; its delay is added here, for
what leaves one switch has to enter another at the right time. Nothing that leaves a switch now can touch
another one sooner than the shortest such delay. So all switches advance by steps of at most that, one after
the other, and what they sent each other is exchanged in between: no packet comes too late, to the
microsecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.errors import TestbedError
from bmv2_topos.testbeds.virtual.network import Agenda
from bmv2_topos.testbeds.virtual.recorder import Recorder
from bmv2_topos.testbeds.virtual.report import Directed
from controller.vocabulary import Link, Topology
from softswitch import Impairments, PortImpairments, Switch, load, parse_port
from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline

_HOST_QUEUE_PACKETS = 16384
"""Queue of a host for its own link; longer than any window."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Frames back to back; `lengths` of each."""

    data: bytearray
    lengths: array[int]

    def segments(self) -> Iterable[tuple[Bytes, int]]:
        """Cut into runs of frames of the same length: the bytes of a run, and that length."""
        data = np.frombuffer(self.data, np.uint8)
        lengths = self.lengths
        start = at = 0
        for i in range(1, len(lengths) + 1):
            if i == len(lengths) or lengths[i] != lengths[start]:
                end = at + (i - start) * lengths[start]
                yield data[at:end], lengths[start]
                start, at = i, end


@dataclass(frozen=True, slots=True)
class _Entrance:
    """A port of a switch at which frames arrive; `host` is who sends them, if it is not a switch."""

    switch: str
    port: int
    host: str | None = None


@dataclass(frozen=True, slots=True)
class _Trunk:
    """One direction of a cable between switches."""

    source: str
    port: int
    target: _Entrance
    delay_us: int


class _Losses:
    """More loss than a link's own, which may change while it runs."""

    def __init__(self, seed: int) -> None:
        self.probability = 0.0
        self.lost = 0
        self._random = np.random.default_rng(seed)

    def survivors(self, count: int) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = self._random.random(count) >= self.probability
        self.lost += count - int(kept.sum())
        return kept


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
        self._ends: dict[str, tuple[Switch, int]] = {}
        self._entrances: dict[str, _Entrance] = {}
        self._losses: dict[frozenset[str], _Losses] = {}
        self._trunks: list[_Trunk] = []
        self._under_way: Agenda[tuple[_Entrance, bytes]] = Agenda()
        self._lengths: dict[tuple[int, int], array[int]] = {}
        kinds = {switch.name for switch in topology.switches}
        try:
            for number, switch in enumerate(topology.switches):
                self._add_switch(switch.name, kinds, program, seed=seed * 1000 + number)
        except BaseException:
            self.close()
            raise
        for number, link in enumerate(topology.links):
            self._losses[frozenset((link.a, link.b))] = _Losses(seed * 100_000 + number)
        self._step_us = min((trunk.delay_us for trunk in self._trunks), default=0)

    def _add_switch(self, name: str, kinds: set[str], program: ir.Program, *, seed: int) -> None:
        impairments = {}
        for port, link in self.topology.ports[name].items():
            neighbour = link.other(name)
            between = neighbour in kinds
            impairments[port] = PortImpairments(
                rx=Impairments() if between else _model(link, delay=True, queue=_HOST_QUEUE_PACKETS),
                tx=_model(link, delay=not between, queue=link.queue_packets),
            )
            if between:
                delay_us = max(1, round(link.delay_s * 1e6))
                back = self.topology.port_to(neighbour, name)
                self._trunks.append(_Trunk(name, port, _Entrance(neighbour, back), delay_us))
        ports = {port: parse_port("memory") for port in impairments}
        switch = Switch(ports, seed=seed, impairments=impairments)
        self.switches[name] = switch
        self.pipelines[name] = load(program, seed=seed)
        switch.load(self.pipelines[name])
        if self._recorder is not None:
            self._recorder.watch(switch)
        for port, link in self.topology.ports[name].items():
            host = link.other(name)
            if host not in kinds:
                self._ends[host] = (switch, port)
                self._entrances[host] = _Entrance(name, port, host)

    @property
    def lost_packets(self) -> int:
        """Packets lost by what `set_loss` asked for; the links' own losses are in the ports' statistics."""
        return sum(losses.lost for losses in self._losses.values())

    @property
    def host_bytes(self) -> int:
        """Frames on the links of hosts, both ways."""
        at = [switch.statistics(port) for switch, port in self._ends.values()]
        return sum(port.rx_bytes + port.tx_bytes for port in at)

    @property
    def link_bytes(self) -> dict[Directed, int]:
        """Frames on each link, by whom it leads from and to."""
        found = {}
        for name, switch in self.switches.items():
            for port, link in self.topology.ports[name].items():
                neighbour, counted = link.other(name), switch.statistics(port)
                found[name, neighbour] = counted.tx_bytes
                if neighbour not in self.switches:
                    found[neighbour, name] = counted.rx_bytes
        return found

    @property
    def trunk_bytes(self) -> int:
        """Frames on the links between switches, both ways."""
        return sum(self.switches[trunk.source].statistics(trunk.port).tx_bytes for trunk in self._trunks)

    def close(self) -> None:
        """Take the switches down."""
        for switch in self.switches.values():
            switch.close()

    # ------------------------------------------------------------------ time

    def next_event_us(self) -> int | None:
        """Time of the next event; None: never."""
        times = [switch.next_event_us() for switch in self.switches.values()]
        times.append(self._under_way.due)
        return min((time for time in times if time is not None), default=None)

    def advance(self, now_us: int) -> None:
        """Let everything happen that is due up to `now_us`."""
        if self._trunks:
            while self.now_us < now_us:
                # After a pause there is nothing to exchange before the next event.
                due = self.next_event_us()
                if due is None or due >= now_us:
                    break
                self._advance_together(min(now_us, max(self.now_us, due - 1) + self._step_us))
        else:
            self._enter(now_us)
        for switch in self.switches.values():
            switch.advance(now_us)
        self.now_us = now_us
        self._collect()

    def _advance_together(self, now_us: int) -> None:
        """One step, no longer than the shortest delay between switches from where all of them stand."""
        self._enter(now_us)
        for switch in self.switches.values():
            switch.advance(now_us)
        self.now_us = now_us
        self._collect()

    def _enter(self, now_us: int) -> None:
        """Let arrive at switches, each at its time, what does so up to `now_us`."""
        under_way = self._under_way
        while (due := under_way.due) is not None and due <= now_us:
            entrance, frame = under_way.pop()
            frames = [frame]
            while under_way.due == due and under_way.first[0] is entrance:
                frames.append(under_way.pop()[1])
            if entrance.host is not None:
                losses = self._losses_of(entrance.host)
                if losses.probability:
                    kept = losses.survivors(len(frames))
                    frames = [frame for frame, keeps in zip(frames, kept, strict=True) if keeps]
            if frames:
                self.switches[entrance.switch].inject(entrance.port, frames, due)

    def _collect(self) -> None:
        """Take what has left the switches towards each other."""
        if self._recorder is not None:
            for name, switch in self.switches.items():
                self._recorder.take(name, switch)
        for trunk in self._trunks:
            losses = self._losses[frozenset((trunk.source, trunk.target.switch))]
            for time_us, frame in self.switches[trunk.source].drain_timed(trunk.port):
                if losses.probability and not losses.survivors(1)[0]:
                    continue
                self._under_way.put(time_us + trunk.delay_us, (trunk.target, frame))

    # ------------------------------------------------------------------ hosts

    def receive(self, host: str) -> Arrival | None:
        """Take what has arrived at a host by now; None: nothing."""
        switch, port = self._ends[host]
        data, lengths, times_us = switch.drain_batch(port)
        if not lengths:
            return None
        losses = self._losses_of(host)
        kept = losses.survivors(len(lengths)) if losses.probability else None
        if self._recorder is not None:
            self._recorder.arrived(host, data, lengths, times_us, None if kept is None else kept.tolist())
        if kept is not None:
            data, lengths = _without(data, lengths, kept)
        return Arrival(data, lengths) if lengths else None

    def send(self, host: str, packets: Bytes, count: int, length: int) -> None:
        """Send packets from a host, now.

        Args:
            host: Name of the host.
            packets: The packets, back to back.
            count: Number of packets.
            length: Bytes of each packet.
        """
        switch, port = self._ends[host]
        losses = self._losses_of(host)
        if losses.probability:
            survives = losses.survivors(count)
            frames = packets[: count * length].reshape(count, length)
            if self._recorder is not None:
                self._recorder.sent(host, self.now_us, frames[~survives].tobytes(), length, lost=True)
            kept = frames[survives]
            packets, count = kept.reshape(-1), len(kept)
        if self._recorder is not None:
            self._recorder.sent(host, self.now_us, packets[: count * length].tobytes(), length)
        lengths = self._lengths.get((count, length))
        if lengths is None:
            lengths = self._lengths[count, length] = array("I", [length] * count)
        switch.inject_batch(port, packets[: count * length].tobytes(), lengths, self.now_us)

    def send_later(self, host: str, frame: bytes, time_us: int) -> None:
        """Let a host send a frame at a time that is not over yet."""
        self._under_way.put(time_us, (self._entrances[host], frame))

    def set_loss(self, a: str, b: str, probability: float) -> None:
        """Let the link between two nodes lose packets with this probability, besides its own, from now on."""
        losses = self._losses.get(frozenset((a, b)))
        if losses is None:
            raise TestbedError(f"there is no link {a}-{b}")
        losses.probability = probability

    def _losses_of(self, host: str) -> _Losses:
        return self._losses[frozenset((host, self.topology.rack_of[host]))]


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


def _without(data: bytearray, lengths: array[int], keep: NDArray[np.bool_]) -> tuple[bytearray, array[int]]:
    kept, kept_lengths = bytearray(), array("I")
    at = 0
    for length, keeps in zip(lengths, keep, strict=True):
        if keeps:
            kept += data[at : at + length]
            kept_lengths.append(length)
        at += length
    return kept, kept_lengths
