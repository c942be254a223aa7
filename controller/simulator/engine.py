"""The event loop: jobs arrive, the core decides, and jobs run and end as the speed model predicts.

Time jumps from event to event: an arrival, an end, or the next time at which the core needs a `Tick`. The
loop reports events to the core, and decides nothing itself. Predicted ends are kept in a heap. A speed model
of jobs that contend (`ContendedSpeed`) is evaluated whenever jobs have started, stopped or ended, and its
speeds are reported to the core as the jobs' progress. A simulation's result depends only on its arguments.
Complexity: O(log n + groups) per event, in addition to the policy's own work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.allocation import Allocation
from controller.core.core import Core, Rules
from controller.core.events import Progressed, Submitted
from controller.policies.family import Setup
from controller.policies.scheduling.errors import BadSpec, Stuck
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import ContendedSpeed, JobState, Policy, SpeedModel
from controller.simulator.record import RunRecorder, SimulationResult
from controller.vocabulary import Cluster

# ---------------------------------------------------------------------------
# The next job to end.


ROOM = 64
"""Number of outdated entries that the heap may have beyond the number of current entries."""


class EndQueue:
    """Heap of predicted ends of jobs. An entry becomes outdated when the job's speed changes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, JobState]] = []
        self._room = ROOM

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, job: JobState) -> None:
        """Record the predicted end of `job`."""
        heapq.heappush(self._heap, (job.end_s(), job.order, job.version, job))
        if len(self._heap) > self._room:
            self._tidy()

    def _tidy(self) -> None:
        """Drop all outdated entries.

        Otherwise jobs that are restarted often would leave thousands of entries for ends in the far future.
        """
        self._heap = [entry for entry in self._heap if entry[2] == entry[3].version]
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + ROOM

    def next_s(self) -> float:
        """Return the time at which the next job ends; infinite if no job runs."""
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> list[JobState]:
        """Remove and return all jobs whose predicted end is the earliest one."""
        end_s = self.next_s()
        ending: list[JobState] = []
        while self.next_s() == end_s:
            ending.append(heapq.heappop(self._heap)[3])
        return ending


# ---------------------------------------------------------------------------
# Detect a simulation that makes no progress.


DECISIONS = 2_000
"""Number of decisions in a row, without an arrival or an end, after which progress is checked."""

LEAST_SPEED = 1e-3
"""Minimum progress, in seconds of work per second. Even jobs that share GPUs have a hundred times more."""

LEAST_PART = 1e-9
"""Minimum progress in `DECISIONS` decisions, as a fraction of the remaining work. With less, all work would
take more than 10¹² decisions."""


class ProgressWatch:
    """Counter of decisions; raises Stuck if many decisions in a row bring no progress."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._decisions = 0
        self._since_s = 0.0
        self._left_s = math.inf

    def record(self, now_s: float, jobs: Iterable[JobState], *, moved: bool) -> None:
        """Record a decision; `moved` says whether a job has arrived or ended since the last decision.

        Raises Stuck, naming policy, time and jobs, if jobs make no progress.
        """
        self._decisions = 0 if moved else self._decisions + 1
        if not self._decisions or self._decisions % DECISIONS:  # so that it costs nothing where things happen
            return
        unfinished = list(jobs)
        left_s = math.fsum(job.remaining_s(now_s) for job in unfinished)
        work_s, elapsed_s = self._left_s - left_s, now_s - self._since_s
        second = self._decisions > DECISIONS
        if second and unfinished and work_s <= max(LEAST_SPEED * elapsed_s, LEAST_PART * left_s):
            raise Stuck(
                f"{self._policy} makes no progress: asked {DECISIONS:,} times from {self._since_s:,.0f} s to"
                f" {now_s:,.0f} s, while {named(unfinished)}; they have {left_s:,.0f} s of work left."
                " Do starts cost more (restart_s) than the turns that jobs are given?"
            )
        self._since_s, self._left_s = now_s, left_s


def named(jobs: Iterable[JobState]) -> str:
    """Return a phrase with the number of jobs that wait and the names of the first five."""
    names = [job.spec.name for job in jobs]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} jobs wait: {shown}"


@dataclass(frozen=True, slots=True)
class PolicyRun(Setup):
    """A setup (a new policy, its speed model and its interval) that can be simulated.

    Replicas of published simulators advance time differently, so they override `run`. A family may return a
    `PolicyRun` instead of a `Setup`.
    """

    @classmethod
    def of(cls, setup: Setup) -> PolicyRun:
        """Convert a setup to a `PolicyRun`; return it unchanged if it is one."""
        if isinstance(setup, PolicyRun):
            return setup
        return PolicyRun(setup.policy, setup.speed, setup.interval_s)

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate `specs` on `cluster` until the last job has ended.

        Args:
            specs: The jobs.
            cluster: The servers.
            detail: Whether to record utilisation per resource and the blocking index over time.
            verify: Whether to check every decision (no GPU twice, no job twice, only unfinished jobs).
            progress: Function that is called from time to time with the number of ended jobs and of all jobs.

        Raises BadSpec for a negative interval, a job larger than the cluster or two jobs of one name,
        BadDecision for errors that `verify` finds, and Stuck if jobs wait for ever or make no progress.
        """
        submissions = [Submitted(spec.arrival_s, spec) for spec in admitted(specs, cluster)]
        return EventLoop(submissions, cluster, self, detail=detail, verify=verify).run(progress)


