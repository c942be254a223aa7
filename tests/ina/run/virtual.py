"""A world in virtual time for the daemon: switches of this process, and what outlives the daemon.

The switches are compiled programs under the real `SwitchSession`; the store is real. Runs are made up: a
job computes for as long as it has iterations, saves all the while, and gives up when its packets find no way
for `PATIENCE_S`. It ends with a sum in real packets, and not before that is complete and right.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from bmv2_topos.testbeds.netns import forwarding
from controller import Fleet, SwitchSession
from controller.core import Tick
from controller.p4runtime_shim.ports import PortEnds, SwitchReport
from controller.switches.layout import TreeAdmission
from controller.vocabulary import Topology
from ina.errors import RunnerGone, StoreError
from ina.run.daemon import Daemon
from ina.run.fabric_network import FabricNetwork
from ina.run.fallback.process import FallbackServers
from ina.run.launch.executor import Executor
from ina.run.launch.hosts import UdpHosts
from ina.run.launch.orders import ON_NO_SWITCH, RunOrder, RunStatus
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.ledger import Ledger
from ina.run.network import ClusterNetwork
from ina.run.store import Store
from ina.run.switches.fabric import SwitchFabric
from ina.run.threads import Threads
from tests.ina.run.reached import program, reached, summed

T = TypeVar("T")

ITERATION_S = 0.05
PATIENCE_S = 8.0
LONGEST_CALL_S = 20.0
"""Of one that hangs."""


_PSN = count()
"""Of all worlds: the switches keep what was summed in earlier ones, for jobs with the same identities."""


class Died(BaseException):
    """The daemon is dead: nothing that it still does has an effect."""


class _Selector(selectors.SelectSelector):
    """Does not wait: time goes on instead. Nothing comes from outside."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing would ever happen again"
        self._loop.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now_s


@dataclass
class _Run:
    order: RunOrder
    began_s: float
    lives: bool = True
    cut_s: dict[str, float] = field(default_factory=dict)
    """Since when jobs have no way for their packets."""
    status: RunStatus = field(default_factory=RunStatus)

    def again(self) -> _Run:
        """Return another run of the same order."""
        return _Run(self.order, self.began_s)

    def end(self, name: str, why: str, **more: Any) -> None:
        """End the workers of a job with this failure; change further fields of the status."""
        self.status = replace(self.status, ends={**self.status.ends, name: why}, **more)

    def __post_init__(self) -> None:
        self.in_flight = {job.name: job.in_flight for job in self.order.jobs}


class VirtualFallback:
    """A fallback server of a world (`ina.run.fallback.process.Fallback`), which may end."""

    over = False

    def __init__(self, world: World, server: str) -> None:
        self._served, self._server = world.served, server
        self._jobs: Mapping[int, Any] = {}
        self.breaks = int(not world.served.get(server))

    def hold(self, jobs: Mapping[int, Any]) -> None:
        self._jobs = self._served[self._server] = jobs

    def check(self) -> None:
        """Start it again if it has ended."""
        if self._server not in self._served:
            self.breaks += 1
            self.hold(self._jobs)

    def statistics(self, job: int) -> dict[str, float]:
        return {}

    def stop(self) -> None:
        """Do nothing: it outlives who uses it."""


