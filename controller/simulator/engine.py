"""The event loop: jobs arrive, a policy decides, jobs run at the speed that the speed model says, and end.

Time jumps from event to event: an arrival, an end, or the time that the policy asked to be woken at. Ends
lie in a heap; what the decision does not change costs one identity comparison. A speed model of jobs that
contend (`ContendedSpeed`) is asked whenever jobs have started, stopped or ended. The result depends on
nothing but the arguments. Complexity: O(log n + groups) per event beside the policy's own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.scheduling.checks import check
from controller.scheduling.errors import BadDecision, BadSpec, Stuck
from controller.scheduling.model import Submission
from controller.scheduling.policy import (
    ContendedSpeed,
    Decision,
    Group,
    JobState,
    Policy,
    SpeedModel,
    View,
)
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

    With `interval_s` the policy is asked at multiples of this only, and only if something has changed; else
    at once. `detail` records utilisation per resource and the blocking index over time, `verify` checks every
    decision (no GPU twice, no job twice, none that is not there). `progress` is called with the number of
    ended jobs and of all jobs, now and then.

    Raises BadSpec for a negative interval, a job larger than the cluster or two of one name, BadDecision for
    what `verify` finds, and Stuck if jobs wait for ever or get nowhere.
    """
    if interval_s < 0 or not math.isfinite(interval_s):
        raise BadSpec(f"an interval of {interval_s} s; it must not be negative")
    queue = admitted(specs, cluster)
    return _Simulation(
        queue, cluster, policy, speed, interval_s, detail=detail, verify=verify, progress=progress
    ).run()


