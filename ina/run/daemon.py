"""The daemon: the service's loop together with the operations that users request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.core import (
    Event,
    Reallocated,
    Retried,
    Submitted,
    reasons,
)
from controller.policies.scheduling.errors import BadDecision
from controller.policies.settings import JOINT
from controller.vocabulary import BadSpec, Job, Topology
from ina.errors import BadRun, Conflict, Unknown
from ina.run import views
from ina.run.external import ExternalRuns, Holders, is_external
from ina.run.launch.executor import Executor
from ina.run.launch.files import plain
from ina.run.launch.machine_hosts import identified, switch_address
from ina.run.launch.runner import left_behind, log_file
from ina.run.launch.spec import SHARED_WINDOW
from ina.run.ledger import Ledger
from ina.run.loop import ServiceLoop
from ina.run.network import ClusterNetwork
from ina.run.quotas import Quota, Rates
from ina.run.records import JobRecord, id_of
from ina.run.reports import Reports
from ina.run.switches.topology import has_slow_links
from ina.run.views import JobGrant, LogLine

FORGET_S = 5.0
"""Interval, in s, at which the daemon looks for ended jobs that must be archived."""
FORGET_AT_ONCE = 500
"""Maximum number of ended jobs that are archived in one iteration of the loop. To archive one job takes some
microseconds, in which the loop cannot do other work."""
START_S = 10.0
"""Minimum time, in s, that schedulers assume from the start of a job's workers until they have loaded their
last checkpoint."""


class Daemon(ServiceLoop[ClusterNetwork]):
    """The service. All calls must be made in the thread of its event loop.

    The argument `name` of a method is a job's id. The methods raise Unknown for a name that does not exist,
    Conflict for a request that is not possible in the current state, StoreError if the state cannot be
    written (all in `ina.errors`), and BadSpec (`controller.vocabulary`).
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        testbed: str,
        switches: ClusterNetwork,
        executor: Executor,
        **others: Any,
    ) -> None:
        """Make the daemon that continues the state of `ledger`; see `ServiceLoop` for all arguments."""
        self._external = ExternalRuns(executor, ledger.store.folder / "external", lambda: ledger.now_s)
        super().__init__(ledger, testbed=testbed, switches=switches, executor=self._external, **others)
        self._hosts_are_here = testbed != ""
        self._rates = Rates()
        self._holders = Holders(ledger, self._external)
        self.reports = Reports(ledger, self._effects, switches, self._measures, self._external)
        self._forget_s = 0.0
        self._sync: asyncio.Task[None] | None = None
        self._syncing = asyncio.Lock()

    def _round(self) -> None:
        self._holders.look()
        super()._round()
        self._archive()

    def _recover(self) -> None:
        super()._recover()
        self._holders.recover()

    @property
    def next_s(self) -> float:
        """Time, in s on the service's clock, until which the loop may wait for an event."""
        return min(super().next_s, self._holders.next_s)

    def _archive(self) -> None:
        """Archive the records of ended jobs as `Retention` requires, and remove the jobs' output."""
        ledger = self.ledger
        if ledger.now_s < self._forget_s:
            return
        self._forget_s = ledger.now_s + FORGET_S
        if not (names := ledger.expired()[:FORGET_AT_ONCE]):
            return
        records = self.reports.of(names)
        ledger.forget({each.name: views.of_job(each, ledger.now_s) for each in records})
        self._runs.forget(names)
        self._effects.spawn(self._remove_logs([ledger.logs(each) for each in records]))
        self._forget_s = 0.0  # there may be more

    # ------------------------------------------------------------------ its state

    @property
    def changes(self) -> Hashable:
        """A value that changes with each decision, and whenever a run begins or ends."""
        return self.ledger.changes, len(self.ledger.holds)

    async def watch(self, after: int = 0) -> AsyncIterator[LogLine]:
        """Yield the lines of the log of decisions with numbers above `after`, then each new line.

        The iteration does not end.
        """
        while True:
            for decision in self.reports.decisions(after):
                after = decision.number
                yield decision
            async with self._news:
                await self._news.wait_for(lambda: len(self.reports.decisions(after)) > 0)  # noqa: B023

    def log(self, name: str, rank: int) -> Path:
        """Return the path of the file with the output of a rank of a job.

        Raises Unknown if the job has no such rank.
        """
        record = self.reports.record(name)
        if not 0 <= rank < record.job.workers:
            raise Unknown(f"job {name!r} has ranks 0 to {record.job.workers - 1}, not {rank}")
        return log_file(self.ledger.logs(record), rank)

    async def audit(self) -> views.AuditView:
        """Compare the desired with the actual state of switches and servers; return the differences."""
        found = await self._blocking.switches(self._audit)
        lost: list[views.DifferenceView] = [
            {
                "where": ", ".join(place.hosts),
                "what": f"job {name} should run, but its runner is gone",
            }
            for number, hold in self.ledger.holds.items()
            if hold.stage == "running" and not self._executor.lives(number)
            for name, place in hold.run.places.items()
            if name not in hold.over
        ]
        known, runs = {*self._executor.known()}, self.ledger.store.folder / "runs"
        left = left_behind(runs) if runs.exists() else {}
        stray: list[views.DifferenceView] = [
            {"where": "this machine", "what": f"process {process} of run {run}, which is over, still runs"}
            for process, run in sorted(left.items())
            if run not in known
        ]
        clean = found["clean"] and not lost and not stray
        return {**found, "clean": clean, "found": [*found["found"], *lost, *stray]}

    def _audit(self) -> views.AuditView:
        """Compare the desired with the actual state of the switches; run this in their thread."""
        holds = list(self.ledger.holds.values())  # the loop may change it
        wanted = {name: each for hold in holds for name, each in hold.of_switches().items()}
        known = {each.job for hold in holds for each in hold.admissions.values()}
        leaving = known - {each.job for each in wanted.values()}
        return self._network.audit(wanted, leaving, self.ledger.now_s)

    # ------------------------------------------------------------------ users' requests

    async def submit(self, jobs: Sequence[Job], *, tenant: str = "", key: str = "") -> list[JobRecord]:
        """Accept jobs, which must have different names: all of them or none. Return their records.

        A repeated call with the same `key` and tenant accepts no jobs, and returns the first call's jobs. It
        raises Conflict if its jobs have other names than those of the first call.
        """
        for at, job in enumerate(jobs):
            with _errors_about(job, at):
                if is_external(job):
                    raise BadSpec(f"job {job.name!r} has no command: want the command of its workers")
                if self._hosts_are_here:
                    _check_folder(job)
        return await self._take(jobs, tenant, key)

    async def _take(self, jobs: Sequence[Job], tenant: str, key: str, **beside: str) -> list[JobRecord]:
        """Accept all jobs or none. Store the values in `beside`, such as ``holder``, with the submission."""
        ledger = self.ledger
        if key and (known := ledger.keys.get((tenant, key))) is not None:
            if [ledger.submitted[name].called for name in known] != [job.name for job in jobs]:
                raise Conflict(
                    f"idempotency key {key!r} was used to submit {', '.join(known)}; use another key for"
                    " other jobs"
                )
            return await self._kept({name: ledger.submitted[name] for name in known})
        now_s = self.ledger.now_s
        quota = ledger.quotas.quotas.get(tenant)
        self._rates.check(quota, len(jobs), now_s=now_s)
        events: list[Event] = []
        ids: list[str] = []
        for at, job in enumerate(jobs):
            if any(
                ledger.submitted[each].tenant == tenant and ledger.unfinished(each)
                for each in ledger.called.get(job.name, ())
            ):
                raise Conflict(f"there is a job {job.name!r} that is not over; give another name")
            ids.append(id_of(job.name, ledger.submissions + 1 + at, tenant, ledger.submitted))
            restart_s = max(job.restart_s, START_S)
            arrived = replace(job, name=ids[-1], arrival_s=now_s, restart_s=restart_s)
            if job.window is None and job.mode == "shared" and not self._network.paced:
                arrived = replace(arrived, window=SHARED_WINDOW)  # it needs no more slots than that
            with _errors_about(job, at, ids[-1]):
                spec = ledger.spec(arrived)
                ledger.core.admit(spec)
                if why := ledger.quotas.never(tenant, job.gpus):
                    raise BadSpec(f"job {job.name!r}: {why}")
            events.append(Submitted(now_s, spec, arrived))
        ledger.record(events, synced=False, tenant=tenant, key=key, **beside)
        self._rates.take(quota, len(jobs), now_s=now_s)
        accepted = {name: ledger.submitted[name] for name in ids}
        await self._notify()
        return await self._kept(accepted)

    async def _kept(self, accepted: Mapping[str, JobRecord]) -> list[JobRecord]:
        """Wait until the submission of jobs is on disk; return the jobs' records.

        A job may already be over and archived; its record then comes from the archive.
        """
        await self._synced()
        current = self.ledger.submitted
        found = {each.name: each for each in self.reports.of(name for name in accepted if name in current)}
        return [found.get(name) or self._forgotten(each) for name, each in accepted.items()]

    def _forgotten(self, submitted: JobRecord) -> JobRecord:
        archived = next(
            each for each in self.ledger.archived(str(submitted.number)) if each["number"] == submitted.number
        )
        return replace(submitted, state=archived["state"], reason=archived["reason"])

    def machine(self, known_as: Sequence[str]) -> str:
        """Return the name of the server that has one of the names or addresses `known_as`.

        Raises BadSpec if there is none.
        """
        try:
            return identified(self.ledger.topology, known_as)
        except BadRun as error:
            raise BadSpec(str(error)) from error

    async def admit(self, job: Job, *, holder: str, tenant: str = "", key: str = "") -> JobRecord:
        """Accept a job whose workers another launcher starts.

        Args:
            job: The job; its `servers` are the servers of its workers.
            holder: SHA-256 of the token with which its holder renews the lease.
            tenant: The job's tenant.
            key: Idempotency key: a repeated call with the same key returns the same job.

        Raises Conflict, BadSpec and StoreError.
        """
        allocation = self.ledger.core.allocation
        assert allocation is not None
        if allocation.own_places and self.ledger.policies.scheduler != JOINT.scheduler:
            raise Conflict(
                "placement 'scheduler' chooses the GPUs of every job, and workers of another launcher have"
                " their servers already: want another placement"
            )
        (record,) = await self._take([job], tenant, key, holder=holder)
        self._holders.hear(record.name)
        return record

    async def renew(self, name: str, done: int | None = None) -> str:
        """Renew the lease of an external job; return why its workers must end, or "" if they may continue.

        `done` is the number of iterations that the job has done in this run; None: unknown.
        """
        record = self._held(name)
        self._holders.renew(name, done)
        return self._to_stop(record)

    def grant(self, name: str) -> JobGrant:
        """Return the settings that an external job's workers need. Raises Conflict until the job runs."""
        record = self._held(name)
        if record.state != "running" or record.run is None:
            raise Conflict(f"job {name!r} is {record.state}: {record.reason}")
        hold, offers = self.ledger.holds[record.run], self._network.offers
        tree = hold.admissions[name]
        return JobGrant(
            switches={**plain(tree.switches), **({"": plain(tree.beside)} if tree.beside else {})},
            crosses=hold.run.places[name].tree is not None,
            lanes=offers.lanes,
            salted=offers.salted,
            lacks=plain(offers.lacks),
            paced=self._network.paced or has_slow_links(self.ledger.topology),
            address=switch_address(self.ledger.topology),
        )

    async def leave(self, name: str, failure: str = "") -> str:
        """Record that the workers of an external job have ended; `failure` is their error, "" for none.

        Return why the workers must end, or "" if they may continue, as `renew` does.
        """
        self._held(name)
        run = self._holders.run_of(name)  # of a job that was cancelled, too
        self._holders.end(name, failure)
        self._runs.look_soon()
        if run is not None:
            self._effects.again(run)
        await self._notify()
        return self._to_stop(self.reports.record(name))

    def _held(self, name: str) -> JobRecord:
        record = self.reports.record(name)
        if not is_external(record.job):
            raise Conflict(
                f"the controller itself has started the workers of job {name!r}: want a job of 'ina admit'"
            )
        return record

    def _to_stop(self, record: JobRecord) -> str:
        if record.over or (record.run is not None and self._external.to_stop(record.run)):
            return record.reason or f"the job is {record.state}"
        return ""

    async def _synced(self) -> None:
        """Wait until all writes are on disk, so that they survive a power failure.

        Concurrent calls share one sync of the disk. If this method raises StoreError, jobs that were
        submitted before are accepted nevertheless, but a power failure may undo their submission.
        """
        if self._sync is None:
            self._sync = asyncio.create_task(self._sync_soon())
        await asyncio.shield(self._sync)

    async def _sync_soon(self) -> None:
        async with self._syncing:  # calls while the disk is busy share the next sync
            await asyncio.sleep(0)  # let concurrent requests join
            self._sync = None
            await self._blocking.disk(self.ledger.sync)

    async def cancel(self, name: str, *, by: str = "") -> JobRecord:
        """End a job, whether it runs or waits; return its record. `by` is the user who requested this."""
        record = self.reports.record(name)
        if record.over:
            raise Conflict(f"job {name!r} is over: {record.state}")
        await self.end(name, f"by {by}" if by else "by its owner")
        return self.reports.record(name)

    async def retry(self, name: str) -> JobRecord:
        """Put a failed job back into the queue, to continue from its last checkpoint; return its record."""
        record = self.reports.record(name)
        if record.state != "failed":
            raise Conflict(f"job {name!r} is {record.state}; only a failed job can be retried")
        if is_external(record.job):
            raise Conflict(
                f"the controller has not started the workers of job {name!r}: start them again as before"
            )
        try:
            self.ledger.core.check_fits(name)
        except BadSpec as error:
            raise Conflict(str(error)) from error
        self.ledger.record([Retried(self.ledger.now_s, name)])
        await self._notify()
        return self.reports.record(name)

    async def change_cluster(self, cluster: Topology) -> Sequence[str]:
        """Replace the cluster; return the changes, one sentence each.

        Jobs that the change does not affect continue to run. The other jobs get other servers, trees and
        slots, or fail if the new cluster has none for them. Raises Conflict if the new cluster cannot replace
        the current one; nothing is changed then.
        """
        ledger = self.ledger
        if cluster == ledger.topology:
            return ()
        try:
            notes = ledger.change_cluster(cluster)
        except (BadSpec, BadDecision) as error:
            raise Conflict(f"cannot change to this cluster: {error}") from error
        self._executor.change_cluster(cluster)
        self._switches.forget()
        await self._notify()
        return notes

    async def reallocate(self, name: str = "", *, by: str = "") -> list[views.ReallocatedView]:
        """Divide the switches' slots among jobs now; return each job's old and new slots.

        With `name`, return only the slots of this job. The jobs move to their new slots after the call.
        Raises Conflict if the job `name` uses no switch memory. `by` is the user who requested this.
        """
        ledger = self.ledger
        allocation = ledger.core.allocation
        assert allocation is not None
        if name:
            self.reports.record(name)
        before = ledger.desired().places
        ledger.record([Reallocated(self.ledger.now_s, f"asked for by {by}" if by else "asked for")])
        ledger.decide()
        await self._notify()
        problem, division = allocation.allocator.problem, allocation.allocator.division
        after = ledger.desired().places
        found: list[views.ReallocatedView] = []
        for each, place in after.items():
            if place.tree is None or name not in ("", each) or not problem or not division:
                continue
            had = before[each].regions if each in before else {}
            found.append(
                {
                    "job": each,
                    "standing": division.standing[each].value,
                    "changed": dict(had) != dict(place.regions),
                    "before": views.slots_of(had),
                    "after": views.slots_of(place.regions),
                    "why": reasons.slots_text(problem, division, each),
                }
            )
        if name and not found:
            raise Conflict(f"job {name!r} uses no switch memory: {self.reports.record(name).state}")
        return found

    async def set_quota(self, quota: Quota) -> None:
        """Set a tenant's quota and reservation. Running jobs continue."""
        self.ledger.set_quota(quota)
        await self._notify()

    async def remove_quota(self, tenant: str) -> None:
        """Remove a tenant's quota."""
        if tenant not in self.ledger.quotas.quotas:
            raise Unknown(f"tenant {tenant!r} has no quota")
        self.ledger.remove_quota(tenant)
        await self._notify()

    async def drain(self, name: str, *, back: bool = False, by: str = "") -> None:
        """Drain a server or a switch; with `back`, end its drain. `by` is the user who requested this."""
        ledger = self.ledger
        if name not in ledger.topology.server and name not in ledger.topology.switch:
            raise Unknown(f"the cluster has no server or switch {name!r}")
        if back and name not in ledger.drained:
            raise Conflict(f"{name!r} is not drained")
        if not back and name in ledger.drained:
            return
        if back:
            ledger.node_back(name, drained=True)
        else:
            ledger.node_gone(name, f"drained by {by}" if by else "drained", drained=True)
        await self._notify()


@contextlib.contextmanager
def _errors_about(job: Job, at: int, known_as: str = "") -> Iterator[None]:
    """Make each BadSpec that is raised in the context refer to the job as its submitter knows it.

    The error gets the job's position `at` in the submission, and the job's name in place of its id
    `known_as`.
    """
    try:
        yield
    except BadSpec as error:
        message = error.message.replace(f"job {known_as!r}", f"job {job.name!r}")
        raise BadSpec(message, where=error.where or ("job", at)) from error


def _check_folder(job: Job) -> None:
    """Raise BadSpec for a job whose working folder does not exist on this machine."""
    folder = job.extra.get("folder")
    if folder is None:
        return
    with contextlib.suppress(PermissionError):  # its user may have access
        if not Path(str(folder)).is_dir():
            raise BadSpec(
                f"job {job.name!r}: extra.folder = {str(folder)!r}: want a directory on the machine"
                " where controller and workers run (ina submit --folder)"
            )
