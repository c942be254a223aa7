"""Workers, switches and fallback servers in virtual time: owns clock and links, jumps to the next wake-up.

A switch is anything with `inject`, `drain`, `advance` and `next_event_us`: the reference models, or the
compiled P4 programs on memory ports. A server is anything with `absorb`, `emit` and `next_timeout`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hostlib import collectives, wire
from hostlib.core.congestion import Congestion
from hostlib.core.kernel import Kernel
from hostlib.core.state import NEVER, CoreSettings, RtoLimits
from hostlib.core.watchdog import Patience, Watchdog
from hostlib.core.window import Mishaps, Window
from hostlib.errors import JobBroken, RanksDisagree
from hostlib.peers import NoPeers, Peers
from hostlib.tree import Tree

CHECK_NS = 250_000_000
"""How often a waiting worker looks up."""


class VirtualSwitch(Protocol):
    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None: ...
    def drain(self, port: int) -> list[bytes]: ...
    def advance(self, now_us: int) -> None: ...
    def next_event_us(self) -> int | None: ...


class VirtualServer(Protocol):
    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None: ...
    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]: ...
    def next_timeout(self) -> int: ...


@dataclass(frozen=True)
class Impairments:
    """Of each link, both ways. Corruption is what Ethernet makes of it: a loss."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_us: int = 5
    reorder_us: int = 300
    mark: float = 0.0
    """Packets that get ECN."""


Port = tuple[int, int]
"""Switch and port."""


@dataclass(frozen=True)
class End:
    """Where a link ends: a port of a switch, a worker or a server."""

    kind: str
    at: Any


@dataclass(frozen=True)
class Task:
    """A collective that a worker carries out."""

    collective: collectives.Collective
    target: int = wire.ALL
    priority: int = 0
    wait_us: int = 0
    """From the end of the one before."""


@dataclass
class Worker:
    window: Window
    watchdog: Watchdog
    error: JobBroken | None = None
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    absent: bool = False
    begun: bool = False
    """Has something to do, or had in this run."""
    busy: bool = False
    socket: list[bytes] = field(default_factory=list)
    """What came when nobody looked."""
    tasks: list[Task] = field(default_factory=list)
    mishaps: list[Mishaps] = field(default_factory=list)
    """Of each collective that is complete."""


def endpoints(rank: int) -> wire.Endpoints:
    return wire.Endpoints(
        f"02:00:00:00:00:{rank:02x}", "02:00:00:00:ff:01", f"10.0.0.{rank + 1}", "10.0.255.1", 42592
    )


