"""What happens in a random schedule: to the daemon, to all around it, and by those who ask it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.service.mishaps import KINDS, Wrong
from controller.errors import BadSpec
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job, Topology
from ina.errors import Conflict, StoreError, Unknown
from ina.run.daemon import Daemon
from ina.run.policies import Policies
from ina.run.quotas import Quota
from tests.clusters import without
from tests.ina.run.virtual import Died, World

if TYPE_CHECKING:
    from tests.ina.run.schedule import Schedule

WEIGHTS = {kind: weight for kind, (weight, _) in KINDS.items()}
"""Relative frequency of each kind."""
MEMORY = ("shared", "deadline", "deadline-lazy", "static")
SCHEDULERS: tuple[str, ...] = ("fifo", "srsf", "las", "fifo-backfill")
STAGES_S: tuple[tuple[float, ...], ...] = ((),)
"""Stage times of jobs, in turn."""
BURST = (8, 24)
MOST_STEPS = 60
"""Within so many steps the daemon dies that is to die at one."""


class Mishaps:
    """Has things happen in a world."""

    def __init__(self, rng: random.Random, world: World, life: Schedule) -> None:
        self._rng = rng
        self._world = world
        self._life = life
        self.happened: Counter[str] = Counter()
        self.accepted: set[str] = set()
        """Jobs whose submission was answered."""
        self._names = 0

    async def one(self) -> None:
        """Have something happen. Raises Wrong if it is answered as it must not be."""
        kind = self._rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        if self._to_the_world(kind):
            self.happened[kind] += 1
        elif not self._life.daemon.ready:
            # It died over it, it contradicts what is there, or the disk is full.
            with contextlib.suppress(Died, Conflict, StoreError):
                if await self._ask(kind, self._life.daemon):
                    self.happened[kind] += 1

    def _to_the_world(self, kind: str) -> bool:
        rng, world, life = self._rng, self._world, self._life
        switch = world.switches[rng.choice([*world.switches])]
        match kind:
            case "kill controller":
                life.kill()
            case "kill controller at a step":
                life.kill(in_steps=rng.randint(1, MOST_STEPS))
            case "stop switch":
                switch.gone = not switch.gone
            case "restart switch":
                switch.gone = False
                switch.wipe()
            case "half a write":
                switch.torn = rng.randint(0, 4)
            case "cut link":
                link = rng.choice(world.cluster.links)
                world.cut ^= {(link.a, link.b)}
            case "kill runner" if world.runs:
                world.kill(rng.choice([*world.runs]))
            case "kill fallback" if world.served:
                del world.served[rng.choice([*world.served])]
            case "stops hang":
                world.hangs = not world.hangs
            case "calls hang":
                world.slow = not world.slow
            case "starts fail":
                world.refuses = not world.refuses
            case "fill disk":
                life.fill()
            case "clock":
                life.wall_s += rng.uniform(-1e4, 1e4)
            case "slow reader":
                life.read()
            case _:
                return False
        return True

    async def _ask(self, kind: str, daemon: Daemon) -> bool:
        rng = self._rng
        match kind:
            case "submit":
                await self._submit(daemon, self._job())
            case "burst":
                jobs = [self._job(workers=1, most=10) for _ in range(rng.randint(*BURST))]
                asked = [self._submit(daemon, job) for job in jobs]
                for answer in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(answer, BaseException):
                        raise answer
            case "duplicate":
                return await self._duplicate(daemon)
            case "nonsense":
                await self._nonsense(daemon)
            case "absent" | "endless":
                job = self._job()
                (self._world.absent if kind == "absent" else self._world.endless).add(job.name)
                await self._submit(daemon, job)
            case "cancel":
                if not (going := [each.name for each in daemon.reports.records() if not each.over]):
                    return False
                await daemon.cancel(rng.choice(going))
            case "cancel at once":
                job = self._job()
                name = await self._submit(daemon, job)
                await asyncio.sleep(rng.uniform(0.0, 0.5))
                await self._life.daemon.cancel(name)
            case "retry":
                if not (failed := [each.name for each in daemon.reports.records() if each.state == "failed"]):
                    return False
                await daemon.retry(rng.choice(failed))
            case "drain":
                name = rng.choice([*daemon.ledger.topology.server, *daemon.ledger.topology.switch])
                await daemon.drain(name, back=rng.random() < 0.5)
            case "policies":
                settings = AllocationSettings(memory=rng.choice(MEMORY), period_s=10.0)
                policies = Policies(rng.choice(SCHEDULERS), settings, retries=1)
                await daemon.reload(policies)
                self._life.policies = policies
            case "cluster":
                cluster = self._other_cluster()
                await daemon.change_cluster(cluster)
                self._life.cluster = cluster
            case "quota":
                if rng.random() < 0.3 and (quotas := daemon.ledger.quotas.states()):
                    await daemon.remove_quota(quotas[0]["tenant"])
                else:
                    gpus = self._world.cluster.gpus
                    await daemon.set_quota(Quota("a", gpus=rng.randint(min(4, gpus), gpus)))
            case _:
                return False
        return True

    def _other_cluster(self) -> Topology:
        """Return all of the cluster, or all but a server or two, or a switch."""
        rng, whole = self._rng, self._world.cluster
        gone = rng.sample([*whole.server, *whole.switch], rng.randint(0, 2))
        try:
            found = without(whole, gone)
        except (BadSpec, IndexError):  # what is left is not connected, or nothing
            return whole
        return found if found.gpus else whole

    async def _submit(self, daemon: Daemon, job: Job) -> str:
        """Submit a job; return its id."""
        (record,) = await daemon.submit([job], tenant=self._rng.choice("ab"), key=job.name)
        self.accepted.add(job.name)
        return record.name

    async def _duplicate(self, daemon: Daemon) -> bool:
        said = [each for each in daemon.reports.records() if not each.over]
        if not said:
            return False
        other = self._rng.choice(said)
        job = Job(name=other.called, workers=1, command=("train",))
        with contextlib.suppress(Conflict):
            await daemon.submit([job], tenant=other.tenant)
            raise Wrong(f"a second job {job.name} was accepted")
        return True

    async def _nonsense(self, daemon: Daemon) -> None:
        for job in (Job(name="large", workers=1000, command=("train",)), Job(name="idle", workers=1)):
            with contextlib.suppress(BadSpec):
                await daemon.submit([job])
                raise Wrong(f"{job} was accepted")
        with contextlib.suppress(Unknown):
            await daemon.cancel("nobody")
            raise Wrong("a job that was never submitted was cancelled")

    def _job(self, *, workers: int = 0, most: int = 100) -> Job:
        rng = self._rng
        self._names += 1
        job = Job(
            name=f"j{self._names}",
            workers=workers or min(rng.randint(1, 4), self._life.daemon.ledger.topology.gpus),
            command=("train",),
            stages_s=STAGES_S[self._names % len(STAGES_S)],
            layers_bytes=(rng.randint(1, 40) * 100_000,),
            iterations=rng.randint(1, most),
            compute_s=0.03,
            deadline_s=rng.uniform(30, 2000) if rng.random() < 0.3 else None,
            on_late="best-effort",
        )
        self._world.iterations[job.name] = job.iterations
        return job
