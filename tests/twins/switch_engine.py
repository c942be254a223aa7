"""The engine in Python, in virtual time and on memory ports: the oracle of the engine in C.

It makes the same decisions (runtime/engine_intake.c, engine_tm.c, engine_impair.c): the same frames in, at
the same times, with the same seed, give the same frames out.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from softswitch.engine.meters import PortStatistics, SwitchStatistics
from softswitch.engine.pcapng import CaptureSettings, packet_block
from softswitch.engine.pipeline import DROP_PORT, MAX_FRAME, Copy, Packet, Pipeline, Verdict
from softswitch.engine.ports import LinkModel, PortSpec

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6
"""``standard_metadata.instance_type``, as BMv2 numbers it."""

_PRIORITIES = 8
_MAX_DEPTH = 64
_MAX_PASSES = 4096
_MAX_EVENTS = 262144
_MAX_OUTBOX = 65536
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class _Origin:
    """A packet's origin: its frame, its port, and how many resubmits, clones and recirculations led to it.

    `priority` is what its ingress asked for.
    """

    frame: bytes
    port: int
    depth: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class _Queued:
    packet: Packet
    origin: _Origin
    copy: Copy
    truncate: int


class _Link:
    """One direction of a port: the draws of runtime/engine_intake.c and engine_impair.c, in order.

    Times are in nanoseconds.
    """

    def __init__(self, model: LinkModel) -> None:
        self.model = model
        self._random = model.seed
        self._free_ns = 0
        self._last_ns = 0
        self._departures: deque[int] = deque()

    def _draw(self) -> int:
        self._random = z = (self._random + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def hit(self, threshold: int) -> bool:
        """Return True with a probability of `threshold` / 2⁶⁴, always for `_MASK`; zero draws no number."""
        return threshold != 0 and (self._draw() < threshold or threshold == _MASK)

    def _time_of(self, length: int) -> int:
        return length * 8 * 10**9 // self.model.rate_bps if self.model.rate_bps else 0

    @property
    def ready_ns(self) -> int:
        """The time from which on the rate allows the next frame to begin, nanoseconds."""
        return max(0, self._free_ns - self._time_of(self.model.burst_bytes))

    def transfer(self, length: int, now_ns: int) -> int:
        """Put a frame on the link; returns when it is through."""
        if not self.model.rate_bps:
            return now_ns
        self._free_ns = max(self._free_ns, now_ns) + self._time_of(length)
        return max(now_ns, self.ready_ns)

    def transfer_from_queue(self, length: int, now_ns: int) -> int | None:
        """The same behind a queue of `queue_packets`; None: the queue is full."""
        if not self.model.rate_bps:
            return now_ns
        while self._departures and self._departures[0] <= now_ns:
            self._departures.popleft()
        if len(self._departures) > self.model.queue_packets:
            return None
        self._departures.append(self.transfer(length, now_ns))
        return self._departures[-1]

    def arrival(self, through_ns: int) -> tuple[int, bool]:
        """Return the time at which one copy arrives at the far end, nanoseconds, and True if out of order."""
        time_ns = through_ns + self.model.delay_ns
        if self.model.jitter_ns:
            time_ns += self._draw() % (self.model.jitter_ns + 1)
        if self.hit(self.model.reorder):
            return time_ns + 1 + (self._draw() % self.model.reorder_ns if self.model.reorder_ns else 0), True
        self._last_ns = time_ns = max(time_ns, self._last_ns)
        return time_ns, False


class _Port:
    def __init__(self, number: int, rx: LinkModel, tx: LinkModel) -> None:
        self.number = number
        self.rx, self.tx = _Link(rx), _Link(tx)
        self.statistics = PortStatistics()
        self.queues: tuple[deque[_Queued], ...] = tuple(deque() for _ in range(_PRIORITIES))
        self.dequeue_scheduled = False
        self.outbox: list[tuple[int, bytes]] = []
        self.captured = bytearray()
        self.captured_in_vain = 0

    @property
    def waiting(self) -> int:
        """Packets in all queues."""
        return sum(map(len, self.queues))

    def dequeue(self) -> tuple[_Queued, int]:
        """Take the packet that is next of all priorities, and count its queue; there must be one."""
        queue = next(queue for queue in reversed(self.queues) if queue)
        return queue.popleft(), len(queue)


class TwinEngine:
    """What `Switch` calls of a `softswitch.engine.native.NativeEngine` in virtual time."""

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._ports: dict[int, _Port] = {}
        self._groups: dict[int, Sequence[tuple[tuple[int, int], int]]] = {}
        self._exclusions: dict[int, frozenset[int]] = {}
        self._sessions: dict[int, tuple[Sequence[tuple[int, int]], int]] = {}
        self._events: list[tuple[int, int, str, _Port, bytes]] = []
        self._sequence = 0
        self._now_ns = 0
        self._passes = 0
        self._statistics = SwitchStatistics()
        self._capture: CaptureSettings | None = None
        self._captured_ns = 0
        self._waited = ""

    def destroy(self) -> None:
        """There is nothing to free."""

    def stop(self) -> None:
        """Nothing runs."""

    def now_us(self) -> int:
        """Return the time of the last event."""
        return self._now_ns // 1000

    def add_port(self, number: int, spec: PortSpec, rx: LinkModel, tx: LinkModel) -> None:
        """Open a memory port."""
        del spec
        self._ports[number] = _Port(number, rx, tx)

    def load(self, pipeline: Pipeline | None) -> None:
        """Run this program from the next packet on."""
        for port in self._ports.values():
            self._statistics.unloaded += port.waiting
            for queue in port.queues:
                queue.clear()
        self._pipeline = pipeline

    def undivided(self) -> str | None:
        """Return why one thread does everything."""
        return "programs are interpreted"

    def lock(self) -> None:
        """There is one thread."""

    def unlock(self) -> None:
        """There is one thread."""

    def set_group(
        self, group: int, members: Sequence[tuple[int, int]] | None, exclusions: Sequence[int] = ()
    ) -> None:
        """Define a multicast group; None removes it."""
        self._groups.pop(group, None)
        if members is not None:
            ids = exclusions or [0] * len(members)
            self._groups[group] = list(zip(members, ids, strict=True))

    def set_exclusion(self, id_: int, ports: Sequence[int] | None) -> None:
        """Set the ports of a level 2 exclusion id; None: the port of that number."""
        self._exclusions.pop(id_, None)
        if ports is not None:
            self._exclusions[id_] = frozenset(ports)

    def set_session(self, session: int, members: Sequence[tuple[int, int]] | None, truncate: int) -> None:
        """Define a clone session; None removes it."""
        self._sessions.pop(session, None)
        if members is not None:
            self._sessions[session] = (list(members), truncate)

    # ------------------------------------------------------------------ frames and time

    def inject(self, port: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """Let frames arrive at a port; see `NativeEngine.inject`."""
        self._run_events(now_us * 1000)
        at = 0
        for length in lengths:
            self._receive(self._ports[port], bytes(data[at : at + length]))
            at += length

    def advance(self, now_us: int) -> None:
        """Let everything happen that is due up to `now_us`."""
        self._run_events(now_us * 1000)

    def next_event_us(self) -> int | None:
        """Return the time of the next event, microseconds; None: nothing is due."""
        return -(-self._events[0][0] // 1000) if self._events else None

    def drain(self, port: int) -> tuple[bytearray, array[int], array[int]]:
        """Take the frames that left at a memory port: frames back to back, lengths, times."""
        frames, self._ports[port].outbox = self._ports[port].outbox, []
        data = bytearray(b"".join(frame for _, frame in frames))
        return data, array("I", [len(frame) for _, frame in frames]), array("Q", [now for now, _ in frames])

    def port_statistics(self, port: int) -> PortStatistics:
        """A snapshot of one port's counters."""
        return replace(self._ports[port].statistics)

    def switch_statistics(self) -> SwitchStatistics:
        """A snapshot of the switch's own counters."""
        return replace(self._statistics)

    def _schedule(self, time_ns: int, kind: str, port: _Port, frame: bytes) -> None:
        if len(self._events) >= _MAX_EVENTS and kind != "dequeue":
            self._statistics.overruns += 1
            return
        heapq.heappush(self._events, (time_ns, self._sequence, kind, port, frame))
        self._sequence += 1

    def _run_events(self, now_ns: int) -> None:
        while self._events and self._events[0][0] <= now_ns:
            time_ns, _, kind, port, frame = heapq.heappop(self._events)
            self._now_ns = max(self._now_ns, time_ns)
            if kind == "rx":
                self._ingress_frame(port, frame)
            elif kind == "tx":
                self._emit(port, frame)
            else:
                self._dequeue(port)
        self._now_ns = max(self._now_ns, now_ns)

    # ------------------------------------------------------------------ links

    def _receive(self, port: _Port, frame: bytes) -> None:
        statistics, rx = port.statistics, port.rx
        statistics.rx_packets += 1
        statistics.rx_bytes += len(frame)
        if not 0 < len(frame) <= MAX_FRAME:
            statistics.rx_malformed += 1
            return
        through_ns = rx.transfer_from_queue(len(frame), self._now_ns)
        if through_ns is None:
            statistics.rx_queue_full += 1
            self._note(port, frame, "fate=queue_full", inbound=True)
            return
        if rx.hit(rx.model.loss):
            statistics.rx_lost += 1
            self._note(port, frame, "fate=lost", inbound=True)
            return
        if rx.hit(rx.model.corrupt):
            statistics.rx_corrupted += 1
            self._note(port, frame, "fate=corrupted", inbound=True)
            return
        twice = rx.hit(rx.model.duplicate)
        statistics.rx_duplicated += twice
        for _ in range(1 + twice):
            time_ns, reordered = rx.arrival(through_ns)
            statistics.rx_reordered += reordered
            if time_ns <= self._now_ns:
                self._ingress_frame(port, frame)
            else:
                self._schedule(time_ns, "rx", port, frame)

    def _transmit(self, port: _Port, frame: bytes) -> None:
        statistics, tx = port.statistics, port.tx
        through_ns = tx.transfer(len(frame), self._now_ns)
        if tx.hit(tx.model.loss):
            statistics.tx_lost += 1
            self._note_sent(port, frame, "lost")
            return
        if tx.hit(tx.model.corrupt):
            statistics.tx_corrupted += 1
            self._note_sent(port, frame, "corrupted")
            return
        twice = tx.hit(tx.model.duplicate)
        statistics.tx_duplicated += twice
        self._note_sent(port, frame, "duplicated" if twice else "")
        for _ in range(1 + twice):
            time_ns, reordered = tx.arrival(through_ns)
            statistics.tx_reordered += reordered
            if time_ns <= self._now_ns:
                self._emit(port, frame)
            else:
                self._schedule(time_ns, "tx", port, frame)

    def _emit(self, port: _Port, frame: bytes) -> None:
        statistics = port.statistics
        if len(port.outbox) >= _MAX_OUTBOX:
            statistics.tx_blocked += 1
            return
        port.outbox.append((self._now_ns // 1000, frame))
        statistics.tx_packets += 1
        statistics.tx_bytes += len(frame)

    # ------------------------------------------------------------------ captures

    def capture(self, settings: CaptureSettings | None) -> None:
        """Capture what passes the ports from now on, or no more."""
        self._capture = settings

    def captured(self, port: int) -> tuple[bytes, int]:
        """Take a port's records, and count those that found no room."""
        found = self._ports[port]
        records, found.captured = bytes(found.captured), bytearray()
        return records, found.captured_in_vain

    def _note(self, port: _Port, frame: bytes, comment: str, *, inbound: bool) -> None:
        capture = self._capture
        if capture is None:
            return
        self._captured_ns = max(capture.epoch_ns + self._now_ns, self._captured_ns + 1)
        record = packet_block(frame, self._captured_ns, inbound=inbound, comment=comment, snap=capture.snap)
        if len(port.captured) + len(record) > capture.capacity:
            port.captured_in_vain += 1
        else:
            port.captured += record

    def _note_sent(self, port: _Port, frame: bytes, fate: str) -> None:
        words = [self._waited, fate and f"fate={fate}"]
        self._note(port, frame, " ".join(filter(None, words)), inbound=False)

    def _describe(self, packet: Packet) -> str:
        assert self._capture is not None
        assert self._pipeline is not None
        values = self._pipeline.metadata(packet, self._capture.notes)
        return " ".join(f"{name}={value}" for name, value in values.items())

    # ------------------------------------------------------------------ traffic manager

    def _ingress_frame(self, port: _Port, frame: bytes) -> None:
        if self._pipeline is None:
            port.statistics.rx_no_program += 1
            self._note(port, frame, "fate=no_program", inbound=True)
            return
        self._passes = _MAX_PASSES
        self._ingress(_Origin(frame, port.number), 0, None, -1)

    def _may_enter(self, origin: _Origin) -> bool:
        if origin.depth >= _MAX_DEPTH or self._passes == 0:
            self._statistics.loops += 1
            return False
        self._passes -= 1
        return True

    def _ingress(self, origin: _Origin, instance_type: int, previous: Packet, field_list: int) -> None:
        assert self._pipeline is not None
        now_us = self._now_ns // 1000
        packet, verdict = self._pipeline.ingress(
            origin.frame, origin.port, now_us, instance_type, previous, field_list
        )
        if self._capture is not None and instance_type == 0:
            self._note(self._ports[origin.port], origin.frame, self._describe(packet), inbound=True)
        leaving = replace(origin, priority=verdict.priority)
        if verdict.clone:
            self._clone(packet, origin, verdict, INGRESS_CLONE)
        if verdict.resubmit:
            if self._may_enter(origin):
                again = replace(origin, depth=origin.depth + 1)
                self._ingress(again, RESUBMITTED, packet, verdict.resubmit_fields)
        elif verdict.mcast_grp or verdict.mcast_grp_2:
            self._distribute(packet, leaving, verdict, instance_type)
        elif verdict.dropped or verdict.egress_spec == DROP_PORT:
            self._ports[origin.port].statistics.ingress_dropped += 1
        else:
            self._send(packet, leaving, (verdict.egress_spec, 0), instance_type, 0)

    def _distribute(self, packet: Packet, leaving: _Origin, verdict: Verdict, instance_type: int) -> None:
        """Send a packet to two groups and a port, as programs for Tofino may ask for."""
        assert self._pipeline is not None
        for group in filter(None, (verdict.mcast_grp, verdict.mcast_grp_2)):
            members = self._groups.get(group)
            if members is None:
                self._statistics.no_group += 1
            for to, exclusion in members or ():
                if not self._is_excluded(to, exclusion, verdict):
                    self._send(self._pipeline.copy_packet(packet), leaving, to, REPLICATED, 0)
        if verdict.unicast:
            self._send(packet, leaving, (verdict.egress_spec, 0), instance_type, 0)

    def _is_excluded(self, to: tuple[int, int], exclusion: int, verdict: Verdict) -> bool:
        if verdict.exclude_1 and exclusion == verdict.exclude_1:
            return True
        if not verdict.exclude_2 or to[1] != verdict.rid:
            return False
        return to[0] in self._exclusions.get(verdict.exclude_2, (verdict.exclude_2,))

    def _clone(self, packet: Packet, origin: _Origin, verdict: Verdict, instance_type: int) -> None:
        assert self._pipeline is not None
        session = self._sessions.get(verdict.clone_session)
        if session is None:
            self._statistics.no_group += 1
            return
        if not self._may_enter(origin):
            return
        members, truncate = session
        clone = self._pipeline.clone_packet(packet, origin.frame, verdict.clone_fields)
        for to in members:
            again = replace(origin, depth=origin.depth + 1, priority=0)
            self._send(self._pipeline.copy_packet(clone), again, to, instance_type, truncate)

    def _send(
        self, packet: Packet, origin: _Origin, to: tuple[int, int], instance_type: int, truncate: int
    ) -> None:
        port = self._ports.get(to[0])
        now_us = self._now_ns // 1000
        copy = Copy(
            egress_port=to[0],
            egress_rid=to[1],
            instance_type=instance_type,
            enq_timestamp=now_us & 0xFFFFFFFF,
            now_us=now_us,
        )
        queue = None if port is None else port.queues[origin.priority]
        if port is None or queue is None or not (port.waiting or port.tx.ready_ns > self._now_ns):
            self._egress(port, packet, origin, copy, truncate)
        elif len(queue) >= port.tx.model.queue_packets:
            port.statistics.tx_queue_full += 1
            self._note(port, origin.frame, "fate=queue_full", inbound=False)
        else:
            queue.append(_Queued(packet, origin, replace(copy, enq_qdepth=len(queue)), truncate))
            self._schedule_dequeue(port)

    def _schedule_dequeue(self, port: _Port) -> None:
        if port.waiting and not port.dequeue_scheduled:
            port.dequeue_scheduled = True
            self._schedule(port.tx.ready_ns, "dequeue", port, b"")

    def _dequeue(self, port: _Port) -> None:
        port.dequeue_scheduled = False
        while port.waiting and port.tx.ready_ns <= self._now_ns:
            item, behind = port.dequeue()
            now_us = self._now_ns // 1000
            waited = (now_us - item.copy.enq_timestamp) & 0xFFFFFFFF
            copy = replace(item.copy, now_us=now_us, deq_timedelta=waited, deq_qdepth=behind)
            self._passes = _MAX_PASSES
            if copy.deq_timedelta or copy.deq_qdepth:
                self._waited = f"waited_us={copy.deq_timedelta} depth={copy.deq_qdepth}"
            self._egress(port, item.packet, item.origin, copy, item.truncate)
            self._waited = ""
        self._schedule_dequeue(port)

    def _egress(self, port: _Port | None, packet: Packet, origin: _Origin, copy: Copy, truncate: int) -> None:
        assert self._pipeline is not None
        frame, verdict = self._pipeline.egress(packet, copy)
        frame = frame[:truncate] if frame and truncate else frame
        if not frame or verdict.dropped:
            (port or self._ports[origin.port]).statistics.egress_dropped += 1
        elif not verdict.recirculate:
            if port is None:
                self._statistics.no_port += 1
            else:
                self._transmit(port, frame)
        if not frame:
            return
        if verdict.clone:
            self._clone(packet, replace(origin, frame=frame), verdict, EGRESS_CLONE)
        if verdict.recirculate and not verdict.dropped and self._may_enter(origin):
            again = _Origin(frame, origin.port, origin.depth + 1)
            self._ingress(again, RECIRCULATED, packet, verdict.recirculate_fields)
