"""Many jobs at once, and a state that cannot be written: the daemon goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from benchmarks.speed.controller_process import NoWorkers, cluster
from controller import SwitchSession
from controller.vocabulary import Job
from ina.errors import Conflict, StoreError
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.fallback.process import Fallback, FallbackServers
from ina.run.launch.orders import RunStatus
from ina.run.ledger import Ledger
from ina.run.network import ClusterNetwork
from ina.run.policies import Policies
from ina.run.runs import LOOKS_PER_S
from ina.run.store import Store
from ina.run.threads import Threads
from tests.ina.run.bed import TIMEOUT_S
from tests.ina.run.reached import program, reached
from tests.ina.run.served import LEFT, Served


def job(name: str) -> Job:
    return Job(name=name, workers=1, command=("true",), iterations=1000, servers=("h1",))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not true():
            await asyncio.sleep(0.01)


def unused_switch(name: str, address: str) -> SwitchSession:
    """Return a controller of a switch of this process: the jobs here are on one server each."""
    return SwitchSession(reached(name, 8192))


def no_server(*_: object) -> Fallback:
    """Fail: these jobs need no fallback server."""
    raise AssertionError


@contextlib.asynccontextmanager
async def living(folder: Path, executor: NoWorkers) -> AsyncIterator[Daemon]:
    """Have a daemon live whose jobs are nothing but known."""
    with Store(folder) as store:
        daemon = Daemon(
            Ledger(store, cluster(2, 8), Policies(), Clock(0.0, 0.0, wall=lambda: 0.0)),
            testbed="none",
            switches=ClusterNetwork(unused_switch, program()),
            executor=executor,
            fallbacks=FallbackServers(no_server),
            blocking=Threads(),
        )
        running = asyncio.create_task(daemon.run())
        try:
            await until(lambda: not daemon.ready)
            yield daemon
            assert not running.done(), "it lives"
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def test_on_a_full_disk_submissions_are_refused_and_the_daemon_goes_on(served: Served) -> None:
    async def fill(name: str) -> list[str]:
        served.fill_disk()
        refused: list[str] = []
        for number in range(200):  # what is left of the last page
            try:
                await served.daemon.submit([job(f"{name}-{number}")])
            except StoreError as error:
                refused.append(str(error))
        assert "full" in served.daemon.ledger.store.trouble
        return refused

    served.world.iterations = defaultdict(lambda: 10)
    await served.submit("first", 100_000, (LEFT,))
    refused = await fill("more")
    assert refused
    assert all("full" in each for each in refused)
    assert all(each.name == "first" or each.state != "refused" for each in served.daemon.reports.records())
    with contextlib.suppress(StoreError):
        await served.daemon.cancel("first")  # its workers are to end, which has to be written down first
    await asyncio.sleep(3.0)
    served.fill_disk(room=True)
    with contextlib.suppress(Conflict):  # it was written down after all
        await served.daemon.cancel("first")
    await served.daemon.submit([job("last")])
    assert await served.over("first", "last") == ["cancelled", "completed"]
    await served.until(lambda: not served.world.runs)
    assert served.daemon.ledger.store.trouble == ""
    await fill("again")
    served.fill_disk(room=True)
    await served.until(lambda: not served.daemon.ledger.store.trouble)  # although nobody asks for anything


class Looks(NoWorkers):
    """Counts how often each run is looked at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.looks: Counter[int] = Counter()

    def status(self, number: int) -> RunStatus | None:
        """Return that it runs, if it does."""
        self.looks[number] += 1
        return super().status(number)


def test_submissions_that_come_at_once_share_a_sync_and_none_is_answered_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    fsync = os.fsync

    async def life() -> None:
        async with living(tmp_path, NoWorkers(tmp_path / "runs")) as daemon:

            def counted(file: int) -> None:
                syncs.append(sum(task.done() for task in tasks))
                fsync(file)

            monkeypatch.setattr(os, "fsync", counted)
            tasks = [asyncio.create_task(daemon.submit([job(f"job-{number}")])) for number in range(32)]
            await asyncio.gather(*tasks)
            assert len(daemon.reports.records()) == 32

    asyncio.run(life())
    assert syncs == [0, 0], "of the log and of its folder, and nobody had an answer by then"


def test_many_runs_are_looked_at_less_often(tmp_path: Path) -> None:
    """200 runs were looked at 800 times a second, and again with each submission."""
    executor = Looks(tmp_path / "runs")

    async def life() -> None:
        async with living(tmp_path / "state", executor) as daemon:
            await daemon.submit([job(f"job-{number}") for number in range(8)])
            await until(lambda: all(record.state == "running" for record in daemon.reports.records()))
            executor.looks.clear()
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            for number in range(20):
                await daemon.submit([job(f"more-{number}")])
                await asyncio.sleep(0.02)
            took_s = loop.time() - begin_s
            assert executor.looks
            assert max(executor.looks.values()) <= took_s * 4 + 1
            assert sum(executor.looks.values()) <= took_s * LOOKS_PER_S + len(daemon.reports.records())

    asyncio.run(life())
