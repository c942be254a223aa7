"""Decides what real processes are to run, by asking a policy: the live counterpart of the simulator's loop.

The shell tells what happens (`submit`, `progressed`, `ended`, `interrupted`), calls `decide` when something
has, and at `next_s` at the latest, and carries out the actions in order. A `Run` is what is started and
stopped as a whole: the members of a fused group, or a job that is alone in its processes. A group changes
its run only if members or GPUs change; partners on the same GPUs come and go without a restart if the policy
does not fuse them.

Everything that is decided is logged with the policy's reason. Time is what the caller says it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from controller.live.job import LiveJob
from controller.scheduling.checks import check
from controller.scheduling.errors import BadDecision, BadSpec
from controller.scheduling.model import RESOURCES, Submission
from controller.scheduling.policy import Group, JobState, Policy, SpeedModel, View
from controller.vocabulary import Cluster

Event = Literal["submitted", "started", "stopped", "ended", "failed", "retried", "interrupted", "note"]


@dataclass(frozen=True, slots=True)
class Run:
    """Jobs that start and stop together, on the same GPUs.

    Attributes:
        number: Unique.
        jobs: Their names.
        gpus: The GPUs' numbers; a job has a worker on each.
        offsets: The stage at which each job starts a round.
        reason: Why it is to run.
    """

    number: int
    jobs: tuple[str, ...]
    gpus: tuple[int, ...]
    offsets: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of these jobs; those that ran before go on where they last saved."""

    run: Run


