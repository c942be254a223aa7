"""Workers, switches and fallback servers in virtual time, on the testbed's event network.

Switches are the reference models, or the compiled P4 programs on memory ports. A server is anything with
`absorb`, `emit` and `next_timeout`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import softswitch
from bmv2_topos.testbeds.virtual.network import HOST_PORT, PortedSwitch, Station, SwitchNode, Wire
from bmv2_topos.testbeds.virtual.network import Network as EventNetwork
from hostlib import collectives, wire
from hostlib.core import Patience, Peers
from hostlib.core.congestion import Congestion
from hostlib.core.driver import Arrivals, Driver
from hostlib.core.state import NEVER, CoreSettings, RtoLimits
from hostlib.core.watchdog import Watchdog
from hostlib.core.window import Exchange, Kernel, NumericErrors, Window
from hostlib.errors import JobBroken
from hostlib.wire.tree import Tree


@dataclass(frozen=True)
class Impairments(softswitch.Impairments):
    """Of each link, both ways. Corruption is what Ethernet makes of it: a loss."""

    delay_s: float = 5e-6
    reorder_s: float = 300e-6
    mark: float = 0.0
    """Packets that get ECN."""


class VirtualServer(Protocol):
    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None: ...
    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]: ...
    def next_timeout(self) -> int: ...


Port = tuple[int, int]
"""Switch and port."""


@dataclass(frozen=True)
class Task:
    """A collective that a worker carries out."""

    collective: collectives.Collective
    target: int = wire.TARGET_ALL
    priority: int = 0
    wait_us: int = 0
    """From the end of the one before."""


class Worker:
    def __init__(self, network: Network, number: int, window: Window, watchdog: Watchdog) -> None:
        self.window = window
        self.error: JobBroken | None = None
        self.numeric_errors: list[NumericErrors] = []
        """Of each collective that is complete."""
        self._network = network
        self._absent = False
        self._begun = False
        """Has something to do, or had in this run."""
        self._held: list[tuple[NDArray[Any], int]] = []
        """What came when nobody looked."""
        self._tasks: list[Task] = []
        name = f"w{number}"
        self._station = Station(network, name, self._serve)
        send = functools.partial(network.send_all, name)
        self._driver = Driver(window, send, batch=16, watchdog=watchdog)

    @property
    def finished(self) -> bool:
        """Whether it has nothing to do any more in this run."""
        return self.error is not None or self._absent or not (self._tasks or self._driver.busy)

    def set_to_work(self, tasks: Sequence[Task], *, absent: bool) -> None:
        """Carry out tasks in their order from now on."""
        self._absent = absent
        self._begun = self._driver.busy = False
        self._tasks = list(tasks)
        self._begin_later()

    def _begin_later(self) -> None:
        if self._tasks and not self._absent:
            self._network.call_at(self._network.now + self._tasks[0].wait_us * 1000, self._begin)

    def _begin(self) -> None:
        if self.error is not None:
            return
        now, task = self._network.now, self._tasks.pop(0)
        staged = task.collective.staged
        exchange = Exchange(
            *(staged.source, staged.target, task.collective.tag, task.collective.pattern),
            average=task.collective.average,
            priority=task.priority,
            target=task.target,
            stride=task.collective.stride,
            numbers=task.collective.options.numbers,
            series=task.collective.series,
        )
        self.window.begin(exchange, now)
        self._driver.start(now)
        self._begun = True
        held, self._held = self._held, []
        self._station.wake(self._serve(now, held))

    def _serve(self, now: int, arrivals: Arrivals) -> int:
        if self.error is not None or self._absent:
            return NEVER
        if not self._begun and not self.window.settings.fallback:
            self._held += arrivals
            return NEVER
        busy = self._driver.busy
        try:
            due = self._driver.serve(now, arrivals)
        except JobBroken as error:
            self.error = error
            return NEVER
        if busy and not self._driver.busy:
            self.numeric_errors.append(self.window.numeric_errors())
            self._begin_later()
        return due


class Network(EventNetwork):
    """Links, all with the same faults, and what is connected to them; things are added one by one."""

    def __init__(self, *, impairments: Impairments = Impairments(), seed: int = 0, lanes: int = 32) -> None:
        super().__init__([impairments], seed=seed)
        self.impairments = impairments
        self.workers: list[Worker] = []
        self.switches: dict[int, PortedSwitch] = {}
        self.on_packet: Callable[[int, bytes, bool], bool] = lambda rank, packet, upwards: True
        """Told of every packet (worker, bytes, towards the switch) on workers' links; False loses it."""
        self.on_link: Callable[[str, str, bytes], None] = lambda sender, receiver, packet: None
        """Told of every packet that is sent on any link: from a node to a node, the bytes."""
        self._packet_bytes = wire.packet_dtype(lanes, framed=True).itemsize

    def add_switch(self, number: int, switch: PortedSwitch) -> None:
        self.switches[number] = switch
        SwitchNode(self, f"s{number}", switch)

    def add_worker(
        self,
        settings: CoreSettings,
        kernel: Kernel,
        at: Port,
        *,
        peers: Peers | None = None,
        patience: Patience | None = None,
        congestion: Congestion | None = None,
    ) -> None:
        window = Window(settings, kernel, congestion)
        number = len(self.workers)
        watchdog = Watchdog(window, peers or Peers(), patience or Patience())
        self.workers.append(Worker(self, number, window, watchdog))
        self._connect(f"w{number}", HOST_PORT, at)

    def add_server(self, server: VirtualServer, at: Port) -> None:
        out = np.zeros(4 * self._packet_bytes, np.uint8)

        def serve(now: int, arrivals: Arrivals) -> int:
            for packets, length in arrivals:
                server.absorb(packets, length, now)
            while (sent := server.emit(out, now))[0]:
                self.send_all("server", out, *sent)
            return server.next_timeout()

        Station(self, "server", serve)
        self._connect("server", HOST_PORT, at)

    def connect(self, one: Port, other: Port) -> None:
        """Lay a cable between two switches."""
        self._connect(f"s{one[0]}", one[1], other)

    def _connect(self, node: str, port: int, at: Port) -> None:
        switch = f"s{at[0]}"
        self.wires.setdefault(node, {})[port] = Wire(0, switch, at[1])
        self.wires.setdefault(switch, {})[at[1]] = Wire(0, node, port)

    def run_tasks(
        self, tasks: Sequence[Sequence[Task]], *, limit_s: float = 1000.0, absent: Sequence[int] = ()
    ) -> None:
        """Let each worker carry out its tasks in their order. Errors are left in `workers[...].error`."""
        deadline = self.now + round(limit_s * 1e9)
        for number, worker in enumerate(self.workers):
            worker.set_to_work(tasks[number], absent=number in absent)
        while not all(worker.finished for worker in self.workers):
            assert self.pending, "nothing will happen any more"
            assert self.now < deadline, "workers hang"
            self.step()

    def send(self, node: str, port: int, frame: bytes) -> None:
        to = self.wires[node][port].to
        if node[0] == "w":
            passes = self.on_packet(int(node[1:]), frame, True)
        else:
            passes = to[0] != "w" or self.on_packet(int(to[1:]), frame, False)
        if not passes:
            return
        self.on_link(node, to, frame)
        if self.impairments.mark and self.random.random() < self.impairments.mark:
            flags = wire.FRAME_PREFIX_BYTES + 1
            frame = frame[:flags] + bytes([frame[flags] | wire.FLAG_ECN]) + frame[flags + 1 :]
        super().send(node, port, frame)

    def deliver_again(self, worker: int, packet: bytes) -> None:
        """Let a copy of a worker's packet arrive at its switch, a microsecond from now."""
        at = self.wires[f"w{worker}"][HOST_PORT]
        self.call_at(self.now + 1000, self.nodes[at.to].deliver, at.port, packet)


