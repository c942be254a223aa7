"""The service's state: the stored events, the core that has applied them, and the held runs.

`Ledger.record` stores each event before the core applies it. So a new ledger that reads the same store has
the same state.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from controller.core import (
    Cancelled,
    Core,
    Desired,
    Event,
    LinkBack,
    LinkGone,
    Log,
    Measured,
    Outcome,
    Overdue,
    Progressed,
    Retried,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
    reasons,
)
from controller.core.events import event_of
from controller.core.events import plain as plain_event
from controller.core.reasons import Kind
from controller.errors import BadSpec
from controller.policies.scheduling.policy import SCHEDULER, Submission
from controller.vocabulary import Job, Topology
from ina.faults import fault_point
from ina.run.clock import Clock
from ina.run.launch.files import plain, record_of
from ina.run.quotas import Quota, Quotas
from ina.run.records import ArchivedJob, JobRecord, Retention, Wiring
from ina.run.steps import HeldRun, held_run

if TYPE_CHECKING:
    from ina.run.memory import ServiceState
    from ina.run.policies import Policies

T = TypeVar("T")
_log = logging.getLogger(__name__)

SNAPSHOT_EVENTS = 5000
"""Number of events after which a snapshot is stored. Replaying this number of events at a start takes less
than two seconds."""
RESTORED = "restored"
"""Name of the fact, in the store, that the state was restored from a copy. Events that were stored after
the copy may be missing."""
_KNOWN = (
    *("core", "policies", "submitted", "keys", "drained", "down", "cut", "latest", "quotas", "left"),
    *("again", "overdue", "_counted", "submissions", "forgotten", "_wiring", "called"),
)
"""Names of the attributes of a ledger that follow from its events alone. A snapshot consists of these."""
_REPEATABLE = (Tick, Progressed, Measured)
"""Kinds of events that a power failure may undo. After the failure, the service decides or measures anew. The
undone events have had no effects, because each effect begins with a synced write of all events before it."""
_NUMBER = re.compile(r"(?:(.*)#)?(\d{1,15})", re.DOTALL)
"""Pattern of a reference to a job by number, or by an id of the form ``NAME#NUMBER``."""
MOST_ENTRIES = 100_000
"""Maximum number of entries in the log of decisions. The oldest are removed. Entries about archived jobs are
removed, too."""


