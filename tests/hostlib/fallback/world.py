"""Workers, switches and a fallback server in virtual time; workers and switches are as simple as can be.

A switch keeps, forgets, evicts and pulls sums at random: only what it may do, but without any reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.network import Agenda
from hostlib import wire
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests.hostlib.fallback.packets import ENDPOINTS, LANES, absorb, emitted, header_of, lanes_of, packet

US = 1000
RTO = 5000 * US
Lanes = NDArray[np.int32]
Make = Callable[[FallbackSettings], FallbackCore]


@dataclass(frozen=True)
class Plan:
    """Everything that a run depends on."""

    tree: Tree
    seed: int
    psns: int = 24
    window: int = 6
    loss: float = 0.1
    duplicate: float = 0.1
    slots: float = 0.5
    """Chance that a switch has room."""
    evict: float = 0.1
    restarts: float = 0.0
    """Chance, per event, that the server is replaced by an empty one."""
    capacity: int = 1000
    overflows: float = 0.1
    wraps: bool = False
    """PSNs count beyond the last one."""
    absent_us: int = 0
    """Rank 0 sends nothing before this."""
    window_known: bool = True


@dataclass
class Worker:
    rank: int
    node: int
    bit: int
    next: int = 0
    flight: dict[int, list[int]] = field(default_factory=dict)
    """PSN to [when sent last, raw]."""
    results: dict[int, Lanes] = field(default_factory=dict)


class World:
    def __init__(self, plan: Plan, make_core: Make) -> None:
        self.plan, self.tree, self.make_core = plan, plan.tree, make_core
        self.random = Random(plan.seed)
        rng = np.random.default_rng(plan.seed)
        size = plan.tree.size
        self.values = rng.integers(-1000, 1000, (plan.psns, size, LANES), dtype=np.int32)
        self.raw = rng.normal(0, 1e6, (plan.psns, size, LANES)).astype(np.float32)
        self.spoiled = [self.random.random() < plan.overflows for _ in range(plan.psns)]
        self.workers = [
            Worker(rank, *plan.tree.parent(rank), next=0) for rank in range(size)
        ]  # each with its own node and bit there
        self.slots: dict[tuple[int, int], tuple[int, Lanes, int]] = {}
        self.now = 0
        self.queue: Agenda[Callable[[], None]] = Agenda()
        self.restarts = 0
        self.statistics: dict[str, int] = {}
        self.most_pieces = 0
        self.limit = 2**32 - 2**32 % (2 * plan.window)
        self.base = self.limit - 10 if plan.wraps else 0
        self.core = self.new_core()

    def new_core(self) -> FallbackCore:
        settings = FallbackSettings(
            LANES, ENDPOINTS, self.plan.capacity, remind_s=1e-4, remind_max_s=0.02, forget_s=5
        )
        core = self.make_core(settings)
        window = self.plan.window if self.plan.window_known else None
        core.add_job(FallbackJob(7, 1, self.tree, window))
        return core

    def psn(self, index: int) -> int:
        return (self.base + index) % self.limit

    def expected(self, index: int) -> Lanes:
        if not self.spoiled[index]:
            return np.asarray(self.values[index].sum(axis=0, dtype=np.int32))
        total = np.zeros(LANES)
        for rank in range(self.tree.size):
            total = total + self.raw[index, rank]
        return total.astype(np.float32).view(np.int32)

    def run(self, limit_s: float = 60) -> None:
        for worker in self.workers:
            self.later(self.plan.absent_us * US if worker.rank == 0 else 0, lambda w=worker: self.tick(w))  # type: ignore[misc]
        while any(len(worker.results) < self.plan.psns for worker in self.workers):
            due, next_event = self.core.next_timeout(), self.queue.due
            if next_event is not None and next_event <= due:
                self.now = next_event
                self.queue.pop()()
            else:
                self.now = max(self.now, due)
            assert self.now < limit_s * 1e9, f"not done after {limit_s} s: {self.core.statistics()}"
            if self.random.random() < self.plan.restarts:
                self.restarts += 1
                self.core = self.new_core()
            self.serve()
        for worker in self.workers:
            for index in range(self.plan.psns):
                assert np.array_equal(worker.results[index], self.expected(index)), (worker.rank, index)

    def later(self, delay: int, event: Callable[[], None]) -> None:
        self.queue.put(self.now + delay, event)

    def travel(self, event: Callable[[], None]) -> None:
        for _ in range(2 if self.random.random() < self.plan.duplicate else 1):
            if self.random.random() >= self.plan.loss:
                self.later(self.random.randrange(5, 60) * US, event)

    # ---- workers ----

    def tick(self, worker: Worker) -> None:
        while worker.next < self.plan.psns and (
            worker.next < self.plan.window or worker.next - self.plan.window in worker.results
        ):
            worker.flight[worker.next] = [self.now, 0]
            self.send(worker, worker.next, 0)
            worker.next += 1
        for index, (sent, _) in list(worker.flight.items()):
            if self.now - sent >= RTO:
                self.send(worker, index, wire.FLAG_RESEND | self.random.choice([0, wire.FLAG_QUERY]))
        if len(worker.results) < self.plan.psns:
            self.later(self.random.randrange(500, 2000) * US, lambda: self.tick(worker))

    def send(self, worker: Worker, index: int, flags: int) -> None:
        raw = worker.flight[index][1]
        worker.flight[index][0] = self.now
        lanes = self.values[index, worker.rank]
        if raw:
            lanes, flags = self.raw[index, worker.rank].view(np.int32), flags | wire.FLAG_RAW
        elif self.spoiled[index] and worker.rank % 2 == 0:
            lanes, flags = np.zeros(LANES, np.int32), flags | wire.FLAG_OVERFLOW
        self.travel(lambda: self.switch(worker.node, worker.bit, index, flags, lanes))

    def hear(self, worker: Worker, data: bytes) -> None:
        header = header_of(data)
        index = (header["psn"] - self.base) % self.limit
        kind, flags = header["kind"], header["flags"]
        if kind == wire.KIND_RESULT and index in worker.flight:
            assert header["bitmap"] == self.tree.result_bitmap
            assert not flags & wire.FLAG_DISAGREE
            if flags & wire.FLAG_OVERFLOW and not flags & wire.FLAG_RAW:
                worker.flight[index][1] = 1
                self.send(worker, index, wire.FLAG_RESEND)
                return
            del worker.flight[index]
            worker.results[index] = lanes_of(data)
            self.later(0, lambda: self.tick_once(worker))
        elif kind == wire.KIND_REMINDER and header["node"] == worker.node and header["bitmap"] & worker.bit:
            if index in worker.flight:
                self.send(worker, index, wire.FLAG_RESEND)
            elif (
                kept := max((i for i in worker.results if (i - index) % self.plan.window == 0), default=-1)
            ) >= index:
                answer = {"flags": wire.FLAG_RAW if self.spoiled[kept] else 0, "bitmap": worker.bit}
                self.up(wire.KIND_RESULT, worker.node, kept, worker.results[kept], **answer)

    def tick_once(self, worker: Worker) -> None:
        while worker.next < self.plan.psns and worker.next - self.plan.window in worker.results:
            worker.flight[worker.next] = [self.now, 0]
            self.send(worker, worker.next, 0)
            worker.next += 1

    # ---- switches ----

    def switch(self, node: int, bit: int, index: int, flags: int, lanes: Lanes) -> None:
        """A contribution arrives at a node."""
        random, full = self.random, self.tree.full_bitmap(node)
        for key in [key for key in self.slots if random.random() < self.plan.evict]:
            self.evict(key)
        held = self.slots.get((node, index))
        single = {"bitmap": bit, "flags": flags}
        if flags & wire.FLAG_RAW:
            self.up(wire.KIND_PARTIAL, node, index, lanes, **single)
        elif held and held[0] & bit:
            if flags & wire.FLAG_RESEND:
                self.evict((node, index))
        elif held or (not flags & wire.FLAG_RESEND and random.random() < self.plan.slots):
            bitmap, total, old = held or (0, np.zeros(LANES, np.int32), 0)
            sticky = (flags | old) & wire.STICKY_FLAGS
            self.slots[node, index] = (bitmap | bit, total + lanes, sticky)
            if bitmap | bit == full:
                del self.slots[node, index]
                self.completed(node, index, sticky, total + lanes)
        else:
            self.up(wire.KIND_PARTIAL, node, index, lanes, **single)

    def completed(self, node: int, index: int, flags: int, lanes: Lanes) -> None:
        if node:
            above, bit = self.tree.parent(-node)
            self.travel(lambda: self.switch(above, bit, index, flags, lanes))
            return
        full = self.tree.result_bitmap
        data = packet(wire.KIND_RESULT, self.tree, psn=self.psn(index), bitmap=full, flags=flags, lanes=lanes)
        self.down(data)

    def evict(self, key: tuple[int, int]) -> None:
        bitmap, total, flags = self.slots.pop(key)
        self.up(wire.KIND_PARTIAL, key[0], key[1], total, bitmap=bitmap, flags=flags)

    def up(self, kind: int, node: int, index: int, lanes: Lanes, *, bitmap: int, flags: int) -> None:
        psn = self.psn(index)
        data = packet(kind, self.tree, node=node, psn=psn, bitmap=bitmap, flags=flags, lanes=lanes)
        self.travel(lambda: absorb(self.core, [data], self.now))

    def down(self, data: bytes) -> None:
        for worker in self.workers:
            self.travel(lambda w=worker: self.hear(w, data))  # type: ignore[misc]

    # ---- the server ----

    def serve(self) -> None:
        for data in emitted(self.core, self.now):
            header = header_of(data)
            key = (header["node"], (header["psn"] - self.base) % self.limit)
            self.statistics[str(header["kind"])] = self.statistics.get(str(header["kind"]), 0) + 1
            if header["kind"] == wire.KIND_REMINDER and key in self.slots:
                self.evict(key)
            else:
                self.down(data)
        self.most_pieces = max(self.most_pieces, self.core.statistics()[7]["pieces"])
