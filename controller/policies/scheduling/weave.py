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
(`grouping.worth`).

Worth per second ignores restarts, and large jobs that wait for one small job to end. So these groups are one
of several drafts: the running groups with more groups beside them, the same with single jobs beside them, and
all jobs alone in order of the queue (SRSF). Where durations are known, the end of every job is predicted for
each draft (`scheduling.outlook`), and the draft of least Σ u · JCT is taken. Where they are not,
how long jobs run on is estimated from jobs that have ended (`Lengths`), and the draft is taken that is worth
most after its starts and stops (`scheduling.amortised`).

Weave has the same information as Muri: stage times as a profiler measures them, with its noise, and, where
they are known, durations as told. It estimates their errors (`scheduling.beliefs`): for similar
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
from dataclasses import dataclass

from controller.policies.grouping.efficiency import best
from controller.policies.grouping.worth import Item, Rounds, group_by_worth
from controller.policies.scheduling.beliefs import Lengths, Profiler, Profiles, Spread, profile
from controller.policies.scheduling.drafts import Draft, place
from controller.policies.scheduling.model import RESOURCES, Submission
from controller.policies.scheduling.muri import interleaved
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.outlook import Outlook, Positions, fill, net_worth
from controller.policies.scheduling.policy import Decision, Group, JobState, SpeedModel, View
from controller.policies.scheduling.queue import carry_on

COMPOSITIONS = 3000
"""Compositions of groups whose rounds are remembered; beyond that all are forgotten."""

MOST = 512
"""Jobs of one size that are looked at beyond twice as many as fit: the work grows with their square."""

STARTS = 0.01
"""Part of a job's time alone that its start takes, on average, from which on ends are always foreseen."""

LOOK = 128
"""Jobs at the head of the queue whose ends are foreseen, beside those that may run."""


GROWTH = 0.5
"""By what part attained service has to grow before running jobs are thought over for it."""

DEFAULT = PaperOptions()


@dataclass(slots=True, eq=False, kw_only=True)
class _Entry(Item):
    """An unfinished job, and how it stands at this decision; its kind is -1 until it has one.

    `like` is what it shares with similar jobs, `draft` the job alone; `factor` is how much it counts for
    being short.
    """

    job: JobState
    like: Hashable
    draft: Draft
    factor: float = 0.0


