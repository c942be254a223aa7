"""Muri as published (SIGCOMM'22, section 4): group jobs whose stages interleave, by priority.

At each scheduling interval, Muri takes jobs from the queue in order of priority (remaining service for
Muri-S, attained service for Muri-L), until the cluster would be full if all groups had the maximum number of
members. If the jobs taken fit without sharing GPUs, they do not share. Otherwise the jobs with equal numbers
of GPUs are grouped by rounds of Blossom matching (`grouping.rounds`). Groups get GPUs in order of priority. A
group that already runs stays on its GPUs; new groups are placed consolidated, large groups first.

The setting `noise` is the maximum relative error of each measured stage time (the paper's figure 14). The
jobs' real speeds do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.policies.grouping.rounds import GroupPlan, Interleaving, Profile, best, group
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import (
    Entry,
    Profiler,
    Rank,
    WaitingJobs,
    beside,
    fill,
    keep_until_repaid,
)
from controller.vocabulary import Cluster


def place(drafts: Iterable[Group], view: View) -> list[Group]:
    """Assign GPUs to groups without GPUs; return the groups that fit, in the order of `drafts`.

    Groups earlier in `drafts` get GPUs first. A group with the members of a running group stays on the
    running group's GPUs; the running group's object is returned. A group that is not fused stays on the GPUs
    of its first job, even if its other members change. If the free GPUs are then too scattered for the new
    groups, all groups are placed again, large groups first, and some running groups move. Groups that fit in
    neither attempt are left out.
    """
    kept = FreeGpuCounts(view.cluster).allocate_each(drafts, lambda draft: draft.width)
    before = {job.order: group for group in view.groups for job in group.jobs}
    placed: dict[int, Group] = {}
    fresh: list[tuple[int, Group]] = []
    homes: set[int] = set()  # groups that stay, by their first GPU
    for number, draft in enumerate(kept):
        old = before.get(draft.jobs[0].order)
        same = old is not None and draft.same_members(old)
        if old is None or old.gpus[0] in homes or (draft.fused and not same):
            fresh.append((number, draft))
        else:
            homes.add(old.gpus[0])
            placed[number] = old if same else draft.on(old.gpus)
    if fresh and not fill(fresh, beside(placed.values(), view.cluster), placed):
        placed = {}
        fill(enumerate(kept), FreeGpus(view.cluster), placed)
        for number, group in placed.items():
            old = before.get(group.jobs[0].order)
            if old is not None and old.gpus == group.gpus and kept[number].same_members(old):
                placed[number] = old
    return [placed[number] for number in sorted(placed)]


@dataclass(frozen=True, slots=True)
class SizeDrafts:
    """The groups of all taken jobs with one number of GPUs; reused while the same jobs are taken.

    `orders` has the `order` of each of these jobs, lowest rank first. `fits` is true if no job has to share
    GPUs. `groups` has pairs of the position of a group's first job in `orders`, and the group.
    """

    orders: list[int]
    fits: bool
    groups: list[tuple[int, Group]]


DEFAULT = PaperOptions()


class Muri:
    """The policy Muri-S if durations are `known`, else Muri-L."""

    def __init__(self, options: PaperOptions = DEFAULT, name: str = "muri-s", *, known: bool = True) -> None:
        self.name = name
        self._known = known
        self._options = options
        self._members = options.members
        self._profiler = Profiler(options.noise, options.seed)
        self._estimates = options.estimates
        self._waiting = WaitingJobs()
        self._running: dict[int, JobState] = {}
        self._profiles: dict[int, Profile] = {}
        self._plans: dict[tuple[Profile, ...], list[GroupPlan]] = {}  # the queue's head often stays the same
        self._drafted: dict[int, SizeDrafts] = {}

    def decide(self, view: View) -> Decision:
        """Return the groups of jobs that run now, made from the jobs at the head of the queue."""
        if unchanged := keep_until_repaid(view):
            return unchanged
        for job in view.finished:
            if self._running.pop(job.order, None) is None:
                self._waiting.discard(job)  # it ended while it was being stopped
            del self._profiles[job.order]
        for job in view.arrived:
            self._profiles[job.order] = self._profiler.measure(job.spec)
            self._waiting.add(job, self._rank(job, view.now_s))
        held = [(self._rank(job, view.now_s), order, job) for order, job in self._running.items()]
        taken = self._take(view.cluster, held)
        groups = place(self._grouped(taken, view.cluster), view)
        runs = {job.order: job for entry in groups for job in entry.jobs}
        for entries in taken.values():
            for rank, order, job in entries:
                if order in runs and order not in self._running:
                    self._waiting.remove(job, rank)
        for rank, order, job in held:
            if order not in runs:
                self._waiting.add(job, rank)
        self._running = runs
        wake_s = view.now_s + self._options.interval_s if len(self._waiting) and not self._known else None
        return Decision(groups, wake_s)

    def _rank(self, job: JobState, now_s: float) -> Rank:
        service_s = self._estimates.remaining_s(job, now_s) if self._known else job.attained_s(now_s)
        return service_s * job.spec.gpus

    def _take(self, cluster: Cluster, held: list[Entry]) -> dict[int, list[Entry]]:
        """Return the jobs at the head of the queue, by number of GPUs.

        These jobs fill the cluster if every group has the maximum number of members.
        """
        queue: list[Entry] = list(held)
        for size in self._waiting.sizes():
            queue += self._waiting.bucket(size)[: self._members * (cluster.gpus // size)]
        queue.sort()
        sizes = {job.spec.gpus for _, _, job in held}.union(self._waiting.sizes())
        counts = FreeGpuCounts(cluster)
        refused: set[int] = set()
        taken: dict[int, list[Entry]] = {}
        for entry in queue:
            size = entry[2].spec.gpus
            entries = taken.setdefault(size, [])
            another = len(entries) % self._members == 0  # it would be the first of another group
            if another and (size in refused or not counts.allocate(size)):
                refused.add(size)
                if len(refused) == len(sizes):
                    break
                continue
            entries.append(entry)
        return taken

    def _grouped(self, taken: dict[int, list[Entry]], cluster: Cluster) -> list[Group]:
        """Return the groups in order of the rank of their first job."""
        fits = sum(size * len(entries) for size, entries in taken.items()) <= cluster.gpus
        before, self._drafted = self._drafted, {}
        ranked: list[tuple[Rank, int, Group]] = []
        for size, entries in taken.items():
            orders = [order for _, order, _ in entries]
            drafted = before.get(size)
            if drafted is None or drafted.orders != orders or drafted.fits != fits:
                drafted = SizeDrafts(orders, fits, [*self._drafts(entries, fits=fits)])
            self._drafted[size] = drafted
            ranked += [(*entries[first][:2], draft) for first, draft in drafted.groups]
        return [draft for _, _, draft in sorted(ranked, key=lambda entry: entry[:2])]

    def _drafts(self, entries: list[Entry], *, fits: bool) -> Iterator[tuple[int, Group]]:
        """Divide `entries`, which are in order of rank, into groups.

        Yields, for each group, the position of its first job in `entries`, and the group.
        """
        jobs = [job for _, _, job in entries]
        if fits:
            yield from ((number, interleaved((job,))) for number, job in enumerate(jobs))
            return
        for plan in self._plan([self._profiles[job.order] for job in jobs]):
            members = tuple(jobs[number] for number in plan.jobs)
            yield plan.jobs[0], interleaved(members, plan.interleaving)

    def _plan(self, profiles: list[Profile]) -> Iterable[GroupPlan]:
        """Return the groups of the jobs with these profiles, and the groups' interleavings."""
        if self._options.in_order:
            heads = range(0, len(profiles), self._members)
            blocks = [range(head, min(head + self._members, len(profiles))) for head in heads]
            return [GroupPlan((*block,), best([profiles[number] for number in block])) for block in blocks]
        key = tuple(profiles)
        plans = self._plans.get(key)
        if plans is None:
            if len(self._plans) >= 4096:
                self._plans.clear()
            plans = self._plans[key] = group(
                key, members=self._members, worst_order=self._options.worst_order
            )
        return plans


def interleaved(jobs: tuple[JobState, ...], interleaving: Interleaving | None = None) -> Group:
    """Return a fused group of `jobs`; the stages of several jobs interleave by `interleaving`."""
    if interleaving is None or len(jobs) == 1:
        return Group(jobs, (), fused=True, reason="alone")
    return Group(
        jobs,
        (),
        fused=True,
        stage_order=interleaving.offsets,
        efficiency=interleaving.efficiency,
        reason=f"{len(jobs)} interleave, efficiency {interleaving.efficiency:.2f}",
    )
