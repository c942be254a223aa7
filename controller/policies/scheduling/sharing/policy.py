"""Sharing for heterogeneous job sizes as a scheduling policy: maximum sharing efficiency first.

The patent names the inputs of a job's priority: the number g of its GPUs, the number c of jobs that share
them, and the number of the job's preemptions (ckpt). The patent's formula is lost; this formula is ours. A
job is charged ``1 / (1 + c)`` for each GPU that it shares with c jobs, per second. The charge of a job whose
GPUs are all shared with c jobs is ``g / (1 + c)`` per second:

    A_j(t) = ∫ Σ_{its GPUs} 1 / (1 + c) dt        P_j(t) = A_j(t) / (1 + ckpt_j)

The job with the lowest P comes first. So jobs with little service come before jobs with much service; their
durations need not be known. Jobs that share GPUs are charged less, and keep their GPUs longer. Jobs that were
preempted often are not soon preempted again. The values of P are divided into levels; each level is wider
than the previous one by a constant factor. A job never preempts jobs of its own level: otherwise jobs with
almost equal P would preempt each other in turn.

The following steps are the patent's. A new job is profiled, once per kind and size. Then, whenever something
has changed, waiting jobs are started level by level: on free GPUs if there are enough, else where sharing
pays (`packing`); within a level the job of the lowest P comes first. At the boundaries of the scheduling
interval a waiting job that cannot start in these ways may take the GPUs of jobs of higher levels; these jobs
are preempted, unless they find another place at once. If no job waits, jobs that share move to free GPUs, if
the gain in one interval is worth the restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.policies.family import Options, option
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.sharing.packing import Layout, Packer, consolidated
from controller.policies.scheduling.sharing.pairs import Load
from controller.policies.scheduling.speed import USUAL_COST, PreemptionCost
from controller.vocabulary.lists import by_key

WIDER = 4.0
"""Ratio of the upper ends of consecutive levels."""


class Charges:
    """Charges of jobs so far, in GPU-seconds.

    Args:
        aging: Whether preemptions lower a job's P, so that it comes earlier (see the module's docstring).
        first: Upper end of the first level, in GPU-seconds.
    """

    def __init__(self, *, aging: bool = True, first: float = 3600.0) -> None:
        self._aging = aging
        self._first = first
        self._charged: dict[int, float] = {}
        self._until_s = 0.0

    def open(self, jobs: Iterable[JobState]) -> None:
        """Start new jobs at a charge of 0."""
        for job in jobs:
            self._charged[job.order] = 0.0

    def close(self, job: JobState) -> None:
        """Remove a job."""
        del self._charged[job.order]

    def charge(self, layout: Layout, now_s: float) -> None:
        """Charge all jobs for the time since the last call; `layout` must have been in effect since then."""
        elapsed_s = now_s - self._until_s
        self._until_s = now_s
        if elapsed_s > 0:
            for order, job in layout.jobs.items():
                self._charged[order] += elapsed_s * layout.share(job)

    def priority(self, job: JobState) -> float:
        """Return P of a job (see the module's docstring); the job with the lowest P is first."""
        charged = self._charged[job.order]
        return charged / (1 + job.preemptions) if self._aging else charged

    def level(self, job: JobState) -> int:
        """Return the level of a job, 0 or more: a larger P has a higher level; the lowest level is first."""
        part = self.priority(job) / self._first
        return 0 if part < 1.0 else 1 + int(math.log(part, WIDER))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions(Options):
    """Options of the policy, and the cost of a preemption, which users cannot set."""

    speeds_known: bool = option("1: speeds are known instead of predicted", False)
    profile_s: float = option(
        "time to profile a new kind and size of jobs before they start, in s", 80.0, 0.0, 1e6
    )
    interval_s: float = option("interval between preemptions, in s", 600.0, 1.0, 1e6)
    cost: PreemptionCost = USUAL_COST


DEFAULT = SharingOptions(profile_s=0.0)


class SharingPolicy:
    """Policy that shares GPUs among jobs of different sizes.

    Args:
        packer: Chooses the partners of a job; None: jobs do not share. It learns the speeds of sharing jobs.
        options: Times of profiling and preemption. A new kind and size is profiled on separate machines; a
            job that shares moves only if it gains more than a preemption costs.
        ledger: The jobs' charges, which determine their priorities; None: no charges yet.
    """

    name = "sharing"

    def __init__(
        self, packer: Packer | None, options: SharingOptions = DEFAULT, ledger: Charges | None = None
    ) -> None:
        self._packer = packer
        self._options = options
        self._ledger = ledger or Charges()
        self._layout: Layout | None = None
        self._waiting: dict[int, JobState] = {}  # by the job's order of arrival, as all below
        self._loads: dict[int, Load] = {}
        self._ready_s: dict[Load, float] = {}  # time at which a load's profile is complete
        self._groups: dict[int, Group] = {}
        self._reasons: dict[int, str] = {}
        self._boundary_s = -math.inf  # the last boundary of an interval

    def decide(self, view: View) -> Decision:
        """Return the decision: the groups that run from now on, and when to ask again."""
        now_s = view.now_s
        if self._layout is None:
            self._layout = Layout(view.cluster)
        layout = self._layout
        self._ledger.charge(layout, now_s)
        if self._packer is not None:
            _note_speeds(self._packer, view.groups)
        for job in view.finished:
            self._forget(job, layout)
        for job in view.arrived:
            self._admit(job, view)
        boundary = now_s >= self._boundary_s + self._options.interval_s
        if boundary:
            self._boundary_s = now_s
        decision = Decision([], notes=[*self._unprofiled(view)])
        self._place(layout, now_s, boundary, decision)
        if not self._waiting:
            self._spread(layout, decision)
        decision.groups = self._as_groups(layout)
        decision.wake_s = self._wake_s(now_s)
        return decision

    def _admit(self, job: JobState, view: View) -> None:
        view.cluster.check_room(job.spec.name, job.spec.gpus)
        load = Load("", job.spec.gpus) if self._packer is None else self._packer.load(job)
        self._loads[job.order] = load
        self._ready_s.setdefault(load, view.now_s + self._options.profile_s)
        self._waiting[job.order] = job
        self._ledger.open((job,))

    def _unprofiled(self, view: View) -> Iterator[tuple[str, str]]:
        """Yield the name of each newly arrived job without a profile, and a sentence about its wait."""
        for job in view.arrived:
            wait_s = self._ready_s[self._loads[job.order]] - view.now_s
            if wait_s > 0:
                yield (
                    job.spec.name,
                    f"waits: jobs of its kind and size are profiled first, {wait_s:,.0f} s more",
                )

    def _forget(self, job: JobState, layout: Layout) -> None:
        if self._waiting.pop(job.order, None) is None:
            layout.remove(job)
        self._ledger.close(job)
        del self._loads[job.order]
        self._groups.pop(job.order, None)
        self._reasons.pop(job.order, None)

    def _wake_s(self, now_s: float) -> float | None:
        times = [self._ready_s[self._loads[order]] for order in self._waiting]
        times = [time_s for time_s in times if time_s > now_s]
        if self._waiting:
            times.append(max(self._boundary_s + self._options.interval_s, math.nextafter(now_s, math.inf)))
        return min(times, default=None)

    def _place(self, layout: Layout, now_s: float, preempt: bool, decision: Decision) -> None:
        """Start waiting jobs, level by level; with `preempt`, also by preempting jobs of higher levels."""
        before = dict(layout.places)
        levels = by_key(
            (self._ledger.level(job), job)
            for order, job in self._waiting.items()
            if self._ready_s[self._loads[order]] <= now_s
        )
        while levels:
            level = min(levels)
            jobs = sorted(levels.pop(level), key=lambda job: (self._ledger.priority(job), job.order))
            left = self._start(jobs, layout, before, decision)
            victims = self._preempt(left, level, layout) if preempt else []
            for victim in victims:
                levels.setdefault(self._ledger.level(victim), []).append(victim)
            if victims:
                left = [job for job in left if job.order in self._waiting]
                self._start(left, layout, before, decision)
        for order in before:
            if order in self._waiting:
                decision.notes.append((self._waiting[order].spec.name, "preempted: others come first"))

    def _start(
        self, jobs: list[JobState], layout: Layout, before: Mapping[int, tuple[int, ...]], decision: Decision
    ) -> list[JobState]:
        """Start jobs of one level on free GPUs, or else on shared GPUs; return the jobs that do not fit."""
        left = [job for job in jobs if not self._start_alone(job, layout, before.get(job.order))]
        return self._pack(left, layout, decision)

    def _start_alone(self, job: JobState, layout: Layout, before: tuple[int, ...] | None = None) -> bool:
        """Start `job` on free GPUs, if possible on its earlier ones, `before`; return whether it starts."""
        if before is None or layout.others(before):
            before = consolidated(layout.free(), job.spec.gpus, layout.cluster)
        if before is None:
            return False
        self._settle(job, before, layout, "alone")
        return True

    def _pack(self, jobs: list[JobState], layout: Layout, decision: Decision) -> list[JobState]:
        """Start jobs of one level on shared GPUs, in the order of `jobs`; return the jobs that cannot share.

        If no partner is found for a job, jobs of equal kind and size are not tried: O(starts x loads x placed
        jobs).
        """
        if self._packer is None:
            return jobs
        left: list[JobState] = []
        refused: set[Load] = set()
        for job in jobs:
            packing = None if self._loads[job.order] in refused else self._packer.find(job, layout)
            if packing is None:
                refused.add(self._loads[job.order])
                left.append(job)
                continue
            names = ", ".join(other.spec.name for other in packing.beside)
            reason = f"beside {names}: {packing.speed:.2f} of its speed, gain {packing.gain:.2f} per GPU"
            self._settle(job, packing.gpus, layout, reason)
            decision.notes.append((job.spec.name, reason))
        return left

    def _settle(self, job: JobState, gpus: tuple[int, ...], layout: Layout, reason: str) -> None:
        layout.add(job, gpus)
        self._reasons[job.order] = reason
        self._waiting.pop(job.order, None)

    def _preempt(self, jobs: list[JobState], level: int, layout: Layout) -> list[JobState]:
        """Start `jobs` of `level` by preempting jobs of higher levels; return the preempted jobs."""
        victims: list[JobState] = []
        too_large = math.inf  # smallest number of GPUs that could not be freed
        for job in jobs:
            if job.spec.gpus >= too_large:
                continue
            last = [other for other in layout.jobs.values() if self._ledger.level(other) > level]
            last.sort(key=lambda other: (-self._ledger.priority(other), -other.order))
            room = self._room(job, last, layout) if last else None
            if room is None:
                too_large = job.spec.gpus
                continue
            for other in layout.others(room):
                layout.remove(other)
                self._waiting[other.order] = other
                victims.append(other)
            self._settle(job, room, layout, "alone: others were preempted")
        return victims

    def _room(self, job: JobState, victims: list[JobState], layout: Layout) -> tuple[int, ...] | None:
        """Return GPUs for `job` that are free after preempting as few of the first `victims` as possible.

        Returns None if too few GPUs are free even after preempting all victims.
        """
        rank_of = {other.order: number for number, other in enumerate(victims)}
        latest: list[tuple[int, int]] = []  # the last victim to preempt for a GPU, and the GPU
        for gpu in range(len(layout.cluster.node_of)):
            ranks = [rank_of.get(other.order) for other in layout.on(gpu)]
            if None not in ranks:
                latest.append((max((rank for rank in ranks if rank is not None), default=-1), gpu))
        latest.sort()
        low, high = 0, len(latest)
        if consolidated([gpu for _, gpu in latest], job.spec.gpus, layout.cluster) is None:
            return None
        while low < high:  # the fewest victims whose GPUs are enough
            middle = (low + high) // 2
            if consolidated([gpu for _, gpu in latest[:middle]], job.spec.gpus, layout.cluster) is None:
                low = middle + 1
            else:
                high = middle
        return consolidated([gpu for _, gpu in latest[:low]], job.spec.gpus, layout.cluster)

    def _spread(self, layout: Layout, decision: Decision) -> None:
        """Move jobs that share GPUs to free GPUs if one interval's gain exceeds the cost of a restart."""
        if self._packer is None:
            return
        for job in sorted(layout.jobs.values(), key=lambda job: (job.spec.gpus, job.order)):
            if not layout.beside(job):
                continue
            gpus = consolidated(layout.free(), job.spec.gpus, layout.cluster)
            if gpus is None:
                continue
            cost = self._options.cost.of(job.spec.gpus) * job.spec.gpus
            if self._packer.gained_by_leaving(job, layout) * self._options.interval_s > cost:
                layout.remove(job)
                self._settle(job, gpus, layout, "alone: GPUs have become free")
                decision.notes.append((job.spec.name, self._reasons[job.order]))

    def _as_groups(self, layout: Layout) -> list[Group]:
        """Return the groups of the layout; an unchanged group is the object of the last decision."""
        groups: dict[int, Group] = {}
        for order, job in layout.jobs.items():
            if order in groups:
                continue
            gpus = layout.places[order]
            beside = layout.beside(job)
            same = len(beside) == 1 and beside[0].spec.gpus == job.spec.gpus
            jobs = (job, beside[0]) if same else (job,)
            new = Group(
                jobs,
                gpus,
                neighbours=() if same else tuple(beside),
                reason=self._reasons[jobs[-1].order],  # the latest job's
            )
            old = self._groups.get(order)
            for member in jobs:
                groups[member.order] = old if old is not None and old.same_run(new) else new
        self._groups = groups
        return list({id(group): group for group in groups.values()}.values())


def _note_speeds(packer: Packer, groups: Sequence[Group]) -> None:
    """Update the packer with the speeds of the jobs that share GPUs now."""
    for group in groups:
        for job in group.jobs:
            others = [*(other for other in group.jobs if other is not job), *group.neighbours]
            if others and all(other.group is not None for other in others):
                packer.learn(job, others)