class World(Executor):
    """All that outlives the daemon.

    Attributes:
        cut: Links that carry nothing.
        runs: That were started and not forgotten.
        served: By fallback server, the jobs that it serves, by id; servers that have ended are not there.
        saved: Iterations that jobs have done and saved.
        iterations: Of each job.
        specs: How one command starts each job.
        absent: Jobs of which a worker never joins.
        endless: Jobs that go on until they are stopped.
        silent: Jobs that tell of no iterations.
        completed: How often jobs were done.
        sums: That were completed, and right.
        hangs: Runs do not end when they should.
        slow: Calls take long.
        hung_s: Time that calls to switches take at least.
        refuses: No run can be started.
        dead: Servers that have died, by name, each with why.
        watched: Whether the engine looks at its servers: it may tell of the dead later than runs do.
        others: Why the status of runs cannot be read, by their numbers.
    """

    def __init__(self, cluster: Topology, seed: int, now: Callable[[], float]) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.now = now
        self.switches = {each.name: reached(each.name, each.slots) for each in cluster.switches}
        for switch in self.switches.values():
            switch.again()
        self.cut: set[tuple[str, str]] = set()
        self.runs: dict[int, _Run] = {}
        self.saved: dict[str, int] = {}
        self.iterations: dict[str, int] = {}
        self.specs: dict[str, LaunchSpec] = {}
        self.absent: set[str] = set()
        self.endless: set[str] = set()
        self.silent: set[str] = set()
        self.completed: dict[str, int] = {}
        self.served: dict[str, Mapping[int, Any]] = {}
        self.sums = 0
        self.hung_s = 0.0
        self.hangs = self.slow = self.refuses = False
        self.dead: dict[str, str] = {}
        self.watched = True
        self.others: dict[int, str] = {}

    def before_each_write(self, call: Callable[[], None]) -> None:
        """Have this called before each entry that is written to a switch."""
        for switch in self.switches.values():
            switch.before_write = call

    def mend(self) -> None:
        """Have all work again."""
        self.hangs = self.slow = self.refuses = False
        self.cut.clear()
        for switch in self.switches.values():
            switch.gone, switch.torn = False, None

    def connect(self, name: str, address: str = "") -> SwitchSession:
        """Return a controller of a switch that knows nothing yet."""
        target = self.switches[name]
        return SwitchSession(target, ticks_s=self.now, clock=self.now, rng=random.Random(self.rng.random()))

    def fleet(self) -> Fleet:
        """Return controllers of all switches that know nothing yet."""
        return Fleet({name: self.connect(name) for name in self.switches})

    def watch(self, address: str) -> SwitchReport | None:
        """Return what a switch tells of itself: those with even numbers their revisions, too."""
        switch = self.switches[address]
        if switch.gone:
            return None
        links = self.cluster.ports[address]
        ports = {port: PortEnds(up=(link.a, link.b) not in self.cut) for port, link in links.items()}
        return SwitchReport(ports, switch.revision if int(address[-1]) % 2 == 0 else None)

    def work(self, name: str) -> tuple[int, float]:
        """Return a job's iterations, and the seconds that each takes."""
        return self.iterations[name.partition("#")[0]], ITERATION_S

    # ------------------------------------------------------------------ an executor

    def start(self, order: RunOrder) -> None:
        if self.refuses:
            raise OSError("no process can be started")
        if order.number not in self.runs:
            self.runs[order.number] = _Run(order, self.now())

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        if number in self.runs:
            self.runs[number].in_flight.update(in_flight)

    def stop(self, number: int) -> None:
        if self.hangs and self.rng.random() < 0.5:
            raise RunnerGone(f"the workers of run {number} do not end")
        if number in self.runs:
            self.kill(number)

    def kill(self, number: int) -> None:
        """End a run's processes; its jobs have saved what they have done."""
        run = self.runs[number]
        self._advance(run)
        if run.lives:
            run.lives = False
            for name, done in run.status.done.items():
                called = name.partition("#")[0]
                self.saved[called] = self.saved.get(called, 0) + done

    def status(self, number: int) -> RunStatus | None:
        run = self.runs.get(number)
        if run is None:
            return None
        self._advance(run)
        return run.status

    def lives(self, number: int) -> bool:
        run = self.runs.get(number)
        if run is not None:
            self._advance(run)
        return run is not None and run.lives and not run.status.over

    def other_version(self, number: int) -> str:
        return self.others.get(number, "")

    def forget(self, number: int) -> None:
        self.runs.pop(number, None)

    def known(self) -> list[int]:
        return list(self.runs)

    def why_ended(self, number: int) -> str:
        return "it was killed"

    def gone(self) -> dict[str, str]:
        return self.dead if self.watched else {}

    def looked_within(self, age_s: float) -> bool:
        return self.watched

    def tick(self) -> None:
        """Let all runs come to now; to be called often."""
        for run in self.runs.values():
            self._advance(run)

    def _advance(self, run: _Run) -> None:
        now_s = self.now()
        if not run.lives or run.status.over:
            return
        for job in run.order.jobs:
            name, called = job.name, job.name.partition("#")[0]
            if name in run.status.ends:
                continue
            if lost := {server: why for server, why in self.dead.items() if server in job.places}:
                run.end(name, "rank 0 has lost rank 1", lost=lost)
                continue
            if called in self.absent:
                if now_s - run.began_s > PATIENCE_S:
                    run.end(name, "rank 0 exited with status 1: rank 1 never joined")
                continue
            without_switch = run.order.admissions[name].job == ON_NO_SWITCH
            if without_switch or self._has_way(run.order.admissions[name]):
                iterations, iteration_s = self.work(name)
                done, left = int((now_s - run.began_s) / iteration_s), iterations - self.saved.get(called, 0)
                seen = 0 if called in self.silent else max(0, min(done, left))
                run.status = replace(run.status, done={**run.status.done, name: seen})
                if done < left or called in self.endless:
                    run.cut_s.pop(name, None)
                    continue
                if without_switch or self._sums(run.order.admissions[name]):
                    run.end(
                        name,
                        "",
                        ended_at={
                            **run.status.ended_at,
                            name: max(run.began_s + left * iteration_s, run.cut_s.get(name, 0.0)),
                        },
                    )
                    self.completed[called] = self.completed.get(called, 0) + 1
                    continue
            if now_s - run.cut_s.setdefault(name, now_s) > PATIENCE_S:
                run.end(name, "rank 0 exited with status 1")
        run.status = replace(run.status, over=len(run.status.ends) == len(run.order.jobs))

    def _has_way(self, admission: TreeAdmission) -> bool:
        for name, on in admission.switches.items():
            if self.switches[name].gone:
                return False
            ports = {member.port for member in on.members}
            if on.uplink is not None:
                ports.add(on.uplink.port)
            links = self.cluster.ports[name].items()
            if any((link.a, link.b) in self.cut for port, link in links if port in ports):
                return False
        return True

    def _sums(self, admission: TreeAdmission) -> bool:
        """Sum once in packets; return whether that was completed. Raises WrongSum."""
        switches = {name: each.switch for name, each in self.switches.items()}
        served = {server for server, jobs in self.served.items() if admission.job in jobs}
        done = summed(self.cluster, switches, served, admission, next(_PSN), self._works)
        self.sums += done
        return done

    def _works(self, a: str, b: str) -> bool:
        gone = any(name in self.switches and self.switches[name].gone for name in (a, b))
        return not gone and (a, b) not in self.cut and (b, a) not in self.cut

    # ------------------------------------------------------------------ what must not stay

    def left(self) -> dict[str, Collection[Any]]:
        """Return all that is held somewhere."""
        return {
            "runs": self.known(),
            "served": [job for jobs in self.served.values() for job in jobs],
            "jobs on switches": list(self.fleet().read()),
            "rows": [
                (name, row)
                for name, switch in self.switches.items()
                for row in switch.read(switch.tables)
                if row not in forwarding.entries(self.cluster, name)
            ],
        }


