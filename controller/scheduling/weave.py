"""Weave: group jobs by what their progress is worth to all who wait. Ours, built on Muri's interleaving.

Muri matches the head of the queue by efficiency alone, and only then looks at priorities. Here one figure has
both. What matters is Σ JCT^(1+q) over all jobs: q = 0 is the average completion time, a little more looks
after the tail. One second's progress of a job that needs g of the cluster's G GPUs

- brings its own end a second closer, and
- takes g / G of a second's work from those behind it in the queue (shortest remaining service first, or least
  attained service if durations are unknown),

so its worth is, with u = (completion time as things stand)^q for each job, times a factor for short ones,

    weight = u + g / G · Σ u of the jobs behind

A crowded cluster so looks for throughput, an idle one for the jobs that end soon. Which jobs run, with whom,
and how many groups of each size there are, is what makes the sum of weight times speed largest
(`controller.grouping.worth`).

Weave knows what Muri knows: stage times as a profiler measures them, with its noise, and, where they are
known, durations as told. A `SpeedModel` predicts from these how long a group's round is. How much longer it
really is, is seen of the groups that run, and believed of further groups of as many jobs.

Short jobs are a small part of a sum of completion times, and all of a sum of slowdowns. One second of a job's
waiting adds 1 / (its time alone) to the latter; so u is multiplied by

    1 - s + s · (mean time alone / its time alone)

with s = `short`: 0 looks after completion times, 1 after slowdowns.

Groups that come out as before stay where they are; so do all when nothing better is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.grouping.efficiency import best
from controller.grouping.worth import Item, Rounds, group_by_worth
from controller.scheduling.drafts import Draft, place
from controller.scheduling.errors import BadSpec
from controller.scheduling.model import RESOURCES, JobSpec
from controller.scheduling.muri import Profiler, interleaved, profile
from controller.scheduling.policy import Decision, Group, JobState, SpeedModel, View
from controller.scheduling.told import TRUTH, Told
from controller.scheduling.turns import carry_on

COMPOSITIONS = 3000
"""Compositions of groups whose rounds are remembered; beyond that all are forgotten."""

MOST = 512
"""Jobs of one size that are looked at beyond twice as many as fit: the work grows with their square."""

SHORT = 0.3
"""Default weight of short jobs."""

Kind = tuple[str, int, tuple[float, ...], float]


class Weave:
    """Groups of greatest worth. With `known` durations as Muri-S, else as Muri-L.

    `speed` predicts how fast groups run, from stage times that are off by up to `noise`; `told` is what is
    known of durations. `members` is the largest group, `power` is q, `short` is s, `width` by how many times
    the jobs that are looked at may exceed the cluster, all together and size by size.
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
        short: float = SHORT,
        width: int = 8,
        exchange: bool = True,
        quantum_s: float | None = None,
        noise: float = 0.0,
        seed: int = 0,
        told: Told = TRUTH,
    ) -> None:
        if not 1 <= members <= len(RESOURCES):
            raise BadSpec(f"groups of {members} jobs; 1 to {len(RESOURCES)} are possible")
        if not (power >= 0 and math.isfinite(power)) or width < 1:
            raise BadSpec(f"a power of {power} and a width of {width}; at least 0 and 1 are needed")
        if not 0 <= short <= 1:
            raise BadSpec(f"a weight of short jobs of {short}; it must be 0 to 1")
        self.name = name
        self._noise = noise
        self._profiler = Profiler(noise, seed)
        self._measured: dict[int, JobSpec] = {}  # each unfinished job as the profiler sees it, by order
        self._longer = Longer()
        self._short = short
        self._told = told
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
        self._predicted: dict[tuple[int, ...], float] = {}
        self._kind_of.clear()

    def decide(self, view: View) -> Decision:
        """Return the groups that are worth most."""
        if unchanged := carry_on(view):
            return unchanged
        for job in view.finished:
            self._kind_of.pop(job.order, None)
            self._measured.pop(job.order, None)
        for job in view.arrived:  # refuses jobs that nobody profiled
            measured = self._profiler.measure(job.spec)
            self._measured[job.order] = replace(job.spec, stages_s=measured) if self._noise else job.spec
        if self._longer.learn(self._believed(group) for group in view.groups if len(group.jobs) > 1):
            self._rounds = Rounds(self._round_s, self._members)
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
        return self._left_s(job, now_s) * job.spec.gpus

    def _left_s(self, job: JobState, now_s: float) -> float:
        # of a job that has run for so long about as much is still to come, if nothing else is known
        return self._told.remaining_s(job, now_s) if self._known else job.attained_s(now_s)

    def _weights(self, queue: Sequence[JobState], view: View) -> list[float]:
        now_s = view.now_s
        if not queue:
            return []
        left = [self._left_s(job, now_s) for job in queue]
        jcts = [now_s - job.spec.submit_s + left_s for job, left_s in zip(queue, left, strict=True)]
        mean_s = max(math.fsum(jcts) / len(jcts), 1.0)
        urgencies = [(max(jct_s, 1.0) / mean_s) ** self._power for jct_s in jcts]
        if self._short:
            # what is left may be falsely told: a job is as long as it has run and is said to run on
            alone = [
                max(job.attained_s(now_s) + left_s, 1.0) for job, left_s in zip(queue, left, strict=True)
            ]
            mean_alone_s = math.fsum(alone) / len(alone)
            urgencies = [
                urgency * (1 - self._short + self._short * mean_alone_s / alone_s)
                for urgency, alone_s in zip(urgencies, alone, strict=True)
            ]
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
            interleaving = (
                best([profile(self._measured[job.order]) for job in members]) if len(members) > 1 else None
            )
            drafts.append(interleaved(members, interleaving))
        return drafts + [interleaved((jobs[number],)) for number in sorted(rest)]

    def _kind(self, job: JobState) -> int:
        kind = self._kind_of.get(job.order)
        if kind is None:
            spec = self._measured[job.order]
            key = (spec.model, spec.gpus, spec.stages_s, job.alone_s)
            kind = self._kinds.setdefault(key, len(self._examples))
            if kind == len(self._examples):
                self._examples.append(JobState(spec, job.order, job.alone_s, 0.0))
            self._kind_of[job.order] = kind
        return kind

    def _round_s(self, kinds: tuple[int, ...]) -> float:
        return self._predicted_s(kinds) * self._longer.of(len(kinds))

    def _predicted_s(self, kinds: tuple[int, ...]) -> float:
        found = self._predicted.get(kinds)
        if found is None:
            group = Group(tuple(self._examples[kind] for kind in kinds), (), fused=True)
            found = self._predicted[kinds] = max(self._speed.iteration_s(group))
        return found

    def _believed(self, group: Group) -> tuple[int, float]:
        """Return how many jobs a running group has, and its round's length over what was predicted."""
        kinds = tuple(sorted(self._kind(job) for job in group.jobs))
        return len(kinds), max(job.iteration_s for job in group.jobs) / self._predicted_s(kinds)


class Longer:
    """By how much rounds are longer than predicted: the mean of what was seen, by the number of members."""

    CHANGE = 0.02
    """Relative change from which on groups are thought over again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        self._believed: dict[int, float] = {}

    def of(self, members: int) -> float:
        """Return the factor; 1 where nothing has been seen."""
        return self._believed.get(members, 1.0)

    def learn(self, seen: Iterable[tuple[int, float]]) -> bool:
        """Note groups that run, as members and factor; return whether what is believed has changed."""
        for members, factor in seen:
            count, total = self._seen.get(members, (0, 0.0))
            self._seen[members] = count + 1, total + factor
        changed = False
        for members, (count, total) in self._seen.items():
            if abs(total / count / self.of(members) - 1.0) > self.CHANGE:
                self._believed[members] = total / count
                changed = True
        return changed
