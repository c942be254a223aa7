"""The real daemon behind its HTTP API, in a thread of its own; its clock stands until a test moves it.

Switches are compiled programs of this process, and runs are made up (`virtual.World`): jobs compute for as
long as they say.
"""

from __future__ import annotations

import asyncio
import math
import os
import pwd
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from controller.policies.settings import AllocationSettings
from controller.vocabulary import Link, Server, Topology, parse_topology
from ina.api import Address, Certificate, listening, speaking
from ina.run.assembly import Files
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.ledger import Ledger
from ina.run.policies import Policies
from ina.run.store import Store
from ina.run.threads import Threads
from ina.run.tokens import Tokens
from tests.ina.run.virtual import World, daemon_of

T = TypeVar("T")
FABRIC = """
[fabric]
shape = "leaf-spine"
spines = 2
leaves = 2
hosts = 2
gpus = 2
slots = 1024
"""
POLICIES = Policies("fifo-backfill", AllocationSettings(memory="deadline-lazy", routing="grid"))
TIMEOUT_S = 120.0
LOOK_S = 0.002
USER = pwd.getpwuid(os.geteuid()).pw_name
"""As whom commands run: nobody has to be become."""


def cluster() -> Topology:
    """Two spines, two leaves, four servers of two GPUs each, and a host for a fallback server."""
    made = parse_topology(FABRIC, source="cluster.toml")
    spare = Server("f1", gpus=0, role="fallback")
    return replace(made, servers=(*made.servers, spare), links=(*made.links, Link("f1", "leaf1")))


def job(name: str = "vision", **keys: object) -> dict[str, object]:
    """A job that the cluster has room for."""
    return {
        "name": name,
        "workers": 4,
        "command": "python train.py",
        "iterations": 1000,
        "compute_s": 0.1,
        **keys,
    }


class Standing(World):
    """A world whose time stands until a test moves it. Jobs compute for as long as they say.

    Attributes:
        now_s: The time.
        ledger: What its daemon knows.
    """

    ledger: Ledger

    def __init__(self, cluster: Topology) -> None:
        self.now_s = 0.0
        super().__init__(cluster, 1, lambda: self.now_s)

    def work(self, name: str) -> tuple[int, float]:
        job = self.ledger.submitted[name].job
        return job.iterations, job.compute_s or 1.0

    def next_end_s(self) -> float:
        """Return when the next job has computed all; infinite: none computes."""
        ends = [math.inf]
        for run in self.runs.values():
            for job in run.order.jobs:
                if run.lives and job.name not in run.status.ends:
                    iterations, iteration_s = self.work(job.name)
                    ends.append(run.began_s + (iterations - self.saved.get(job.name, 0)) * iteration_s)
        return min(ends) + 1e-6  # rounded, it may be a little too early


@dataclass
class Bed:
    """The service, where it answers, and its loop."""

    daemon: Daemon
    ledger: Ledger
    world: Standing
    url: str
    folder: Path
    loop: asyncio.AbstractEventLoop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the service's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def do(self, call: Callable[[], T]) -> T:
        """Call this in the service's thread, and wait until the service has done what follows from it."""

        async def calling() -> T:
            found = call()
            await self._settled()
            return found

        return self.wait(calling())

    def settle(self, *_: object) -> None:
        """Wait until the service has done what follows from what it knows."""
        self.wait(self._settled())

    def advance(self, to_s: float) -> None:
        """Move the time; jobs that have computed all by then end one after the other."""

        async def advancing() -> None:
            while self.world.now_s < to_s:
                self.world.now_s = max(self.world.now_s, min(to_s, self.world.next_end_s()))
                await self._settled()

        self.wait(advancing())

    def fail(self, name: str, why: str = "rank 1 ended with status 3") -> None:
        """End a job that runs with a failure."""
        run = next(run for run in self.world.runs.values() if name in run.order.admissions)
        self.do(lambda: run.end(name, why, over=True))

    def log(self, name: str, rank: int = 0) -> Path:
        """Return the file with what a rank has written, in a folder that is there."""
        path = self.daemon.log(name, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    async def _settled(self) -> None:
        self.daemon.look_soon()
        await asyncio.sleep(0)
        while self._acts():
            await asyncio.sleep(LOOK_S)

    def _acts(self) -> bool:
        """Return whether the daemon still has something to do at this time."""
        ledger, world = self.ledger, self.world
        world.tick()
        if ledger.store.trouble:
            return False  # it tries again until it can write
        ended = {name for run in world.runs.values() for name in run.status.ends}
        return (
            ledger.woken.is_set()
            or len(self.daemon._effects._tasks) > 0
            or min(ledger.core.next_s, ledger.due_s) <= ledger.now_s
            or any(
                hold.stage != "running" or ended & hold.run.places.keys() - hold.over
                for hold in ledger.holds.values()
            )
        )


def stand(folder: Path, topology: Topology) -> tuple[Daemon, Ledger, Standing]:
    """Return a daemon whose time stands, what it knows, and its world. Made in the thread of its loop."""
    world, store = Standing(topology), Store(folder)

    clock = Clock(0.0, store.last_s, wall=world.now, monotonic=world.now)
    world.ledger = ledger = Ledger(store, topology, POLICIES, clock)
    return daemon_of(ledger, world, Threads()), ledger, world


@contextmanager
def serving(
    folder: Path,
    address: Address | None = None,
    certificate: Certificate | None = None,
    files: Files | None = None,
    topology: Topology | None = None,
) -> Iterator[Bed]:
    """Serve; the state and logs are in the folder."""
    ready: list[Bed | BaseException] = []
    begun, ending = threading.Event(), asyncio.Event()

    async def serve() -> None:
        daemon, ledger, world = stand(folder, topology or cluster())
        reload = None if files is None else partial(files.reload, daemon)
        at = address or Address()
        tokens = Tokens(folder)
        with listening(at, tokens, certificate) as bound:
            speaks = speaking(daemon, at, bound, tokens, certificate=certificate, reload=reload)
            async with speaks as url:
                running = asyncio.create_task(daemon.run())
                bed = Bed(daemon, ledger, world, url, folder, asyncio.get_running_loop())
                while daemon.ready:
                    await asyncio.sleep(LOOK_S)
                ready.append(bed)
                begun.set()
                await ending.wait()
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            ready.append(error)  # raised in the thread that waits for it
            begun.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    assert begun.wait(TIMEOUT_S)
    bed = ready[0]
    if isinstance(bed, BaseException):
        thread.join()
        raise bed
    try:
        yield bed
    finally:
        bed.loop.call_soon_threadsafe(ending.set)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
