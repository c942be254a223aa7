"""The interface between a scheduling policy and its caller: the trace simulator or the live controller.

A policy is an object with a ``name`` and one method::

    class Shortest:
        name = "my-policy"

        def decide(self, view: View) -> Decision: ...

The method `decide` is called whenever something has changed: jobs arrived or ended, or the time `wake_s` of
the last decision has come. It returns **all groups that run from now on**. Jobs that are in no group are
stopped. The caller compares these groups with the running groups and starts, stops, moves or regroups jobs. A
job continues without a restart if its group keeps its GPUs (returning the running `Group` object is fastest).

`View` has the time, the cluster, all unfinished jobs in order of arrival, and the changes since the last
decision. So a policy can keep its own sorted queue instead of sorting all jobs each time. A policy object
belongs to one run. It may keep state, and it must be deterministic (seed any random choice).

A `Group` is a set of jobs on one set of GPUs. A single job has these GPUs for itself. Several jobs share the
GPUs, and the speed model determines the speed of each. ``fused=True`` means that the members run in one
process (Muri): a change of membership restarts all members. Otherwise jobs join and leave a group without a
restart (Lucid). Jobs that share only some of their GPUs (AntMan) are in separate groups; each group has the
jobs of the other groups in ``neighbours``.

A policy does not determine how fast jobs run: a `SpeedModel` does (`scheduling.speed`).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from controller.vocabulary import BadSpec, Cluster, Job, Topology

RESOURCES = ("storage", "cpu", "gpu", "network")
"""The resources of the four stages of a training iteration, in stage order."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as a scheduler sees it: its arrival, number of GPUs and run time alone.

    Policies and the engine use only this part of a `Job`. A field has the
    meaning of the `Job` field with its name.

    Attributes:
        name: Unique among jobs.
        arrival_s: Time of submission, seconds from the start of the trace.
        gpus: Number of GPUs that the job needs, all of them at once.
        iterations: Number of iterations to do; need not be an integer.
        iteration_s: Seconds per iteration when the job has its GPUs for itself.
        stages_s: Seconds per iteration on each resource, in stage order; empty: not measured.
        model: Name of the model that the job trains; the key of profiles and speed models.
        restart_s: Time lost whenever the job is started, moved or regrouped, in seconds.
        estimate_s: Run time alone, estimated by a user or a predictor, in seconds; None: unknown.
        opportunistic: Whether the job has no guaranteed GPUs and only uses those that other jobs leave
            (AntMan).
        user: The job's owner.
        vc: The virtual cluster to which the job is submitted.
        batch: Batch size per GPU; 0 if unknown.
        deadline_s: Deadline, seconds from its arrival; None: no deadline.
        extra: Further columns of a trace, by name, for policies that use them.
        once: Whether the job's workers can be started only once: no policy stops or moves the job once it
            runs.
    """

    name: str
    arrival_s: float
    gpus: int
    iterations: float
    iteration_s: float = 1.0
    stages_s: tuple[float, ...] = ()
    model: str = ""
    restart_s: float = 0.0
    estimate_s: float | None = None
    opportunistic: bool = False
    user: str = ""
    vc: str = ""
    batch: int = 0
    deadline_s: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    once: bool = False

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise BadSpec(f"job {self.name!r} asks for {self.gpus} GPUs; at least 1 is needed")
        for key in ("iterations", "iteration_s"):
            value = getattr(self, key)
            if not (value > 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.name!r}: {key} is {value}; it must be positive")
        for key in ("arrival_s", "restart_s"):
            value = getattr(self, key)
            if not (value >= 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.name!r}: {key} is {value}; it must not be negative")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise BadSpec(f"job {self.name!r}: deadline_s is {self.deadline_s}; it must be positive")
        if any(not (stage >= 0 and math.isfinite(stage)) for stage in self.stages_s):
            raise BadSpec(f"job {self.name!r}: a stage time in {self.stages_s} is negative")
        if self.stages_s and not any(self.stages_s):
            raise BadSpec(f"job {self.name!r}: all stage times are 0; want at least one above 0")

    @classmethod
    def of(cls, job: Job) -> Submission:
        """Return a job as schedulers see it, without a network.

        An iteration lasts `Job.iteration_s`, or else the sum of the job's stages, or else its computing time.
        Raises BadSpec if all are 0.
        """
        iteration_s = job.iteration_s or sum(job.stages_s) or job.compute_s
        if iteration_s <= 0:
            raise BadSpec(f"job {job.name!r}: compute_s is 0; schedulers need the time of an iteration")
        command = {} if job.command is None else {"command": shlex.join(job.command)}
        return cls.timed(
            job,
            iterations=job.iterations if job.duration_s is None else job.duration_s / iteration_s,
            iteration_s=iteration_s,
            stages_s=job.stages_s,
            extra={**job.extra, **command},
        )

    @classmethod
    def timed(
        cls,
        job: Job,
        *,
        iterations: float,
        iteration_s: float,
        stages_s: tuple[float, ...],
        extra: Mapping[str, str],
    ) -> Submission:
        """Return a job as schedulers see it, with the given times; copy all other fields from `job`.

        Args:
            job: The job.
            iterations: Number of iterations to do.
            iteration_s: Seconds per iteration when it has its GPUs for itself.
            stages_s: Seconds per iteration on each resource, in stage order; empty if not measured.
            extra: Further columns of a trace, by name.
        """
        return cls(
            job.name,
            job.arrival_s,
            job.gpus,
            iterations=iterations,
            iteration_s=iteration_s,
            stages_s=stages_s,
            model=job.model,
            restart_s=job.restart_s,
            estimate_s=job.estimate_s,
            opportunistic=job.opportunistic,
            user=job.user,
            vc=job.vc,
            batch=job.batch,
            deadline_s=job.deadline_s,
            extra=extra,
        )

    @property
    def duration_s(self) -> float:
        """Run time of the job, in seconds, if it has its GPUs for itself and is never interrupted."""
        return self.iterations * self.iteration_s

    @property
    def service_s(self) -> float:
        """GPU-seconds that the job needs."""
        return self.duration_s * self.gpus


SCHEDULER = "scheduler"
"""Name of the placement on the GPUs that the scheduler chose; other names are placement policies."""
SMOOTHING = 0.5
"""Weight of a job's latest reported speed in the moving average of its speed."""


