"""Many jobs at once, and a state that cannot be written: the daemon goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from controller.vocabulary import Job, fabrics
from ina.errors import Conflict, StoreError
from ina.run.launch.orders import RunStatus
from ina.run.runs import LOOKS_PER_S
from tests.ina.run.bed import cluster, stand
from tests.ina.run.served import LEFT, Served


def job(name: str) -> Job:
    return Job(name=name, workers=1, command=("true",), iterations=1000, servers=("h1",))


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


def test_submissions_that_come_at_once_share_a_sync_and_none_is_answered_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    fsync = os.fsync

    async def life() -> None:
        daemon, _, _ = stand(tmp_path, cluster())
        running = asyncio.create_task(daemon.run())
        while daemon.ready:
            await asyncio.sleep(0.01)

        def counted(file: int) -> None:
            syncs.append(sum(task.done() for task in tasks))
            fsync(file)

        monkeypatch.setattr(os, "fsync", counted)
        tasks = [asyncio.create_task(daemon.submit([job(f"job-{number}")])) for number in range(32)]
        await asyncio.gather(*tasks)
        assert len(daemon.reports.records()) == 32
        assert not running.done(), "it lives"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(life())
    assert syncs == [0, 0], "of the log and of its folder, and nobody had an answer by then"


@pytest.mark.parametrize("served", [{"cluster": fabrics.star(1, fabrics.Parts(gpus=8))}], indirect=True)
async def test_many_runs_are_looked_at_less_often(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 runs were looked at 800 times a second, and again with each submission."""
    looks, status, daemon = Counter[int](), served.world.status, served.daemon

    def counted(number: int) -> RunStatus | None:
        looks[number] += 1
        return status(number)

    monkeypatch.setattr(served.world, "status", counted)
    served.world.iterations = defaultdict(lambda: 100_000)
    await daemon.submit([job(f"job-{number}") for number in range(8)])
    await served.until(lambda: all(record.state == "running" for record in daemon.reports.records()))
    looks.clear()
    begin_s = served.loop.time()
    for number in range(20):
        await daemon.submit([job(f"more-{number}")])
        await asyncio.sleep(0.02)
    took_s = served.loop.time() - begin_s
    assert looks
    assert max(looks.values()) <= took_s * 4 + 1
    assert sum(looks.values()) <= took_s * LOOKS_PER_S + len(daemon.reports.records())
