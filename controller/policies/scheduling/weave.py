"""Weave: group jobs by the worth of their progress to all waiting jobs. Ours, built on Muri's interleaving.

Muri matches the jobs at the head of the queue by efficiency alone, and only then considers priorities. Weave
combines both in one number, a job's weight. The objective is to minimise Σ u · JCT, the weighted sum of the
job completion times; if u = 1 for all jobs, this minimises their mean. One second's progress of a job that
needs g of the cluster's G GPUs

- brings the job's end a second closer, and
- brings the ends of the jobs behind it in the queue (shortest remaining service first) g / G seconds closer.

So the worth of one second's progress is

    weight = u + g / G · Σ u of the jobs behind

With many waiting jobs, this maximises throughput; with few, it favours jobs that end soon. Weave chooses the
jobs, their groups and the number of groups of each size that make the sum of weight times speed largest
(`grouping.rounds.group_by_worth`).

The worth per second does not include restarts. If starts take more than the fraction `STARTS` of jobs' run
time on average, restarts would cost more than groups gain. Then all jobs run alone, in order of the queue
(SRSF).

Weave has the same information as Muri-S: stage times as a profiler measures them, with its noise, and
reported durations. A `SpeedModel` predicts the length of a group's round. The ratio of the real length to the
predicted length is measured on running groups, and applied to later groups with equally many jobs.

Short jobs contribute little to a sum of completion times, but dominate a sum of slowdowns. If a job waits for
one second, the sum of slowdowns grows by 1 / (the job's time alone). So a job has

    u = 1 - s + s · (mean time alone / the job's time alone)

where s is the option `short`: 0 minimises completion times, 1 minimises slowdowns. The mean is over all jobs
that have arrived.

Groups whose members do not change stay on their GPUs.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from controller.policies.grouping.rounds import Item, Rounds, best, group_by_worth
from controller.policies.scheduling.muri import interleaved, place
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.policy import (
    RESOURCES,
    Decision,
    Group,
    JobState,
    SpeedModel,
    Submission,
    View,
)
from controller.policies.scheduling.ranked import Profiler, keep_until_repaid, profile

COMPOSITIONS = 3000
"""Maximum number of cached round lengths, one per composition of a group; then the cache is emptied."""

MOST = 512
"""Maximum number of jobs with equal numbers of GPUs to consider, because the time of a decision grows with
the square of the number of jobs. Where n jobs of this size fill the cluster, the maximum is 2 n if that is
larger."""

STARTS = 0.01
"""Mean time of a start, as a fraction of the mean run time alone, above which all jobs run alone."""

DEFAULT = PaperOptions()


@dataclass(slots=True, eq=False, kw_only=True)
class _Entry(Item):
    """An unfinished job, with the values for the present decision; `kind` is -1 before the job is classified.

    `spec` has the measured stage times. `draft` is a group of the job alone. `factor` is the job's u in the
    module's docstring; it is larger for short jobs.
    """

    job: JobState
    spec: Submission
    draft: Group
    factor: float = 0.0


class Weave:
    """Policy that runs the groups of greatest worth, by known durations.

    `speed` predicts how fast groups run, from stage times that have errors of up to the options' noise. The
    option `short` is s in the module's docstring.
    """

    name = "weave-s"
    members = len(RESOURCES)
    """Maximum number of jobs in a group."""

    def __init__(self, speed: SpeedModel, options: PaperOptions = DEFAULT) -> None:
        self._options = options
        self._profiler = Profiler(options.noise, options.seed)
        self._entries: dict[int, _Entry] = {}  # of unfinished jobs, by order of arrival
        self._lengthening = RoundLengthening()
        self._estimates = options.estimates
        self._speed = speed
        # number of jobs that have arrived, and the sums of their times alone and of their starts
        self._arrived, self._total_s, self._starts_s = 0, 0.0, 0.0
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
        if unchanged := keep_until_repaid(view):
            return unchanged
        for job in view.finished:
            del self._entries[job.order]
        for job in view.arrived:  # raises BadSpec for jobs without a profile
            self._meet(job, view.now_s)
        if self._lengthening.learn(self._believed(group) for group in view.groups if len(group.jobs) > 1):
            self._rounds = Rounds(self._round_s, self.members)
        if len(self._rounds) > COMPOSITIONS:
            self._forget()
        queue = self._queue(view)
        considered = self._considered(queue, view)
        gpus = view.cluster.gpus
        alone = self._starts_s >= STARTS * self._total_s
        found = in_order(considered, gpus) if alone else group_by_worth(considered, self._rounds, gpus)
        return Decision(place(self._drafts(found, considered), view))

    def _meet(self, job: JobState, now_s: float) -> None:
        """Record a newly arrived job, with stage times as the profiler measures them."""
        measured, draft = self._profiler.measure(job.spec), interleaved((job,))
        spec = job.spec if measured == profile(job.spec) else replace(job.spec, stages_s=measured)
        self._entries[job.order] = _Entry(
            kind=-1, gpus=job.spec.gpus, alone_s=job.alone_s, job=job, spec=spec, draft=draft
        )
        self._arrived += 1
        self._total_s += self._estimates.remaining_s(job, now_s)
        self._starts_s += self._speed.restart_s(Group((job,), ()))[0]

    def _queue(self, view: View) -> list[_Entry]:
        """Return all jobs, least remaining service first, with updated factors."""
        mean_s = self._total_s / self._arrived if self._arrived else 1.0
        least, scale_s = 1 - self._options.short, self._options.short * mean_s
        ranked: list[tuple[float, int, _Entry]] = []
        for job in view.jobs.values():
            entry, left_s = self._entries[job.order], self._estimates.remaining_s(job, view.now_s)
            # the reported remaining time may be wrong: a job's length is its time so far plus this time
            entry.factor = least + scale_s / max(job.attained_s(view.now_s) + left_s, 1.0)
            ranked.append((left_s * entry.gpus, job.order, entry))
        ranked.sort()
        return [entry for _, _, entry in ranked]

    def _considered(self, queue: Sequence[_Entry], view: View) -> list[_Entry]:
        """Return the jobs that may run, in order of the queue, with the worth of one second's progress."""
        total_gpus, width = view.cluster.gpus, self._options.width
        room: dict[int, int] = {}  # how many more of each size are considered
        considered: list[_Entry] = []
        demand, enough = 0, width * total_gpus
        for entry, weight in zip(queue, _weights(queue, total_gpus), strict=True):
            if demand >= enough:
                break
            gpus = entry.gpus
            if gpus not in room:
                fit = total_gpus // gpus
                room[gpus] = max(min(width, 2) * fit, min(width * fit, MOST))
            if room[gpus]:
                room[gpus] -= 1
                demand += gpus
                self._kind(entry)  # for `entry.kind`, by which rounds group the entries
                entry.alone_s = entry.job.alone_s
                entry.weight = weight
                considered.append(entry)
        return considered

    def _drafts(self, found: Sequence[Sequence[int]], considered: Sequence[_Entry]) -> Iterator[Group]:
        """Yield the groups, largest number of GPUs first so that they fit, then each job in no group."""
        rest = {*range(len(considered))}
        for numbers in sorted(found, key=lambda group: (-considered[group[0]].gpus, min(group))):
            rest.difference_update(numbers)
            if len(numbers) == 1:
                yield considered[numbers[0]].draft
                continue
            entries = [considered[number] for number in sorted(numbers)]
            interleaving = best([profile(entry.spec) for entry in entries])
            yield interleaved(tuple(entry.job for entry in entries), interleaving)
        for number in sorted(rest):
            yield considered[number].draft

    def _kind(self, entry: _Entry) -> int:
        """Return the kind of a job; jobs of equal profiles, GPUs and speeds have one kind."""
        if entry.kind < 0:
            job, spec = entry.job, entry.spec
            key = profile(spec), spec.gpus, job.alone_s
            entry.kind = self._kinds.setdefault(key, len(self._examples))
            if entry.kind == len(self._examples):
                self._examples.append(JobState(spec, job.order, job.alone_s, 0.0))
        return entry.kind

    def _round_s(self, kinds: tuple[int, ...]) -> float:
        return self._predicted_s(kinds) * self._lengthening.factor(len(kinds))

    def _predicted_s(self, kinds: tuple[int, ...]) -> float:
        found = self._predicted.get(kinds)
        if found is None:
            group = Group(tuple(self._examples[kind] for kind in kinds), (), fused=True)
            found = self._predicted[kinds] = max(self._speed.iteration_s(group))
        return found

    def _believed(self, group: Group) -> tuple[int, float]:
        """Return a running group's number of members, and the ratio of its real to its predicted round."""
        kinds = tuple(sorted(self._kind(self._entries[job.order]) for job in group.jobs))
        return len(kinds), max(job.iteration_s for job in group.jobs) / self._predicted_s(kinds)