class Inline:
    """`ina.run.threads.Threads` in virtual time: calls take a moment, and a dead daemon makes none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turn = asyncio.Lock()
        self._fallback_turn = asyncio.Lock()
        self.dead = False

    async def switches(self, call: Callable[[], T]) -> T:
        async with self._turn:
            await asyncio.sleep(self._world.hung_s)
            return await self._make(call)

    async def fallbacks(self, call: Callable[[], T]) -> T:
        async with self._fallback_turn:
            return await self._make(call)

    async def runs(self, call: Callable[[], T]) -> T:
        return await self._make(call)

    async def disk(self, call: Callable[[], T]) -> T:
        return await self._make(call)

    async def _make(self, call: Callable[[], T]) -> T:
        slow = self._world.slow and self._world.rng.random() < 0.3
        await asyncio.sleep(self._world.rng.uniform(0.001, LONGEST_CALL_S if slow else 0.1))
        if self.dead:
            raise Died
        return call()

    def close(self) -> None:
        """Do nothing: nothing is under way that has an effect."""


class AuditedFabric(FabricNetwork):
    """The switches of one command under a `Daemon`, which audits them."""

    audit = ClusterNetwork.audit  # type: ignore[assignment, arg-type]


def fabric_of(world: World) -> FabricNetwork:
    """Return the switches as those of one command: one tree, whose jobs name their servers."""
    fabric = SwitchFabric(
        spec=FabricSpec(program="shared"),
        topology=world.cluster,
        fleet=world.fleet(),
        hosts=UdpHosts(""),
        fallbacks=FallbackServers(lambda *_: VirtualFallback(world, fabric.server_host)),
    )
    return AuditedFabric(fabric, world.specs, scheduled=True)


def daemon_of(
    ledger: Ledger, world: World, blocking: Inline | Threads, fabric: FabricNetwork | None = None
) -> Daemon:
    """Return the real daemon of a ledger, in a world; its switches may be those of one command."""
    fallbacks = FallbackServers(lambda _, server, __: VirtualFallback(world, server))
    return Daemon(
        ledger,
        testbed="virtual",
        switches=fabric or ClusterNetwork(world.connect, program(), watch=world.watch),
        executor=world,
        fallbacks=fabric._fabric.fallbacks if fabric else fallbacks,
        blocking=blocking,
        on_loss=fabric and fabric.lose,
    )


def limit_pages(store: Store, *, full: bool) -> None:
    """Let the state's file not grow, as on a full disk, or grow again."""
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages if full else 1 << 30}")


def fill_disk(ledger: Ledger) -> None:
    """Leave no room for the state's file: not even the smallest event, a tick, can be written."""
    limit_pages(ledger.store, full=True)
    with contextlib.suppress(StoreError):
        while True:
            ledger.record([Tick(ledger.now_s)])


@contextlib.contextmanager
def in_memory(prefix: str) -> Iterator[Path]:
    """Give a folder in memory, for files that a test syncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=memory if memory.is_dir() else None) as path:
        yield Path(path)
