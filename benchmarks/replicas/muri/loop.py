"""The event loop of Muri's public simulator, where every event touches every running job.

All is decided and placed anew at each event, and every running job pays for a start again: it works only
after the payment, and its next end is predicted without it. Ends that differ by rounding alone are one event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.core.core import decide
from controller.policies.scheduling.errors import BadDecision
from controller.policies.scheduling.policy import Decision, Group, JobState, Submission, View
from controller.simulator.engine import (
    PolicyRun,
    ProgressWatch,
    RunRecorder,
    SimulationResult,
    admitted,
    stuck,
)
from controller.vocabulary import Cluster

SAME_PART = 1e-3
"""Largest part of a job's time alone by which its end may be moved to an arrival."""

Ends = tuple[float, list["RestartedJob"]]
"""Time at which the next jobs end, infinity if none runs, and these jobs."""


class RestartedJob(JobState):
    """A job that pays for a start at every event."""

    __slots__ = ()

    def settle(self, now_s: float) -> None:
        """Count the work done until now; the cost of the start falls due once more."""
        work_s = now_s - self._since_s - self._delay_s
        self._attained_s = self._attained_s + now_s - self._since_s
        self._since_s = now_s
        if work_s > 0.0:
            self._left -= work_s / self.iteration_s

    def foreseen_end_s(self) -> float:
        """Return when it would end if its start cost nothing."""
        return self._since_s + self._left * self.iteration_s

    def restart(self, now_s: float, group: Group, iteration_s: float, delay_s: float) -> None:
        """Start it in `group`, whether it ran or not; it has been settled."""
        if self.group is not None:
            self.group = None
            self.waiting_since_s = now_s
        self.launch(now_s, group, iteration_s, delay_s)


@dataclass(frozen=True, slots=True)
class MuriRun(PolicyRun):
    """As `PolicyRun`, on this loop; there is no interval.

    Attributes:
        same_end: Ends that are relatively closer than this fall together.
        same_time_s: An end and an arrival that are closer than this fall together, at the arrival; of short
            jobs, closer than `SAME_PART` of the time that the job takes alone.
    """

    same_end: float = 1e-9
    same_time_s: float = 0.0

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate `specs` on `cluster`."""
        queue = admitted(specs, cluster)
        recorder = RunRecorder(cluster, detail=detail)
        watch = ProgressWatch(self.policy.name)
        jobs: dict[str, RestartedJob] = {}
        groups: list[Group] = []
        running: list[RestartedJob] = []
        position = ended = 0
        ends: Ends = (math.inf, [])
        now_s, wake_s = 0.0, math.inf
        while ended < len(queue):
            arrival_s = queue[position].arrival_s if position < len(queue) else math.inf
            end_s, ending = ends
            next_s = min(arrival_s, end_s, wake_s)
            if next_s == math.inf:
                raise stuck(self.policy, jobs, now_s)
            now_s = next_s
            if now_s >= min(arrival_s, end_s) and abs(end_s - arrival_s) <= self._same_time_s(ending):
                now_s = end_s = arrival_s
            for job in running:
                job.settle(now_s)
            finished: list[RestartedJob] = ending if end_s <= now_s else []
            for job in finished:
                _end(job, now_s, groups)
                del jobs[job.spec.name]
                running.remove(job)
                recorder.ended(job)
            ended += len(finished)
            if finished and progress is not None:
                progress(ended, len(queue))
            arrived: list[RestartedJob] = []
            while position < len(queue) and queue[position].arrival_s <= now_s:
                spec = queue[position]
                job = RestartedJob(spec, position, self.speed.alone_s(spec), now_s)
                jobs[spec.name] = job
                arrived.append(job)
                position += 1
            watch.record(now_s, jobs.values(), moved=bool(arrived or finished))
            view = View(now_s, cluster, jobs, arrived, finished, groups)
            decision = decide(self.policy, view, verify=verify)
            groups, running = decision.groups, self._carried_out(decision, jobs, running, now_s)
            ends = _foreseen(running, self.same_end)
            wake_s = math.inf if decision.wake_s is None else decision.wake_s
            recorder.decided(now_s, groups, jobs, len(running))
        recorder.close()
        return recorder.result(self.policy.name)

    def _same_time_s(self, ending: Sequence[RestartedJob]) -> float:
        parts_s = (SAME_PART * job.spec.iterations * job.alone_s for job in ending)
        return min([self.same_time_s, *parts_s])

    def _carried_out(
        self,
        decision: Decision,
        jobs: dict[str, RestartedJob],
        before: Sequence[RestartedJob],
        now_s: float,
    ) -> list[RestartedJob]:
        """Start the chosen jobs, stop the others, and return the running groups."""
        if decision.reset:
            raise BadDecision(f"{self.policy.name} takes jobs' progress away; here all keep it")
        running: dict[int, RestartedJob] = {}
        for group in decision.groups:
            speeds, costs = self.speed.iteration_s(group), self.speed.restart_s(group)
            for member, iteration_s, cost_s in zip(group.jobs, speeds, costs, strict=True):
                job = jobs[member.spec.name]
                if job.order in running:
                    raise BadDecision(f"{self.policy.name} runs job {job.spec.name!r} twice")
                running[job.order] = job
                job.restart(now_s, group, iteration_s, cost_s)
        for job in before:
            if job.order not in running:
                job.halt(now_s)
        return list(running.values())


def _end(job: RestartedJob, now_s: float, groups: list[Group]) -> None:
    group = job.group
    assert group is not None
    job.finish(now_s)
    position = groups.index(group)
    smaller = group.without(job)
    if smaller is None:
        del groups[position]
        return
    groups[position] = smaller
    for member in smaller.jobs:
        member.group = smaller


def _foreseen(jobs: Sequence[RestartedJob], same_end: float) -> Ends:
    """Return the next ends; an end close to an earlier one, in the policy's order, is merged with it."""
    if not jobs:
        return math.inf, []
    ends = [job.foreseen_end_s() for job in jobs]
    # only ends near the first one can fall together with it
    limit = min(ends)
    limit += abs(limit) * 8 * same_end
    together: dict[float, list[RestartedJob]] = {}
    for job, end_s in zip(jobs, ends, strict=True):
        if end_s <= limit:
            for noted in together:
                if math.isclose(noted, end_s, rel_tol=same_end):
                    together[noted].append(job)
                    break
            else:
                together[end_s] = [job]
    first_s = min(together)
    return first_s, together[first_s]
