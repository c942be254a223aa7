"""A world in virtual time for the daemon: switches of this process, and what outlives the daemon.

The switches are compiled programs under the real `Controller`; the store is a real one. Runs are made up: a
job computes for as long as it has iterations, saves all the while, and gives up when its packets find no way
for `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller import Controller, Fleet
from controller.errors import Unreachable
from controller.p4runtime_shim.ports import PortEnds
from controller.switches.entries import Entry, Match, MulticastGroup, TableEntry
from controller.switches.programs import ProgramBundle, objects
from controller.switches.target import Kind, ProgramInfo
from controller.switches.tree import TreeAdmission
from controller.vocabulary import Topology
from ina.runtime.programs import bundle
from ina.service import plain
from ina.service.errors import RunnerGone
from ina.service.runner import RunOrder, RunStatus
from softswitch.compiler import p4info
from softswitch.engine.build import load
from softswitch.engine.ports import MemoryPort
from softswitch.engine.programs import compile_once
from softswitch.engine.switch import Switch

T = TypeVar("T")

LANES = 32
ITERATION_S = 0.05
PATIENCE_S = 8.0


class Died(BaseException):
    """The daemon is dead: nothing that it still does has an effect."""


class _Selector(selectors.SelectSelector):
    """Does not wait: time goes on instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing would ever happen again"
            self._loop.now_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now_s


class Reached:
    """A target that may not answer."""

    def __init__(self, target: PipelineTarget) -> None:
        self._target = target
        self.address = target.address
        self.gone = False
        self.restarts = 0
        self.undisturbed = False
        self._wiped = False

    def _here(self) -> PipelineTarget:
        if self.gone:
            raise Unreachable(f"{self.address} does not answer")
        return self._target

    def close(self) -> None:
        """Do nothing."""

    @contextmanager
    def turn(self, *, timeout_s: float) -> Iterator[None]:
        with self._here().turn(timeout_s=timeout_s):
            self.undisturbed, self._wiped = not self._wiped, False  # there is one daemon at a time
            yield

    def program(self) -> ProgramInfo | None:
        return self._here().program()

    def runs(self, bundle: ProgramBundle) -> bool:
        return True

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        self._here()
        return False

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        self._here().write(kind, entries)

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        return self._here().read(tables)

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        return self._here().read_row(table, match)

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        return self._here().read_counter(counter, cells)

    def wipe(self) -> None:
        """Lose all entries, as a switch that is started again."""
        program = self._target.program()
        tables = [name for name in program.tables if name in self._kept()]
        self._target.write("DELETE", self._target.read(tables))
        self._wiped = True

    @cache  # noqa: B019 - there are few targets, and they live as long as the tests
    def _kept(self) -> frozenset[str]:
        pipeline = self._target._pipeline
        return frozenset(name for name, table in pipeline.program.tables.items() if not table.const_entries)


@cache
def program() -> ProgramBundle:
    """The program of all switches."""
    return bundle("shared", LANES)


@cache
def reached(name: str, slots: int) -> Reached:
    """A switch of this process, which lasts; `Reached.wipe` makes it as new."""
    switch = Switch({number: MemoryPort() for number in range(1, 9)})
    pipeline = load(compile_once(program().device_config.decode(), name="shared"))
    switch.load(pipeline)
    return Reached(PipelineTarget(name, switch, pipeline, objects(p4info(pipeline.program)), slots=slots))


@dataclass
class _Run:
    order: RunOrder
    began_s: float
    lives: bool = True
    cut_s: dict[str, float] = field(default_factory=dict)
    """Since when jobs have no way for their packets."""
    status: RunStatus = field(default_factory=RunStatus)


