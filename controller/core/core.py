"""The deciding core: events in, desired state out.

``handle(event)`` processes an event; events come in order of time. On a `Tick` the core decides, if a
decision is due: the scheduling policy chooses the jobs that run and their numbers of GPUs; the allocation, if
there is a network, chooses servers, trees and slots. ``desired()`` returns the desired state from then on;
``next_s`` is the time at which the core needs a `Tick` if no other event comes before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, assert_never

from controller.core import reasons
from controller.core.allocation import Allocation, Outages
from controller.core.desired import Desired, Place, Run
from controller.core.events import (
    Cancelled,
    Changes,
    Ended,
    Event,
    Interrupted,
    LinkBack,
    LinkGone,
    Measured,
    Overdue,
    Progressed,
    Reallocated,
    Retried,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.reasons import Kind, Log
from controller.core.running import RunningGroups, with_room
from controller.policies.scheduling.checks import check
from controller.policies.scheduling.errors import BadDecision, BadSpec
from controller.policies.scheduling.policy import (
    Decision,
    Group,
    JobState,
    Policy,
    ReportedJob,
    Setup,
    Submission,
    View,
)
from controller.vocabulary import Cluster, Topology
from controller.vocabulary.errors import plural

if TYPE_CHECKING:
    from controller.policies.settings import AllocationPolicies, AllocationSettings

_Part = TypeVar("_Part")
Outcome = Literal["completed", "failed", "cancelled", "missed"]


class FinishedJob(NamedTuple):
    """A job that is over. Outcome `missed`: the core ended the job, as it could not meet its deadline."""

    job: JobState
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of a core apart from its policies.

    Attributes:
        reported: Whether jobs report their progress, as real jobs do. If not, the speed model predicts it.
        verify: Whether every decision of the scheduling policy is checked.
        sharing: Maximum number of jobs on one GPU at once; further jobs wait. None: no limit.
        retries: Maximum number of times that a failed job returns to the queue and restarts from its last
            checkpoint.
        tolerates_failures: What happens if a policy fails to decide. True: running jobs continue, and the
            policy is asked again at the next event. False: the policy's error is raised.
    """

    reported: bool = False
    verify: bool = True
    sharing: int | None = None
    retries: int = 0
    tolerates_failures: bool = False

    def __post_init__(self) -> None:
        if (self.sharing is not None and self.sharing < 1) or self.retries < 0:
            raise BadSpec(
                f"{self.sharing} jobs on a GPU, {self.retries} retries; want 1 job or more, 0 retries or more"
            )