class JobState:
    """The state of a submitted job. Policies read it; only the caller of the policy changes it.

    Attributes:
        spec: The job as submitted.
        order: Position in order of arrival; unique, so that policies can use it to break ties.
        alone_s: Seconds per iteration when the job has its GPUs for itself, by the speed model.
        group: The group in which the job runs now; None: the job waits.
        iteration_s: Present seconds per iteration, if the job runs.
        start_s: Time of the first start; None: the job has not run yet.
        finish_s: Time of the end; None: the job has not ended.
        starts: Number of times that the job was started, moved or regrouped.
        preemptions: Number of times that the job was stopped before its end.
        waiting_since_s: Time when the job began to wait, if it waits.
        repaid_s: Time when the job will have worked for as long as its last start took.
        reported_iterations: Number of iterations done, by the latest report; 0: none reported.
        worked_s: Seconds of work, without starts, until the job was last stopped or last changed its speed.
        completed: Whether the job ended because all of its work was done.
    """

    __slots__ = (
        "_attained_s",
        "_delay_s",
        "_left",
        "_since_s",
        "alone_s",
        "completed",
        "finish_s",
        "group",
        "iteration_s",
        "order",
        "preemptions",
        "repaid_s",
        "reported_iterations",
        "spec",
        "stamp",
        "start_s",
        "starts",
        "version",
        "waited_s",
        "waiting_since_s",
        "worked_s",
    )

    def __init__(self, spec: Submission, order: int, alone_s: float, now_s: float) -> None:
        self.spec = spec
        self.order = order
        self.alone_s = alone_s
        self.group: Group | None = None
        self.iteration_s = alone_s
        self.start_s: float | None = None
        self.finish_s: float | None = None
        self.starts = 0
        self.preemptions = 0
        self.waiting_since_s = now_s
        self.waited_s = 0.0
        self.repaid_s = now_s
        self.reported_iterations = 0.0
        self.worked_s = 0.0
        self.completed = False
        self.stamp = 0  # the caller's mark: the last decision that named this job
        self.version = 0  # counts changes of speed, so that an outdated end is recognised
        self._left = float(spec.iterations)  # iterations to do at _since_s
        self._since_s = now_s
        self._delay_s = 0.0  # remaining cost of a (re)start from _since_s on
        self._attained_s = 0.0  # seconds on GPUs until _since_s

    def __repr__(self) -> str:
        return f"Job({self.spec.name!r})"

    def iterations_left(self, now_s: float) -> float:
        """Return the number of iterations left."""
        if self.group is None:
            return self._left
        work_s = now_s - self._since_s - self._delay_s
        return self._left - work_s / self.iteration_s if work_s > 0.0 else self._left

    def remaining_s(self, now_s: float) -> float:
        """Return the remaining run time of the job if it has its GPUs for itself, in seconds."""
        return self.iterations_left(now_s) * self.alone_s

    def attained_s(self, now_s: float) -> float:
        """Return the total time for which the job has held GPUs, in seconds."""
        return self._attained_s if self.group is None else self._attained_s + now_s - self._since_s

    def waiting_s(self, now_s: float) -> float:
        """Return the seconds that the job has waited in all."""
        return self.waited_s + now_s - self.waiting_since_s if self.group is None else self.waited_s

    def done(self, now_s: float) -> float:
        """Return the fraction of the job's iterations that are done, 0 to 1."""
        return 1.0 - self.iterations_left(now_s) / self.spec.iterations

    # For the policy's caller only.

    def end_s(self) -> float:
        """Return the time at which the job ends at its present speed."""
        return self._since_s + self._delay_s + self._left * self.iteration_s

    def launch(self, now_s: float, group: Group, iteration_s: float, delay_s: float) -> None:
        """Start the job in `group`; restart the job if it runs.

        Args:
            now_s: The time.
            group: The group in which the job runs from now on.
            iteration_s: The job's seconds per iteration in this group.
            delay_s: Cost of the start: time until the job begins to work, in seconds.
        """
        if self.group is None:
            self.waited_s += now_s - self.waiting_since_s
            self._since_s = now_s
        else:
            self.settle(now_s)
        if self.start_s is None:
            self.start_s = now_s
        self.group = group
        self.iteration_s = iteration_s
        self._delay_s = delay_s
        self.repaid_s = now_s + 2.0 * delay_s
        self.starts += 1
        self.version += 1

    def retune(self, now_s: float, group: Group, iteration_s: float) -> None:
        """Move the job to `group` without a restart, and set its speed."""
        self.settle(now_s)
        self.group = group
        self.iteration_s = iteration_s
        self.version += 1

    def settle(self, now_s: float) -> None:
        """Count the work done until now; keep the remaining time of a start that is not over."""
        elapsed_s = now_s - self._since_s
        work_s = elapsed_s - self._delay_s
        self._attained_s = self._attained_s + now_s - self._since_s
        self._since_s = now_s
        if work_s > 0.0:
            self._left -= work_s / self.iteration_s
            self._delay_s = 0.0
            self.worked_s += work_s
        else:
            self._delay_s = -work_s

    def halt(self, now_s: float) -> None:
        """Stop the job, which keeps its progress."""
        self.settle(now_s)
        self._delay_s = 0.0
        self.group = None
        self.preemptions += 1
        self.waiting_since_s = now_s
        self.version += 1

    def finish(self, now_s: float, *, completed: bool = True) -> None:
        """End the job; `completed` says whether all work of the job is done."""
        if self.group is not None:
            self.settle(now_s)
        self.completed = completed
        self._left = 0.0
        self.group = None
        self.finish_s = now_s
        self.version += 1

    def observe(self, now_s: float, done: float) -> None:
        """Record that the job has done `done` iterations at `now_s`; a waiting job is left unchanged.

        Fewer iterations than in an earlier report (the job returned to its checkpoint) are accepted, too. The
        speed is computed from the time between reports that differ.
        """
        if self.group is None:
            return
        self.reported_iterations = done
        gained = self._left - (self.spec.iterations - done)
        if gained == 0:
            return
        elapsed_s = now_s - self._since_s
        self._attained_s += elapsed_s
        self.worked_s += max(0.0, elapsed_s - self._delay_s)
        self._since_s = now_s
        self._delay_s = 0.0  # it works: the start is paid for
        self._left = self.spec.iterations - done
        self.version += 1
        if gained > 0 and elapsed_s > 0:
            measured_s = elapsed_s / gained
            self.iteration_s += SMOOTHING * (measured_s - self.iteration_s)

    def resume(self, iterations: float) -> None:
        """Set the number of iterations left; the job must not be running."""
        self._left = iterations

    def reset(self, now_s: float) -> None:
        """Discard the job's progress; the job must not be running."""
        self._left = float(self.spec.iterations)


