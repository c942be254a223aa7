"""The real daemon in virtual time, in a world that outlives it: what stories about it share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Link, Topology
from controller.vocabulary.catalog import leaf_spine
from ina.run import fabric_network
from ina.run.clock import Clock
from ina.run.launch.spec import LaunchSpec
from ina.run.ledger import Ledger
from ina.run.memory import ServiceState
from ina.run.policies import Policies
from ina.run.records import Retention
from ina.run.store import Store
from tests.ina.run.virtual import (
    Inline,
    VirtualLoop,
    World,
    daemon_of,
    fabric_of,
    in_memory,
    limit_pages,
)

CLUSTER = leaf_spine(2, 2, 2, servers=2, link=Link("a", "b"))
LEFT, RIGHT = CLUSTER.servers_for("worker")[0], CLUSTER.servers_for("worker")[-1]


@dataclass
class Served:
    """A daemon that can be killed, and a world that lasts."""

    folder: Path
    loop: VirtualLoop
    world: World
    policies: Policies
    retention: Retention = field(default_factory=Retention)
    store: str = "SQLite"
    """The kind of its store; with one in memory, which ends with it, its switches are those of a command."""
    cluster: Topology = CLUSTER

    async def begin(self) -> None:
        """Start a daemon, and return when it serves."""
        self._store = store = ServiceState() if self.store == "memory" else Store(self.folder)
        kept = store.fact("clock") or ""
        clock = Clock(0.0, store.last_s, kept, wall=self.loop.time, monotonic=self.loop.time)
        ledger = Ledger(store, self.cluster, self.policies, clock, retention=self.retention)
        fabric = fabric_of(self.world) if self.store == "memory" else None
        self.daemon = daemon_of(ledger, self.world, Inline(self.world), fabric)
        self.loop.create_task(self.daemon.run(), name="daemon")
        await self.until(lambda: not self.daemon.ready)

    async def again(self, down_s: float = 0.0, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill it, and start another after a while in which something else may happen."""
        await self.end()
        await asyncio.sleep(down_s)
        meanwhile()
        await self.begin()

    async def end(self) -> None:
        """Kill it."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[operator]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fill_disk(self, *, room: bool = False) -> None:
        """Leave no room for the state's file, or as much as it wants again."""
        limit_pages(self._store, full=not room)

    async def until(self, holds: Callable[[], bool], within_s: float = 200.0) -> None:
        """Let time go on until this holds."""
        give_up = self.loop.time() + within_s
        while not holds():
            jobs = [(each.name, each.state, each.reason) for each in self.daemon.reports.records()]
            assert self.loop.time() < give_up, (jobs, self.world.left())
            await asyncio.sleep(0.1)

    async def submit(
        self, name: str, iterations: int, servers: Sequence[str] = (), state: str = "running", **keys: Any
    ) -> None:
        """Submit a job, a worker on each of these servers; let time go on until it is in a state."""
        self.world.iterations[name] = iterations
        given = {"workers": len(servers), "servers": tuple(servers), "iterations": iterations, **keys}
        job = Job(name=name, command=("train",), **given)
        self.world.specs[name] = LaunchSpec(job=job, places=job.servers)
        await self.daemon.submit([job])
        await self.until(lambda: self.daemon.reports.record(name).state == state)

    async def over(self, *names: str, within_s: float = 200.0) -> list[str]:
        """Let time go on until these jobs, or all, are over; return how they are."""
        wanted = names or [each.name for each in self.daemon.reports.records()]
        await self.until(lambda: all(self.daemon.reports.record(name).over for name in wanted), within_s)
        return [self.daemon.reports.record(name).state for name in wanted]

    def texts(self, name: str) -> list[str]:
        """Return what was decided about a job, in words."""
        return [each["text"] for each in self.daemon.reports.explain(name)["decisions"]]

    async def state(self, name: str, state: str) -> None:
        """Let time go on until a job is in a state, whose holder renews its lease."""
        give_up = self.loop.time() + 200.0
        while (record := self.daemon.reports.record(name)).state != state:
            assert not record.over, (record.state, record.reason)
            assert self.loop.time() < give_up, (record.state, record.reason)
            await self.daemon.renew(name)
            await asyncio.sleep(0.5)

    async def clean(self) -> None:
        """Wait until nothing is held; then nothing may be left."""
        await self.until(lambda: not self.daemon.ledger.holds)
        assert (await self.daemon.audit())["clean"]
        await self.until(lambda: not any(self.world.left().values()))
        await self.until(lambda: not [*(self.folder / "external").glob("*")])


@contextmanager
def serving(
    retention: Retention = Retention(),  # noqa: B008 - frozen
    store: str = "SQLite",
    cluster: Topology = CLUSTER,
    **policies: Any,
) -> Iterator[Served]:
    """Have a daemon serve, whose time goes on while its loop runs; its files are in memory."""
    chosen = Policies(**{"scheduler": "fifo", "allocation": AllocationSettings(memory="shared"), **policies})
    loop = VirtualLoop()
    with in_memory("served-") as folder, closing(loop), pytest.MonkeyPatch.context() as patch:
        patch.setattr(fabric_network, "KEEP_S", 0.0)  # its clock does not go on with the loop's
        served = Served(folder, loop, World(cluster, 1, loop.time), chosen, retention, store, cluster)
        loop.run_until_complete(served.begin())
        yield served
        loop.run_until_complete(served.end())
