"""Weave: group jobs by what their progress is worth to all who wait. Ours, built on Muri's interleaving.

Muri matches the head of the queue by efficiency alone, and only then looks at priorities. Here one figure has
both. What matters is Σ JCT^(1+q) over all jobs: q = 0 is the average completion time, a little more looks
after the tail. One second's progress of a job that needs g of the cluster's G GPUs

- brings its own end a second closer, and
- takes g / G of a second's work from those behind it in the queue (shortest remaining service first, or least
  attained service if durations are unknown),

so its worth is, with u = (completion time as things stand)^q for each job,

    weight = u + g / G · Σ u of the jobs behind

A crowded cluster so looks for throughput, an idle one for the jobs that end soon. Which jobs run, with whom,
and how many groups of each size there are, is what makes the sum of weight times speed largest
(`controller.grouping.worth`). Speeds of groups are asked of a `SpeedModel`: what was measured of jobs
together, contention included.

Groups that come out as before stay where they are; so do all when nothing better is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from controller.grouping.efficiency import best
from controller.grouping.worth import Item, Rounds, group_by_worth
from controller.scheduling.drafts import Draft, place
from controller.scheduling.errors import BadSpec
from controller.scheduling.model import RESOURCES, JobSpec
from controller.scheduling.muri import interleaved, profile
from controller.scheduling.policy import Decision, Group, JobState, SpeedModel, View
from controller.scheduling.turns import carry_on

COMPOSITIONS = 3000
"""Compositions of groups whose rounds are remembered; beyond that all are forgotten."""

MOST = 512
"""Jobs of one size that are looked at beyond twice as many as fit: the work grows with their square."""

Kind = tuple[str, int, tuple[float, ...], float]


class Weave:
    """Groups of greatest worth. With `known` durations as Muri-S, else as Muri-L.

    `speed` predicts how fast groups run. `members` is the largest group, `power` is q, `width` by how many
    times the jobs that are looked at may exceed the cluster, all together and size by size.
    `exchange=False` leaves out the local search. `quantum_s`: ask again after this time while jobs wait, for
    attained service changes.
    """

    def __init__(
        self,
        speed: SpeedModel,
        name: str = "weave-s",
        *,
        known: bool = True,
        members: int = len(RESOURCES),
        power: float = 0.5,
        width: int = 8,
        exchange: bool = True,
        quantum_s: float | None = None,
    ) -> None:
        if not 1 <= members <= len(RESOURCES):
            raise BadSpec(f"groups of {members} jobs; 1 to {len(RESOURCES)} are possible")
        if not (power >= 0 and math.isfinite(power)) or width < 1:
            raise BadSpec(f"a power of {power} and a width of {width}; at least 0 and 1 are needed")
        self.name = name
        self._speed = speed
        self._known = known
        self._members = members
        self._power = power
        self._width = width
        self._exchange = exchange
        self._quantum_s = quantum_s
        self._kind_of: dict[int, int] = {}  # of each unfinished job, by order of arrival
        self._forget()

    def _forget(self) -> None:
        self._kinds: dict[Kind, int] = {}
        self._examples: list[JobState] = []
        self._rounds = Rounds(self._round_s, self._members)
        self._kind_of.clear()

    def decide(self, view: View) -> Decision:
        """Return the groups that are worth most."""
        if unchanged := carry_on(view):
            return unchanged
        for job in view.finished:
            self._kind_of.pop(job.order, None)
        for job in view.arrived:
            profile(job.spec)  # refuses jobs that nobody profiled
        if len(self._rounds) > COMPOSITIONS:
            self._forget()
        now_s = view.now_s
        queue = sorted(view.jobs.values(), key=lambda job: (self._service(job, now_s), job.order))
        weights = self._weights(queue, view)
        seen: dict[int, int] = {}
        jobs: list[JobState] = []
        items: list[Item] = []
        asked = 0
        for job, weight in zip(queue, weights, strict=True):
            gpus = job.spec.gpus
            if asked >= self._width * view.cluster.gpus:
                break
            seen[gpus] = seen.get(gpus, 0) + 1
            fit = view.cluster.gpus // gpus
            if seen[gpus] <= max(min(self._width, 2) * fit, min(self._width * fit, MOST)):
                asked += gpus
                jobs.append(job)
                items.append(Item(self._kind(job), gpus, job.alone_s, weight))
        found = group_by_worth(items, self._rounds, view.cluster.gpus, improve=self._exchange)
        groups = place(self._drafts(found, jobs), view)
        if self._quantum_s is None or sum(len(group.jobs) for group in groups) == len(queue):
            return Decision(groups)
        return Decision(groups, now_s + self._quantum_s)

    def _service(self, job: JobState, now_s: float) -> float:
        return (job.remaining_s(now_s) if self._known else job.attained_s(now_s)) * job.spec.gpus

    def _weights(self, queue: Sequence[JobState], view: View) -> list[float]:
        now_s = view.now_s
        if not queue:
            return []
        # of a job that has run for so long about as much is still to come, if nothing else is known
        left = [job.remaining_s(now_s) if self._known else job.attained_s(now_s) for job in queue]
        jcts = [now_s - job.spec.submit_s + left_s for job, left_s in zip(queue, left, strict=True)]
        mean_s = max(math.fsum(jcts) / len(jcts), 1.0)
        urgencies = [(max(jct_s, 1.0) / mean_s) ** self._power for jct_s in jcts]
        behind = [*itertools.accumulate(reversed(urgencies), initial=0.0)][-2::-1]
        return [
            urgency + job.spec.gpus / view.cluster.gpus * rest
            for job, urgency, rest in zip(queue, urgencies, behind, strict=True)
        ]

    def _drafts(self, found: Sequence[Sequence[int]], jobs: Sequence[JobState]) -> list[Draft]:
        """Return the groups, large ones first so that they fit, and then those who are in none."""
        rest = {*range(len(jobs))}
        drafts: list[Draft] = []
        for numbers in sorted(found, key=lambda group: (-jobs[group[0]].spec.gpus, min(group))):
            rest.difference_update(numbers)
            members = tuple(jobs[number] for number in sorted(numbers))
            interleaving = best([profile(job.spec) for job in members]) if len(members) > 1 else None
            drafts.append(interleaved(members, interleaving))
        return drafts + [interleaved((jobs[number],)) for number in sorted(rest)]

    def _kind(self, job: JobState) -> int:
        kind = self._kind_of.get(job.order)
        if kind is None:
            spec: JobSpec = job.spec
            key = (spec.model, spec.gpus, spec.stages_s, job.alone_s)
            kind = self._kinds.setdefault(key, len(self._examples))
            if kind == len(self._examples):
                self._examples.append(job)
            self._kind_of[job.order] = kind
        return kind

    def _round_s(self, kinds: tuple[int, ...]) -> float:
        group = Group(tuple(self._examples[kind] for kind in kinds), (), fused=True)
        return max(self._speed.iteration_s(group))