class Weave:
    """Groups of greatest worth. With `known` durations like Muri-S, else like Muri-L.

    `speed` predicts how fast groups run, from stage times that have errors of up to the options' noise. Of
    the options, `power` is q and `short` is s; `trust` is the spread of errors of durations above which ends
    are not predicted, and there are no other drafts: 0 from the start. `quantum_s`: decide again after this
    time while jobs wait, because attained service changes; later if all running jobs have run for long.
    """

    members = len(RESOURCES)
    """Most jobs in a group."""

    def __init__(
        self,
        speed: SpeedModel,
        options: PaperOptions = DEFAULT,
        name: str = "weave-s",
        *,
        known: bool = True,
        quantum_s: float | None = None,
    ) -> None:
        self._quantum_s = quantum_s
        self.name = name
        self._options = options
        self._profiles = Profiles(Profiler(options.noise, options.seed))
        self._entries: dict[int, _Entry] = {}  # of unfinished jobs, by order of arrival
        self._spread = Spread()
        self._longer = Longer()
        self._told = options.told
        self._speed = speed
        self._known = known
        self._lengths = Lengths()
        # how many jobs have come, and the sums of their times alone and of their starts
        self._arrived, self._total_s, self._starts_s = 0, 0.0, 0.0
        self._mean_s = 1.0
        self._forget()

    def _forget(self) -> None:
        self._kinds: dict[Hashable, int] = {}
        self._examples: list[JobState] = []
        self._rounds = Rounds(self._round_s, self.members)
        self._predicted: dict[tuple[int, ...], float] = {}
        for entry in self._entries.values():
            entry.kind = -1

    def decide(self, view: View) -> Decision:
        """Return the groups of greatest worth."""
        if unchanged := carry_on(view):
            return unchanged
        for job in view.finished:
            del self._entries[job.order]
            self._spread.end(job, job.spec.iterations * job.alone_s)
            self._lengths.end(job)
        changed = False
        for job in view.arrived:  # refuses jobs that nobody profiled
            changed |= self._meet(job, view.now_s)
        if self._longer.learn(self._believed(group) for group in view.groups if len(group.jobs) > 1):
            self._rounds = Rounds(self._round_s, self.members)
        if changed or len(self._rounds) > COMPOSITIONS:
            self._forget()
        queue = self._queue(view)
        looked = self._looked_at(queue, view)
        groups = place(self._drafts(self._best(looked, view), looked), view)
        if self._quantum_s is None or sum(len(group.jobs) for group in groups) == len(queue):
            return Decision(groups)
        youngest_s = min((job.attained_s(view.now_s) for group in groups for job in group.jobs), default=0.0)
        return Decision(groups, view.now_s + max(self._quantum_s, GROWTH * youngest_s))

    def _meet(self, job: JobState, now_s: float) -> bool:
        """Note a job that has arrived; return whether it changes what is believed of similar ones."""
        like, changed = self._profiles.measure(job)
        restart_s = self._speed.restart_s(Group((job,), ()))[0]
        entry = self._entries[job.order] = _Entry(
            kind=-1,
            gpus=job.spec.gpus,
            alone_s=job.alone_s,
            restart_s=restart_s,
            job=job,
            like=like,
            draft=interleaved((job,)),
        )
        left_s = self._left_s(entry, now_s)
        self._spread.tell(job, left_s)
        self._arrived += 1
        self._total_s += left_s
        self._starts_s += restart_s
        return changed

    def _queue(self, view: View) -> list[_Entry]:
        """Return all jobs, the least service first, with how much each counts."""
        now_s, entries = view.now_s, self._entries
        ranked: list[tuple[float, int, _Entry]] = []
        for job in view.jobs.values():
            entry = entries[job.order]
            entry.left_s = left_s = self._left_s(entry, now_s)
            ranked.append((left_s * entry.gpus, job.order, entry))
        ranked.sort()
        queue = [entry for _, _, entry in ranked]
        # what is left may be falsely told: a job is as long as it has run and is said to run on
        alone = [entry.job.attained_s(now_s) + entry.left_s for entry in queue]
        alone = [length_s if length_s > 1.0 else 1.0 for length_s in alone]
        if self._known:
            self._mean_s = self._total_s / self._arrived if self._arrived else 1.0
        elif alone:
            self._mean_s = math.fsum(alone) / len(alone)
        least, scale_s = 1 - self._options.short, self._options.short * self._mean_s
        for entry, alone_s in zip(queue, alone, strict=True):
            entry.factor = least + scale_s / alone_s
        return queue

    def _looked_at(self, queue: Sequence[_Entry], view: View) -> list[_Entry]:
        """Return the jobs that may run, in order of the queue, with the worth of a second of each."""
        gpus_there, width = view.cluster.gpus, self._options.width
        room: dict[int, int] = {}  # how many more of each size are looked at
        looked: list[_Entry] = []
        asked, enough = 0, width * gpus_there
        for entry, weight in zip(queue, self._weights(queue, view), strict=True):
            if asked >= enough:
                break
            gpus = entry.gpus
            if gpus not in room:
                fit = gpus_there // gpus
                room[gpus] = max(min(width, 2) * fit, min(width * fit, MOST))
            if room[gpus]:
                room[gpus] -= 1
                asked += gpus
                if entry.kind < 0:
                    self._classify(entry)
                entry.alone_s = entry.job.alone_s
                entry.weight = weight
                looked.append(entry)
        return looked

    def _best(self, looked: Sequence[_Entry], view: View) -> Sequence[Positions]:
        """Return the groups of greatest worth, or another draft that would end better."""
        gpus = view.cluster.gpus
        fresh = self._worthiest(range(len(looked)), looked, gpus)
        if not looked or (self._known and not self._foresees()):
            return fresh
        sizes = [entry.gpus for entry in looked]
        number = {entry.job.order: position for position, entry in enumerate(looked)}
        kept = [
            tuple(sorted([number[job.order] for job in group.jobs]))
            for group in view.groups
            if all(job.order in number for job in group.jobs)
        ]
        if sum(sizes) <= gpus and all(len(group) == 1 for group in kept):
            return fresh
        held = {position for group in kept for position in group}
        rest = [position for position in range(len(looked)) if position not in held]
        free = gpus - sum([sizes[group[0]] for group in kept])
        drafts = [
            fill(sizes, range(len(looked)), gpus),
            kept + fill(sizes, rest, free),
            kept + self._worthiest(rest, looked, free),
            fresh,
        ]
        if self._known:
            return self._foreseen(drafts, {*kept}, looked, view)
        running = {*kept}
        return max(drafts, key=lambda draft: net_worth(draft, running, looked, self._rounds.of))

    def _foresees(self) -> bool:
        """Return whether ends are predicted: durations are right, or starts cost more than their errors."""
        return self._spread.value < self._options.trust or self._starts_s >= STARTS * self._total_s

    def _worthiest(self, choice: Sequence[int], looked: Sequence[_Entry], gpus: int) -> list[Positions]:
        found = group_by_worth([looked[n] for n in choice], self._rounds, gpus)
        return [tuple(sorted([choice[n] for n in group])) for group in found]

    def _foreseen(
        self,
        drafts: Sequence[Sequence[Positions]],
        kept: Set[Positions],
        looked: Sequence[_Entry],
        view: View,
    ) -> Sequence[Positions]:
        """Return the first draft of least Σ u · JCT, over the queue's head and all whom a draft names."""
        now_s, power, head = view.now_s, 1.0 + self._options.power, min(LOOK, len(looked))
        beyond = sorted({number for draft in drafts for group in draft for number in group if number >= head})
        shown = [*looked[:head], *(looked[number] for number in beyond)]
        place_of = {number: head + at for at, number in enumerate(beyond)}
        for entry in shown:
            left_s = entry.left_s
            entry.iterations = (left_s if left_s > 0.0 else 0.0) / entry.alone_s
        outlook = Outlook(shown, view.cluster.gpus, self._rounds)
        ages = [now_s - entry.job.spec.arrival_s for entry in shown]
        factors = [entry.factor for entry in shown]
        least, chosen = math.inf, drafts[0]
        for at, draft in enumerate(drafts):
            if draft in drafts[:at]:
                continue
            shifted = draft
            if beyond:
                shifted = [tuple([place_of.get(number, number) for number in group]) for group in draft]
            runs = [group in kept for group in draft]
            cost = outlook.cost(shifted, runs, ages, factors, power)
            if cost < least:
                least, chosen = cost, draft
        return chosen

    def _left_s(self, entry: _Entry, now_s: float) -> float:
        if self._known:
            return self._told.remaining_s(entry.job, now_s)
        return self._lengths.left_s(entry.job.attained_s(now_s), entry.restart_s)

    def _weights(self, queue: Sequence[_Entry], view: View) -> list[float]:
        urgencies = [entry.factor for entry in queue]
        if self._options.power and queue:
            jcts = [view.now_s - entry.job.spec.arrival_s + entry.left_s for entry in queue]
            mean_s = max(math.fsum(jcts) / len(jcts), 1.0)
            urgencies = [
                (max(jct_s, 1.0) / mean_s) ** self._options.power * urgency
                for jct_s, urgency in zip(jcts, urgencies, strict=True)
            ]
        behind = [*itertools.accumulate(reversed(urgencies), initial=0.0)][-2::-1]
        gpus = view.cluster.gpus
        return [
            urgency + entry.gpus / gpus * rest
            for entry, urgency, rest in zip(queue, urgencies, behind, strict=True)
        ]

    def _drafts(self, found: Sequence[Sequence[int]], looked: Sequence[_Entry]) -> Iterator[Draft]:
        """Yield the groups, large ones first so that they fit, and then the jobs that are in none."""
        rest = {*range(len(looked))}
        for numbers in sorted(found, key=lambda group: (-looked[group[0]].gpus, min(group))):
            rest.difference_update(numbers)
            if len(numbers) == 1:
                yield looked[numbers[0]].draft
                continue
            entries = [looked[number] for number in sorted(numbers)]
            interleaving = best([profile(self._believed_of(entry)) for entry in entries])
            yield interleaved(tuple(entry.job for entry in entries), interleaving)
        for number in sorted(rest):
            yield looked[number].draft

    def _kind(self, job: JobState) -> int:
        entry = self._entries[job.order]
        if entry.kind < 0:
            self._classify(entry)
        return entry.kind

    def _classify(self, entry: _Entry) -> None:
        entry.kind = kind = self._kinds.setdefault(entry.like, len(self._examples))
        if kind == len(self._examples):
            job = entry.job
            self._examples.append(JobState(self._believed_of(entry), job.order, job.alone_s, 0.0))

    def _believed_of(self, entry: _Entry) -> Submission:
        return self._profiles.of(entry.job.spec, entry.like)

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
