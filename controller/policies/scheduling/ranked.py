"""Policies that only rank jobs, the queue in order of rank, and the durations that the ranks come from.

`RankedPolicy` runs the jobs of lowest rank, each on GPUs of its own.

`WaitingJobs` keeps the waiting jobs in order of rank, in one sorted bucket per GPU count. A rank must not
change while a job waits. Buckets make a decision cheap however long the queue is: once a size does not fit,
no job of its bucket will fit, so only the started jobs and one job per size are examined.

`keep_until_repaid` is for policies with time slices. Where a start takes as long as a time slice, jobs that
take turns would do nothing but start. So running jobs continue until each has worked for as long as its start
took: at least half of the time is work, whatever a start costs.

`DurationEstimates` are the durations that policies get: true durations, or true durations times an error.
`EstimateError` estimates the error of reported durations from ended jobs. `Profiler` has stage times as a
profiler measures them.

Most baselines only choose a rank: FIFO ranks by arrival, SRTF by remaining time, LAS by attained service...
(`controller.policies.scheduling.baselines`).
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from controller.policies.grouping.rounds import Profile
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.policy import RESOURCES, Decision, Group, JobState, Submission, View
from controller.vocabulary import Cluster

Rank = Any
"""Any value by which jobs can be sorted: a number or a tuple."""

Entry = tuple[Rank, int, JobState]
"""Rank, the job's order of arrival (which breaks ties), and the job."""


