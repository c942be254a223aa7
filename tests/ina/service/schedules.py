"""Random schedules of mishaps in virtual time: the daemon is killed at its steps, and so is all around it.

    python -m tests.ina.service.schedules --schedules 10000 --seed 1

prints what went wrong, by seed; each is repeated with ``--schedules 1 --seed N``. A schedule submits and
cancels jobs, kills the daemon between any two of its steps, has switches go, come back empty, links be cut,
runners be killed, stops hang, the clock jump, nodes be drained, and policies and quotas changed. When all
has been mended every job is over, done once if it completed, and nothing is left: no row of a switch, run,
slot, or row of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from controller.policies.by_kind import AllocationSettings
from controller.vocabulary import Job, Link
from controller.vocabulary.catalog import leaf_spine
from ina.service import faults
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.errors import Conflict
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.policies import Policies
from ina.service.quotas import Quota
from ina.service.store import Store
from tests.ina.service.virtual import Died, Inline, VirtualLoop, World, program

LENGTH_S = 60.0
"""Time in which mishaps happen."""
MEND_S = 600.0
"""Most time that all may take to end after it."""
KINDS = (
    *("submit", "submit", "submit", "cancel", "die", "die at a step", "die at a step", "switch", "restart"),
    *("link", "link", "runner", "hang", "clock", "drain", "policies", "quota"),
)
MEMORY = ("shared", "deadline", "deadline-lazy", "static")


class Wrong(AssertionError):
    """What a schedule must not end in."""


class Schedule:
    """One schedule."""

    def __init__(self, seed: int, folder: Path, loop: VirtualLoop) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.folder = folder
        self.cluster = leaf_spine(2, 2, 2, servers=2, link=Link("a", "b"))
        self.world = World(self.cluster, seed, loop.time)
        self.wall_s = 0.0
        self.policies = Policies("fifo", AllocationSettings(memory="shared", period_s=10.0), retries=1)
        self.daemon: Daemon | None = None
        self.deaths = 0
        self._serving: asyncio.Task[None] | None = None
        self._blocking = Inline(self.world)
        self._store: Store | None = None
        self._die_in = 0
        self._names = 0

    # ------------------------------------------------------------------ the daemon

    def begin(self) -> None:
        """Start a daemon on what is there."""
        self._store = store = Store(self.folder)
        last_s = max((row.body["event"]["at_s"] for row in store.events()), default=0.0)
        clock = Clock(0.0, last_s, wall=lambda: self.loop.time() + self.wall_s, monotonic=self.loop.time)
        self._blocking = Inline(self.world)
        self.daemon = Daemon(
            Ledger(store, self.cluster, self.policies, clock, snapshot_events=20),
            testbed="virtual",
            switches=Network(self.cluster, self.world.fleet(), program(), ports=self.world.ports),
            executor=self.world,
            fallbacks=self.world,
            blocking=self._blocking,
            began_at=0.0,
        )
        self._serving = self.loop.create_task(self.daemon.run())

    def point(self, name: str) -> None:
        """Die at a step, if it is the one."""
        if self._blocking.dead:
            raise Died
        if self._die_in:
            self._die_in -= 1
            if not self._die_in:
                self._dead()
                raise Died

    def _dead(self) -> None:
        assert self._store is not None
        self._blocking.dead = True
        self._store.close()

    async def _bury(self) -> None:
        """Have nothing of the dead daemon be left, and start another."""
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.deaths += 1
        self._die_in = 0
        self.begin()

    async def _look(self) -> None:
        """Bury the daemon if it is dead. Raises what it ended with if it has not been killed."""
        if self._blocking.dead:
            await self._bury()
        elif self._serving is not None and self._serving.done():
            self._serving.result()
            raise Wrong("the daemon ended")

    # ------------------------------------------------------------------ what happens

    async def run(self) -> None:
        """Have it all happen. Raises Wrong."""
        faults.hook = self.point
        try:
            self.begin()
            await self._mishaps()
            await self._mend()
            await self._check()
        finally:
            faults.hook = None
            for task in asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[operator]
                task.cancel()
            self._dead()

    async def _mishaps(self) -> None:
        until_s = self.loop.time() + LENGTH_S
        while self.loop.time() < until_s:
            await self._wait(self.rng.expovariate(0.7))
            await self._one(self.rng.choice(KINDS))

    async def _wait(self, for_s: float) -> None:
        until_s = self.loop.time() + for_s
        while self.loop.time() < until_s:
            await asyncio.sleep(min(0.25, max(0.001, until_s - self.loop.time())))
            self.world.tick()
            await self._look()

    async def _one(self, kind: str) -> None:
        rng, world, daemon = self.rng, self.world, self.daemon
        assert daemon is not None
        if kind == "die":
            self._dead()
        elif kind == "die at a step":
            self._die_in = rng.randint(1, 12)
        elif kind == "switch":
            switch = world.switches[rng.choice([*world.switches])]
            switch.gone = not switch.gone
        elif kind == "restart":
            switch = world.switches[rng.choice([*world.switches])]
            switch.gone = False
            switch.wipe()
        elif kind == "link":
            link = rng.choice(self.cluster.links)
            world.cut ^= {(link.a, link.b)}
        elif kind == "runner" and world.runs:
            world.kill(rng.choice([*world.runs]))
        elif kind == "hang":
            world.hangs = not world.hangs
        elif kind == "clock":
            self.wall_s += rng.uniform(-1e4, 1e4)
        elif not daemon.ready:
            with contextlib.suppress(Died, Conflict):  # it has died over it, or it contradicts what is there
                await self._ask(kind, daemon)

    async def _ask(self, kind: str, daemon: Daemon) -> None:
        rng = self.rng
        nodes = [*self.cluster.server, *self.cluster.switch]
        if kind == "submit":
            self._names += 1
            job = Job(
                name=f"j{self._names}",
                workers=rng.randint(1, 4),
                command=("train",),
                layers_bytes=(rng.randint(1, 40) * 100_000,),
                iterations=rng.randint(20, 400),
                compute_s=0.03,
                deadline_s=rng.uniform(30, 2000) if rng.random() < 0.3 else None,
                on_late="best-effort",
            )
            self.world.iterations[job.name] = job.iterations
            await daemon.submit([job], tenant=rng.choice("ab"), key=job.name)
        elif kind == "cancel":
            if going := [each.name for each in daemon.records() if not each.over]:
                await daemon.cancel(rng.choice(going))
        elif kind == "drain":
            name = rng.choice(nodes)
            await daemon.drain(name, back=rng.random() < 0.5)
        elif kind == "policies":
            memory = rng.choice(MEMORY)
            scheduler = rng.choice(("fifo", "srsf", "las", "fifo-backfill"))
            self.policies = Policies(scheduler, AllocationSettings(memory=memory, period_s=10.0), retries=1)
            await daemon.reload(self.policies)
        elif kind == "quota":
            await daemon.set_quota(Quota("a", gpus=rng.randint(4, 8)))

    async def _mend(self) -> None:
        self._die_in = 0
        self.world.hangs = False
        self.world.cut.clear()
        for switch in self.world.switches.values():
            switch.gone = False
        until_s = self.loop.time() + MEND_S
        while True:
            await self._wait(0.5)
            daemon = self.daemon
            assert daemon is not None
            if daemon.ready:
                continue
            for server in daemon.cluster().servers:
                if server.down == "drained":
                    await daemon.drain(server.name, back=True)
            for each in daemon.cluster().switches:
                if each.down == "drained":
                    await daemon.drain(each.name, back=True)
            if all(record.over for record in daemon.records()) and not daemon.holds:
                return
            if self.loop.time() > until_s:
                stay = [(each.name, each.state, each.reason) for each in daemon.records() if not each.over]
                raise Wrong(f"not over after {MEND_S:g} s: {stay}; holds {set(daemon.holds)}")

    async def _check(self) -> None:
        await self._wait(5.0)
        daemon, store = self.daemon, self._store
        assert daemon is not None
        assert store is not None
        audit = await daemon.audit()
        if not audit.clean:
            raise Wrong(f"the audit: {audit}")
        for what, found in self.world.left().items():
            if found:
                raise Wrong(f"left: {what} {found}")
        if holds := store.holds():
            raise Wrong(f"left in the store: {holds}")
        for record in daemon.records():
            times = self.world.completed.get(record.name, 0)
            if record.state == "completed" and times != 1:
                raise Wrong(f"{record.name} completed, and was done {times} times")
            if record.state == "failed" and "runner ended" not in record.reason:
                raise Wrong(f"{record.name} failed: {record.reason}")


def play(seed: int) -> Schedule:
    """Play a schedule. Raises what went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="schedule-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)  # of tasks of daemons that are dead
    try:
        schedule = Schedule(seed, folder, loop)
        loop.run_until_complete(schedule.run())
        return schedule
    finally:
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Play schedules, and print what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()
    wrong = deaths = jobs = 0
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.schedules):
        try:
            schedule = play(seed)
        except Exception as error:
            wrong += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        else:
            deaths += schedule.deaths
            jobs += len(schedule.world.iterations)
    took_s = time.monotonic() - began
    played = f"{options.schedules} schedules, {jobs} jobs, {deaths} deaths of the daemon, {took_s:.0f} s"
    print(f"{played}: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
