"""Leases of jobs whose workers somebody else starts, by the real daemon in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.policies.by_kind import AllocationSettings
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import leaf_spine
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.errors import Conflict
from ina.service.external import LEASE_S
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.policies import Policies
from ina.service.quotas import Quota
from ina.service.store import Store
from tests.ina.service.reached import program
from tests.ina.service.virtual import Inline, VirtualLoop, World

CLUSTER = leaf_spine(2, 2, 2, servers=2, link=Link("a", "b"))
LEFT, RIGHT = CLUSTER.servers_for("worker")[0], CLUSTER.servers_for("worker")[-1]


@dataclass
class Served:
    """A daemon that can be killed, and a world that lasts."""

    folder: Path
    loop: VirtualLoop
    world: World
    policies: Policies
    daemon: Daemon

    async def again(self) -> None:
        """Kill it, and start another."""
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.daemon = _daemon(self.folder, self.loop, self.world, self.policies)
        _serve(self)
        await self.until(lambda: not self.daemon.ready)

    async def until(self, holds: Callable[[], bool], within_s: float = 200.0) -> None:
        """Let time go on until this holds."""
        give_up = self.loop.time() + within_s
        while not holds():
            assert self.loop.time() < give_up, [(r.name, r.state, r.reason) for r in self.daemon.records()]
            await asyncio.sleep(0.1)

    async def state(self, name: str, state: str, *, renewing: bool = True) -> None:
        """Let time go on until a job is in a state."""
        while (record := self.daemon.record(name)).state != state:
            assert not record.over, (record.state, record.reason)
            if renewing:
                await self.daemon.renew(name)
            await asyncio.sleep(0.5)

    async def clean(self) -> None:
        """Wait until nothing is held; then nothing may be left."""
        await self.until(lambda: not self.daemon.holds)
        assert (await self.daemon.audit()).clean
        await self.until(lambda: not any(self.world.left().values()))
        await self.until(lambda: not [*(self.folder / "external").glob("*")])


def _daemon(folder: Path, loop: VirtualLoop, world: World, policies: Policies) -> Daemon:
    store = Store(folder)
    last_s = max((row.body["event"]["at_s"] for row in store.events()), default=0.0)
    return Daemon(
        Ledger(store, CLUSTER, policies, Clock(0.0, last_s, wall=loop.time, monotonic=loop.time)),
        testbed="virtual",
        switches=Network(CLUSTER, world.fleet(), program(), ports=world.ports),
        executor=world,
        fallbacks=world,
        blocking=Inline(world),
        began_at=0.0,
    )


def _serve(served: Served) -> None:
    served.loop.create_task(served.daemon.run(), name="daemon")


def play(folder: Path, story: Callable[[Served], Coroutine[Any, Any, None]], **policies: Any) -> None:
    """Have a story happen to a daemon."""
    loop = VirtualLoop()
    world = World(CLUSTER, 1, loop.time)
    chosen = Policies(**{"scheduler": "fifo", "allocation": AllocationSettings(memory="shared"), **policies})

    async def run() -> None:
        served = Served(folder, loop, world, chosen, _daemon(folder, loop, world, chosen))
        _serve(served)
        await served.until(lambda: not served.daemon.ready)
        await story(served)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[operator]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def external(name: str = "job", servers: tuple[str, ...] = (LEFT, RIGHT)) -> Job:
    """A job with a worker on each of these servers."""
    return Job(name=name, workers=len(servers), servers=servers)


def test_a_job_leaves_its_switches_when_nobody_renews_its_lease(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.daemon.admit(external(), holder="")
        await served.state("job", "running")
        assert served.world.left()["jobs on switches"]
        await served.until(lambda: served.daemon.record("job").over, LEASE_S + 5)
        record = served.daemon.record("job")
        assert record.state == "failed"
        assert "has not been heard of for 20 s" in record.reason
        await served.clean()

    play(tmp_path, story, retries=3)


@pytest.mark.parametrize("waits_for", ["gpus", "quota"])
def test_a_job_that_waits_leaves_the_queue_when_nobody_renews_its_lease(
    tmp_path: Path, waits_for: str
) -> None:
    async def story(served: Served) -> None:
        daemon = served.daemon
        if waits_for == "quota":
            await daemon.set_quota(Quota("a", gpus=2))
        await daemon.admit(external("first"), holder="", tenant="a")
        await served.state("first", "running")
        second = external("second", (LEFT, LEFT) if waits_for == "gpus" else (RIGHT,))
        await daemon.admit(second, holder="", tenant="a")
        give_up = served.loop.time() + 2 * LEASE_S
        while not daemon.record("second").over:
            assert served.loop.time() < give_up
            await daemon.renew("first")
            await asyncio.sleep(1.0)
        assert daemon.record("first").state == "running"
        await daemon.leave("first")
        await served.until(lambda: daemon.record("first").over)
        assert daemon.record("first").state == "completed"
        await served.clean()

    play(tmp_path, story)


def test_a_controller_that_starts_again_gives_holders_a_whole_lease(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.daemon.admit(external(), holder="")
        await served.state("job", "running")
        for _ in range(3):
            await asyncio.sleep(0.9 * LEASE_S)
            await served.again()
            assert served.daemon.record("job").state == "running"
            assert served.daemon.grant("job").crosses
        await served.daemon.leave("job", "rank 1 was killed")
        await served.until(lambda: served.daemon.record("job").over)
        assert served.daemon.record("job").reason == "rank 1 was killed"
        await served.clean()

    play(tmp_path, story)


def test_a_job_whose_server_is_drained_ends_once_its_holder_has_ended_its_workers(tmp_path: Path) -> None:
    """It cannot start elsewhere; its GPUs are not given away before."""

    async def story(served: Served) -> None:
        await served.daemon.admit(external(), holder="")
        await served.state("job", "running")
        await served.daemon.drain(LEFT)
        await served.until(lambda: served.daemon.record("job").state == "stopping")
        await served.daemon.renew("job")
        await served.until(lambda: bool(served.daemon._external.to_stop(0)))
        stop = (await served.daemon.renew("job")).stop
        assert stop
        assert served.daemon.holds
        await served.daemon.leave("job", stop)
        await served.until(lambda: served.daemon.record("job").over)
        assert served.daemon.record("job").state == "failed"
        await served.clean()

    play(tmp_path, story, retries=3)


def test_a_job_that_was_cancelled_leaves_as_soon_as_its_workers_have_ended(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.daemon.admit(external(), holder="")
        await served.state("job", "running")
        await served.daemon.cancel("job")
        await asyncio.sleep(1.0)
        began_s = served.loop.time()
        await served.daemon.leave("job", "told to end")
        await served.clean()
        assert served.loop.time() - began_s < LEASE_S / 4
        assert served.daemon.record("job").state == "cancelled"

    play(tmp_path, story)


def test_a_holder_that_does_not_end_its_workers_when_told_loses_its_place(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.daemon.admit(external(), holder="")
        await served.state("job", "running")
        await served.daemon.cancel("job")
        give_up = served.loop.time() + 3 * LEASE_S
        while served.daemon.holds:
            assert served.loop.time() < give_up
            assert (await served.daemon.renew("job")).stop == "by its owner"
            await asyncio.sleep(1.0)
        assert served.daemon.record("job").state == "cancelled"
        await served.clean()

    play(tmp_path, story)


def test_where_the_scheduler_chooses_servers_none_is_admitted(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        with pytest.raises(Conflict, match="want another placement"):
            await served.daemon.admit(external(), holder="")

    play(tmp_path, story, allocation=AllocationSettings(placement="scheduler", memory="shared"))


def test_a_scheduler_that_groups_does_not_share_gpus_of_workers_that_it_cannot_stop(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        daemon = served.daemon
        served.world.iterations["own"] = 400
        stages = {"compute_s": 0.03, "layers_bytes": (4_000_000,)}
        everywhere = tuple(CLUSTER.servers_for("worker"))
        await daemon.submit([Job(name="own", workers=4, command=("train",), iterations=400, **stages)])
        await daemon.admit(Job(name="job", workers=4, servers=everywhere, **stages), holder="")
        while not daemon.record("job").over:
            await daemon.renew("job")
            await asyncio.sleep(1.0)
        assert "take turns" in daemon.record("job").reason
        await served.until(lambda: daemon.record("own").over)
        assert daemon.record("own").state == "completed"
        await served.clean()

    play(tmp_path, story, scheduler="muri-s")