def simulate(
    specs: Iterable[Submission],
    cluster: Cluster,
    policy: Policy,
    speed: SpeedModel,
    *,
    interval_s: float = 0.0,
    detail: bool = False,
    verify: bool = False,
) -> SimulationResult:
    """Simulate `specs` on `cluster` under a new policy; see `PolicyRun.run`.

    The policy decides only if something has changed: at the next multiple of `interval_s`, or at once if that
    is 0.
    """
    return PolicyRun(policy, speed, interval_s).run([*specs], cluster, detail=detail, verify=verify)


class EventLoop:
    """Simulation of time for a core: reports arrivals and ends of jobs until all jobs have ended.

    Args:
        submissions: The jobs, in order of arrival.
        cluster: The servers as the scheduling policy sees them.
        setup: The policy, the speed model (a `ContendedSpeed` if jobs contend) and the decision interval.
        allocation: Servers, trees and slots of running jobs; None: there is no network.
        detail: Whether to record curves over time, too.
        verify: Whether to check every decision of the policy.
    """

    def __init__(
        self,
        submissions: Sequence[Submitted],
        cluster: Cluster,
        setup: Setup,
        *,
        allocation: Allocation | None = None,
        detail: bool = False,
        verify: bool = False,
    ) -> None:
        self._coming = submissions
        self._policy = setup.policy
        self._speed = setup.speed if isinstance(setup.speed, ContendedSpeed) else None
        self._ends = EndQueue()
        rules = Rules(verify=verify)
        self.core = Core(cluster, setup, allocation=allocation, rules=rules, foreseen=self._ends.push)
        self._recorder = RunRecorder(cluster, detail=detail)
        self._watch = ProgressWatch(setup.policy.name)
        self._position = self._seen = 0

    def run(self, progress: Callable[[int, int], None] | None = None) -> SimulationResult:
        """Run until the last job has ended. Raises Stuck if jobs wait for ever or make no progress.

        `progress` is called from time to time with the number of ended jobs and of all jobs.
        """
        core, ends, speed = self.core, self._ends, self._speed
        jobs, running = core.jobs, core.running
        total, next_s = len(self._coming), self._next_s()
        moved = stirred = False
        while self._seen < total:
            end_s = ends.next_s()
            now_s = min(next_s, end_s, core.next_s)
            if now_s == math.inf:
                raise stuck(self._policy, jobs, core.now_s)
            stirred = stirred or end_s <= now_s
            if end_s <= now_s:
                for job in ends.pop():
                    core.ended(now_s, job.spec.name)
                moved = True
            if next_s <= now_s:
                next_s = self._notify(now_s)
                moved = True
            if core.next_s <= now_s:
                if core.tick(now_s):
                    self._watch.record(now_s, jobs.values(), moved=moved)
                    self._recorder.decided(now_s, running.groups, jobs, len(running.jobs), running.held_gpus)
                    moved = False
                stirred = True
            if stirred and speed is not None and core.next_s > now_s:
                for job, iteration_s in speed.contend(now_s):
                    core.handle(Progressed(now_s, job.spec.name, iteration_s=iteration_s))
                stirred = False
            if len(core.finished_jobs) > self._seen:
                moved = True
                self._record()
                if progress is not None:
                    progress(self._seen, total)
        self._recorder.close()
        return self._recorder.result(self._policy.name)

    def _next_s(self) -> float:
        """Return the time at which the next job arrives; infinite after the last arrival."""
        return self._coming[self._position].at_s if self._position < len(self._coming) else math.inf

    def _notify(self, now_s: float) -> float:
        """Report the arrivals until `now_s` to the core; return the time of the next arrival."""
        while (next_s := self._next_s()) <= now_s:
            self.core.handle(self._coming[self._position])
            self._position += 1
        return next_s

    def _record(self) -> None:
        """Record the jobs that have ended."""
        over = self.core.finished_jobs
        while self._seen < len(over):
            each = over[self._seen]
            self._recorder.ended(each.job, completed=each.outcome == "completed")
            self._seen += 1


def admitted(specs: Iterable[Submission], cluster: Cluster) -> list[Submission]:
    """Return the jobs in order of submission.

    Raises BadSpec for a job that is too large for the cluster, or two jobs of one name.
    """
    queue = list(specs)
    known: set[str] = set()
    for spec in queue:
        cluster.check_room(spec.name, spec.gpus)
        if spec.name in known:
            raise BadSpec(f"two jobs are called {spec.name!r}")
        known.add(spec.name)
    return sorted(queue, key=lambda spec: spec.arrival_s)  # stable: file order breaks ties


def stuck(policy: Policy, jobs: Mapping[str, JobState], now_s: float) -> Stuck:
    """Return the error that names the jobs that wait for ever."""
    waiting = named(jobs.values())
    return Stuck(f"{policy.name} runs nothing at {now_s:,.0f} s and asks for no later time, while {waiting}")