class Network:
    """Links, and what is connected to them; things are added one by one."""

    def __init__(self, *, impairments: Impairments = Impairments(), seed: int = 0, lanes: int = 32) -> None:
        self.impairments = impairments
        self.random = random.Random(seed)
        self.now_ns = 0
        self.workers: list[Worker] = []
        self.switches: dict[int, VirtualSwitch] = {}
        self.servers: list[VirtualServer] = []
        self.on_packet: Callable[[int, bytes, bool], bool] = lambda rank, packet, upwards: True
        """Told of every packet (worker, bytes, towards the switch) on workers' links; False loses it."""
        self.on_trunk: Callable[[End, bytes], bool] = lambda to, packet: True
        """Told of every packet on other links (where to, bytes); False loses it."""
        self._packet_bytes = wire.packet_dtype(lanes, framed=True).itemsize
        self._links: dict[End, End] = {}
        self._ports: dict[int, list[int]] = {}
        self._out = np.zeros(4 * self._packet_bytes, np.uint8)
        self._events: list[tuple[int, int, str, Any, bytes]] = []
        self._order = 0

    def add_worker(
        self,
        settings: CoreSettings,
        kernel: Kernel,
        at: Port,
        *,
        peers: Peers | None = None,
        patience: Patience | None = None,
        congestion: Congestion | None = None,
    ) -> int:
        window = Window(settings, kernel, congestion)
        worker = Worker(window, Watchdog(window, peers or NoPeers(), patience or Patience()))
        worker.buffer = np.zeros(16 * self._packet_bytes, np.uint8)
        self.workers.append(worker)
        self.connect(End("worker", len(self.workers) - 1), End("switch", at))
        return len(self.workers) - 1

    def add_server(self, server: VirtualServer, at: Port) -> None:
        self.servers.append(server)
        self.connect(End("server", len(self.servers) - 1), End("switch", at))

    def connect(self, one: End, other: End) -> None:
        self._links[one], self._links[other] = other, one
        for end in (one, other):
            if end.kind == "switch":
                self._ports.setdefault(end.at[0], []).append(end.at[1])

    def run_tasks(
        self, tasks: Sequence[Sequence[Task]], *, limit_s: float = 1000.0, absent: Sequence[int] = ()
    ) -> None:
        """Let each worker carry out its tasks in their order. Errors are left in `workers[...].error`."""
        deadline = self.now_ns + round(limit_s * 1e9)
        waiting: set[int] = set()
        for number, worker in enumerate(self.workers):
            worker.absent = number in absent
            worker.begun = worker.busy = False
            worker.tasks = list(tasks[number])
            if worker.tasks and not worker.absent:
                waiting.add(number)
                self._push(self.now_ns + worker.tasks[0].wait_us * 1000, "begin", number)
        while waiting:
            at, _, what, where, data = heapq.heappop(self._events)
            assert at < deadline, f"workers {waiting} hang"
            self.now_ns = max(self.now_ns, at)
            if what == "arrive":
                if self._arrive(where, data) and self._serve(where.at, "deliver"):
                    waiting.discard(where.at)
            elif what == "switch":
                self.switches[where].advance(self.now_ns // 1000)
                self._collect(where)
            elif what == "server":
                self._serve_server(where)
            elif self._serve(where, what):
                waiting.discard(where)
        # what is still under way stays under way; timers of this collective do not
        self._events = [event for event in self._events if event[2] in ("arrive", "switch", "server")]
        heapq.heapify(self._events)

    def _arrive(self, to: End, data: bytes) -> bool:
        """Hand a packet over; return whether a worker has to go on because of it."""
        if to.kind == "switch":
            switch, port = to.at
            self.switches[switch].inject(port, [data], self.now_ns // 1000)
            self._collect(switch)
        elif to.kind == "server":
            self.servers[to.at].absorb(np.frombuffer(data, np.uint8), len(data), self.now_ns)
            self._serve_server(to.at)
        else:
            worker = self.workers[to.at]
            if worker.error or worker.absent:
                return False
            if not worker.begun and not worker.window.settings.fallback:
                worker.socket.append(data)
                return False
            worker.window.absorb(np.frombuffer(data, np.uint8), len(data), self.now_ns)
            if not worker.busy:
                self._emit(worker, to.at)  # answers
            return worker.busy
        return False

    def _serve_server(self, number: int) -> None:
        server = self.servers[number]
        while (sent := server.emit(self._out, self.now_ns))[0]:
            count, size = sent
            for packet in self._out[: count * size].reshape(count, size):
                self._transmit(End("server", number), packet.tobytes())
        due = server.next_timeout()
        if due != NEVER:
            self._push(max(due, self.now_ns + 1), "server", number)

    def _serve(self, number: int, what: str) -> bool:
        """Let a worker do what it has to; return whether it has done all of its tasks, or failed."""
        worker = self.workers[number]
        window = worker.window
        if worker.error:
            return True
        if what == "begin":
            task = worker.tasks.pop(0)
            staged = task.collective.staged
            window.begin(
                staged.source,
                staged.target,
                tag=task.collective.tag,
                average=task.collective.average,
                priority=task.priority,
                target=task.target,
                now=self.now_ns,
            )
            worker.begun = worker.busy = True
            for data in worker.socket:
                window.absorb(np.frombuffer(data, np.uint8), len(data), self.now_ns)
            worker.socket.clear()
            self._push(self.now_ns + CHECK_NS, "check", number)
        if not worker.busy:
            return False
        if window.complete:
            self._emit(worker, number)
            worker.busy = False
            worker.mishaps.append(window.mishaps())
            if worker.tasks:
                self._push(self.now_ns + worker.tasks[0].wait_us * 1000, "begin", number)
            return not worker.tasks
        if window.ranks_disagree:
            worker.error = RanksDisagree("", job=window.settings.job, psns=window.outstanding())
            return True
        if what == "check":
            worker.error = worker.watchdog.check(self.now_ns, 0)
            self._push(self.now_ns + CHECK_NS, "check", number)
        window.on_timeout(self.now_ns)
        self._emit(worker, number)
        due = window.next_timeout()
        if due != NEVER:
            self._push(due, "timer", number)
        return worker.error is not None

    def _emit(self, worker: Worker, number: int) -> None:
        while count := worker.window.emit(worker.buffer, self.now_ns):
            for packet in worker.buffer.reshape(-1, self._packet_bytes)[:count]:
                self._transmit(End("worker", number), packet.tobytes())

    def _collect(self, switch: int) -> None:
        for port in self._ports[switch]:
            for frame in self.switches[switch].drain(port):
                self._transmit(End("switch", (switch, port)), frame)
        event_us = self.switches[switch].next_event_us()
        if event_us is not None:
            self._push(event_us * 1000, "switch", switch)

    def _transmit(self, source: End, packet: bytes) -> None:
        impairments, chance = self.impairments, self.random.random
        to = self._links[source]
        if source.kind == "worker":
            passes = self.on_packet(source.at, packet, True)
        elif to.kind == "worker":
            passes = self.on_packet(to.at, packet, False)
        else:
            passes = self.on_trunk(to, packet)
        if not passes:
            return
        if impairments.mark and chance() < impairments.mark:
            flags = wire.FRAME_PREFIX_BYTES + 1
            packet = packet[:flags] + bytes([packet[flags] | wire.FLAG_ECN]) + packet[flags + 1 :]
        copies = 1 + (chance() < impairments.duplicate)
        for _ in range(copies):
            if chance() < impairments.loss or chance() < impairments.corrupt:
                continue
            delay_ns = impairments.delay_us * 1000
            if chance() < impairments.reorder:
                delay_ns += self.random.randrange(impairments.reorder_us * 1000)
            self._push(self.now_ns + delay_ns, "arrive", to, packet)

    def deliver_again(self, worker: int, packet: bytes) -> None:
        """Let a copy of a worker's packet arrive at its switch, a microsecond from now."""
        self._push(self.now_ns + 1000, "arrive", self._links[End("worker", worker)], packet)

    def _push(self, at_ns: int, what: str, where: Any, data: bytes = b"") -> None:
        self._order += 1
        heapq.heappush(self._events, (at_ns, self._order, what, where, data))


class VirtualNetwork(Network):
    """One job of `size` workers. Without a `tree`, rank r sits at port r of the only switch.

    With one, child b of a node is at port b of the switch of that name, the uplink at the port after them.
    """

    def __init__(
        self,
        switch: VirtualSwitch | Mapping[int, VirtualSwitch],
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
        tree: Tree | None = None,
        server: VirtualServer | None = None,
        make_congestion: Callable[[], Congestion] | None = None,
        **core: Any,
    ) -> None:
        super().__init__(impairments=impairments, seed=seed, lanes=lanes)
        self.switches = dict(switch) if isinstance(switch, Mapping) else {0: switch}
        resolved = tree or Tree.star(size)
        if server is not None:
            core["fallback"] = True
            self.add_server(server, (0, resolved.fan_in(0)))
        for node in resolved.nodes:
            if node:
                parent, bit = resolved.parent(-node)
                above = (parent, bit.bit_length() - 1)
                self.connect(End("switch", (node, resolved.fan_in(node))), End("switch", above))
        for rank in range(size):
            settings = CoreSettings(
                job,
                rank,
                size,
                slots,
                lanes,
                endpoints(rank),
                rto or RtoLimits(),
                first_psn,
                tree=tree,
                **core,
            )
            node, bit = resolved.path(rank)[0]
            at = (node, bit.bit_length() - 1)
            congestion = make_congestion() if make_congestion else None
            self.add_worker(
                settings, make_kernel(), at, peers=peers, patience=patience, congestion=congestion
            )

    @property
    def switch(self) -> VirtualSwitch:
        """The root's."""
        return self.switches[0]

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
        target: int = wire.ALL,
    ) -> list[NDArray[Any]]:
        """Carry out one allreduce of `arrays[rank]` and return what each rank got.

        Errors of ranks are left in `workers[rank].error`. Ranks in `absent` do not take part.
        """
        planned = [
            collectives.make_collective(array, op, array if in_place else None, name, "propagate")
            for array, name in zip(arrays, names or [None] * len(arrays), strict=True)
        ]
        starts = starts_us or [0] * len(arrays)
        tasks = [[Task(plan, target, wait_us=wait)] for plan, wait in zip(planned, starts, strict=True)]
        self.run_tasks(tasks, limit_s=limit_s, absent=absent)
        return [plan.staged.finish() for plan in planned]
