"""The event loop: jobs arrive, a policy decides, jobs run at the speed that the speed model says, and end.

Time jumps from event to event: an arrival, an end, or the time that the policy asked to be woken at. Ends
lie in a heap; what the decision does not change costs one identity comparison. The result depends on nothing
but the arguments. Complexity: O(log n + groups) per event beside the policy's own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from controller.scheduling.errors import BadDecision, BadSpec, Stuck
from controller.scheduling.model import Cluster, JobSpec
from controller.scheduling.policy import Group, Job, Policy, SpeedModel, View
from controller.simulator.checks import check
from controller.simulator.ends import Ends, MergedEnds
from controller.simulator.record import Recorder, Result


class Charge(Enum):
    """When a running job pays for a restart."""

    ON_CHANGE = "when it is started, moved or regrouped"
    EVERY_EVENT = "at every event, touched or not; its end is foreseen without it (Muri's public simulator)"


@dataclass(frozen=True, slots=True)
class Rules:
    """How the simulator itself behaves.

    Attributes:
        charge: When restarts are paid for.
        interval_s: The policy is asked at multiples of this only, and only if something has changed; 0: at
        once. merge_rel: With `Charge.EVERY_EVENT`: ends that are relatively closer than this fall together.
        merge_abs_s: An end and an arrival that are closer than this fall together, at the arrival.
    """

    charge: Charge = Charge.ON_CHANGE
    interval_s: float = 0.0
    merge_rel: float = 0.0
    merge_abs_s: float = 0.0

    def __post_init__(self) -> None:
        if self.interval_s < 0 or not math.isfinite(self.interval_s):
            raise BadSpec(f"an interval of {self.interval_s} s; it must not be negative")


def simulate(
    specs: Iterable[JobSpec],
    cluster: Cluster,
    policy: Policy,
    speed: SpeedModel,
    rules: Rules = Rules(),
    *,
    detail: bool = False,
    verify: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run `specs` on `cluster` under `policy` until the last job has ended.

    `detail` records utilisation per resource and the blocking index over time, `verify` checks every decision
    (no GPU twice, no job twice, none that is not there). `progress` is called with the number of ended jobs
    and of all jobs, now and then.

    Raises BadSpec for a job larger than the cluster or two of one name, BadDecision for what `verify` finds,
    and Stuck if jobs wait for ever.
    """
    return _Simulation(
        list(specs), cluster, policy, speed, rules, detail=detail, verify=verify, progress=progress
    ).run()