class Core:
    """Decides which jobs of one cluster run, and where, with a scheduling policy and an allocation.

    Args:
        cluster: The servers as the policy sees them.
        setup: The policy, the speed model that predicts how fast jobs run, and the decision interval.
        allocation: Servers, trees and slots of running jobs; None: the cluster has no network.
        rules: Further rules.
        log: Log of all decisions and their reasons; None: no log.
        foreseen: Called with each job whose predicted end has changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        setup: Setup,
        *,
        allocation: Allocation | None = None,
        rules: Rules | None = None,
        log: Log | None = None,
        foreseen: Callable[[JobState], None] | None = None,
    ) -> None:
        if setup.interval_s < 0 or not math.isfinite(setup.interval_s):
            raise BadSpec(f"an interval of {setup.interval_s} s; it must be finite and not negative")
        self.log = log
        self.allocation = allocation
        self.finished_jobs: list[FinishedJob] = []
        """Jobs that are over, in the order in which they ended."""
        self.refused: dict[str, str] = {}
        """Reason for each refused submission, by the job's name."""
        self.decisions = 0
        """How often the scheduling policy was asked for a decision."""
        self.policy_failure = ""
        """Why the policy's last decision failed; "" if it succeeded (`Rules.tolerates_failures`)."""
        self._whole = self._cluster = cluster
        self._described = None if allocation is None else cluster.topology
        self._policy = setup.policy
        self._speed = setup.speed
        self._interval_s = setup.interval_s
        self._rules = rules or Rules()
        self.now_s = 0.0
        """The time of the last event."""
        self.jobs: dict[str, JobState] = {}
        """The waiting and running jobs by name, in order of arrival; read only."""
        self.running = RunningGroups(setup.speed, reported=self._rules.reported, foreseen=foreseen)
        """The running groups of the last decision, without jobs that have ended since then; read only."""
        allocator = None if allocation is None else allocation.allocator
        own_places = allocation is None or allocation.own_places
        self._outages = Outages(cluster, allocator, own_places=own_places)
        self._submissions: dict[str, Submitted] = {}
        self._arrivals = 0
        self._left: dict[str, float] = {}  # iterations of failed jobs
        self._failures: dict[str, int] = {}
        self._arrived: list[JobState] = []
        self._finished: list[JobState] = []
        self._once = False  # there has been a job that cannot be started again
        self._kept: dict[str, JobState] = {}  # running jobs that have finished as far as the policy knows
        self._rest = cluster  # the servers without the GPUs of `_kept`
        self._crowded: set[str] = set()
        self._logged_waiting: set[str] = set()
        self._next_decision_s = math.inf
        self._lossy = False  # something is down, or was until now
        self._changed = False
        if log is not None and allocation is not None:
            allocation.watchers.append(reasons.AllocationLogger(log))

    # ------------------------------------------------------------------ state

    @property
    def next_s(self) -> float:
        """Time by which the core needs a `Tick`, in seconds; infinite: no `Tick` until another event."""
        if self.allocation is None:
            return self._next_decision_s
        if self._changed:
            return self.now_s
        return min(self._next_decision_s, self.allocation.next_s)

    @property
    def servers(self) -> Cluster:
        """All servers with their GPU numbers, including servers that are down or have left the cluster."""
        return self._whole

    @property
    def stuck(self) -> bool:
        """True if jobs wait, no job runs, and no decision is due at any later time."""
        return bool(self.jobs) and not self.running.jobs and math.isinf(self.next_s)

    def desired(self) -> Desired:
        """Return the desired state from now on."""
        runs = tuple(
            replace(run, places={name: self._place(self.jobs[name]) for name in run.jobs})
            for run in self._runs()
        )
        here = {name for run in runs for name in run.jobs}
        waiting = tuple(name for name in self.jobs if name not in here)
        return Desired(self.now_s, runs, waiting, self.next_s)

    # ------------------------------------------------------------------ events

    def handle(self, event: Event) -> None:
        """Process an event; on a `Tick`, decide.

        Raises BadDecision for an impossible decision of a policy, and BadSpec for an event that names an
        unknown job, server, switch or link.
        """
        now_s = self.now_s = event.at_s
        match event:
            case Tick():
                self.tick(now_s)
            case Ended():
                self.ended(now_s, event.job, event.failure, final=event.final, done_s=event.done_s)
            case Overdue():
                self._overdue(self._job(event.job), now_s)
            case Submitted():
                self._submitted(event, now_s)
            case Progressed():
                self._progressed(event, now_s)
            case Measured():
                self._measured(event)
            case Interrupted():
                self._put_back(self._job(event.job), now_s, "interrupted", event.reason)
            case Cancelled():
                self._close(self._job(event.job), "cancelled", event.reason, now_s)
            case Retried():
                self._retried(event.job, now_s)
            case ServerGone() | ServerBack():
                self._known(event.server, self._servers(), "server")
                self._change_outages(self._outages.servers, event.server, f"server {event.server}", event)
            case SwitchGone() | SwitchBack():
                self._known(event.switch, self._switches(), "switch")
                self._change_outages(self._outages.switches, event.switch, f"switch {event.switch}", event)
            case LinkGone() | LinkBack():
                ends = self._link(event.a, event.b)
                self._change_outages(self._outages.links, ends, f"link {'-'.join(ends)}", event)
            case Reallocated():
                if self.allocation is None:
                    raise BadSpec("a core without a network has no switch memory to divide")
                self.allocation.divide_next(now_s)
                self._note("note", (), f"memory is divided again: {event.reason}")
            case _:
                assert_never(event)

    def decide_by(
        self,
        setup: Setup,
        policies: AllocationPolicies,
        settings: AllocationSettings,
        rules: Rules,
        servers: Cluster,
    ) -> None:
        """Replace the policies, from the next tick on.

        Running jobs continue until the new policies decide otherwise. The scheduling policy sees all
        unfinished jobs as just arrived, and running jobs in their groups. If only one of the old and the new
        scheduling policy chooses servers itself, GPUs get other numbers: all jobs return to the queue.

        Args:
            setup: The scheduling policy, its speed model and interval.
            policies: The placement, routing and memory policies.
            settings: The settings of these three.
            rules: Rules apart from the policies.
            servers: The servers as the scheduling policy sees them.

        Raises BadSpec for a core without a network.
        """
        if self.allocation is None:
            raise BadSpec("the policies of a core without a network cannot be replaced")
        before = self.allocation.own_places
        self.allocation.decide_by(policies, settings, servers, self.now_s)
        if self.allocation.own_places != before:
            why = f"placement is now {settings.placement!r}: the GPUs of all jobs are chosen again"
            for job in list(self.running.jobs):
                self._put_back(job, self.now_s, "interrupted", why)
            self._whole = self._cluster = servers
            self._outages.own_places = not before
            self._outages.change(servers)
            self._lose(self.now_s)
        self._rules = rules
        self._schedule_by(setup)
        names = ", ".join(f"{kind} {name}" for kind, name in settings.names.items())
        self._note("note", (), f"policies: scheduler {setup.policy.name}, {names}")

    def change_cluster(self, topology: Topology, servers: Cluster, setup: Setup) -> Changes:
        """Replace the cluster; return the differences between the old and the new one.

        Unaffected jobs continue where they are. Jobs that cannot keep their places return to the queue. Jobs
        whose trees have lost a switch or a link get other trees. Jobs that do not fit even the empty
        cluster fail, and can be retried.

        Args:
            topology: Servers, switches and links.
            servers: These servers as schedulers see them, with the same GPU numbers as before
                (`compose.keep_gpu_numbers`).
            setup: The scheduling policy for these servers, its speed model and interval.

        Raises BadSpec for a core without a network.
        """
        allocation, now_s = self.allocation, self.now_s
        if allocation is None or self._described is None:
            raise BadSpec("the cluster of a core without a network cannot be replaced")
        from controller.core.events import compare  # for clusters that change

        changes = compare(self._described, topology)
        placed = allocation.allocator.placed
        moved = {name: changes.why_moved(job, topology) for name, job in placed.items()}
        self._described = topology
        self._whole = servers
        self._cluster = servers.without(
            gpu for gpu in self._cluster.unavailable if gpu < len(servers.node_of)
        )
        for text in changes.notes:
            self._note("note", (), f"cluster: {text}")
        for name, why in moved.items():
            if why and name in self.jobs and self.jobs[name].group is not None:
                self._put_back(self.jobs[name], now_s, "interrupted", why)
        allocation.change(topology, servers, now_s)
        self._outages.change(servers)
        self._lose(now_s)
        self._fail_without_room()
        self._schedule_by(setup)
        return changes

    def _fail_without_room(self) -> None:
        """Fail the jobs that need more GPUs than the cluster has, or name an unknown server or switch."""
        for name, job in list(self.jobs.items()):
            try:
                self.check_fits(name)
            except BadSpec as error:
                self._left[name] = job.iterations_left(self.now_s)
                self._close(job, "failed", f"it does not fit the changed cluster: {error}", self.now_s)

    def check_fits(self, name: str) -> None:
        """Raise BadSpec if the cluster cannot hold a submitted job.

        The cluster cannot hold the job if it has too few GPUs, or lacks a server or a switch that the job
        names.
        """
        from controller.core.compose import submission_of
        from controller.vocabulary.files import check_job

        described = self._submissions[name].job
        if described is not None and self._described is not None:
            check_job(described, self._described)
            submission_of(described, self._described)

    def _schedule_by(self, setup: Setup) -> None:
        """Replace the scheduling policy; the new policy sees all jobs as just arrived."""
        self._policy, self._speed, self._interval_s = setup.policy, setup.speed, setup.interval_s
        self.running.predict_by(setup.speed)
        self._arrived, self._finished = list(self.jobs.values()), []
        self._kept, self._crowded = {}, set()
        self._changed = True
        self._ask_at(self.now_s)

    def forget(self, names: Collection[str]) -> None:
        """Forget jobs that are over or were refused; new jobs may use their names. O(jobs that are over).

        Raises BadSpec for a job that still waits or runs.
        """
        if unfinished := self.jobs.keys() & set(names):
            raise BadSpec(f"job {min(unfinished)!r} is not over; only jobs that are over can be forgotten")
        gone = {*names}
        self.finished_jobs = [each for each in self.finished_jobs if each.job.spec.name not in gone]
        self._logged_waiting -= gone
        self._crowded -= gone
        for known in (self._submissions, self.refused, self._left, self._failures):
            for name in gone & known.keys():
                del known[name]

    def admit(self, spec: Submission) -> None:
        """Raise BadSpec for a job that would be refused.

        A job is refused if it is too large, if its name is in use, or (under `Rules.tolerates_failures`) if
        its speed is unpredictable.
        """
        if self._described is None:
            self._whole.check_room(spec.name, spec.gpus)
        elif spec.gpus > (gpus := self._described.gpus):  # `_whole` has GPUs of servers that left, too
            raise BadSpec(f"job {spec.name!r} asks for {plural(spec.gpus, 'GPU')}; the cluster has {gpus}")
        if spec.name in self._submissions:
            raise BadSpec(f"two jobs are called {spec.name!r}")
        if self._rules.tolerates_failures:
            self._speed.alone_s(spec)

    def _submitted(self, event: Submitted, now_s: float) -> None:
        spec = event.spec
        try:
            self.admit(spec)
            if self.allocation is not None and event.job is None:
                raise BadSpec(
                    f"job {spec.name!r} has no gradient sizes, which a cluster with a network needs"
                )
        except BadSpec as error:
            self.refused[spec.name] = str(error)
            self._note("refused", (spec.name,), str(error))
            return
        self._submissions[spec.name] = event
        self._arrive(event, now_s)
        if self.log is not None:
            text = f"{plural(spec.gpus, 'GPU')}, {plural(spec.iterations, 'iteration')}"
            self.log.note(now_s, "submitted", (spec.name,), text, gpus=spec.gpus, iterations=spec.iterations)

    def _arrive(self, event: Submitted, now_s: float) -> JobState:
        if self.allocation is not None and event.job is not None:
            self.allocation.submit(event.job)
        self._once |= event.spec.once
        kind = ReportedJob if self._rules.reported else JobState
        job = kind(event.spec, self._arrivals, self._speed.alone_s(event.spec), now_s)
        self._arrivals += 1
        self.jobs[event.spec.name] = job
        self._arrived.append(job)
        self._ask_at(now_s)
        return job

    def _progressed(self, event: Progressed, now_s: float) -> None:
        job = self.jobs.get(event.job)
        if job is None or job.group is None:
            return  # it was stopped, or ended, while it reported
        if event.done is not None:
            job.observe(now_s, event.done)
        if event.iteration_s is not None:
            self.running.pace(job, event.iteration_s, now_s)

    def _measured(self, event: Measured) -> None:
        if self.allocation is not None and event.job in self.jobs:
            self.allocation.measure(event.job, event.compute_s, event.model_bytes, event.hold_s)
            job = self.allocation.job(event.job)
            text = f"measured: {job.compute_s:.3g} s of computing and {job.model_bytes:,} bytes an iteration"
            numbers = {"compute_s": job.compute_s, "model_bytes": float(job.model_bytes)}
            if job.hold_s is not None:
                text += f"; a slot is held for {job.hold_s * 1e3:.3g} ms"
                numbers["hold_s"] = job.hold_s
            self._note("measured", (event.job,), text, **numbers)

    def ended(
        self,
        now_s: float,
        name: str,
        failure: str = "",
        *,
        final: bool = False,
        done_s: float | None = None,
    ) -> None:
        """Process an `Ended`.

        Args:
            now_s: The time.
            name: The job's name.
            failure: Why the job failed; "": it completed.
            final: Whether a failed job must not be retried.
            done_s: Time at which the job's workers ended, in seconds; None: now.
        """
        self.now_s = now_s
        job = self._job(name)
        if not failure:
            self._close(job, "completed", "", now_s, done_s)
        elif not final and (before := self._failures.get(name, 0)) < self._rules.retries:
            self._failures[name] = before + 1
            text = f"{failure}; retry {before + 1} of {self._rules.retries}"
            self._put_back(job, now_s, "retried", text)
        else:
            self._left[name] = job.iterations_left(now_s)
            self._close(job, "failed", failure, now_s)

    def _overdue(self, job: JobState, now_s: float) -> None:
        described = self._submissions[job.spec.name].job
        if described is not None and described.on_late == "best-effort":
            self._note("late", (job.spec.name,), reasons.overdue_text(described, job, now_s))
        elif described is not None:
            self._close(job, "missed", reasons.overdue_text(described, job, now_s), now_s)

    def _retried(self, name: str, now_s: float) -> None:
        if name not in self._left:
            raise BadSpec(f"job {name!r} has not failed; only a failed job can be retried")
        job = self._arrive(self._submissions[name], now_s)
        job.resume(self._left.pop(name))
        self._note("retried", (name,), "asked for", left=job.iterations_left(now_s))

    def _close(
        self, job: JobState, outcome: Outcome, reason: str, now_s: float, done_s: float | None = None
    ) -> None:
        """Mark a job as over; `done_s` is the time at which the job's workers ended; None: `now_s`."""
        name = job.spec.name
        del self.jobs[name]
        waited_s = 0.0 if self.log is None else job.waiting_s(now_s)
        self._leave(job, now_s)
        ended_s = now_s if done_s is None else min(now_s, max(done_s, job.start_s or 0.0))
        job.finish(ended_s, completed=outcome == "completed")
        if self._arrived and job in self._arrived:
            self._arrived.remove(job)  # the policy has never heard of it
        elif self._kept.pop(name, None) is None:
            self._finished.append(job)
        if self.allocation is not None:
            self.allocation.forget(name)
        self.finished_jobs.append(FinishedJob(job, outcome, reason))
        self._ask_at(now_s)
        if self.log is not None:
            ran_s = job.attained_s(now_s)
            text = reason or f"waited {waited_s:.1f} s, ran {ran_s:.1f} s"
            if outcome == "completed" and (late_s := self._late_s(job)) > 0:
                text = f"completed {late_s:.1f} s after its deadline: {text}"
            kind: Kind = "ended" if outcome == "completed" else outcome
            self.log.note(now_s, kind, (name,), text, waited_s=waited_s, ran_s=ran_s)

    def _late_s(self, job: JobState) -> float:
        """Return the time by which a job ended after its deadline, in seconds.

        Returns 0 if the job met its deadline or had none.
        """
        described = self._submissions[job.spec.name].job
        if described is None or described.due_s is None or job.finish_s is None:
            return 0.0
        return max(0.0, job.finish_s - described.due_s)

    def _put_back(self, job: JobState, now_s: float, kind: Kind, reason: str) -> None:
        """Return a job to the queue, because its workers are gone; log `reason`."""
        self._leave(job, now_s)
        if job.group is not None:
            job.halt(now_s)
        if self.allocation is not None:
            self.allocation.withdraw(job.spec.name)
        self._note(kind, (job.spec.name,), reason, left=job.iterations_left(now_s))
        self._logged_waiting.add(job.spec.name)
        self._ask_at(now_s)

    def _leave(self, job: JobState, now_s: float) -> None:
        if job.group is not None:
            self.running.leave(job, now_s)
            self._changed = True

    def _change_outages(
        self,
        failed: dict[_Part, str],
        part: _Part,
        name: str,
        event: ServerGone | ServerBack | SwitchGone | SwitchBack | LinkGone | LinkBack,
    ) -> None:
        if isinstance(event, ServerBack | SwitchBack | LinkBack):
            failed.pop(part, None)
            self._note("back", (), name)
        else:
            failed[part] = event.reason
            self._note("gone", (), f"{name}: {event.reason}")
        self._lose(event.at_s)

    def _lose(self, now_s: float) -> None:
        """Interrupt the jobs that cannot continue on the servers, switches and links that are up."""
        losses = self._outages
        hit: dict[str, str] = {}
        if self.allocation is not None:
            hit = self.allocation.set_outages(losses, now_s)
        for job in list(self.running.jobs):
            at = self._down_under(job)
            if at is not None:
                why = losses.servers.get(at, "it has left the cluster")
                hit.setdefault(job.spec.name, f"server {at} is down: {why}")
        for name, reason in hit.items():
            if name in self.jobs and self.jobs[name].group is not None:
                self._put_back(self.jobs[name], now_s, "interrupted", reason)
        self._changed = self._lossy = True
        self._ask_at(now_s)

    def _down_under(self, job: JobState) -> str | None:
        """Return a server of the job's GPUs that is down or has left the cluster; None if there is none.

        Also returns None if GPU numbers do not denote GPUs of real servers (`Outages.own_places`).
        """
        if not self._outages.own_places or job.group is None:
            return None
        nodes, node_of = self._whole.servers, self._whole.node_of
        names = (nodes[node_of[gpu]].name for gpu in job.group.gpus)
        down, known = self._outages.servers, self._servers()
        return next((name for name in names if name in down or name not in known), None)

    # ------------------------------------------------------------------ decisions

    def tick(self, now_s: float) -> bool:
        """Process a `Tick`; return whether a decision of the scheduling policy was due.

        The allocation is updated if a decision was due, the running jobs have changed, or a division of
        memory is due.
        """
        self.now_s = now_s
        is_due = now_s >= self._next_decision_s
        follow = self.allocation is not None and (is_due or now_s >= self.next_s)
        before = None if self.log is None or not (is_due or follow) else self._runs()
        if is_due:
            self._decide(now_s)
        if follow:
            self._follow(now_s)
        if before is not None:
            self._explain(before, now_s)
        return is_due

    def _decide(self, now_s: float) -> None:
        """Ask the scheduling policy for a decision, and apply the decision."""
        if self._lossy:
            self._see_losses()
        kept = self._keep() if self._once else []
        cluster = self._without(kept) if kept else self._cluster
        if not cluster.gpus:  # no job can start until a server is back or a job ends: both ask again
            self._next_decision_s = math.inf
            return
        allocation = self.allocation
        network = allocation if allocation is not None and allocation.own_places else None
        running, jobs = self.running.groups, self.jobs
        if kept:
            running = [group for group in running if group not in kept]
            jobs = {name: job for name, job in jobs.items() if name not in self._kept}
        view = View(
            now_s, cluster, jobs, self._arrived, self._finished, running, network, [*self._kept.values()]
        )
        self.decisions += 1
        try:
            decision = decide(self._policy, view, verify=self._rules.verify)
            if allocation is not None:
                allocation.check(decision)
        except (BadSpec, BadDecision) as error:
            if not self._rules.tolerates_failures:
                raise
            self._fail_to_decide(str(error))
            return
        self.policy_failure = ""
        self._arrived, self._finished = [], []
        self._next_decision_s = math.inf if decision.wake_s is None else self._slot_s(decision.wake_s)
        for name, sentence in decision.notes:
            self._note("note", (name,), sentence)
            self._logged_waiting.add(name)
        groups = decision.groups
        if cluster.unavailable:
            groups = self._on_available_gpus(groups, cluster.unavailable)
        if self._once:
            groups = [*kept, *self._alone(groups)]
        if self._rules.sharing is not None:
            groups = self._with_room(groups, self._rules.sharing)
        self.running.change_to(groups, now_s, decision.reset, self._policy.name)
        self._changed = True

    def _fail_to_decide(self, why: str) -> None:
        """Record that the policy failed to decide.

        The running jobs continue, and the policy is asked at the next event again, about the same changes.
        """
        self._next_decision_s = math.inf
        if why != self.policy_failure:
            self.policy_failure = why
            self._note("note", tuple(self.jobs), f"{self._policy.name} cannot decide: {why}")

    def _keep(self) -> list[Group]:
        """Return the groups of running jobs that cannot be started again.

        The policy does not decide about these jobs. The policy sees such a job as finished once the job runs,
        and as newly arrived if the job has to wait again.
        """
        groups = [group for group in self.running.groups if self._stays(group.jobs[0])]
        kept = {group.jobs[0].spec.name: group.jobs[0] for group in groups}
        for name, job in self._kept.items():
            if name not in kept:
                self._arrived.append(job)
        for name, job in kept.items():
            if job in self._arrived:
                self._arrived.remove(job)
            elif name not in self._kept:
                self._finished.append(job)
        self._kept = kept
        return groups

    def _stays(self, job: JobState) -> bool:
        """Return whether a running job must not be stopped: it has servers, and can be started only once."""
        return job.spec.once and (self.allocation is None or self.allocation.has_servers(job.spec.name))

    def _without(self, kept: Sequence[Group]) -> Cluster:
        """Return the cluster as the policy sees it: without the GPUs of the `kept` groups."""
        gone = self._cluster.unavailable.union(*(group.gpus for group in kept))
        if self._rest.servers is not self._whole.servers or self._rest.unavailable != gone:
            self._rest = self._whole.without(gone)
        return self._rest

    def _alone(self, groups: Sequence[Group]) -> list[Group]:
        """Remove jobs that cannot be started again from groups in which they would share GPUs.

        The removed jobs wait. If none of the jobs on a GPU can be started again, the first one stays: if all
        of them waited, none would ever start. Returns the remaining groups.
        """
        found, alone = [], set[JobState]()
        for group in groups:
            sharing = {*group.jobs, *group.neighbours}
            left_out = set[JobState]()
            for job in [job for job in group.jobs if job.spec.once and len(sharing) > 1]:
                shared = not alone.isdisjoint(sharing) or not all(each.spec.once for each in sharing)
                (left_out if shared else alone).add(job)
            for name in sorted({job.spec.name for job in left_out} - self._logged_waiting):
                self._logged_waiting.add(name)
                text = "it would share GPUs with other jobs, and its workers cannot take turns"
                self._note("waits", (name,), text)
            group = group.only([job for job in group.jobs if job not in left_out])
            if group.jobs:
                found.append(group if alone.isdisjoint(group.jobs) else replace(group, neighbours=()))
        return found

    def _on_available_gpus(self, groups: list[Group], gone: frozenset[int]) -> list[Group]:
        """Return the groups whose GPUs are all available; log that jobs on unavailable GPUs wait.

        A policy that keeps its own list of GPUs may choose unavailable GPUs. `gone` has these GPUs' numbers.
        """
        for group in groups:
            for job in group.jobs if not gone.isdisjoint(group.gpus) else ():
                if job.spec.name not in self._logged_waiting:
                    self._logged_waiting.add(job.spec.name)
                    text = f"{self._policy.name} keeps it on GPUs that are unavailable or kept by another job"
                    self._note("waits", (job.spec.name,), text)
        return [group for group in groups if gone.isdisjoint(group.gpus)]

    def _with_room(self, groups: list[Group], sharing: int) -> list[Group]:
        found, left_out = with_room(groups, sharing)
        crowded = {job.spec.name for job in left_out}
        for name in sorted(crowded - self._crowded):
            text = f"{sharing} jobs are on its GPUs, which is the maximum"
            self._note("waits", (name,), text, sharing=sharing)
        self._crowded = crowded
        self._logged_waiting |= crowded
        return found

    def _follow(self, now_s: float) -> None:
        """Update the allocation of the running jobs, and end the jobs that the memory policy ends."""
        allocation = self.allocation
        assert allocation is not None
        self._changed = False
        given_up, unsettled = allocation.update(now_s, self.running.groups, self.running.moved)
        self.running.moved.clear()
        # any job with reported speeds may have reported that it stands still
        for job in self.running.jobs if self._rules.reported else unsettled:
            has, stands = allocation.has_servers(job.spec.name), job.iteration_s == math.inf
            if not has and not stands:
                self.running.pace(job, math.inf, now_s)
            elif has and stands and (self._rules.reported or not allocation.allocator.crosses(job.spec.name)):
                # without a network the model's prediction holds; or the job will report its own speed
                self.running.pace(job, self.running.alone_pace(job), now_s)
        allocator = allocation.allocator
        for name in allocation.newly_late():
            why = reasons.late_text(allocation.job(name), allocator.late[name])
            self._note("late", (name,), why)
        for job in given_up:
            assert allocator.problem is not None
            assert allocator.division is not None
            why = reasons.slots_text(allocator.problem, allocator.division, job.spec.name)
            self._close(job, "missed", why, now_s)

    def _see_losses(self) -> None:
        if self.allocation is not None:
            self.allocation.release(self.running.moved)  # else GPUs of jobs that are over count as taken
        gone = self._outages.unavailable_gpus(self.running.groups, self._cluster.unavailable)
        if gone != self._cluster.unavailable:
            self._cluster = self._whole.without(gone) if gone else self._whole
        self._lossy = bool(self._outages or gone)

    def _ask_at(self, now_s: float) -> None:
        slot_s = self._slot_s(now_s) if self._interval_s else now_s
        if slot_s < self._next_decision_s:
            self._next_decision_s = slot_s

    def _slot_s(self, at_s: float) -> float:
        """Return the time of the first decision at or after `at_s`: a multiple of the decision interval."""
        step_s = self._interval_s
        return max(at_s, math.ceil(at_s / step_s - 1e-12) * step_s) if step_s else at_s

    # ------------------------------------------------------------------ log

    def _runs(self) -> list[Run]:
        """Return the runs, without jobs that hold a share of GPUs but have no servers."""
        if (allocation := self.allocation) is None:
            return self.running.runs()
        return self.running.runs(
            job for job in self.running.jobs if not allocation.has_servers(job.spec.name)
        )

    def _place(self, job: JobState) -> Place:
        if self.allocation is not None:
            return self.allocation.place(job.spec.name)
        assert job.group is not None
        nodes, node_of = self._whole.servers, self._whole.node_of
        return Place(tuple(nodes[node_of[gpu]].name for gpu in job.group.gpus))

    def _explain(self, before: Sequence[Run], now_s: float) -> None:
        """Log which runs a decision changed and why, and which jobs wait; `before` has the earlier runs."""
        assert self.log is not None
        after = self._runs()
        pool = self.allocation is not None and not self.allocation.own_places
        servers = None if pool else self._whole
        reasons.log_changes(self.log, now_s, before, after, self.jobs, self._policy.name, servers)
        ran = {name for run in before for name in run.jobs}
        started = {name for run in after for name in run.jobs}
        for name in [*filterfalse(self._logged_waiting.__contains__, self.jobs)]:  # many wait, few start to
            if name not in ran and name not in started:
                self._logged_waiting.add(name)
                reasons.log_waiting(self.log, now_s, self.jobs[name], self.running.groups, self._cluster)
        self._logged_waiting -= started

    def _note(self, kind: Kind, jobs: tuple[str, ...], text: str, **numbers: float) -> None:
        if self.log is not None:
            self.log.note(self.now_s, kind, jobs, text, **numbers)

    def _job(self, name: str) -> JobState:
        job = self.jobs.get(name)
        if job is None:
            raise BadSpec(f"there is no unfinished job {name!r}")
        return job

    def _servers(self) -> Collection[str]:
        if self.allocation is None:
            return {node.name for node in self._whole.servers}
        return self.allocation.allocator.whole.server

    def _switches(self) -> Collection[str]:
        return () if self.allocation is None else self.allocation.allocator.whole.switch

    def _link(self, a: str, b: str) -> tuple[str, str]:
        """Return the ends of a link in the order of the cluster's description."""
        links = () if self.allocation is None else self.allocation.allocator.whole.links
        for link in links:
            if {link.a, link.b} == {a, b}:
                return link.a, link.b
        raise BadSpec(f"the cluster has no link between {a!r} and {b!r}")

    def _known(self, name: str, known: Collection[str], what: str) -> None:
        if name not in known:
            raise BadSpec(f"the cluster has no {what} {name!r}; it has {', '.join(sorted(known)) or 'none'}")


def decide(policy: Policy, view: View, *, verify: bool) -> Decision:
    """Return the policy's decision.

    Raises BadDecision if the policy wants to be woken now or earlier, and, with `verify`, for any invalid
    decision.
    """
    decision = policy.decide(view)
    if verify:
        check(decision, view, policy.name)
    if decision.wake_s is not None and decision.wake_s <= view.now_s:
        raise BadDecision(
            f"{policy.name}, asked at {view.now_s} s, wants to be woken at {decision.wake_s} s:"
            " want a later time"
        )
    return decision