class _Simulation:
    def __init__(
        self,
        specs: list[Submission],
        cluster: Cluster,
        policy: Policy,
        speed: SpeedModel,
        interval_s: float,
        *,
        detail: bool,
        verify: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._specs = specs
        self._cluster = cluster
        self._policy = policy
        self._speed = speed
        self._contended = speed if isinstance(speed, ContendedSpeed) else None
        self._interval_s = interval_s
        self._verify = verify
        self._progress = progress
        self._ends = Ends()
        self._recorder = Recorder(cluster, detail=detail)
        self._watch = Watch(policy.name)
        self._jobs: dict[str, JobState] = {}
        self._groups: list[Group] = []
        self._running: list[JobState] = []
        self._epoch = 0

    def run(self) -> Result:
        specs, interval_s, recorder = self._specs, self._interval_s, self._recorder
        arrived: list[JobState] = []
        finished: list[JobState] = []
        position, ended, total = 0, 0, len(specs)
        now_s, wake_s, tick_s, again_s = 0.0, math.inf, math.inf, math.inf
        while ended < total:
            arrival_s = specs[position].arrival_s if position < total else math.inf
            end_s = self._ends.next_s()
            next_s = min(arrival_s, end_s, wake_s, tick_s, again_s)
            if next_s == math.inf:
                raise stuck(self._policy, self._jobs, now_s)
            now_s = next_s
            changed = now_s >= wake_s
            stirred = end_s <= now_s or now_s >= again_s
            if end_s <= now_s:
                ending = self._ends.pop()
                for job in ending:
                    self._end(job, now_s)
                finished += ending
                ended += len(ending)
                changed = True
                if self._progress is not None:
                    self._progress(ended, total)
            while position < total and specs[position].arrival_s <= now_s:
                spec = specs[position]
                job = JobState(spec, position, self._speed.alone_s(spec), now_s)
                self._jobs[spec.name] = job
                arrived.append(job)
                position += 1
                changed = True
            if changed and interval_s:
                tick_s = min(tick_s, math.ceil(now_s / interval_s - 1e-12) * interval_s)
                wake_s = wake_s if wake_s > now_s else math.inf
                changed = False
            if changed or now_s >= tick_s:
                tick_s = math.inf
                wake_s = self._decide(now_s, arrived, finished)
                arrived, finished = [], []
                stirred = True
            if stirred and self._contended is not None:
                again_s, given_up = self._contend(self._contended, now_s)
                finished += given_up
                ended += len(given_up)
                if given_up:
                    wake_s = now_s
        recorder.close()
        return recorder.result(self._policy.name)

    def _contend(self, speed: ContendedSpeed, now_s: float) -> tuple[float, Sequence[JobState]]:
        """Have jobs run as fast as they let each other; return when to ask again, and who was ended."""
        found = speed.contend(now_s, self._groups)
        for job, iteration_s in found.iteration_s:
            assert job.group is not None
            job.retune(now_s, job.group, iteration_s)
            self._ends.push(job)
        for job in found.ended:
            self._end(job, now_s, completed=False)
        return found.again_s, found.ended

    def _end(self, job: JobState, now_s: float, *, completed: bool = True) -> None:
        group = job.group
        assert group is not None
        job.finish(now_s)
        del self._jobs[job.spec.name]
        self._running.remove(job)
        self._recorder.ended(job, completed=completed)
        position = self._groups.index(group)
        smaller = group.without(job)
        if smaller is None:
            del self._groups[position]
            return
        # without a policy's word the partners share what they have between themselves
        self._groups[position] = smaller
        for member, iteration_s in zip(smaller.jobs, self._speed.iteration_s(smaller), strict=True):
            member.retune(now_s, smaller, iteration_s)
            self._ends.push(member)

    def _decide(self, now_s: float, arrived: Sequence[JobState], finished: Sequence[JobState]) -> float:
        """Ask the policy, carry out what it says, and return when it wants to be woken."""
        self._watch.asked(now_s, self._jobs.values(), moved=bool(arrived or finished))
        view = View(now_s, self._cluster, self._jobs, arrived, finished, self._groups)
        decision = ask(self._policy, view, verify=self._verify)
        self._epoch += 1
        before, self._running = self._running, []
        for job in decision.reset:  # first: the same decision may start them anew
            if job.group is not None:
                job.halt(now_s)
            job.reset(now_s)
        for group in decision.groups:
            self._carry_out(group, now_s)
        for job in before:
            if job.stamp != self._epoch and job.group is not None:
                job.halt(now_s)
        self._groups = decision.groups
        self._recorder.decided(now_s, self._groups, self._jobs, len(self._running))
        return math.inf if decision.wake_s is None else decision.wake_s

    def _carry_out(self, group: Group, now_s: float) -> None:
        epoch, running = self._epoch, self._running
        for job in group.jobs:
            if job.stamp == epoch:
                raise BadDecision(f"{self._policy.name} runs job {job.spec.name!r} twice")
            job.stamp = epoch
            running.append(job)
        if group.jobs[0].group is group:
            return
        speeds = self._speed.iteration_s(group)
        costs: Sequence[float] | None = None
        for number, job in enumerate(group.jobs):
            old = job.group
            if costs is not None or old is None or _restarts(old, group):
                if costs is None:
                    costs = self._speed.restart_s(group)
                job.launch(now_s, group, speeds[number], costs[number])
            elif job.iteration_s == speeds[number]:
                job.group = group
                continue
            else:
                job.retune(now_s, group, speeds[number])
            self._ends.push(job)


def _restarts(old: Group, new: Group) -> bool:
    return old.gpus != new.gpus or ((old.fused or new.fused) and len({*old.jobs} ^ {*new.jobs}) > 0)


def ask(policy: Policy, view: View, *, verify: bool) -> Decision:
    """Ask the policy. Raises BadDecision for a wish to be woken at once, and for what `verify` finds."""
    decision = policy.decide(view)
    if verify:
        check(decision, view, policy.name)
    if decision.wake_s is not None and decision.wake_s <= view.now_s:
        raise BadDecision(f"{policy.name} asks at {view.now_s} s to be woken at {decision.wake_s} s")
    return decision


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
