"""What many jobs at once cost the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.speed.controller_process import NoFallbacks, NoWorkers, cluster
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.policies import Policies
from ina.service.runner import RunStatus
from ina.service.runs import LOOKS_PER_S
from ina.service.store import Store
from ina.service.threads import Threads
from tests.ina.service.reached import program
from tests.ina.service.test_full_disk import job, until, unused_switch


class Looks(NoWorkers):
    """Counts how often each run is looked at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.looks: Counter[int] = Counter()

    def status(self, number: int) -> RunStatus | None:
        """Return that it runs, if it does."""
        self.looks[number] += 1
        return super().status(number)


@contextlib.asynccontextmanager
async def living(folder: Path, executor: NoWorkers) -> AsyncIterator[Daemon]:
    topology = cluster(2, 8)
    with Store(folder) as store:
        daemon = Daemon(
            Ledger(store, topology, Policies(), Clock(0.0, 0.0)),
            testbed="none",
            switches=Network(unused_switch, program()),
            executor=executor,
            fallbacks=NoFallbacks(),
            blocking=Threads(),
        )
        running = asyncio.create_task(daemon.run())
        try:
            await until(lambda: not daemon.ready)
            yield daemon
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


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
            assert len(daemon.records()) == 32

    asyncio.run(life())
    assert syncs == [0, 0], "of the log and of its folder, and nobody had an answer by then"


def test_many_runs_are_looked_at_less_often(tmp_path: Path) -> None:
    """200 runs were looked at 800 times a second, and again with each submission."""
    executor = Looks(tmp_path / "runs")

    async def life() -> None:
        async with living(tmp_path / "state", executor) as daemon:
            await daemon.submit([job(f"job-{number}") for number in range(8)])
            await until(lambda: all(record.state == "running" for record in daemon.records()))
            executor.looks.clear()
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            for number in range(20):
                await daemon.submit([job(f"more-{number}")])
                await asyncio.sleep(0.02)
            took_s = loop.time() - begin_s
            assert executor.looks
            assert max(executor.looks.values()) <= took_s * 4 + 1
            assert sum(executor.looks.values()) <= took_s * LOOKS_PER_S + len(daemon.records())

    asyncio.run(life())
