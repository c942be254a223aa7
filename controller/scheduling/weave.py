"""Weave: group jobs by the worth of their progress to all waiting jobs. Ours, built on Muri's interleaving.

Muri matches the head of the queue by efficiency alone, and only then looks at priorities. Here one number
combines both. The objective is Σ JCT^(1+q) over all jobs: q = 0 is the average completion time, a slightly
larger q also reduces the tail. One second's progress of a job that needs g of the cluster's G GPUs

- brings its own end a second closer, and
- takes g / G of a second's work from those behind it in the queue (shortest remaining service first, or least
  attained service if durations are unknown),

so its worth is, with u = (completion time as things stand)^q for each job, times a factor for short ones,

    weight = u + g / G · Σ u of the jobs behind

So a crowded cluster maximises throughput, and an idle one favours jobs that end soon. Weave chooses the jobs,
their groups and the number of groups of each size that make the sum of weight times speed largest
(`controller.grouping.worth`).

Worth per second ignores restarts, and large jobs that wait for one small job to end. So these groups are one
of several drafts: the running groups with more groups beside them, the same with single jobs beside them, and
all jobs alone in order of the queue (SRSF). Where durations are known, the end of every job is predicted for
each draft (`controller.scheduling.outlook`), and the draft of least Σ u · JCT is taken. Where they are not,
how long jobs run on is estimated from jobs that have ended (`Lengths`), and the draft is taken that is worth
most after its starts and stops (`controller.scheduling.amortised`).

Weave has the same information as Muri: stage times as a profiler measures them, with its noise, and, where
they are known, durations as told. It estimates their errors (`controller.scheduling.beliefs`): for similar
jobs it uses the mean of their measurements; and once the error of the durations of ended jobs exceeds
`trust`, it predicts no ends from durations, and takes the groups of greatest worth. It still predicts where
starts are long beside jobs, because there restarts cost more than errors. A `SpeedModel` predicts the length
of a group's round. The ratio of the real length to the predicted one is measured on running
groups, and applied to further groups of as many jobs.

Short jobs contribute little to a sum of completion times, but dominate a sum of slowdowns. One second of a
job's waiting adds 1 / (its time alone) to the latter; so u is multiplied by

    1 - s + s · (mean time alone / its time alone)

with s = `short`: 0 minimises completion times, 1 slowdowns. The mean is over all jobs so far, or, if
durations are unknown, over the present ones.

Groups with the same members as before stay where they are; so do all groups if nothing better is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from operator import mul

from controller.grouping.efficiency import best
from controller.grouping.worth import Item, Rounds, group_by_worth
from controller.scheduling.amortised import Prospect, net_worth
from controller.scheduling.beliefs import Lengths, Profiles, Spread
from controller.scheduling.drafts import Draft, place
from controller.scheduling.errors import BadSpec
from controller.scheduling.model import RESOURCES, Submission
from controller.scheduling.muri import Profiler, interleaved, profile
from controller.scheduling.outlook import Ahead, Positions, ends_s, fill
from controller.scheduling.policy import Decision, Group, JobState, SpeedModel, View
from controller.scheduling.told import TRUTH, Told
from controller.scheduling.turns import carry_on

COMPOSITIONS = 3000
"""Compositions of groups whose rounds are remembered; beyond that all are forgotten."""

MOST = 512
"""Jobs of one size that are looked at beyond twice as many as fit: the work grows with their square."""

POWER = 0.0
"""Default weight of the tail."""

SHORT = 0.8
"""Default weight of short jobs."""

TRUST = 0.25
"""Default spread of the errors of told durations from which on ends are not foreseen from them."""

STARTS = 0.01
"""Part of a job's time alone that its start takes, on average, from which on ends are always foreseen."""

LOOK = 128
"""Jobs at the head of the queue whose ends are foreseen, beside those that may run."""


GROWTH = 0.5
"""By what part attained service has to grow before running jobs are thought over for it."""


