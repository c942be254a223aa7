"""One random schedule: the life of a daemon in a world where all goes wrong (`schedules`)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Link, Topology
from controller.vocabulary.catalog import leaf_spine, star
from ina import faults
from ina.errors import Conflict, StoreError
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.ledger import Ledger
from ina.run.policies import Policies
from ina.run.records import Retention
from ina.run.store import Store
from tests import effort
from tests.ina.run.mishaps import Mishaps, Wrong
from tests.ina.run.virtual import (
    ITERATION_S,
    LONGEST_CALL_S,
    Died,
    Inline,
    VirtualLoop,
    World,
    daemon_of,
    in_memory,
    limit_pages,
)

LENGTHS_S = (8.0, 16.0, 32.0)
"""Times in which mishaps happen, one for each schedule."""
MISHAPS = 30
"""In that time."""
MEND_S = 600.0
"""Most time that all may take to end after it."""
TICK_S = 0.25
SNAPSHOT_EVENTS = 20
KEPT_JOBS = 2
"""That are over; others are forgotten."""
CLUSTERS = (
    leaf_spine(1, 2, 2, servers=1, link=Link("a", "b")),
    leaf_spine(1, 2, 2, servers=1, link=Link("a", "b")),
    leaf_spine(2, 2, 2, servers=2, link=Link("a", "b")),
    star(3, servers=1),
)
"""One for each schedule: trees with one way or two, and one switch."""


class Schedule:
    """One schedule, and the life of its daemon."""

    daemon: Daemon

    def __init__(self, seed: int, folder: Path, loop: VirtualLoop, cluster: Topology | None) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.folder = folder
        self.cluster = cluster or self.rng.choice(CLUSTERS)
        self.world = World(self.cluster, seed, loop.time)
        self.world.before_each_write(lambda: self.point("written"))
        self.mishaps = Mishaps(self.rng, self.world, self)
        self.policies = Policies("fifo", AllocationSettings(memory="shared", period_s=10.0), retries=1)
        self.wall_s = 0.0
        self.full = False
        self.died_after: Counter[str] = Counter()
        """Deaths of the daemon, by the step it had done; "": between two."""
        self.passed: list[str] = []
        """The steps that the daemon has done."""
        self.seen: list[int] = []
        """Numbers of the decisions that a slow reader has seen, in its order."""
        self.ends: dict[str, tuple[str, str]] = {}
        """The state and the reason with which each job has ended."""
        self._reads = False
        self._serving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocking = Inline(self.world)
        self._store: Store | None = None
        self._die_in = 0

    # ------------------------------------------------------------------ the daemon

    def begin(self) -> None:
        """Start a daemon on what is there."""
        self._store = store = Store(self.folder)
        limit_pages(store, full=self.full)
        wall, kept = (lambda: self.loop.time() + self.wall_s), store.fact("clock") or ""
        clock = Clock(0.0, store.last_s, kept, wall=wall, monotonic=self.loop.time)
        self._blocking = Inline(self.world)
        ledger = Ledger(
            *(store, self.cluster, self.policies, clock),
            snapshot_events=SNAPSHOT_EVENTS,
            retention=Retention(jobs=KEPT_JOBS),
        )
        self.daemon = daemon_of(ledger, self.world, self._blocking)
        self._serving = self._task(self.daemon.run())
        if self._reads:
            self._task(self._read(self.daemon))

    def _task(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def point(self, name: str) -> None:
        """Die at a step, if it is the one."""
        if self._blocking.dead:
            raise Died
        self.passed.append(name)
        if self._die_in:
            self._die_in -= 1
            if not self._die_in:
                self.kill(after=name)
                raise Died

    def kill(self, *, in_steps: int = 0, after: str = "") -> None:
        """End the daemon now, `after` a step, or after so many more steps."""
        self._die_in = in_steps
        if in_steps or self._store is None or self._blocking.dead:
            return
        self.died_after[after] += 1
        self._blocking.dead = True
        self._store.close()

    def fill(self) -> None:
        """Have the disk be full, or have room again."""
        self.full = not self.full
        if not self._blocking.dead:
            limit_pages(self._store, full=self.full)

    def read(self) -> None:
        """Have somebody watch who is slow, also after a death."""
        if not self._reads and not self._blocking.dead:
            self._reads = True
            self._task(self._read(self.daemon))

    async def _read(self, daemon: Daemon) -> None:
        async with contextlib.aclosing(daemon.watch(self.seen[-1] if self.seen else 0)) as decisions:
            async for decision in decisions:
                self.seen.append(decision.number)
                await asyncio.sleep(self.rng.uniform(0.0, 2.0))

    async def _bury(self) -> None:
        """Have nothing of the dead daemon be left, and start another."""
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._die_in = 0
        self.begin()

    async def _look(self) -> None:
        """Bury the daemon if it is dead. Raises what it ended with if it has not been killed."""
        if self._blocking.dead:
            await self._bury()
        elif self._serving is not None and self._serving.done():
            try:
                self._serving.result()
            except StoreError:
                if not self.full:
                    raise
                self.kill()  # it cannot write that other policies decide: its supervisor starts it again
            else:
                raise Wrong("the daemon ended")

    # ------------------------------------------------------------------ what happens

    async def run(self, what: Callable[[Schedule], Coroutine[Any, Any, None]]) -> None:
        """Have a daemon begin, something happen, and all be mended. Raises Wrong for what is left."""
        faults.hook = self.point
        try:
            self.begin()
            await what(self)
            await self.mend()
            await self.check()
        finally:
            faults.hook = None
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            if not self._blocking.dead and self._store is not None:
                self._blocking.dead = True
                self._store.close()

    async def ask(self, call: Callable[[Daemon], Coroutine[Any, Any, object]]) -> None:
        """Ask the daemon for something, again after each death; what contradicts what is there was done."""
        while True:
            await self.wait(0.05)
            if self._blocking.dead or self.daemon.ready:
                continue
            with contextlib.suppress(Died):
                with contextlib.suppress(Conflict):
                    await call(self.daemon)
                if not self._blocking.dead:
                    return

    async def until(self, holds: Callable[[Daemon], bool]) -> None:
        """Wait until something holds of a daemon that lives. Raises Wrong if it never does."""
        until_s = self.loop.time() + MEND_S
        while self._blocking.dead or self.daemon.ready or not holds(self.daemon):
            await self.wait(0.05)
            if self.loop.time() > until_s:
                raise Wrong(f"not within {MEND_S:g} s")

    async def wait(self, for_s: float) -> None:
        """Let time pass."""
        until_s = self.loop.time() + for_s
        while self.loop.time() < until_s:
            await asyncio.sleep(min(TICK_S, max(0.001, until_s - self.loop.time())))
            self.world.tick()
            await self._look()

    async def mend(self) -> None:
        """Have all work again, and wait until all jobs are over. Raises Wrong if they are not."""
        self._die_in = 0
        self.world.mend()
        if self.full:
            self.fill()
        self.cluster = self.world.cluster
        await self.ask(lambda daemon: daemon.change_cluster(self.world.cluster))
        until_s = self.loop.time() + MEND_S
        while True:
            await self.wait(1.0)
            daemon = self.daemon
            if daemon.ready:
                continue
            down = {
                each["name"]: each["down"] for each in (*daemon.reports.servers(), *daemon.reports.switches())
            }
            for name, why in down.items():
                if why == "drained":
                    await daemon.drain(name, back=True)
            going = [record for record in daemon.reports.records() if not record.over]
            for record in going:
                if record.called in self.world.endless:
                    await daemon.cancel(record.name)
            if not going and not daemon.ledger.holds:
                return
            if self.loop.time() > until_s:
                stay = [(each.name, each.state, each.reason) for each in going]
                raise Wrong(f"not over after {MEND_S:g} s: {stay}; holds {set(daemon.ledger.holds)}")

    async def check(self) -> None:
        """Look at what is left, and how jobs have ended. Raises Wrong."""
        await self.wait(LONGEST_CALL_S + 1.0)  # a run may still be being forgotten
        daemon, store = self.daemon, self._store
        assert store is not None
        audit = await daemon.audit()
        if not audit["clean"]:
            raise Wrong(f"the audit: {audit}")
        for what, found in self.world.left().items():
            if found:
                raise Wrong(f"left: {what} {found}")
        if holds := store.holds():
            raise Wrong(f"left in the store: {holds}")
        if troubles := daemon._effects.troubles:
            raise Wrong(f"left to be tried again: {troubles}")
        self.ends = self._ends()
        if lost := self.mishaps.accepted - self.ends.keys():
            raise Wrong(f"accepted and lost: {lost}")
        for name, (state, reason) in self.ends.items():
            times = self.world.completed.get(name, 0)
            if state == "completed" and times != 1:
                raise Wrong(f"{name} completed, and was done {times} times")
            if state == "failed" and not self._may_fail(name, reason):
                raise Wrong(f"{name} failed: {reason}")
        if self.seen != sorted(set(self.seen)):
            raise Wrong(f"a reader has seen decisions {self.seen}")

    def _ends(self) -> dict[str, tuple[str, str]]:
        """Return the state of each job and its reason, also of those that are forgotten."""
        found: dict[str, tuple[str, str]] = {
            record.called: (record.state, record.reason) for record in self.daemon.reports.records()
        }
        for name in self.world.iterations.keys() - found.keys():
            for archived in self.daemon.ledger.archived(name):
                found[name] = archived["state"], archived["reason"]
        return found

    def _may_fail(self, name: str, why: str) -> bool:
        if "does not fit the changed cluster" in why:
            return True
        return "the process that ran its workers ended" in why or (
            name in self.world.absent and "never joined" in why
        )

    def job(self, name: str, seconds: float, **keys: object) -> Job:
        """Return a job that computes for so long."""
        self.world.iterations[name] = iterations = int(seconds / ITERATION_S)
        values = {"command": ("train",), "iterations": iterations, "compute_s": 0.03, **keys}
        return Job(name=name, **values)  # type: ignore[arg-type]


async def at_random(schedule: Schedule) -> None:
    """Have random things happen for a while."""
    length_s = schedule.rng.choice(LENGTHS_S)
    until_s = schedule.loop.time() + length_s
    while schedule.loop.time() < until_s:
        await schedule.wait(schedule.rng.expovariate(MISHAPS / length_s))
        await schedule.mishaps.one()


def play(
    seed: int,
    what: Callable[[Schedule], Coroutine[Any, Any, None]] = at_random,
    cluster: Topology | None = None,
) -> Schedule:
    """Play a schedule, in a world of this cluster. Raises what went wrong."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)  # of tasks of daemons that are dead
    with in_memory("schedule-") as folder, contextlib.closing(loop):
        schedule = Schedule(seed, folder, loop, cluster)
        loop.run_until_complete(schedule.run(what))
        return schedule


def dying_at_each_step(whole: Schedule, life: Callable[[Schedule], Coroutine[Any, Any, None]]) -> None:
    """Play a life again and again, with a death after the first of each kind of its steps, and some more.

    With ``--thorough``: after each. Raises AssertionError, with the step.
    """
    first_of_each = {whole.passed.index(name) for name in whole.passed}
    for step in sorted({*first_of_each, *effort.some(range(len(whole.passed)), every=60)}):

        async def dying(schedule: Schedule, step: int = step) -> None:
            schedule.kill(in_steps=step + 1)
            await life(schedule)

        try:
            play(1, dying, whole.world.cluster)
        except Exception as error:
            where = f"{step + 1} of {len(whole.passed)}, {whole.passed[step]}"
            raise AssertionError(f"died after step {where}") from error