class WaitingJobs:
    """The waiting jobs, by number of GPUs and in order of rank."""

    __slots__ = ("_buckets", "_count")

    def __init__(self) -> None:
        self._buckets: dict[int, list[Entry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[JobState]:
        return (job for bucket in self._buckets.values() for _, _, job in bucket)

    def add(self, job: JobState, rank: Rank) -> None:
        """Add `job`."""
        insort(self._buckets.setdefault(job.spec.gpus, []), (rank, job.order, job))
        self._count += 1

    def remove(self, job: JobState, rank: Rank) -> None:
        """Remove `job`, which was added with `rank`."""
        bucket = self._buckets[job.spec.gpus]
        del bucket[bisect_left(bucket, (rank, job.order))]
        self._count -= 1

    def discard(self, job: JobState) -> None:
        """Remove `job`, whose rank may be unknown, if it is in the list. O(n)."""
        bucket = self._buckets.get(job.spec.gpus, [])
        kept = [entry for entry in bucket if entry[2] is not job]
        self._count -= len(bucket) - len(kept)
        bucket[:] = kept

    def clear(self) -> None:
        """Remove all jobs."""
        self._buckets.clear()
        self._count = 0

    def bucket(self, gpus: int) -> list[Entry]:
        """Return the waiting jobs with this number of GPUs, in order of rank; callers must not change it."""
        return self._buckets.get(gpus, [])

    def sizes(self) -> Iterable[int]:
        """Return the distinct numbers of GPUs of the waiting jobs."""
        return [size for size, bucket in self._buckets.items() if bucket]

    def drop_first(self, gpus: int, count: int) -> None:
        """Remove the first `count` jobs with this number of GPUs."""
        del self._buckets[gpus][:count]
        self._count -= count


def choose_by_rank(
    waiting: WaitingJobs, running: Iterable[Entry], fits: Callable[[int], bool], *, backfill: bool = True
) -> tuple[list[JobState], dict[int, int]]:
    """Choose the running and waiting jobs that fit, lowest rank first.

    Args:
        waiting: The waiting jobs.
        running: The running jobs with their ranks.
        fits: Function of a number of GPUs that reserves them and returns True, or returns False. It is called
            once for each job. Once it has returned False for a number, it must return False for this number.
        backfill: Whether to continue after the first job that does not fit.

    Returns:
        The chosen jobs in order of rank, and, by number of GPUs, how many of the chosen jobs are waiting
        jobs. These are the first jobs of their buckets.
    """
    heap: list[tuple[Rank, int, JobState, list[Entry], int]] = []
    for size in waiting.sizes():
        bucket = waiting.bucket(size)
        heap.append((*bucket[0], bucket, 0))
    held = sorted(running)
    if held:
        heap.append((*held[0], held, 0))
    heapq.heapify(heap)
    chosen: list[JobState] = []
    started: dict[int, int] = {}
    refused: set[int] = set()
    while heap:
        _, _, job, bucket, position = heap[0]
        size = job.spec.gpus
        ok = size not in refused and fits(size)
        if ok:
            chosen.append(job)
            if bucket is not held:
                started[size] = started.get(size, 0) + 1
        else:
            refused.add(size)
            if not backfill:
                break
        position += 1
        if position < len(bucket) and (ok or bucket is held):
            heapq.heapreplace(heap, (*bucket[position], bucket, position))
        else:
            heapq.heappop(heap)
    return chosen, started


def place_by_rank(
    waiting: WaitingJobs, running: Iterable[Entry], slots: FreeGpus, *, backfill: bool = True
) -> list[tuple[JobState, tuple[int, ...]]]:
    """Choose the running and waiting jobs that fit on free GPUs, lowest rank first, and allocate their GPUs.

    Args:
        waiting: The waiting jobs; the chosen ones are removed.
        running: The running jobs with their ranks.
        slots: The free GPUs.
        backfill: Whether to continue after the first job that does not fit.

    Returns:
        The chosen jobs in order of rank, with their GPUs.
    """
    places: list[tuple[int, ...]] = []

    def fits(gpus: int) -> bool:
        place = slots.allocate(gpus)
        if place is not None:
            places.append(place)
        return place is not None

    chosen, started = choose_by_rank(waiting, running, fits, backfill=backfill)
    for size, count in started.items():
        waiting.drop_first(size, count)
    return list(zip(chosen, places, strict=True))


def keep_until_repaid(view: View) -> Decision | None:
    """Return a decision that changes nothing, until every start has paid off.

    A start has paid off when the job has worked for as long as the start took. Returns None if every start
    has paid off, or a job has arrived or ended.
    """
    if view.arrived or view.finished:
        return None
    repaid_s = max((job.repaid_s for group in view.groups for job in group.jobs), default=view.now_s)
    return Decision(list(view.groups), repaid_s) if repaid_s > view.now_s else None


@dataclass(frozen=True, slots=True)
class DurationEstimates:
    """The durations reported to policies: a job's remaining time times a lognormal factor, fixed per job.

    `error` is the standard deviation of the factor's logarithm: with 0.5, two jobs of three are within a
    factor of 1.65.
    """

    error: float = 0.0
    seed: int = 0
    _factors: dict[str, float] = field(default_factory=dict)

    def remaining_s(self, job: JobState, now_s: float) -> float:
        """Return the remaining run time of a job alone on its GPUs, as reported to policies, in seconds."""
        left_s = job.iterations_left(now_s) * job.alone_s
        return left_s * self._factor(job.spec.name) if self.error else left_s

    def _factor(self, name: str) -> float:
        if name not in self._factors:
            self._factors[name] = random.Random(f"{self.seed} {name}").lognormvariate(0.0, self.error)
        return self._factors[name]


EXACT = DurationEstimates()


AGENTS = ("a2c", "dqn")
"""Models of Muri's traces whose first stage is simulation on the CPU. The first stage of other models is
loading data from storage."""


def profile(job: Submission) -> Profile:
    """Return the job's seconds per iteration on each of `RESOURCES`.

    If a job has three stages, as in Muri's traces, the first one is loading and preprocessing together; it
    counts as CPU time for the models in `AGENTS`, and as storage time for other models. Raises BadSpec for
    any other number of stages than three or four.
    """
    stages = job.stages_s
    if len(stages) == len(RESOURCES):
        return stages
    if len(stages) == len(RESOURCES) - 1:
        first, gpu, network = stages
        return (0.0, first, gpu, network) if job.model in AGENTS else (first, 0.0, gpu, network)
    raise BadSpec(f"job {job.name!r} has {len(stages)} stage times; {len(RESOURCES)} are needed to group it")


class Profiler:
    """Measured stage times of jobs: each deviates by up to the fraction `noise`, uniformly distributed."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self._noise = noise
        self._rng = random.Random(seed)

    def measure(self, job: Submission) -> Profile:
        """Return the job's seconds per iteration on each of `RESOURCES`, as measured."""
        exact = profile(job)
        if not self._noise:
            return exact
        return tuple(stage * self._rng.uniform(1 - self._noise, 1 + self._noise) for stage in exact)


class EstimateError:
    """Error of reported durations: the spread of log(actual / reported) over the jobs that ended."""

    def __init__(self) -> None:
        self._estimate_s: dict[int, float] = {}  # by order of arrival
        self.count, self._mean, self._squares = 0, 0.0, 0.0  # Welford's running sums

    def expect(self, job: JobState, duration_s: float) -> None:
        """Record the reported duration of a job that has arrived."""
        self._estimate_s[job.order] = duration_s

    def compare(self, job: JobState, lasted_s: float) -> None:
        """Record the error of an ended job's reported duration; `lasted_s` is the real duration, in seconds.

        Ignore the job if one of the two durations is 0, or if the reported one is infinite.
        """
        estimate_s = self._estimate_s.pop(job.order)
        if not (0 < estimate_s < math.inf and lasted_s > 0):
            return
        off = math.log(lasted_s / estimate_s)
        self.count += 1
        before = off - self._mean
        self._mean += before / self.count
        self._squares += before * (off - self._mean)

    @property
    def value(self) -> float:
        """The standard deviation of the error; 0 before any job has ended."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0

    @property
    def around_zero(self) -> float:
        """The root mean square of the errors, including their mean; 0 before any job has ended."""
        return math.hypot(self.value, self._mean)


class Preemption(Enum):
    """Treatment of a running job when other jobs start."""

    NEVER = "a running job runs to its end where it started"
    PREEMPT = "a running job may be stopped, and moved if large jobs do not fit otherwise"


class RankedPolicy:
    """Policy that runs the jobs of lowest rank.

    `rank(job, now_s)` must not change while a job waits, unless `rerank` is called. While jobs wait, the
    policy decides again after `quantum_s`, for ranks that change while jobs run; None: only when jobs arrive
    or end.
    """

    def __init__(
        self,
        name: str,
        rank: Callable[[JobState, float], Rank],
        *,
        moves: Preemption,
        backfill: bool = True,
        quantum_s: float | None = None,
    ) -> None:
        self.name = name
        self._rank = rank
        self._moves = moves
        self._backfill = backfill
        self._stale = False
        self._quantum_s = quantum_s
        self._waiting = WaitingJobs()
        self._slots: FreeGpus | None = None
        self._groups: dict[int, Group] = {}  # by the job's order of arrival

    def rerank(self) -> None:
        """Record that ranks of waiting jobs have changed; the next decision sorts the jobs, O(n log n)."""
        self._stale = True

    def decide(self, view: View) -> Decision:
        """Return a group for each job to run: the jobs of lowest rank that fit."""
        if self._quantum_s and (unchanged := keep_until_repaid(view)):
            return unchanged
        now_s = view.now_s
        slots = self._slots
        if slots is None or slots.cluster is not view.cluster:
            slots, stopped = settled_on(view.cluster, self._groups)
            self._slots = slots
            for job in stopped:
                self._waiting.add(job, self._rank(job, now_s))
        for job in view.finished:
            group = self._groups.pop(job.order, None)
            if group is not None:
                slots.release(group.gpus)
            else:
                self._waiting.discard(job)  # it ended while it was being stopped
        if self._stale:
            self._stale = False
            waiting = list(self._waiting)
            self._waiting.clear()
            for job in waiting:
                self._waiting.add(job, self._rank(job, now_s))
        for job in view.arrived:
            self._waiting.add(job, self._rank(job, now_s))
        if len(self._waiting):
            if self._moves is Preemption.NEVER:
                self._fill(slots)
            else:
                self._choose(view.cluster, slots, now_s)
        wake_s = now_s + self._quantum_s if self._quantum_s and len(self._waiting) else None
        return Decision(list(self._groups.values()), wake_s)

    def _fill(self, slots: FreeGpus) -> None:
        for job, place in place_by_rank(self._waiting, (), slots, backfill=self._backfill):
            self._groups[job.order] = Group((job,), place)

    def _choose(self, cluster: Cluster, slots: FreeGpus, now_s: float) -> None:
        rank = self._rank
        held = [(rank(job, now_s), job.order, job) for group in self._groups.values() for job in group.jobs]
        counts = FreeGpuCounts(cluster)
        chosen, started = choose_by_rank(self._waiting, held, counts.allocate, backfill=self._backfill)
        groups, self._slots = settle(chosen, self._groups, slots, cluster)
        for size, count in started.items():
            unplaced = [
                (entry[2], entry[0])
                for entry in self._waiting.bucket(size)[:count]
                if entry[2].order not in groups
            ]
            self._waiting.drop_first(size, count)
            for job, its_rank in unplaced:
                self._waiting.add(job, its_rank)
        for its_rank, order, job in held:
            if order not in groups:
                self._waiting.add(job, its_rank)
        self._groups = groups


def settle(
    chosen: list[JobState], groups: dict[int, Group], slots: FreeGpus, cluster: Cluster
) -> tuple[dict[int, Group], FreeGpus]:
    """Place the chosen jobs; running jobs keep their GPUs if possible.

    If new jobs do not fit otherwise, all jobs are placed again.

    Args:
        chosen: The jobs to run, in order of rank.
        groups: The running groups, each with one job, by the job's order of arrival.
        slots: The GPUs that `groups` leave free; the call changes this object.
        cluster: The servers.

    Returns:
        The groups, by the job's order of arrival, and the GPUs left free. A job that keeps its GPUs keeps its
        group object. Jobs that fit in neither attempt are left out.
    """
    placed: dict[int, Group] = {}
    fresh: list[tuple[int, Group]] = []
    for job in chosen:
        group = groups.get(job.order)
        if group is None:
            fresh.append((job.order, Group((job,), ())))
        else:
            placed[job.order] = group
    for order, group in groups.items():
        if order not in placed:
            slots.release(group.gpus)
    if fill(fresh, slots, placed):
        return placed, slots
    slots = FreeGpus(cluster)
    moved: dict[int, Group] = {}
    fill(((job.order, Group((job,), ())) for job in chosen), slots, moved)
    unmoved = {
        order: group for order, group in groups.items() if order in moved and moved[order].gpus == group.gpus
    }
    return moved | unmoved, slots


def fill(drafts: Iterable[tuple[int, Group]], slots: FreeGpus, placed: dict[int, Group]) -> bool:
    """Assign free GPUs in `slots` to groups without GPUs, large ones first; return whether all groups fit.

    `drafts` are pairs of number and group. The groups with their GPUs are added to `placed`, by number.
    """
    complete = True
    for number, draft in sorted(drafts, key=lambda entry: -entry[1].width):
        gpus = slots.allocate(draft.width)
        if gpus is None:
            complete = False
        else:
            placed[number] = draft.on(gpus)
    return complete


def beside(groups: Iterable[Group], cluster: Cluster) -> FreeGpus:
    """Return the GPUs of `cluster` that `groups` leave free."""
    slots = FreeGpus(cluster)
    for each in groups:
        slots.reserve(each.gpus)
    return slots


def settled_on(cluster: Cluster, groups: dict[int, Group]) -> tuple[FreeGpus, list[JobState]]:
    """Remove the groups of single jobs that are on unavailable GPUs of `cluster` from `groups`.

    Returns the GPUs that the remaining groups leave free, and the jobs of the removed groups.
    """
    gone = [order for order, group in groups.items() if not cluster.unavailable.isdisjoint(group.gpus)]
    stopped = [groups.pop(order).jobs[0] for order in gone]
    return beside(groups.values(), cluster), stopped
