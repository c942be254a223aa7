"""A daemon whose state cannot be written for a while: it refuses, lives, and goes on when it can."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.speed.controller_process import NoFallbacks, NoWorkers, cluster
from controller import SwitchSession
from controller.vocabulary import Job
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.errors import Conflict, StoreError
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.policies import Policies
from ina.service.store import Store
from ina.service.threads import Threads
from tests.ina.service.bed import TIMEOUT_S
from tests.ina.service.reached import program, reached


def job(name: str) -> Job:
    return Job(name=name, workers=1, command=("true",), iterations=1000, servers=("h1",))


def limit(store: Store, pages: int) -> None:
    """Have the state's file not grow above so many pages: SQLite says of it what it says of a full disk."""
    store._database.execute(f"PRAGMA max_page_count = {pages}")


def size(store: Store) -> int:
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    return int(pages)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not true():
            await asyncio.sleep(0.01)


def unused_switch(name: str, address: str) -> SwitchSession:
    """Return a controller of a switch of this process: the jobs here are on one server each."""
    return SwitchSession(reached(name, 8192))


def test_on_a_full_disk_submissions_are_refused_and_the_daemon_goes_on(tmp_path: Path) -> None:
    executor = NoWorkers(tmp_path / "runs")

    async def life(store: Store) -> None:
        topology = cluster(2, 2)
        daemon = Daemon(
            Ledger(store, topology, Policies(), Clock(0.0, 0.0, wall=lambda: 0.0)),
            testbed="none",
            switches=Network(unused_switch, program()),
            executor=executor,
            fallbacks=NoFallbacks(),
            blocking=Threads(),
        )
        running = asyncio.create_task(daemon.run())
        await until(lambda: not daemon.ready)
        await daemon.submit([job("first")])
        await until(lambda: daemon.record("first").state == "running")

        limit(store, size(store))
        refused: list[str] = []
        for number in range(200):  # what is left of the last page
            try:
                await daemon.submit([job(f"more-{number}")])
            except StoreError as error:
                refused.append(str(error))
        assert refused
        assert all("full" in each for each in refused)
        assert "full" in daemon.trouble
        assert all(each.name == "first" or each.state != "refused" for each in daemon.records())
        with contextlib.suppress(StoreError):
            await daemon.cancel("first")  # its workers are to end, which has to be written down first
        await asyncio.sleep(0.6)
        assert not running.done(), "it lives"

        limit(store, 1 << 30)
        with contextlib.suppress(Conflict):  # it was written down after all
            await daemon.cancel("first")
        await daemon.submit([job("last")])
        await until(lambda: daemon.record("first").state == "cancelled" and not executor.lives(0))
        assert daemon.trouble == ""

        limit(store, size(store))
        for number in range(200):
            with contextlib.suppress(StoreError):
                await daemon.submit([job(f"again-{number}")])
        assert "full" in daemon.trouble
        limit(store, 1 << 30)
        await until(lambda: not daemon.trouble)  # although nobody asks for anything
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    with Store(tmp_path) as store:
        asyncio.run(life(store))