class Ledger:
    """The service's state. All calls must be made in the thread of the service's loop.

    Attributes:
        policies: The current policies.
        core: The core. Only events change it (`record`).
        submitted: The record of each job that is not archived, as submitted, by the job's id.
        submissions: Number of all jobs ever submitted.
        called: By name that owners gave to jobs, the ids of the jobs with this name, oldest first.
        keys: By tenant and idempotency key, the ids of the jobs that were submitted with this key.
        drained: By name of each drained server or switch, why it was drained.
        down: By name of each server that the engine cannot use, and of each switch that does not answer, the
            reason.
        cut: By the two ends of each link that is down, the reason.
        latest: By job, the number of iterations that the job last reported. The core gets this number at
            longer intervals.
        quotas: The tenants' quotas.
        left: Outcome and reason of each job that ended while it waited for its tenant's quota.
        overdue: Unfinished jobs whose deadlines have passed.
        again: By job, how many times the job's workers were restarted in the same run, and the epoch of the
            job's admission before the last of these restarts.
        forgotten: Number of ended jobs that have been archived.
        recovered_s: Time of the last event in the store at the start of the service.
        recovered_lines: Number of lines in the log of decisions at the start of the service.
        holds: The held runs, by their numbers.
        stirred: Whether the desired or the held state may have changed since the loop last compared the two.
        changes: Number of events, and of changes of the held state, so far.
        woken: Set when the loop has work.
    """

    def __init__(
        self,
        store: ServiceState,
        topology: Topology,
        policies: Policies,
        clock: Clock,
        *,
        snapshot_events: int = SNAPSHOT_EVENTS,
        retention: Retention | None = None,
    ) -> None:
        """Make a ledger that uses a store; call `recover` to read the store's contents.

        Args:
            store: The store of events, holds and snapshots.
            topology: The cluster. If the store has another cluster, `recover` replaces the stored cluster.
            policies: The policies. If the store has other policies, `recover` replaces the stored policies.
            clock: The service's clock.
            snapshot_events: Number of events after which a snapshot is stored.
            retention: How many ended jobs are kept, and how long; None: the default of `Retention`.

        Raises BadSpec for invalid policies or an invalid cluster, and StoreError; the store is then
        unchanged.
        """
        self._retention = retention or Retention()
        self._snapshot_events = snapshot_events
        self.store = store
        self.clock = clock
        self._wanted = policies, topology
        policies.core(topology)  # raises for a wrong one: stored, it would make the state useless
        self.policies, first = store.first(policies, topology)
        self._wiring = Wiring.of(first)
        self.core = self.policies.core(self.topology)
        self.submitted: dict[str, JobRecord] = {}
        self.called: dict[str, list[str]] = {}
        self.keys: dict[tuple[str, str], list[str]] = {}
        self.drained: dict[str, str] = {}
        self.down: dict[str, str] = {}
        self.cut: dict[tuple[str, str], str] = {}
        self.latest: dict[str, float] = {}
        self.quotas = Quotas(self.topology.gpus)
        self.left: dict[str, tuple[Outcome, str]] = {}
        self.overdue: set[str] = set()
        self.again: dict[str, tuple[int, int]] = {}
        self.recovered_s = 0.0
        self.recovered_lines = 0
        self._timed = False
        self._frozen_at = 0
        self._counted = 0  # ended jobs whose quota is free again
        self.submissions = 0
        self.forgotten = 0
        self.holds: dict[int, HeldRun] = {}
        self._desired: Desired | None = None
        self._due: dict[str, float] | None = None
        self.stirred = True
        self.changes = 0
        self.woken = asyncio.Event()

    @property
    def now_s(self) -> float:
        """Seconds since the service was first started."""
        return max(self.clock.now_s(), self.core.now_s)

    def keep_time(self) -> None:
        """Store the state of the service's clock, at the first call and after each step of the wall clock.

        A later service continues the clock from the stored state. Raises StoreError.
        """
        stepped_s = self.clock.stepped_s()
        if stepped_s or not self._timed:
            self.store.set_fact("began", repr(self.clock.began_at))
            self.store.set_fact("clock", self.clock.kept())
        if stepped_s and self._timed:
            _log.warning("the wall clock was stepped by %+.0f s: the service's clock ignores this", stepped_s)
        self._timed = True

    @property
    def topology(self) -> Topology:
        """The cluster, including parts that do not work."""
        return self._wiring.whole

    @property
    def wiring(self) -> Wiring:
        """The cluster, and the part of it that works.

        The object stays the same until the cluster, or that part, changes.
        """
        allocation = self.core.allocation
        up = self.topology if allocation is None else allocation.allocator.topology
        if up is not self._wiring.up:
            self._wiring = replace(self._wiring, up=up)
        return self._wiring

    @property
    def log(self) -> Log:
        """The core's log of decisions."""
        assert self.core.log is not None
        return self.core.log

    def desired(self) -> Desired:
        """Return the core's desired state, cached until the next event. O(unfinished jobs)."""
        if self._desired is None:
            self._desired = self.core.desired()
        return self._desired

    @property
    def due_s(self) -> float:
        """Time, in s on the service's clock, of the next deadline of an unfinished job; infinite: none."""
        return min(self._deadlines().values(), default=math.inf)

    def _deadlines(self) -> dict[str, float]:
        """Return the deadline of each unfinished job, unless it has passed; cached until the next event.

        O(unfinished jobs).
        """
        if self._due is None:
            unfinished = (*self.core.jobs, *self.quotas.waiting)
            due = {name: self.submitted[name].job.due_s for name in unfinished if name not in self.overdue}
            self._due = {name: due_s for name, due_s in due.items() if due_s is not None}
        return self._due

    def unfinished(self, name: str) -> bool:
        """Return whether a job waits or runs: the core has it, or it waits for its tenant's quota."""
        return name in self.core.jobs or name in self.quotas.waiting

    def recover(self) -> None:
        """Restore the state from the store. Raises StoreError, and BadSpec for a store of another cluster."""
        if self.store.last and (found := self.store.last_snapshot()) is not None:
            self._frozen_at, known = found
            for name, value in known.items():
                setattr(self, name, value)
        for body in self.store.events(self._frozen_at):
            self._apply(body)
        self.recovered_s = self.core.now_s
        self.recovered_lines = self.log.counts.total()
        self.holds = {number: held_run(body) for number, body in self.store.holds().items()}
        policies, cluster = self._wanted
        if self.topology != cluster:
            self.change_cluster(cluster)
        if self.policies != policies:
            self.change(policies)

    def freeze(self) -> None:
        """Store a snapshot if `snapshot_events` have happened since the last one. Raises StoreError."""
        if self.store.last - self._frozen_at < self._snapshot_events:
            return
        self._frozen_at = self.store.last
        self.store.snapshot({name: getattr(self, name) for name in _KNOWN})
        fault_point("frozen")

    # ------------------------------------------------------------------ events

    def record(self, events: Sequence[Event], *, synced: bool = True, **beside: Any) -> None:
        """Store events, and apply them to the core.

        If `synced` is False, a power failure may undo the events until `sync` is called. The values in
        `beside` are stored with each event. Raises StoreError; nothing is changed then.
        """
        if not events:
            return
        synced = synced and not all(isinstance(event, _REPEATABLE) for event in events)
        rows = [(event.at_s, {"event": plain_event(event), **beside}) for event in events]
        self._write(rows, synced=synced)

    def _write(
        self,
        rows: Sequence[tuple[float, Mapping[str, Any]]],
        *,
        synced: bool = True,
        archived: Sequence[ArchivedJob] = (),
    ) -> None:
        """Store events, each with its time, and apply them to the ledger and its core. Raises StoreError."""
        self.store.append(rows, synced=synced, archived=archived)
        fault_point("recorded")
        for _, body in rows:
            self._apply(body)
        self.woken.set()

    @property
    def restored(self) -> bool:
        """Whether the state was restored from a copy, and its latest events may be missing.

        See `ina.run.recovery`. The value is False again after `since_restored`.
        """
        return bool(self.store.fact(RESTORED))

    def since_restored(self) -> None:
        """Record that the restored state now agrees with the actual runs. Raises StoreError."""
        self.store.set_fact(RESTORED, "")

    def sync(self) -> None:
        """Write all stored events to disk, so that they survive a power failure. Raises StoreError."""
        self.store.sync()
        fault_point("synced")

    def change(self, policies: Policies) -> None:
        """Replace the policies, and store the change as an event.

        Raises BadSpec if the core cannot change from the current policies to these, and StoreError. In both
        cases nothing is changed.
        """
        placements = [each.allocation and each.allocation.placement for each in (self.policies, policies)]
        if placements[1] == SCHEDULER != placements[0]:
            for name in self.core.jobs:
                if self.submitted[name].job.command is None:
                    raise BadSpec(
                        f"placement {SCHEDULER!r} chooses the GPUs of every job, and the workers of job"
                        f" {name!r}, which another launcher has started, have their servers already: want"
                        " another placement, or wait until it is over"
                    )
        self._try(policies.take_over)
        self._record_own("policies", policies=plain(policies))

    def change_cluster(self, cluster: Topology) -> tuple[str, ...]:
        """Replace the cluster, and store the change as an event. Return the changes, one sentence each.

        Raises BadSpec if the core cannot change from the current cluster to this one, and StoreError. In both
        cases nothing is changed.
        """
        if cluster.switch_ip != self.topology.switch_ip:
            raise BadSpec(
                f"switch_ip = {cluster.switch_ip!r}: want {self.topology.switch_ip!r}, to which running"
                " workers send"
            )
        changes = self._try(lambda core: self.policies.change_cluster(core, cluster))
        from controller.vocabulary.files import topology_document

        self._record_own("cluster", cluster=topology_document(cluster))
        return changes.notes

    def _try(self, change: Callable[[Core], T]) -> T:
        """Apply a change to a copy of the core, and return the result of `change`.

        Raises BadSpec if the policy of the changed copy cannot make a decision.
        """
        now_s = self.now_s
        core = copy.deepcopy(self.core)
        core.handle(Tick(now_s))
        found = change(core)
        core.handle(Tick(now_s))
        if core.policy_failure:  # a policy that cannot continue from here raises now
            raise BadSpec(core.policy_failure)
        return found

    def set_quota(self, quota: Quota) -> None:
        """Set a tenant's quota. Raises BadSpec if it reserves more GPUs than are left, and StoreError."""
        self.quotas.check(quota)
        self._record_own("quota", quota=plain(quota))

    def remove_quota(self, tenant: str) -> None:
        """Remove a tenant's quota. Raises StoreError."""
        self._record_own("no-quota", tenant=tenant)

    def expired(self) -> list[str]:
        """Return the ids of the ended jobs that must be archived now (`Retention`)."""
        now_s, core = self.now_s, self.core
        waiting = len(self.submitted) - len(core.jobs) - len(self.quotas.waiting)
        oldest_s = min((each.job.finish_s or 0.0 for each in core.finished_jobs[:1]), default=now_s)
        if not self._retention.due(waiting, oldest_s, now_s):
            return []
        ended = {each.job.spec.name: each.job.finish_s or 0.0 for each in core.finished_jobs}
        ended |= {name: self.submitted[name].job.arrival_s for name in (*self.left, *core.refused)}
        held = {name for hold in self.holds.values() for name in hold.run.jobs}
        over = [(name, at_s) for name, at_s in ended.items() if name not in core.jobs and name not in held]
        return self._retention.expired(over, now_s)

    def forget(self, archived: Mapping[str, Mapping[str, Any]]) -> None:
        """Remove ended jobs from the state, and store their records in the archive. Raises StoreError.

        `archived` has the record of each of these jobs, by the job's id.
        """
        submitted = self.submitted
        rows = [(submitted[name].number, submitted[name].called, record) for name, record in archived.items()]
        self._record_own("forgotten", rows, jobs=list(archived))

    def node_gone(self, name: str, why: str, **beside: Any) -> None:
        """Record that the server or switch `name` must not be used, and why; `drained`: a user drains it.

        The values in `beside` are stored with the event. Raises StoreError.
        """
        gone = ServerGone if name in self.topology.server else SwitchGone
        self.record([gone(self.now_s, name, why)], **beside)

    def node_back(self, name: str, **beside: Any) -> None:
        """Record that a server or switch works again or, if `drained`, that a user ends its drain.

        It stays unused if the other of these two reasons remains. Raises StoreError.
        """
        back = ServerBack if name in self.topology.server else SwitchBack
        self.record([back(self.now_s, name)], **beside)
        if name in self.drained:
            self.node_gone(name, self.drained[name], drained=True)
        elif name in self.down:
            self.node_gone(name, self.down[name])

    def stray_logs(self) -> list[Path]:
        """Return the folders with output of ranks whose jobs have been archived."""
        known = {str(record.number) for record in self.submitted.values()}
        folder = self.store.folder / "logs"
        return [each for each in folder.iterdir() if each.name not in known] if folder.exists() else []

    def named(self, reference: str) -> list[JobRecord]:
        """Return the records, as submitted, of the jobs with this name, id or number, oldest first."""
        number = _NUMBER.fullmatch(reference)
        found = {*self.called.get(reference, ()), *({reference} & self.submitted.keys())}
        if number is not None and not number[1]:
            found |= {name for name, each in self.submitted.items() if each.number == int(number[2])}
        return sorted((self.submitted[name] for name in found), key=lambda each: each.number)

    def archived(self, reference: str) -> list[dict[str, Any]]:
        """Return the records of archived jobs with this name, id or number, the latest first."""
        number = _NUMBER.fullmatch(reference)
        found = self.store.archived(reference, None if number is None else int(number[2]))
        return [each for each in found if reference in (each["name"], each.get("id"), str(each["number"]))]

    def _forget(self, names: Sequence[str]) -> None:
        self.core.forget(names)
        for name in names:
            record = self.submitted.pop(name)
            self.overdue.discard(name)
            self.called[record.called].remove(name)
            if not self.called[record.called]:
                del self.called[record.called]
            self.keys.pop((record.tenant, record.key), None)
            for known in (self.latest, self.left, self.again):
                known.pop(name, None)
        self._counted = len(self.core.finished_jobs)
        self.forgotten += len(names)
        self.log.keep(self.submitted, MOST_ENTRIES)

    def start_again(self, epochs: Mapping[str, int], why: str) -> None:
        """Record that the workers of jobs are restarted in the same run, and why.

        `epochs` has, by job, the epoch of the job's last admission. Raises StoreError.
        """
        self._record_own("again", jobs=dict(epochs), why=why)

    def _record_own(self, kind: str, archived: Sequence[ArchivedJob] = (), **what: Any) -> None:
        """Store and apply an event of a kind that only the ledger has; all other kinds are the core's."""
        at_s = self.now_s
        self._write([(at_s, {"event": {"kind": kind, "at_s": at_s}, **what})], archived=archived)

    def decide(self) -> None:
        """Record an event for each deadline that has passed; the core then makes all decisions that are due.

        Raises StoreError.
        """
        now_s = self.now_s
        if self.due_s <= now_s:
            passed = [name for name, due_s in self._deadlines().items() if due_s <= now_s]
            self.record([Overdue(now_s, name) for name in passed])
        while self.store.trouble or self.core.next_s <= self.now_s:
            self.record([Tick(self.now_s)])  # also after a failed write, to see whether writes succeed again

    def _apply(self, body: Mapping[str, Any]) -> None:
        """Apply a stored event to the ledger and its core."""
        self._desired = self._due = None
        self.stirred = True
        self.changes += 1
        at_s = body["event"]["at_s"]
        match body["event"]["kind"]:
            case "again":
                for name, epoch in body["jobs"].items():
                    times, last = self.again.get(name, (0, -1))
                    if epoch != last:  # otherwise it was stored before the daemon died
                        self.again[name] = times + 1, epoch
                        self._note(at_s, "note", name, f"its workers start again: {body['why']}")
            case "forgotten":
                self._forget(body["jobs"])
            case "policies":
                self.policies = record_of(type(self.policies), body["policies"])
                self.core.handle(Tick(at_s))
                self.policies.take_over(self.core)
            case "cluster":
                from controller.vocabulary.files import parse_topology

                self._take_cluster(parse_topology(json.dumps(body["cluster"]), source="cluster.json"), at_s)
            case "quota":
                self._submit_waiting(self.quotas.grant(record_of(Quota, body["quota"])), at_s)
            case "no-quota":
                self._submit_waiting(self.quotas.remove(body["tenant"]), at_s)
            case _:
                self._take_event(event_of(body["event"]), body)

    def _take_cluster(self, cluster: Topology, at_s: float) -> None:
        core = self.core
        core.handle(Tick(at_s))
        self.policies.change_cluster(core, cluster)
        assert core.allocation is not None
        self._wiring = self._wiring.changed(cluster, core.allocation.allocator.topology)
        nodes = cluster.server.keys() | cluster.switch.keys()
        for known in (self.drained, self.down):
            for name in known.keys() - nodes:
                del known[name]
        links = {(link.a, link.b) for link in cluster.links}
        self.cut = {ends: why for ends, why in self.cut.items() if ends in links}
        self._submit_waiting(self.quotas.resize(cluster.gpus), at_s)
        self._end_over(at_s)

    def _take_event(self, event: Event, body: Mapping[str, Any]) -> None:
        match event:
            case Cancelled() if event.job in self.quotas.waiting:
                self._leave(event.job, "cancelled", event.reason, event.at_s)
                return
            case Overdue() if event.job in self.quotas.waiting:
                self.overdue.add(event.job)
                job = self.submitted[event.job].job
                why = reasons.overdue_text(job, None, event.at_s)
                if job.on_late == "end":
                    self._leave(event.job, "missed", why, event.at_s)
                else:
                    self._note(event.at_s, "late", event.job, why)
                return
            case Overdue():
                self.overdue.add(event.job)
                if event.job not in self.core.jobs:  # an earlier event has ended it
                    return
            case Submitted():
                assert event.job is not None
                tenant, key = body.get("tenant", ""), body.get("key", "")
                self.submissions += 1
                record = JobRecord(
                    number=self.submissions,
                    job=event.job,
                    tenant=tenant,
                    key=key,
                    holder=body.get("holder", ""),
                )
                self.submitted[record.name] = record
                self.called.setdefault(record.called, []).append(record.name)
                if key:
                    self.keys.setdefault((tenant, key), []).append(record.name)
                if why := self.quotas.take(record.name, tenant, record.job.gpus):
                    self._note(event.at_s, "waits", record.name, why)
                    return
            case Retried():
                record = self.submitted[event.job]
                if record.job.due_s is not None and record.job.due_s <= event.at_s:
                    self.overdue.add(event.job)  # known to the user who retries it: it runs
                self.quotas.again(event.job, record.tenant, record.job.gpus)
            case ServerGone() | SwitchGone():
                (self.drained if "drained" in body else self.down)[_node(event)] = event.reason
            case ServerBack() | SwitchBack():
                (self.drained if "drained" in body else self.down).pop(_node(event), None)
            case LinkGone():
                self.cut[event.a, event.b] = event.reason
            case LinkBack():
                self.cut.pop((event.a, event.b), None)
            case Progressed() if event.done is not None:
                self.latest[event.job] = event.done
        self.core.handle(event)
        self._end_over(event.at_s)

    def _end_over(self, at_s: float) -> None:
        """Release the GPUs of ended jobs in their tenants' quotas.

        Submit the waiting jobs that the quotas now allow to the core.
        """
        over = self.core.finished_jobs
        for each in over[self._counted :]:
            self._submit_waiting(self.quotas.end(each.job.spec.name), at_s)
        self._counted = len(over)

    def _submit_waiting(self, names: Sequence[str], at_s: float) -> None:
        """Submit the jobs `names` to the core: these jobs need not wait for their tenants' quotas any more.

        End the jobs that do not fit the cluster, which may have changed since their submission.
        """
        for name in names:
            from controller.vocabulary.files import check_job

            job = self.submitted[name].job
            try:
                check_job(job, self.topology)
                spec = self.spec(job)
            except BadSpec as error:  # the cluster has changed since its submission
                self._leave(name, "cancelled", f"it does not fit the changed cluster: {error}", at_s)
            else:
                self.core.handle(Submitted(at_s, spec, job))

    def spec(self, job: Job) -> Submission:
        """Convert a job to the schedulers' form, `Submission`; mark an external job as not movable.

        Raises BadSpec.
        """
        from controller.core.compose import submission_of

        return replace(submission_of(job, self.topology), once=job.command is None)

    def _leave(self, name: str, outcome: Literal["cancelled", "missed"], why: str, at_s: float) -> None:
        """End a job that waits for its tenant's quota, and that the core therefore does not have yet."""
        self.left[name] = outcome, why
        self._note(at_s, outcome, name, why)
        self._submit_waiting(self.quotas.end(name), at_s)

    def _note(self, at_s: float, kind: Kind, job: str, text: str) -> None:
        self.log.note(at_s, kind, (job,), text)

    # ------------------------------------------------------------------ holds

    def set(self, number: int, **changes: Any) -> None:
        """Change attributes of the held run `number` in memory; `keep` stores them."""
        self.holds[number] = replace(self.holds[number], **changes)
        self.stirred = True
        self.changes += 1

    def keep(self, *numbers: int) -> None:
        """Store the held runs with these numbers. Raises StoreError."""
        self.store.hold({number: replace(self.holds[number], busy=False) for number in numbers})
        fault_point("kept")

    def remove_hold(self, number: int) -> None:
        """Remove a held run from the store. Raises StoreError."""
        self.store.remove_hold(number)
        fault_point("hold removed")

    def logs(self, submitted: JobRecord) -> Path:
        """Return the path of the folder for the output of a job's ranks."""
        return self.store.folder / "logs" / str(submitted.number)


def _node(event: ServerGone | ServerBack | SwitchGone | SwitchBack) -> str:
    return event.server if isinstance(event, ServerGone | ServerBack) else event.switch