@dataclass(frozen=True, slots=True)
class Stop:
    """End the workers of this run; return when they are gone, for their GPUs may be given away next."""

    run: Run


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log: when, what happened to which jobs, and why."""

    at_s: float
    event: Event
    jobs: tuple[str, ...]
    text: str


class LiveController:
    """One policy in charge of one cluster.

    Args:
        cluster: The servers.
        policy: It is asked what is to run.
        speed: It foresees how fast jobs run until they report.
        interval_s: Ask the policy at multiples of it only (as the simulator's `interval_s`); 0: at once.
        sharing: Jobs that may be on one GPU at once; those that a policy places beyond that wait.
        retries: How often a job that fails goes back to the queue, to start where it last saved.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        speed: SpeedModel,
        *,
        interval_s: float = 0.0,
        sharing: int = len(RESOURCES),
        retries: int = 0,
    ) -> None:
        if interval_s < 0 or not math.isfinite(interval_s):
            raise BadSpec(f"an interval of {interval_s} s; it must be finite and not negative")
        if sharing < 1 or retries < 0:
            raise BadSpec(f"{sharing} jobs on a GPU, {retries} retries; want at least 1, and not less than 0")
        self._cluster = cluster
        self._policy = policy
        self._speed = speed
        self._interval_s = interval_s
        self._sharing = sharing
        self._retries = retries
        self._failures: dict[str, int] = {}
        self._crowded: set[str] = set()
        self._jobs: dict[str, LiveJob] = {}
        self._names: set[str] = set()
        self._groups: list[Group] = []
        self._runs: list[Run] = []
        self._arrived: list[JobState] = []
        self._finished: list[JobState] = []
        self._wake_s = math.inf
        self._runs_made = 0
        self.ended_jobs: list[LiveJob] = []
        """Jobs that have ended well, in order of their ends."""
        self.failed: dict[str, str] = {}
        """Reasons of failed jobs, by name."""
        self.log: list[Entry] = []

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of the unfinished jobs, in order of arrival."""
        return tuple(self._jobs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs that are under way."""
        return tuple(self._runs)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The same as the policy decided it, without the jobs that have ended since."""
        return tuple(self._groups)

    @property
    def next_s(self) -> float:
        """Time at which `decide` is to be called even if nothing happens; infinity: no need to."""
        return self._wake_s

    def stuck(self) -> bool:
        """Return whether jobs wait, nothing runs, and the policy has not asked to be asked again."""
        return bool(self._jobs) and not self._runs and math.isinf(self._wake_s)

    def submit(self, spec: Submission, now_s: float) -> None:
        """Take in a job. Raises BadSpec if it is larger than the cluster or its name has been used."""
        self._cluster.check_room(spec.name, spec.gpus)
        if spec.name in self._names:
            raise BadSpec(f"two jobs are called {spec.name!r}")
        job = LiveJob(spec, len(self._names), self._speed.alone_s(spec), now_s)
        self._names.add(spec.name)
        self._jobs[spec.name] = job
        self._arrived.append(job)
        self._note(now_s, "submitted", (spec.name,), f"{spec.gpus} GPUs, {spec.iterations:g} iterations")
        self._ask_at(now_s)

    def progressed(self, name: str, done: float, now_s: float) -> None:
        """Note how many iterations a job has done in all; the next decision knows it."""
        if name in self._jobs:
            self._jobs[name].observe(now_s, done)

    def ended(self, name: str, now_s: float, failure: str = "") -> None:
        """Note that a job is over, well or with a failure. Partners in its run, if any, go on without it.

        A failure for which there is a retry sends it back to the queue instead.
        """
        if failure and (before := self._failures.get(name, 0)) < self._retries:
            self._failures[name] = before + 1
            self._put_back(name, now_s, "retried", f"{failure}; retry {before + 1} of {self._retries}")
            return
        job = self._jobs.pop(name)
        self._leave_run(job)
        job.finish(now_s)
        if job in self._arrived:
            self._arrived.remove(job)  # the policy has never heard of it
        else:
            self._finished.append(job)
        if failure:
            self.failed[name] = failure
        else:
            self.ended_jobs.append(job)
        waited = f"waited {job.waited_s:.1f} s, ran {job.attained_s(now_s):.1f} s"
        self._note(now_s, "failed" if failure else "ended", (name,), failure or waited)
        self._ask_at(now_s)

    def interrupted(self, name: str, now_s: float, reason: str) -> None:
        """Note that a job's workers are gone through no fault of its own: it goes back to the queue."""
        self._put_back(name, now_s, "interrupted", reason)

    def decide(self, now_s: float) -> list[Start | Stop]:
        """Ask the policy if it is time, and return what is to be done, all stops first.

        Raises BadDecision if the policy returns something impossible.
        """
        if now_s < self._wake_s:
            return []
        view = View(now_s, self._cluster, self._jobs, self._arrived, self._finished, self._groups)
        decision = self._policy.decide(view)
        check(decision, view, self._policy.name)
        if decision.wake_s is not None and decision.wake_s <= now_s:
            raise BadDecision(f"{self._policy.name} asks at {now_s} s to be woken at {decision.wake_s} s")
        self._arrived, self._finished = [], []
        self._wake_s = math.inf if decision.wake_s is None else decision.wake_s
        for name, sentence in decision.notes:
            self._note(now_s, "note", (name,), sentence)
        reset = {job.spec.name for job in decision.reset}
        kept = {_key(run): run for run in self._runs if reset.isdisjoint(run.jobs)}
        groups = self._with_room(decision.groups, now_s)
        wanted = [self._wanted(group, jobs, kept) for group in groups for jobs in _together(group)]
        stops = [Stop(run) for run in self._runs if run not in wanted]
        starts = [Start(run) for run in wanted if run not in self._runs]
        self._runs, self._groups = wanted, groups
        for stop in stops:
            self._note(now_s, "stopped", stop.run.jobs, "to make room" if starts else "by the policy")
        for job in decision.reset:
            if job.group is not None:
                job.halt(now_s)
            job.reset(now_s)
        self._update(now_s, {name for start in starts for name in start.run.jobs})
        for start in starts:
            where = f"on GPUs {', '.join(map(str, start.run.gpus))}"
            reason = start.run.reason or f"chosen by {self._policy.name}"
            self._note(now_s, "started", start.run.jobs, f"{where}: {reason}")
        return [*stops, *starts]

    def _with_room(self, groups: list[Group], now_s: float) -> list[Group]:
        """Return the groups without jobs for which their GPUs have no room; what runs comes first."""
        running = {name for run in self._runs for name in run.jobs}
        jobs_on: dict[int, int] = {}
        kept: dict[int, Group] = {}
        crowded: set[str] = set()
        order = range(len(groups))
        for position in sorted(order, key=lambda each: not _any_of(groups[each], running)):
            group = groups[position]
            room = self._sharing - max(jobs_on.get(gpu, 0) for gpu in group.gpus)
            for job in sorted(group.jobs, key=lambda job: job.spec.name not in running)[room:]:
                group = _smaller(group, job)
                crowded.add(job.spec.name)
            if group.jobs:
                kept[position] = group
                jobs_on |= {gpu: jobs_on.get(gpu, 0) + len(group.jobs) for gpu in group.gpus}
        for name in sorted(crowded - self._crowded):
            self._note(
                now_s, "note", (name,), f"waits: {self._sharing} jobs are on its GPUs, the most that go"
            )
        self._crowded = crowded
        return [kept[position] for position in order if position in kept]

    def _wanted(
        self,
        group: Group,
        jobs: tuple[JobState, ...],
        kept: dict[tuple[frozenset[str], tuple[int, ...]], Run],
    ) -> Run:
        """Return the run of these members of a group: the one that there is, or a new one."""
        names = tuple(job.spec.name for job in jobs)
        offsets = group.stage_order if len(jobs) == len(group.stage_order) else tuple(range(len(jobs)))
        run = Run(self._runs_made, names, group.gpus, offsets, group.reason)
        if old := kept.get(_key(run)):
            return old
        self._runs_made += 1
        return run

    def _update(self, now_s: float, starting: set[str]) -> None:
        """Bring the jobs' own state up to date with the groups."""
        running: set[str] = set()
        for group in self._groups:
            speeds = self._speed.iteration_s(group)
            costs = self._speed.restart_s(group)
            for job, iteration_s, cost_s in zip(group.jobs, speeds, costs, strict=True):
                running.add(job.spec.name)
                if job.spec.name in starting:
                    job.launch(now_s, group, iteration_s, cost_s)
                elif job.group is not None and {*job.group.jobs} != {*group.jobs}:
                    job.retune(now_s, group, iteration_s)
                else:
                    job.group = group  # it goes on as it did, at the speed that it has reported
        for name, job in self._jobs.items():
            if name not in running and job.group is not None:
                job.halt(now_s)

    def _put_back(self, name: str, now_s: float, event: Event, reason: str) -> None:
        job = self._jobs[name]
        self._leave_run(job)
        if job.group is not None:
            job.halt(now_s)
        self._note(now_s, event, (name,), reason)
        self._ask_at(now_s)

    def _leave_run(self, job: LiveJob) -> None:
        """Take a job out of its run and its group; what is left of them goes on."""
        self._runs = [
            rest
            for run in self._runs
            if (rest := _without(run, job.spec.name) if job.spec.name in run.jobs else run)
        ]
        groups = []
        for group in self._groups:
            if job not in group.jobs:
                groups.append(group)
            elif len(group.jobs) > 1:
                smaller = _smaller(group, job)
                groups.append(smaller)
                for member in smaller.jobs:
                    member.group = smaller
        self._groups = groups

    def _ask_at(self, now_s: float) -> None:
        step_s = self._interval_s
        self._wake_s = min(self._wake_s, math.ceil(now_s / step_s - 1e-12) * step_s if step_s else now_s)

    def _note(self, now_s: float, event: Event, jobs: tuple[str, ...], text: str) -> None:
        self.log.append(Entry(now_s, event, jobs, text))


