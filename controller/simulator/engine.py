"""The event loop: jobs arrive, the core decides, jobs run at the speed model's speeds, and end.

Time jumps from event to event: an arrival, an end, or the time that the core asks for. The loop reports
events to the core, and decides nothing itself. Ends are kept in a heap. A speed model of jobs that contend
(`ContendedSpeed`) is evaluated whenever jobs have started, stopped or ended, and its result is reported to
the core as the jobs' progress. The result depends only on the arguments. Complexity: O(log n + groups) per
event beside the policy's own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.core.allocation import Allocation
from controller.core.core import Core, Rules
from controller.core.events import Cancelled, Event, Progressed, Submitted
from controller.policies.family import Setup
from controller.policies.scheduling.errors import BadSpec, Stuck
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import ContendedSpeed, JobState, Policy, SpeedModel
from controller.simulator.ends import Ends
from controller.simulator.record import Recorder, Result
from controller.simulator.watch import Watch, named
from controller.vocabulary import Cluster


def simulate(
    specs: Iterable[Submission],
    cluster: Cluster,
    policy: Policy,
    speed: SpeedModel,
    *,
    interval_s: float = 0.0,
    detail: bool = False,
    verify: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run `specs` on `cluster` under `policy` until the last job has ended.

    Args:
        specs: The jobs.
        cluster: The servers.
        policy: A fresh policy.
        speed: Determines how fast jobs run.
        interval_s: The policy decides only at multiples of this, and only if something has changed; 0: at
            once.
        detail: Record utilisation per resource and the blocking index over time.
        verify: Check every decision (no GPU twice, no job twice, only unfinished jobs).
        progress: Called from time to time with the number of ended jobs and of all jobs.

    Raises BadSpec for a negative interval, a job larger than the cluster or two of one name, BadDecision for
    errors that `verify` finds, and Stuck if jobs wait for ever or make no progress.
    """
    submissions = [Submitted(spec.arrival_s, spec) for spec in admitted(specs, cluster)]
    simulation = Simulation(
        submissions,
        cluster,
        Setup(policy, speed, interval_s),
        speed=speed if isinstance(speed, ContendedSpeed) else None,
        detail=detail,
        verify=verify,
        progress=progress,
    )
    return simulation.run()


class Simulation:
    """Virtual time around a core: jobs arrive, the core decides, jobs end as predicted or reported.

    Args:
        submissions: The jobs, in order of arrival.
        cluster: The servers as the scheduling policy sees them.
        setup: The policy, the speed model and the decision interval.
        allocation: Servers, trees and slots of running jobs; None: there is no network.
        speed: Speeds of jobs that contend; None: each runs as predicted.
        happenings: Further events, in order of time: servers and switches that go and come back.
        detail: Record curves, too.
        verify: Check every decision of the policy.
        progress: Called from time to time with the number of ended jobs and of all jobs.
    """

    def __init__(
        self,
        submissions: Sequence[Submitted],
        cluster: Cluster,
        setup: Setup,
        *,
        allocation: Allocation | None = None,
        speed: ContendedSpeed | None = None,
        happenings: Sequence[Event] = (),
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._coming = submissions
        self._happening = happenings
        self._policy = setup.policy
        self._speed = speed
        self._progress = progress
        self._ends = Ends()
        rules = Rules(verify=verify)
        self.core = Core(cluster, setup, allocation=allocation, rules=rules, foreseen=self._ends.push)
        self._recorder = Recorder(cluster, detail=detail)
        self._watch = Watch(setup.policy.name)
        self._position = self._happened = self._seen = 0

    def run(self) -> Result:
        """Run until the last job has ended. Raises Stuck if jobs wait for ever or make no progress."""
        core, ends, speed = self.core, self._ends, self._speed
        jobs, running = core.jobs, core.running
        total, again_s, next_s = len(self._coming), math.inf, self._next_s()
        moved = stirred = False
        while self._seen < total:
            end_s = ends.next_s()
            now_s = min(next_s, end_s, core.next_s, again_s)
            if now_s == math.inf:
                raise stuck(self._policy, jobs, core.now_s)
            stirred = stirred or end_s <= now_s or now_s >= again_s
            if end_s <= now_s:
                for job in ends.pop():
                    core.ended(now_s, job.spec.name)
                moved = True
            if next_s <= now_s:
                next_s = self._tell(now_s)
                moved = True
            if core.next_s <= now_s:
                if core.tick(now_s):
                    self._watch.asked(now_s, jobs.values(), moved=moved)
                    self._recorder.decided(now_s, running.groups, jobs, len(running.jobs), running.held_gpus)
                    moved = False
                stirred = True
            if stirred and speed is not None and core.next_s > now_s:
                again_s = self._contend(speed, now_s)
                stirred = False
            if len(core.over) > self._seen:
                moved = True
                self._record()
        self._recorder.close()
        return self._recorder.result(self._policy.name)

    def _next_s(self) -> float:
        """Return when something comes from outside."""
        next_s = math.inf
        if self._position < len(self._coming):
            next_s = self._coming[self._position].at_s
        if self._happened < len(self._happening):
            next_s = min(next_s, self._happening[self._happened].at_s)
        return next_s

    def _tell(self, now_s: float) -> float:
        """Report external events to the core; return the time of the next one."""
        coming, at = self._coming, self._position
        while at < len(coming) and coming[at].at_s <= now_s:
            self.core.handle(coming[at])
            at += 1
        self._position = at
        while self._happened < len(self._happening) and self._happening[self._happened].at_s <= now_s:
            self.core.handle(self._happening[self._happened])
            self._happened += 1
        return self._next_s()

    def _contend(self, speed: ContendedSpeed, now_s: float) -> float:
        """Report to the core the jobs' speeds and cancellations; return when to do so again."""
        found = speed.contend(now_s, self.core.running.groups)
        for job, iteration_s in found.iteration_s:
            self.core.handle(Progressed(now_s, job.spec.name, iteration_s=iteration_s))
        for job in found.ended:
            self.core.handle(Cancelled(now_s, job.spec.name))
        return found.again_s

    def _record(self) -> None:
        """Record the jobs that are over."""
        over = self.core.over
        while self._seen < len(over):
            each = over[self._seen]
            self._recorder.ended(each.job, completed=each.outcome == "completed")
            self._seen += 1
        if self._progress is not None:
            self._progress(self._seen, len(self._coming))


def admitted(specs: Iterable[Submission], cluster: Cluster) -> list[Submission]:
    """Return the jobs in order of submission. Raises BadSpec for one too large, or two of one name."""
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