class Weave:
    """Groups of greatest worth. With `known` durations like Muri-S, else like Muri-L.

    `speed` predicts how fast groups run, from stage times that have errors of up to `noise`; `told` gives
    durations. `members` is the largest group, `power` is q, `short` is s, `width` by how many times the jobs
    that are considered may exceed the cluster, all together and size by size.
    `trust` is the spread of errors of durations above which ends are not predicted, and there are no other
    drafts: 0 from the start. `exchange=False` leaves out the local search. `quantum_s`: decide again
    after this time while jobs wait, because attained service changes; later if all running jobs have run for
    long. `profiles` and `spread` are its estimates of jobs, and of durations' errors; for ablations.
    """

    def __init__(
        self,
        speed: SpeedModel,
        name: str = "weave-s",
        *,
        known: bool = True,
        members: int = len(RESOURCES),
        power: float = POWER,
        short: float = SHORT,
        width: int = 8,
        exchange: bool = True,
        quantum_s: float | None = None,
        noise: float = 0.0,
        seed: int = 0,
        trust: float = TRUST,
        told: Told = TRUTH,
        profiles: Profiles | None = None,
        spread: Spread | None = None,
    ) -> None:
        if not 1 <= members <= len(RESOURCES):
            raise BadSpec(f"groups of {members} jobs; 1 to {len(RESOURCES)} are possible")
        if not (power >= 0 and math.isfinite(power)) or width < 1:
            raise BadSpec(f"a power of {power} and a width of {width}; at least 0 and 1 are needed")
        if not 0 <= short <= 1:
            raise BadSpec(f"a weight of short jobs of {short}; it must be 0 to 1")
        self.name = name
        if not trust >= 0:
            raise BadSpec(f"a trust of {trust}; it must be at least 0")
        self._profiles = profiles or Profiles(Profiler(noise, seed))
        self._like: dict[int, Hashable] = {}  # what each unfinished job is like, by order of arrival
        self._spread, self._trust = spread or Spread(), trust
        self._longer = Longer()
        self._short = short
        self._told = told
        self._speed = speed
        self._known = known
        self._members = members
        self._power = power
        self._width = width
        self._exchange = exchange
        self._lengths = Lengths()
        # how many jobs have come, and the sums of their times alone and of their starts
        self._arrived, self._total_s, self._starts_s = 0, 0.0, 0.0
        self._mean_s = 1.0
        self._quantum_s = quantum_s
        self._kind_of: dict[int, int] = {}  # of each unfinished job, by order of arrival
        self._forget()

    def _forget(self) -> None:
        self._kinds: dict[Hashable, int] = {}
        self._examples: list[JobState] = []
        self._rounds = Rounds(self._round_s, self._members)
        self._predicted: dict[tuple[int, ...], float] = {}
        self._kind_of.clear()

    def decide(self, view: View) -> Decision:
        """Return the groups of greatest worth."""
        if unchanged := carry_on(view):
            return unchanged
        for job in view.finished:
            self._kind_of.pop(job.order, None)
            del self._like[job.order]
            self._spread.end(job)
            self._lengths.end(job)
        changed = False
        for job in view.arrived:  # refuses jobs that nobody profiled
            self._like[job.order], more = self._profiles.measure(job)
            changed |= more
            left_s = self._left_s(job, view.now_s)
            self._spread.tell(job, left_s)
            self._arrived += 1
            self._total_s += left_s
            self._starts_s += self._restart_s(job)
        if self._longer.learn(self._believed(group) for group in view.groups if len(group.jobs) > 1):
            self._rounds = Rounds(self._round_s, self._members)
        if changed or len(self._rounds) > COMPOSITIONS:
            self._forget()
        queue = sorted(view.jobs.values(), key=lambda job: (self._service(job, view.now_s), job.order))
        jobs, items = self._looked_at(queue, view)
        groups = place(self._drafts(self._best(jobs, items, view), jobs), view)
        if self._quantum_s is None or sum(len(group.jobs) for group in groups) == len(queue):
            return Decision(groups)
        youngest_s = min((job.attained_s(view.now_s) for group in groups for job in group.jobs), default=0.0)
        return Decision(groups, view.now_s + max(self._quantum_s, GROWTH * youngest_s))

    def _looked_at(self, queue: Sequence[JobState], view: View) -> tuple[list[JobState], list[Item]]:
        """Return the jobs that may run, in order of the queue, as items too."""
        cluster = view.cluster
        seen: dict[int, int] = {}
        jobs: list[JobState] = []
        items: list[Item] = []
        asked = 0
        for job, weight in zip(queue, self._weights(queue, view), strict=True):
            gpus = job.spec.gpus
            if asked >= self._width * cluster.gpus:
                break
            seen[gpus] = seen.get(gpus, 0) + 1
            fit = cluster.gpus // gpus
            if seen[gpus] <= max(min(self._width, 2) * fit, min(self._width * fit, MOST)):
                asked += gpus
                jobs.append(job)
                items.append(Item(self._kind(job), gpus, job.alone_s, weight))
        return jobs, items

    def _best(self, jobs: Sequence[JobState], items: Sequence[Item], view: View) -> Sequence[Positions]:
        """Return the groups of greatest worth, or another draft that would end better."""
        gpus = view.cluster.gpus
        fresh = self._worthiest(range(len(items)), items, gpus)
        if not jobs or (self._known and not self._foresees()):
            return fresh
        sizes = [item.gpus for item in items]
        number = {job.order: position for position, job in enumerate(jobs)}
        kept = [
            tuple(sorted(number[job.order] for job in group.jobs))
            for group in view.groups
            if all(job.order in number for job in group.jobs)
        ]
        if sum(sizes) <= gpus and all(len(group) == 1 for group in kept):
            return fresh
        held = {position for group in kept for position in group}
        rest = [position for position in range(len(jobs)) if position not in held]
        free = gpus - sum(sizes[group[0]] for group in kept)
        drafts = [
            fill(sizes, range(len(jobs)), gpus),
            kept + fill(sizes, rest, free),
            kept + self._worthiest(rest, items, free),
            fresh,
        ]
        if self._known:
            return self._foreseen(drafts, {*kept}, jobs, items, view)
        prospects = [
            Prospect(item, self._left_s(job, view.now_s), self._restart_s(job))
            for item, job in zip(items, jobs, strict=True)
        ]
        running = {*kept}
        return max(drafts, key=lambda draft: net_worth(draft, running, prospects, self._rounds.of))

    def _foresees(self) -> bool:
        """Return whether ends are predicted: durations are right, or starts cost more than their errors."""
        return self._spread.value < self._trust or self._starts_s >= STARTS * self._total_s

    def _worthiest(self, choice: Sequence[int], items: Sequence[Item], gpus: int) -> list[Positions]:
        found = group_by_worth([items[n] for n in choice], self._rounds, gpus, improve=self._exchange)
        return [tuple(sorted(choice[n] for n in group)) for group in found]

    def _foreseen(
        self,
        drafts: Sequence[Sequence[Positions]],
        kept: Set[Positions],
        jobs: Sequence[JobState],
        items: Sequence[Item],
        view: View,
    ) -> Sequence[Positions]:
        """Return the first draft of least Σ u · JCT, over the queue's head and all whom a draft names."""
        now_s, power = view.now_s, 1.0 + self._power
        named = {*range(min(LOOK, len(jobs)))}.union(*(group for draft in drafts for group in draft))
        shown = sorted(named)
        position = {number: place for place, number in enumerate(shown)}
        ahead = [self._ahead(jobs[number], items[number].kind, now_s) for number in shown]
        ages = [now_s - jobs[number].spec.arrival_s for number in shown]
        left = [self._left_s(jobs[number], now_s) for number in shown]
        alone = [
            self._alone_s(jobs[number], now_s, left_s) for number, left_s in zip(shown, left, strict=True)
        ]
        factors = [self._factor(alone_s) for alone_s in alone]

        def cost(draft: Sequence[Positions]) -> float:
            runs: list[Positions] = []
            starts: list[Positions] = []
            for group in draft:
                (runs if group in kept else starts).append(tuple(position[number] for number in group))
            ends = ends_s(ahead, runs, starts, view.cluster.gpus, self._rounds.of)
            jcts = [max(age_s + end_s, 1.0) for age_s, end_s in zip(ages, ends, strict=True)]
            return math.fsum(map(mul, factors, (pow(jct_s, power) for jct_s in jcts)))

        return min(drafts, key=cost)

    def _ahead(self, job: JobState, kind: int, now_s: float) -> Ahead:
        left = max(self._left_s(job, now_s), 0.0) / job.alone_s
        return Ahead(kind, job.spec.gpus, left, job.alone_s, self._restart_s(job))

    def _restart_s(self, job: JobState) -> float:
        return self._speed.restart_s(Group((job,), ()))[0]

    def _service(self, job: JobState, now_s: float) -> float:
        return self._left_s(job, now_s) * job.spec.gpus

    def _left_s(self, job: JobState, now_s: float) -> float:
        if self._known:
            return self._told.remaining_s(job, now_s)
        return self._lengths.left_s(job.attained_s(now_s), self._restart_s(job))

    def _weights(self, queue: Sequence[JobState], view: View) -> list[float]:
        now_s = view.now_s
        if not queue:
            return []
        left = [self._left_s(job, now_s) for job in queue]
        jcts = [now_s - job.spec.arrival_s + left_s for job, left_s in zip(queue, left, strict=True)]
        mean_s = max(math.fsum(jcts) / len(jcts), 1.0)
        alone = [self._alone_s(job, now_s, left_s) for job, left_s in zip(queue, left, strict=True)]
        self._mean_s = self._total_s / self._arrived if self._known else math.fsum(alone) / len(queue)
        urgencies = [
            (max(jct_s, 1.0) / mean_s) ** self._power * self._factor(alone_s)
            for jct_s, alone_s in zip(jcts, alone, strict=True)
        ]
        behind = [*itertools.accumulate(reversed(urgencies), initial=0.0)][-2::-1]
        return [
            urgency + job.spec.gpus / view.cluster.gpus * rest
            for job, urgency, rest in zip(queue, urgencies, behind, strict=True)
        ]

    def _factor(self, alone_s: float) -> float:
        """Return by how much a job counts more for being short."""
        return 1 - self._short + self._short * self._mean_s / alone_s

    def _alone_s(self, job: JobState, now_s: float, left_s: float) -> float:
        # what is left may be falsely told: a job is as long as it has run and is said to run on
        return max(job.attained_s(now_s) + left_s, 1.0)

    def _drafts(self, found: Sequence[Sequence[int]], jobs: Sequence[JobState]) -> Iterator[Draft]:
        """Yield the groups, large ones first so that they fit, and then the jobs that are in none."""
        rest = {*range(len(jobs))}
        for numbers in sorted(found, key=lambda group: (-jobs[group[0]].spec.gpus, min(group))):
            rest.difference_update(numbers)
            members = tuple(jobs[number] for number in sorted(numbers))
            interleaving = (
                best([profile(self._believed_of(job)) for job in members]) if len(members) > 1 else None
            )
            yield interleaved(members, interleaving)
        yield from (interleaved((jobs[number],)) for number in sorted(rest))

    def _kind(self, job: JobState) -> int:
        kind = self._kind_of.get(job.order)
        if kind is None:
            kind = self._kinds.setdefault(self._like[job.order], len(self._examples))
            if kind == len(self._examples):
                self._examples.append(JobState(self._believed_of(job), job.order, job.alone_s, 0.0))
            self._kind_of[job.order] = kind
        return kind

    def _believed_of(self, job: JobState) -> Submission:
        return self._profiles.of(job.spec, self._like[job.order])

    def _round_s(self, kinds: tuple[int, ...]) -> float:
        return self._predicted_s(kinds) * self._longer.of(len(kinds))

    def _predicted_s(self, kinds: tuple[int, ...]) -> float:
        found = self._predicted.get(kinds)
        if found is None:
            group = Group(tuple(self._examples[kind] for kind in kinds), (), fused=True)
            found = self._predicted[kinds] = max(self._speed.iteration_s(group))
        return found

    def _believed(self, group: Group) -> tuple[int, float]:
        """Return the size of a running group, and its round's length relative to the prediction."""
        kinds = tuple(sorted(self._kind(job) for job in group.jobs))
        return len(kinds), max(job.iteration_s for job in group.jobs) / self._predicted_s(kinds)


class Longer:
    """Ratio of rounds' lengths to their predictions: the mean of the measured ones, by number of members."""

    CHANGE = 0.02
    """Relative change from which on groups are thought over again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        self._believed: dict[int, float] = {}

    def of(self, members: int) -> float:
        """Return the ratio; 1 if none has been measured."""
        return self._believed.get(members, 1.0)

    def learn(self, seen: Iterable[tuple[int, float]]) -> bool:
        """Record running groups, as members and ratio; return whether the estimates have changed."""
        for members, factor in seen:
            count, total = self._seen.get(members, (0, 0.0))
            self._seen[members] = count + 1, total + factor
        changed = False
        for members, (count, total) in self._seen.items():
            if abs(total / count / self.of(members) - 1.0) > self.CHANGE:
                self._believed[members] = total / count
                changed = True
        return changed