class ReportedJob(JobState):
    """A job whose workers report progress; between two reports the job's speed is assumed to be constant."""

    __slots__ = ()

    def iterations_left(self, now_s: float) -> float:
        """Return the number of iterations left; above 0 until the job has ended."""
        # positive, so that no rank or share that policies compute from it loses its meaning
        return max(math.ulp(1.0), super().iterations_left(now_s))


@dataclass(slots=True, eq=False)
class Group:
    """Jobs on one set of GPUs, which run together until a later decision; compared by identity.

    Attributes:
        jobs: The members; a single member has the GPUs for itself.
        gpus: Numbers of the group's GPUs; every member uses all of them. Empty: not chosen yet.
        cpus: CPUs granted to each member; empty: no limit.
        memory_gb: Memory granted to each member; empty: no limit.
        fused: Whether members run in one process: a change of membership restarts all members.
        neighbours: Jobs of other groups that share some of these GPUs.
        stage_order: Number of the stage at which each interleaved member starts a round (`grouping`).
        efficiency: Predicted interleaving efficiency gamma; None: not computed.
        reason: Why the policy runs the group, for logs and people.
    """

    jobs: tuple[JobState, ...]
    gpus: tuple[int, ...]
    cpus: tuple[float, ...] = ()
    memory_gb: tuple[float, ...] = ()
    fused: bool = False
    neighbours: tuple[JobState, ...] = ()
    stage_order: tuple[int, ...] = ()
    efficiency: float | None = None
    reason: str = ""

    def same_run(self, other: Group) -> bool:
        """Return True if a change from `other` to this group changes nothing for the members.

        This is so if both have equal jobs, GPUs, CPUs, memory, neighbours and stage orders.
        """
        return (
            self.jobs == other.jobs
            and self.gpus == other.gpus
            and self.cpus == other.cpus
            and self.memory_gb == other.memory_gb
            and self.neighbours == other.neighbours
            and self.stage_order == other.stage_order
        )

    @property
    def width(self) -> int:
        """Number of GPUs that each member needs, also before the group has GPUs."""
        return self.jobs[0].spec.gpus

    def same_members(self, other: Group) -> bool:
        """Return whether `other` has the same members, in any order."""
        return len(self.jobs) == len(other.jobs) and {*self.jobs} == {*other.jobs}

    def on(self, gpus: tuple[int, ...]) -> Group:
        """Return the group on these GPUs, without neighbours, and without limits on CPUs and memory."""
        return Group(
            self.jobs,
            gpus,
            fused=self.fused,
            stage_order=self.stage_order,
            efficiency=self.efficiency,
            reason=self.reason,
        )

    def only(self, jobs: Collection[JobState]) -> Group:
        """Return the group with only the members that are in `jobs`."""
        kept = [number for number, member in enumerate(self.jobs) if member in jobs]
        return Group(
            tuple(self.jobs[number] for number in kept),
            self.gpus,
            tuple(self.cpus[number] for number in kept) if self.cpus else (),
            tuple(self.memory_gb[number] for number in kept) if self.memory_gb else (),
            fused=self.fused,
            neighbours=self.neighbours,
            stage_order=tuple(self.stage_order[number] for number in kept) if self.stage_order else (),
            reason=self.reason,
        )

    def without(self, job: JobState) -> Group | None:
        """Return the group without a member, and without an order of stages; None if no member remains."""
        rest = self.only([member for member in self.jobs if member is not job])
        return replace(rest, stage_order=()) if rest.jobs else None


