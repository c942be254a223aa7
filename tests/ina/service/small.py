"""A service of nothing but the core: no switches, no processes, and time that stands until it is moved.

What is asked of it is decided by the real core on a real cluster; jobs run as the core foresees, or end as a
test says.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from controller.core import (
    Cancelled,
    Core,
    Ended,
    Entry,
    Log,
    Reallocated,
    Retried,
    Rules,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.compose import networked
from controller.core.events import Event
from controller.core.reasons import of_slots
from controller.policies.by_kind import AllocationSettings
from controller.policies.scheduling.model import Submission
from controller.vocabulary import BadSpec, Job, Topology
from ina.service.errors import Conflict, Unknown
from ina.service.policies import Policies
from ina.service.quotas import Quota, Quotas, QuotaState, Rates
from ina.service.records import Audit, Discrepancy, JobRecord, Said, State, id_of
from ina.service.service import (
    ClusterState,
    JobExplanation,
    JobGrant,
    LogLine,
    ServerState,
    Share,
    SlotsChange,
    SwitchState,
)

POLICIES = AllocationSettings(memory="deadline-lazy", routing="grid")


class SmallService:
    """A `Service`; see the module."""

    def __init__(self, cluster: Topology, folder: Path, scheduler: str = "fifo-backfill") -> None:
        parts = networked(cluster, scheduler, POLICIES)
        self._core = Core(parts.servers, parts.setup, allocation=parts.allocation, rules=Rules(), log=Log())
        self._policies = {"scheduler": scheduler, **POLICIES.names}
        self._cluster = cluster
        self._folder = folder
        self._taken: dict[str, Said] = {}
        self._keys: dict[tuple[str, str], list[str]] = {}
        self._down: dict[str, str] = {}
        self._cancelled: set[str] = set()
        self._news = asyncio.Condition()
        self._quotas = Quotas(cluster.gpus)
        self._rates = Rates()
        self.differences: tuple[Discrepancy, ...] = ()
        self.ready = self.trouble = ""
        self.changing = True
        """Whether each answer is worked out anew."""
        self._changes = count()
        self.now_s = 0.0
        self.began_at = 1_700_000_000.0

    @property
    def changes(self) -> int:
        return next(self._changes) if self.changing else -1

    # ------------------------------------------------------------------ what tests do

    def advance(self, to_s: float) -> None:
        """Let it become later; jobs that are done by then end."""
        while True:
            due = [(job.end_s(), name) for name, job in self._core.jobs.items() if job.group is not None]
            at_s, name = min(due, default=(to_s, ""))
            if at_s > to_s or not name:
                break
            self._handle(Ended(max(at_s, self.now_s), name))
        self._handle(Tick(to_s))

    def fail(self, name: str, why: str = "rank 1 ended with status 3") -> None:
        """Have a job that runs fail."""
        self._handle(Ended(self.now_s, name, why))

    async def tell(self) -> None:
        """Have those who watch look."""
        async with self._news:
            self._news.notify_all()

    def _handle(self, event: Event) -> None:
        self.now_s = event.at_s
        self._core.handle(event)
        if not isinstance(event, Tick):
            self._core.handle(Tick(self.now_s))

    # ------------------------------------------------------------------ what people ask

    async def submit(
        self, jobs: Sequence[Job], *, tenant: str = "", key: str = "", holder: str = ""
    ) -> list[JobRecord]:
        if key and (tenant, key) in self._keys:
            return [self.record(name) for name in self._keys[tenant, key]]
        quota = self._quotas.quotas.get(tenant)
        self._rates.check(quota, len(jobs), now_s=self.now_s)
        self._rates.take(quota, len(jobs), now_s=self.now_s)
        for job in jobs:
            if any(
                each.called == job.name and each.tenant == tenant and each.job.name in self._core.jobs
                for each in self._taken.values()
            ):
                raise Conflict(f"there is a job {job.name!r} that is not over; give another name")
        ids = []
        for job in jobs:
            number = len(self._taken) + 1
            ids.append(id_of(job.name, number, tenant, self._taken))
            at = replace(job, name=ids[-1], arrival_s=self.now_s)
            self._taken[ids[-1]] = Said(number, at, tenant, key, holder)
            self._core.handle(Submitted(self.now_s, Submission.of(at), at))
        self._core.handle(Tick(self.now_s))
        if key:
            self._keys[tenant, key] = ids
        await self.tell()
        return [self.record(name) for name in ids]

    def machine(self, known_as: Sequence[str]) -> str:
        for name in known_as:
            if name in self._cluster.server:
                return name
        raise BadSpec(f"there is no server {', '.join(known_as)}")

    async def admit(self, job: Job, *, holder: str, tenant: str = "", key: str = "") -> JobRecord:
        (record,) = await self.submit([job], tenant=tenant, key=key, holder=holder)
        return record

    async def renew(self, name: str, done: int | None = None) -> str:
        record = self.record(name)
        return record.reason if record.over else ""

    def grant(self, name: str) -> JobGrant:
        record = self.record(name)
        if record.place is None:
            raise Conflict(f"job {name!r} is {record.state}: {record.reason}")
        return JobGrant(
            switches={},
            crosses=record.place.tree is not None,
            lanes=32,
            salted=False,
            paced=False,
            address="10.0.255.1:47000",
        )

    async def leave(self, name: str, failure: str = "") -> str:
        if not self.record(name).over:
            self._handle(Ended(self.now_s, name, failure, final=True))
            await self.tell()
        return ""

    async def cancel(self, name: str, *, by: str = "") -> JobRecord:
        record = self.record(name)
        if record.over:
            raise Conflict(f"job {name!r} is over: {record.state}")
        self._handle(Cancelled(self.now_s, name, f"by {by}" if by else "by its owner"))
        await self.tell()
        return self.record(name)

    async def retry(self, name: str) -> JobRecord:
        self.record(name)
        try:
            self._handle(Retried(self.now_s, name))
        except BadSpec as error:
            raise Conflict(str(error)) from error
        await self.tell()
        return self.record(name)

    async def drain(self, name: str, *, back: bool = False, by: str = "") -> None:
        if name in self._cluster.server:
            event: Event = ServerBack(self.now_s, name) if back else ServerGone(self.now_s, name, "drained")
        elif name in self._cluster.switch:
            event = SwitchBack(self.now_s, name) if back else SwitchGone(self.now_s, name, "drained")
        else:
            raise Unknown(f"there is no server or switch {name!r}")
        if back:
            self._down.pop(name, None)
        else:
            self._down[name] = "drained"
        self._handle(event)
        await self.tell()

    async def reallocate(self, name: str = "", *, by: str = "") -> list[SlotsChange]:
        self._handle(Reallocated(self.now_s))
        allocation = self._core.allocation
        question, answer = allocation.allocator.question, allocation.allocator.answer
        assert question is not None
        return [
            SlotsChange(
                each,
                answer.standing[each],
                place.regions,
                place.regions,
                of_slots(question, answer, each),
            )
            for each, place in self._core.desired().places.items()
            if place.tree is not None and name in ("", each)
        ]

    def quotas(self) -> list[QuotaState]:
        return self._quotas.states()

    async def set_quota(self, quota: Quota) -> None:
        self._quotas.check(quota)
        self._quotas.grant(quota)

    async def remove_quota(self, tenant: str) -> None:
        if tenant not in self._quotas.quotas:
            raise Unknown(f"tenant {tenant!r} has no quota")
        self._quotas.remove(tenant)

    async def reload(self, policies: Policies) -> None:
        self._policies = policies.names

    async def change_cluster(self, cluster: Topology) -> Sequence[str]:
        self._cluster = cluster
        return ()

    async def audit(self) -> Audit:
        return Audit(self.now_s, self.differences)

    def records(self) -> list[JobRecord]:
        return [self.record(name) for name in self._taken]

    def record(self, name: str) -> JobRecord:
        if name not in self._taken:
            raise Unknown(f"there is no job {name!r}")
        taken = self._taken[name]
        for over in reversed(self._core.over):
            if over.job.spec.name == name and name not in self._core.jobs:
                state: State = over.outcome
                return JobRecord(
                    submitted=taken,
                    state=state,
                    reason=over.reason,
                    started_s=self._when(name, "started"),
                    ended_s=self._when(name, "ended", "failed", "cancelled", "missed"),
                    done=taken.job.iterations if state == "completed" else 0.0,
                    starts=1,
                    late=(over.job.finish_s or 0.0) > (taken.job.due_s or math.inf),
                )
        if name in self._core.refused:
            return JobRecord(submitted=taken, state="refused", reason=self._core.refused[name])
        desired = self._core.desired()
        job = self._core.jobs[name]
        if name in desired.waiting:
            waits = [each.text for each in self._entries() if each.event == "waits" and name in each.jobs]
            return JobRecord(submitted=taken, state="queued", reason=waits[-1] if waits else "")
        run = next(run for run in desired.runs if name in run.jobs)
        left_s = job.remaining_s(self.now_s)
        due_s = taken.job.due_s
        return JobRecord(
            submitted=taken,
            state="running",
            place=desired.places[name],
            run=run.number,
            started_s=self._when(name, "started"),
            done=taken.job.iterations - job.iterations_left(self.now_s),
            left_s=left_s,
            starts=1,
            late=due_s is not None and self.now_s + left_s > due_s,
        )

    def named(self, reference: str) -> list[Said]:
        return [
            each
            for each in self._taken.values()
            if reference in (each.called, each.job.name, str(each.number))
        ]

    def archived(self, reference: str) -> list[Mapping[str, Any]]:
        return []

    def counted(self) -> Mapping[str, int]:
        return self._core.log.counts

    def explain(self, name: str) -> JobExplanation:
        record = self.record(name)
        decisions = tuple(each for each in self.decisions() if name in each.entry.jobs)
        return JobExplanation(
            record, decisions, ("wait until more GPUs are free",) if record.state == "queued" else ()
        )

    @property
    def topology(self) -> Topology:
        return self._cluster

    def cluster(self) -> ClusterState:
        places = self._core.desired().places
        servers = [
            ServerState(
                server.name,
                server.gpus,
                sum(place.servers.count(server.name) for place in places.values()),
                tuple(name for name, place in places.items() if server.name in place.servers),
                self._down.get(server.name, ""),
            )
            for server in self._cluster.servers
        ]
        switches = [
            SwitchState(
                switch.name,
                f"grpc://10.0.0.{number}:9559",
                switch.slots,
                tuple(
                    Share(name, place.regions[switch.name], place.standing)
                    for name, place in places.items()
                    if switch.name in place.regions
                ),
                self._down.get(switch.name, ""),
            )
            for number, switch in enumerate(self._cluster.switches, start=1)
        ]
        return ClusterState(self._cluster, self._policies, tuple(servers), tuple(switches))

    def _entries(self) -> list[Entry]:
        return self._core.log.entries

    def _when(self, name: str, *kinds: str) -> float | None:
        times = [each.at_s for each in self._entries() if each.event in kinds and name in each.jobs]
        return times[0] if times else None

    def decisions(self, after: int = 0) -> Sequence[LogLine]:
        return [
            LogLine(number, entry) for number, entry in enumerate(self._entries(), start=1) if number > after
        ]

    async def watch(self, after: int = 0) -> AsyncIterator[LogLine]:
        while True:
            for decision in self.decisions(after):
                after = decision.number
                yield decision
            async with self._news:
                await self._news.wait()

    def log(self, name: str, rank: int) -> Path:
        return self._folder / f"{self.record(name).submitted.number}.{rank}.log"