class RoundLengthening:
    """Mean ratio of measured to predicted round lengths, by number of members of a group."""

    CHANGE = 0.02
    """Minimum relative change of a mean ratio for which `factor`, and so the groups, change."""

    def __init__(self) -> None:
        self._ratios: dict[int, tuple[int, float]] = {}
        self._believed: dict[int, float] = {}

    def factor(self, members: int) -> float:
        """Return the mean ratio for groups of `members` jobs; 1 if no such group has been measured."""
        return self._believed.get(members, 1.0)

    def learn(self, seen: Iterable[tuple[int, float]]) -> bool:
        """Record running groups, as (number of members, ratio); return whether a mean has changed."""
        for members, factor in seen:
            count, total = self._ratios.get(members, (0, 0.0))
            self._ratios[members] = count + 1, total + factor
        changed = False
        for members, (count, total) in self._ratios.items():
            if abs(total / count / self.factor(members) - 1.0) > self.CHANGE:
                self._believed[members] = total / count
                changed = True
        return changed


def in_order(queue: Sequence[Item], gpus: int) -> list[tuple[int]]:
    """Return groups of one job each, as positions in `queue`: all jobs that fit into `gpus` GPUs, in order.

    >>> in_order([Item(0, gpus, 1.0) for gpus in (8, 4, 16, 2)], 14)
    [(0,), (1,), (3,)]
    """
    taken: list[tuple[int]] = []
    for position, item in enumerate(queue):
        if item.gpus <= gpus:
            gpus -= item.gpus
            taken.append((position,))
    return taken


def _weights(queue: Sequence[_Entry], gpus: int) -> list[float]:
    """Return the worth of one second's progress of each job of the queue, on a cluster of `gpus` GPUs."""
    urgencies = [entry.factor for entry in queue]
    behind = [*itertools.accumulate(reversed(urgencies), initial=0.0)][-2::-1]
    return [
        urgency + entry.gpus / gpus * rest
        for entry, urgency, rest in zip(queue, urgencies, behind, strict=True)
    ]