class World:
    """All that outlives the daemon."""

    def __init__(self, cluster: Topology, seed: int, now: Callable[[], float]) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.now = now
        self.switches = {each.name: reached(each.name, each.slots) for each in cluster.switches}
        for switch in self.switches.values():
            switch.gone = False
            switch.wipe()
        self.cut: set[tuple[str, str]] = set()
        self.runs: dict[int, _Run] = {}
        self.saved: dict[str, int] = {}
        """Iterations that jobs have done and saved."""
        self.iterations: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.served: dict[str, list[TreeAdmission]] = {}
        self.hangs = False

    def fleet(self) -> Fleet:
        """Return controllers of the switches that know nothing yet."""
        controllers = {
            name: Controller(target, ticks_s=self.now, clock=self.now, rng=random.Random(self.rng.random()))
            for name, target in self.switches.items()
        }
        return Fleet(controllers)

    def ports(self, address: str) -> dict[int, PortEnds] | None:
        """Return the ports of a switch, as it tells them."""
        if self.switches[address].gone:
            return None
        links = self.cluster.ports[address]
        return {port: PortEnds(up=(link.a, link.b) not in self.cut) for port, link in links.items()}

    # ------------------------------------------------------------------ an executor

    def start(self, order: RunOrder) -> None:
        if order.number not in self.runs:
            self.runs[order.number] = _Run(order, self.now())

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
                self.saved[name] = self.saved.get(name, 0) + done

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

    def forget(self, number: int) -> None:
        self.runs.pop(number, None)

    def known(self) -> list[int]:
        return list(self.runs)

    def why_ended(self, number: int) -> str:
        return "its runner was killed"

    def tick(self) -> None:
        """Let all runs come to now; to be called often."""
        for run in self.runs.values():
            self._advance(run)

    def _advance(self, run: _Run) -> None:
        now_s, status = self.now(), run.status
        if not run.lives or status.over:
            return
        for job in run.order.jobs:
            if job.name in status.ends:
                continue
            if self._has_way(plain.admission_of(job.admission), run.order.switch):
                run.cut_s.pop(job.name, None)
                done = int((now_s - run.began_s) / ITERATION_S)
                left = self.iterations[job.name] - self.saved.get(job.name, 0)
                status.done[job.name] = min(done, left)
                if done >= left:
                    status.ends[job.name] = ""
                    self.completed[job.name] = self.completed.get(job.name, 0) + 1
            elif now_s - run.cut_s.setdefault(job.name, now_s) > PATIENCE_S:
                status.ends[job.name] = "rank 0 exited with status 1"
        status.over = len(status.ends) == len(run.order.jobs)

    def _has_way(self, admission: TreeAdmission, switch: bool) -> bool:
        if not switch:
            return True
        for name, on in admission.switches.items():
            if self.switches[name].gone:
                return False
            ports = [member.port for member in on.members]
            if on.uplink is not None:
                ports.append(on.uplink.port)
            links = self.cluster.ports[name]
            if any((links[port].a, links[port].b) in self.cut for port in ports if port in links):
                return False
        return True

    # ------------------------------------------------------------------ fallback servers

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]]) -> None:
        self.served |= {server: list(jobs) for server, jobs in wanted.items()}

    def counters(self, server: str, job: int) -> dict[str, float]:
        return {}

    # ------------------------------------------------------------------ what must not stay

    def left(self) -> dict[str, Collection[Any]]:
        """Return all that is held somewhere."""
        return {
            "runs": self.known(),
            "served": [job.job for jobs in self.served.values() for job in jobs],
            "jobs on switches": list(self.fleet().read()),
        }


class Inline:
    """`ina.service.threads.Blocking` in virtual time: calls take a moment, and a dead daemon makes none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turn = asyncio.Lock()
        self.dead = False

    async def switches(self, call: Callable[[], T]) -> T:
        async with self._turn:
            return await self._make(call)

    async def runs(self, call: Callable[[], T]) -> T:
        return await self._make(call)

    async def disk(self, call: Callable[[], T]) -> T:
        return await self._make(call)

    async def _make(self, call: Callable[[], T]) -> T:
        await asyncio.sleep(self._world.rng.uniform(0.001, 0.1))
        if self.dead:
            raise Died
        return call()

    def close(self) -> None:
        """Do nothing: nothing is under way that has an effect."""