def _any_of(group: Group, names: set[str]) -> bool:
    return any(job.spec.name in names for job in group.jobs)


def _key(run: Run) -> tuple[frozenset[str], tuple[int, ...]]:
    return frozenset(run.jobs), run.gpus


def _together(group: Group) -> Iterator[tuple[JobState, ...]]:
    """Yield the members that are one run: all of a fused group, each of another."""
    if group.fused or group.stage_order:
        yield group.jobs
    else:
        yield from ((job,) for job in group.jobs)


def _without(run: Run, name: str) -> Run | None:
    kept = [number for number, job in enumerate(run.jobs) if job != name]
    if not kept:
        return None
    jobs = tuple(run.jobs[number] for number in kept)
    offsets = tuple(run.offsets[number] for number in kept)
    return Run(run.number, jobs, run.gpus, offsets, run.reason)


def _smaller(group: Group, gone: JobState) -> Group:
    kept = [number for number, job in enumerate(group.jobs) if job is not gone]
    return Group(
        tuple(group.jobs[number] for number in kept),
        group.gpus,
        tuple(group.cpus[number] for number in kept) if group.cpus else (),
        tuple(group.memory_gb[number] for number in kept) if group.memory_gb else (),
        fused=group.fused,
        neighbours=group.neighbours,
        stage_order=tuple(group.stage_order[number] for number in kept) if group.stage_order else (),
        reason=group.reason,
    )
