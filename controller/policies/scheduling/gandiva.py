"""Gandiva-style scheduling (OSDI'18): time slicing, packing by trial and error, migration.

- **Time slicing.** No job is refused: while there are more jobs than fit, they take turns of `quantum_s`
  each, first come first served among those that wait. Turns end together, at multiples of the quantum; one
  that begins between two of them lasts until the second.
- **Packing.** While jobs wait, a job with low GPU utilisation is joined by another of the same GPU count, and
  after a quantum the policy looks at their real speeds. If together they progress less than one job would
  alone, they are separated, and pairs of these models are not tried again. Nothing is predicted: a profile
  only decides which job to try first (the one with the lowest GPU utilisation).
- **Migration.** If there are GPUs enough but not together, running jobs are moved to make room.

Growing and shrinking is left out: a job's GPU count is fixed here, as in all other policies. Gandiva suspends
and resumes within a second; here a switch costs what a restart costs, hence a longer quantum than the
original's minute.
"""

from __future__ import annotations

import math
from collections import deque

from controller.policies.scheduling.drafts import Draft, place
from controller.policies.scheduling.model import RESOURCES
from controller.policies.scheduling.placement import Counts
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.queue import carry_on

GPU_FROM_END = RESOURCES[::-1].index("gpu")
"""Index of the GPU's stage from the end: of three stages, loading and preprocessing are one."""

Kind = tuple[str, int]
"""A model and its batch size."""

Pair = frozenset[Kind]
"""The kinds of two partners; one if they are the same."""


class Gandiva:
    """Time slicing, packing and migration."""

    name = "gandiva"

    def __init__(self, *, quantum_s: float = 360.0) -> None:
        self._quantum_s = quantum_s
        self._turn: dict[int, tuple[float, int]] = {}  # of each unfinished job: since when it waits for one
        self._until_s: dict[int, float] = {}  # when each running job's turn ends
        self._pays: dict[Pair, bool] = {}  # what trials have shown

    def decide(self, view: View) -> Decision:
        """Return the jobs whose turn it is, packed where that was successful before or is to be tried."""
        if unchanged := carry_on(view):
            return unchanged
        now_s = view.now_s
        for job in view.finished:
            del self._turn[job.order]
            self._until_s.pop(job.order, None)
        for job in view.arrived:
            self._turn[job.order] = (now_s, job.order)
        for group in view.groups:
            self._judge(group, now_s)
        groups = place(self._drafts(view), view)
        running = {job.order for group in groups for job in group.jobs}
        end_s = (math.ceil(now_s / self._quantum_s - 1e-9) + 1) * self._quantum_s
        self._until_s = {order: self._until_s.get(order, end_s) for order in running}
        trial = any(len(group.jobs) == 2 and pair(*group.jobs) not in self._pays for group in groups)
        if not running or (len(running) == len(view.jobs) and not trial):
            return Decision(groups)
        return Decision(groups, min(self._until_s.values()))

    def _judge(self, group: Group, now_s: float) -> None:
        """End turns that are over, and remember whether the pair pays."""
        over = [job for job in group.jobs if now_s >= self._until_s.get(job.order, math.inf)]
        for job in over:
            self._turn[job.order] = (now_s, job.order)
            del self._until_s[job.order]
        if over and len(group.jobs) == 2:
            self._pays[pair(*group.jobs)] = progress(group) > 1.0

    def _drafts(self, view: View) -> list[Draft]:
        queue = sorted(view.jobs.values(), key=lambda job: self._turn[job.order])
        queue.sort(key=lambda job: job.order not in self._until_s)  # who has not had its turn's time keeps it
        counts = Counts(view.cluster)
        chosen: list[JobState] = []
        waiting: list[JobState] = []
        refused: set[int] = set()
        for job in queue:
            if job.spec.gpus not in refused and counts.take(job.spec.gpus):
                chosen.append(job)
            else:
                refused.add(job.spec.gpus)
                waiting.append(job)
        guests = self._guests(chosen, waiting) if waiting else {}
        drafts = []
        for job in chosen:
            guest = guests.get(job.order)
            if guest is None:
                drafts.append(Draft((job,), reason="its turn"))
            else:
                drafts.append(Draft((job, guest), reason=f"its turn, packed with {guest.spec.name}"))
        return drafts

    def _guests(self, hosts: list[JobState], waiting: list[JobState]) -> dict[int, JobState]:
        """Return whom to pack with each host: its guest of before, else the first that is worth a trial."""
        guests: dict[int, JobState] = {}
        left = {job.order: job for job in waiting}
        idle_first = sorted(hosts, key=lambda job: (gpu_use(job), job.order))
        for host in idle_first:
            if host.group is not None and len(host.group.jobs) == 2:
                (partner,) = [job for job in host.group.jobs if job is not host]
                if partner.order in left and self._pays.get(pair(host, partner), True):
                    guests[host.order] = left.pop(partner.order)
        queues: dict[int, dict[Kind, deque[tuple[int, JobState]]]] = {}  # by GPU count, then by kind
        for position, job in enumerate(left.values()):
            queues.setdefault(job.spec.gpus, {}).setdefault(kind(job), deque()).append((position, job))
        for host in idle_first:
            if host.order in guests:
                continue
            worth_it = [
                queue
                for other, queue in queues.get(host.spec.gpus, {}).items()
                if queue and self._pays.get(frozenset((kind(host), other)), True)
            ]
            if worth_it:
                _, guests[host.order] = min(worth_it, key=lambda queue: queue[0][0]).popleft()
        return guests


def progress(group: Group) -> float:
    """Return the members' total work per second, as measured, relative to one job alone (1)."""
    return sum(job.alone_s / job.iteration_s for job in group.jobs)


def pair(a: JobState, b: JobState) -> Pair:
    """Return the key under which a trial of `a` and `b` is remembered."""
    return frozenset((kind(a), kind(b)))


def kind(job: JobState) -> Kind:
    """Return a key that is equal for jobs with the same training."""
    return job.spec.model, job.spec.batch


def gpu_use(job: JobState) -> float:
    """Return the fraction of an iteration in which its GPUs are busy; 1 if it was not measured."""
    stages = job.spec.stages_s
    return stages[-1 - GPU_FROM_END] / job.alone_s if len(stages) > GPU_FROM_END else 1.0