def endpoints(rank: int) -> wire.Endpoints:
    return wire.Endpoints(
        f"02:00:00:00:00:{rank:02x}", "02:00:00:00:ff:01", f"10.0.0.{rank + 1}", "10.0.255.1", 42592
    )


class VirtualNetwork(Network):
    """One job of `size` workers. Without a `tree`, rank r sits at port r of the only switch.

    With one, child b of a node is at port b of the switch of that name, the uplink at the port after them.
    """

    def __init__(
        self,
        switch: PortedSwitch | Mapping[int, PortedSwitch],
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
        for number, each in (switch if isinstance(switch, Mapping) else {0: switch}).items():
            self.add_switch(number, each)
        resolved = tree or Tree.star(size)
        if server is not None:
            core["fallback"] = True
            self.add_server(server, (0, resolved.fan_in(0)))
        for node in resolved.nodes:
            if node:
                parent, bit = resolved.parent(-node)
                above = (parent, bit.bit_length() - 1)
                self.connect((node, resolved.fan_in(node)), above)
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

    counted: Callable[[], Mapping[str, int]]
    """What the fallback server has counted for the job, if there is one."""
    forget: Callable[[], None]
    """Let all switches lose their sums, and keep the job."""

    @property
    def switch(self) -> PortedSwitch:
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
        target: int = wire.TARGET_ALL,
    ) -> list[NDArray[Any]]:
        """Carry out one allreduce of `arrays[rank]` and return what each rank got.

        Errors of ranks are left in `workers[rank].error`. Ranks in `absent` do not take part.
        """
        planned = [
            collectives.make_collective(
                array, op, collectives.CallOptions(array if in_place else None, name, "propagate")
            )
            for array, name in zip(arrays, names or [None] * len(arrays), strict=True)
        ]
        starts = starts_us or [0] * len(arrays)
        tasks = [[Task(plan, target, wait_us=wait)] for plan, wait in zip(planned, starts, strict=True)]
        self.run_tasks(tasks, limit_s=limit_s, absent=absent)
        return [plan.staged.finish() for plan in planned]
