"""Workers and a switch in virtual time: owns the clock and the links, and jumps to the next wake-up.

The switch is anything with `inject`, `drain`, `advance` and `next_event_us`: the reference model, or
the compiled P4 program on memory ports.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hostlib import collectives, wire
from hostlib.core.kernel import Kernel
from hostlib.core.state import NEVER, CoreSettings, RtoLimits
from hostlib.core.watchdog import Patience, Watchdog
from hostlib.core.window import Window
from hostlib.errors import JobBroken, RanksDisagree
from hostlib.peers import NoPeers, Peers


class VirtualSwitch(Protocol):
    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None: ...
    def drain(self, port: int) -> list[bytes]: ...
    def advance(self, now_us: int) -> None: ...
    def next_event_us(self) -> int | None: ...


@dataclass(frozen=True)
class Impairments:
    """Of each link, both ways. Corruption is what Ethernet makes of it: a loss."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_us: int = 5
    reorder_us: int = 300


@dataclass
class Worker:
    window: Window
    watchdog: Watchdog
    error: JobBroken | None = None
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    absent: bool = False


def endpoints(rank: int) -> wire.Endpoints:
    return wire.Endpoints(
        f"02:00:00:00:00:{rank:02x}", "02:00:00:00:ff:01", f"10.0.0.{rank + 1}", "10.0.255.1", 42592
    )


class VirtualNetwork:
    """A job of `size` workers, rank r at port r of the switch."""

    def __init__(
        self,
        switch: VirtualSwitch,
        make_kernel: Callable[[], Kernel],
        *,
        size: int,
        slots: int,
        lanes: int = 32,
        job: int = 7,
        impairments: Impairments = Impairments(),
        seed: int = 0,
        first_psn: int = 0,
        rto: RtoLimits | None = None,
        peers: Peers | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.switch = switch
        self.impairments = impairments
        self.random = random.Random(seed)
        self.now_ns = 0
        self.workers: list[Worker] = []
        self.on_packet: Callable[[int, bytes, bool], bool] = lambda rank, packet, upwards: True
        """Told of every packet (rank, bytes, towards the switch); False loses it."""
        for rank in range(size):
            settings = CoreSettings(
                job, rank, size, slots, lanes, endpoints(rank), rto or RtoLimits(), first_psn
            )
            window = Window(settings, make_kernel())
            watchdog = Watchdog(window, peers or NoPeers(), patience or Patience())
            self.workers.append(Worker(window, watchdog))
        packet_bytes = wire.packet_dtype(lanes, framed=True).itemsize
        for worker in self.workers:
            worker.buffer = np.zeros(16 * packet_bytes, np.uint8)
        self._packet_bytes = packet_bytes
        self._events: list[tuple[int, int, str, int, bytes]] = []
        self._order = 0

    def run(
        self,
        arrays: Sequence[NDArray[Any]],
        op: collectives.Op = "sum",
        *,
        in_place: bool = False,
        starts_us: Sequence[int] | None = None,
        limit_s: float = 1000.0,
        absent: Sequence[int] = (),
        names: Sequence[str | None] | None = None,
    ) -> list[NDArray[Any]]:
        """Carry out one allreduce of `arrays[rank]` and return what each rank got.

        Errors of ranks are left in `workers[rank].error`. Ranks in `absent` do not take part.
        """
        planned = [
            collectives.make_collective(array, op, array if in_place else None, name, "propagate")
            for array, name in zip(arrays, names or [None] * len(arrays), strict=True)
        ]
        deadline = self.now_ns + round(limit_s * 1e9)
        for rank in range(len(self.workers)):
            self.workers[rank].absent = rank in absent
            start = self.now_ns + (starts_us[rank] * 1000 if starts_us else 0)
            self._push(start, "begin", rank)
        waiting = {rank for rank in range(len(self.workers)) if rank not in absent}
        begun: set[int] = set()
        while waiting:
            at, _, what, rank, data = heapq.heappop(self._events)
            assert at < deadline, f"ranks {waiting} hang"
            self.now_ns = max(self.now_ns, at)
            if what == "switch":
                self.switch.advance(self.now_ns // 1000)
                self._collect()
                continue
            if what == "arrive":
                self.switch.inject(rank, [data], self.now_ns // 1000)
                self._collect()
                continue
            worker = self.workers[rank]
            if worker.error or worker.absent:
                continue
            if what == "begin":
                begun.add(rank)
                staged = planned[rank].staged
                worker.window.begin(
                    staged.source,
                    staged.target,
                    tag=planned[rank].tag,
                    average=planned[rank].average,
                    now=self.now_ns,
                )
                self._push(self.now_ns + collectives.CHECK_NS, "check", rank)
            if rank not in begun:
                if what == "deliver":  # between two collectives: it waits in the socket
                    self._push(self.now_ns + 1000, what, rank, data)
                continue
            self._serve(worker, rank, what, data)
            if rank in waiting and (worker.window.complete or worker.error):
                waiting.discard(rank)
        # what is still under way stays under way; timers of this collective do not
        self._events = [event for event in self._events if event[2] in ("arrive", "deliver", "switch")]
        heapq.heapify(self._events)
        return [plan.staged.finish() for plan in planned]

    def _serve(self, worker: Worker, rank: int, what: str, data: bytes) -> None:
        window = worker.window
        if what == "deliver":
            window.absorb(np.frombuffer(data, np.uint8), len(data), self.now_ns)
        if window.complete:
            return
        if window.ranks_disagree:
            worker.error = RanksDisagree("", job=window.settings.job, psns=window.outstanding())
            return
        if what == "check":
            worker.error = worker.watchdog.check(self.now_ns)
            self._push(self.now_ns + collectives.CHECK_NS, "check", rank)
        window.on_timeout(self.now_ns)
        while count := window.emit(worker.buffer, self.now_ns):
            for packet in worker.buffer.reshape(-1, self._packet_bytes)[:count]:
                self._transmit("arrive", rank, packet.tobytes())
        due = window.next_timeout()
        if due != NEVER:
            self._push(due, "timer", rank)

    def _collect(self) -> None:
        for rank in range(len(self.workers)):
            for frame in self.switch.drain(rank):
                self._transmit("deliver", rank, frame)
        event_us = self.switch.next_event_us()
        if event_us is not None:
            self._push(event_us * 1000, "switch", 0)

    def _transmit(self, what: str, rank: int, packet: bytes) -> None:
        impairments, chance = self.impairments, self.random.random
        if not self.on_packet(rank, packet, what == "arrive"):
            return
        copies = 1 + (chance() < impairments.duplicate)
        for _ in range(copies):
            if chance() < impairments.loss or chance() < impairments.corrupt:
                continue
            delay_ns = impairments.delay_us * 1000
            if chance() < impairments.reorder:
                delay_ns += self.random.randrange(impairments.reorder_us * 1000)
            self._push(self.now_ns + delay_ns, what, rank, packet)

    def _push(self, at_ns: int, what: str, rank: int, data: bytes = b"") -> None:
        self._order += 1
        heapq.heappush(self._events, (at_ns, self._order, what, rank, data))