@dataclass(slots=True)
class Decision:
    """All groups that run from now on.

    Attributes:
        groups: The groups; jobs that are in none wait.
        wake_s: Time of the next decision if nothing changes before; None: no decision until a change.
        reset: Jobs that lose their progress and restart at iteration 0 (a profiler that keeps no checkpoint).
        notes: Lines for the log: ``(job id, sentence)``.
        placed: By id, jobs with the servers, the fallback server and the tree that the policy chose; only
            with a `NetworkView`. Jobs without an entry get shortest paths.
    """

    groups: list[Group]
    wake_s: float | None = None
    reset: Sequence[JobState] = ()
    notes: list[tuple[str, str]] = field(default_factory=list)
    placed: Mapping[str, Job] = field(default_factory=dict)


class NetworkView(Protocol):
    """The network of a cluster, for policies that choose servers and trees of jobs."""

    @property
    def topology(self) -> Topology:
        """The available part of the topology; its link rates count payload only, without headers."""

    def job(self, name: str) -> Job:
        """Return the network properties of an unfinished job: measured values, or else submitted ones."""

    def placed(self, name: str) -> Job | None:
        """Return a job with its present servers and tree; None if the job has no servers."""


@dataclass(slots=True)
class View:
    """The state of cluster and jobs, as a policy sees it.

    Attributes:
        now_s: The time.
        cluster: The servers.
        jobs: All unfinished jobs by id, in order of arrival.
        arrived: The jobs in `jobs` that have arrived since the last decision.
        finished: Jobs that have left `jobs` since the last decision: ended jobs, and jobs newly in `kept`. If
            the last decision stopped a job, the job may still have ended by itself before it stopped.
        groups: The running groups. A group whose member has ended continues without it, as a new `Group`.
        network: Servers, links and switches; None: there is no network, or the policy does not place jobs.
        kept: Running jobs that cannot be started again (`Submission.once`). The policy cannot stop
            these jobs: they are not in `jobs`, and their GPUs are unavailable in `cluster`.
    """

    now_s: float
    cluster: Cluster
    jobs: Mapping[str, JobState]
    arrived: Sequence[JobState]
    finished: Sequence[JobState]
    groups: Sequence[Group]
    network: NetworkView | None = None
    kept: Sequence[JobState] = ()