class _Simulation:
    def __init__(
        self,
        specs: list[JobSpec],
        cluster: Cluster,
        policy: Policy,
        speed: SpeedModel,
        rules: Rules,
        *,
        detail: bool,
        verify: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        _admit(specs, cluster)
        self._specs = sorted(specs, key=lambda spec: spec.submit_s)  # stable: file order breaks ties
        self._cluster = cluster
        self._policy = policy
        self._speed = speed
        self._rules = rules
        self._verify = verify
        self._progress = progress
        self._again = rules.charge is Charge.EVERY_EVENT
        self._ends = MergedEnds(rules.merge_rel) if self._again else Ends()
        self._recorder = Recorder(cluster, detail=detail)
        self._jobs: dict[str, Job] = {}
        self._groups: list[Group] = []
        self._running: list[Job] = []
        self._epoch = 0

    def run(self) -> Result:
        specs, rules, recorder = self._specs, self._rules, self._recorder
        arrived: list[Job] = []
        finished: list[Job] = []
        position, ended, total = 0, 0, len(specs)
        wake_s = tick_s = math.inf
        while ended < total:
            arrival_s = specs[position].submit_s if position < total else math.inf
            end_s = self._ends.next_s()
            now_s = min(arrival_s, end_s, wake_s, tick_s)
            if now_s == math.inf:
                raise _stuck(self._policy, self._jobs)
            if now_s >= min(arrival_s, end_s) and abs(end_s - arrival_s) <= rules.merge_abs_s:
                now_s = end_s = arrival_s
            changed = now_s >= wake_s
            if self._again:
                for job in self._running:
                    job.settle_again(now_s)
            if end_s <= now_s:
                ending = self._ends.pop()
                for job in ending:
                    self._end(job, now_s)
                finished += ending
                ended += len(ending)
                changed = True
                if self._progress is not None:
                    self._progress(ended, total)
            while position < total and specs[position].submit_s <= now_s:
                spec = specs[position]
                job = Job(spec, position, self._speed.alone_s(spec), now_s)
                self._jobs[spec.id] = job
                arrived.append(job)
                position += 1
                changed = True
            if changed and rules.interval_s:
                tick_s = min(tick_s, math.ceil(now_s / rules.interval_s - 1e-12) * rules.interval_s)
                wake_s = wake_s if wake_s > now_s else math.inf
                changed = False
            if changed or now_s >= tick_s:
                tick_s = math.inf
                wake_s = self._decide(now_s, arrived, finished)
                arrived, finished = [], []
        recorder.close()
        return recorder.result(self._policy.name)

    def _end(self, job: Job, now_s: float) -> None:
        group = job.group
        assert group is not None
        job.finish(now_s)
        del self._jobs[job.spec.id]
        self._running.remove(job)
        self._recorder.ended(job)
        # without a policy's word the partners share what they have between themselves
        rest = tuple(member for member in group.jobs if member is not job)
        position = self._groups.index(group)
        if not rest:
            del self._groups[position]
            return
        kept = [number for number, member in enumerate(group.jobs) if member is not job]
        smaller = Group(
            rest,
            group.gpus,
            tuple(group.cpus[number] for number in kept) if group.cpus else (),
            tuple(group.memory_gb[number] for number in kept) if group.memory_gb else (),
            fused=group.fused,
            neighbours=group.neighbours,
            reason=group.reason,
        )
        self._groups[position] = smaller
        for member, iteration_s in zip(rest, self._speed.iteration_s(smaller), strict=True):
            if self._again:
                member.group = smaller
            else:
                member.retune(now_s, smaller, iteration_s)
                self._ends.push(member)

    def _decide(self, now_s: float, arrived: Sequence[Job], finished: Sequence[Job]) -> float:
        """Ask the policy, carry out what it says, and return when it wants to be woken."""
        view = View(now_s, self._cluster, self._jobs, arrived, finished, self._groups)
        decision = self._policy.decide(view)
        if self._verify:
            check(decision, view, self._policy.name)
        if decision.wake_s is not None and decision.wake_s <= now_s:
            raise BadDecision(f"{self._policy.name} asks at {now_s} s to be woken at {decision.wake_s} s")
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
        if self._again:
            self._ends.replace(self._running)
        self._recorder.decided(now_s, self._groups, self._jobs, len(self._running))
        return math.inf if decision.wake_s is None else decision.wake_s

    def _carry_out(self, group: Group, now_s: float) -> None:
        epoch, running = self._epoch, self._running
        for job in group.jobs:
            if job.stamp == epoch:
                raise BadDecision(f"{self._policy.name} runs job {job.spec.id!r} twice")
            job.stamp = epoch
            running.append(job)
        first = group.jobs[0].group
        if first is group and not self._again:
            return
        speeds = self._speed.iteration_s(group)
        costs: Sequence[float] | None = self._speed.restart_s(group) if self._again else None
        for number, job in enumerate(group.jobs):
            old = job.group
            if costs is None and old is not None and not _restarts(old, group):
                if job.iteration_s == speeds[number]:
                    job.group = group
                else:
                    job.retune(now_s, group, speeds[number])
                    self._ends.push(job)
                continue
            if costs is None:
                costs = self._speed.restart_s(group)
            if self._again and old is not None:  # settled already
                job.group = None
                job.waiting_since_s = now_s
            job.launch(now_s, group, speeds[number], costs[number])
            if not self._again:
                self._ends.push(job)


def _restarts(old: Group, new: Group) -> bool:
    return old.gpus != new.gpus or ((old.fused or new.fused) and len({*old.jobs} ^ {*new.jobs}) > 0)


def _admit(specs: Sequence[JobSpec], cluster: Cluster) -> None:
    known: set[str] = set()
    for spec in specs:
        cluster.admit(spec)
        if spec.id in known:
            raise BadSpec(f"two jobs are called {spec.id!r}")
        known.add(spec.id)


def _stuck(policy: Policy, jobs: dict[str, Job]) -> Stuck:
    names = ", ".join(list(jobs)[:5]) + (", ..." if len(jobs) > 5 else "")
    return Stuck(
        f"{policy.name} runs nothing and asks for no later time, while {len(jobs)} jobs wait: {names}"
    )