class Policy(Protocol):
    """A scheduling policy: decides which jobs run, and on which GPUs."""

    @property
    def name(self) -> str:
        """Name in tables and logs."""

    def decide(self, view: View) -> Decision:
        """Return all groups that run from ``view.now_s`` on."""


class SpeedModel(Protocol):
    """A model that predicts how fast jobs run, alone and in groups; its methods must be pure functions."""

    def alone_s(self, job: Submission) -> float:
        """Return the time of one iteration of `job` when it has its GPUs for itself, in seconds.

        Models that inherit this method take the job's own time.
        """
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the seconds per iteration of each member of `group`, in the members' order."""

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of starting or restarting `group`, in seconds for each member."""


@runtime_checkable
class ContendedSpeed(SpeedModel, Protocol):
    """A speed model in which jobs slow each other down even on different GPUs: it knows all running jobs."""

    def contend(self, now_s: float) -> Sequence[tuple[JobState, float]]:
        """Return each job whose speed changes now, with its seconds per iteration; infinite: no progress."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A new policy with its speed model and decision interval.

    Attributes:
        policy: The policy; belongs to one run.
        speed: The speed model, which predicts how fast jobs run.
        interval_s: The policy decides only at multiples of this time; 0: at any time.
        places: Whether the policy also chooses the servers of jobs on a network, so that no placement policy
            may place them.
    """

    policy: Policy
    speed: SpeedModel
    interval_s: float = 0.0
    places: bool = field(default=False, kw_only=True)
