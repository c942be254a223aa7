"""Memory policies by deadline (INAlloc, INFOCOM'23), and by urgency alone (`earliest`, `preemptive`).

Jobs with deadlines, earliest first, are each granted the slots that they need at all of their switches, while
slots last. The remaining slots of each switch are one region. Best-effort jobs share this region with the
jobs for which there were too few slots. A job that cannot meet its deadline even alone is ended; its owner
gets an estimate of the job's end.

A job that has a region of the right size keeps this region, because a move costs two windows of packets. New
jobs get the smallest hole that is large enough. All regions of a switch are placed again if the holes outside
the shared region have more than the fraction `WASTE` of the free slots, or if no hole is large enough for a
job. This bounds fragmentation. O(n log n) per switch.

`preemptive` models ESA's preemption (2022): a packet of higher priority takes the slot of a packet of lower
priority. Averaged over many packets, the most urgent job then has the slots that it needs to fill its
slowest link, the next job has the slots that it needs from the remaining ones, and so on. Jobs share the
slots that are left.

>>> from controller.vocabulary import fabrics
>>> job = Job(
...     name="a", workers=2, layers_bytes=(12_500_000,), iterations=100, compute_s=0.09, deadline_s=10,
...     servers=("h1", "h2"),
... )
>>> problem = MemoryProblem((job,), fabrics.star(2))
>>> deadline(problem).regions, preemptive(problem).regions
({'a': {'s1': Region(offset=0, size=98)}}, {'a': {'s1': Region(offset=0, size=977)}})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from controller.errors import OutOfMemory
from controller.policies.memory.policy import (
    DeadlineNeed,
    MemoryDivision,
    MemoryProblem,
    SlotStatus,
    demands,
    refuse_exclusive,
    regions_of,
    slots_for,
)
from controller.policies.memory.regions import allocate, holes
from controller.vocabulary import Job, Region

WASTE = 1 / 8
"""Maximum fraction of a switch's free slots that may lie in holes outside the shared region."""
LEAST_IN_FLIGHT = 8
"""Number of packets that a job with shared slots may have in flight even if its part of the slots is smaller.
With fewer packets, links would be almost idle. Packets that find no slot go to the fallback server."""


def deadline(problem: MemoryProblem) -> MemoryDivision:
    """Grant jobs with deadlines the slots that they need, and let all other jobs share the remaining slots.

    Raises BadSpec for unplaced and exclusive jobs.
    """
    return _divide(problem, lazy=False)


def deadline_lazy(problem: MemoryProblem) -> MemoryDivision:
    """Grant regions only to jobs for whose deadlines an equal part of the shared slots is too small.

    A private region is idle while its job computes, and a job with a private region runs until its deadline
    even if it could end earlier. So all jobs share slots at first. Then the most urgent job that needs more
    than its equal part of the shared slots is granted a region, and so on until no job needs more. The policy
    is called again as time passes, and then grants regions to jobs that have fallen behind. O(grants * jobs).
    Raises BadSpec for unplaced and exclusive jobs.
    """
    return _divide(problem, lazy=True)


def _divide(problem: MemoryProblem, *, lazy: bool) -> MemoryDivision:
    refuse_exclusive(problem)
    wanted = demands(problem, problem.jobs)
    standing = dict.fromkeys((job.name for job in problem.jobs), SlotStatus.SHARED)
    standing |= {name: SlotStatus.ENDED for name, need in wanted.items() if not need.feasible}
    sizes: dict[str, dict[str, int]] = {switch.name: {} for switch in problem.topology.switches}
    for name, fitting in grants(problem, wanted, lazy=lazy).items():
        standing[name] = SlotStatus.GRANTED
        for at, size in fitting.items():
            sizes[at][name] = size
    return divided(problem, sizes, standing)


def divided(
    problem: MemoryProblem, sizes: Mapping[str, Mapping[str, int]], standing: Mapping[str, SlotStatus]
) -> MemoryDivision:
    """Return the division in which jobs have regions of `sizes`, by switch and job.

    Jobs whose status in `standing` is `SHARED` share the remaining slots.
    """
    regions: dict[str, dict[str, Region]] = {job.name: {} for job in problem.jobs}
    rest: dict[str, Region] = {}
    for switch in problem.topology.switches:
        held = {name: on[switch.name] for name, on in problem.held.items() if switch.name in on}
        placed, rest[switch.name] = arrange(switch.slots, sizes[switch.name], held)
        for name, region in placed.items():
            regions[name][switch.name] = region
    sharing = [job for job in problem.jobs if standing[job.name] is SlotStatus.SHARED]
    for job in sharing:
        regions[job.name] = regions_of(problem, job, rest)
    parts = _parts(problem, sharing, rest)
    return MemoryDivision(regions, standing, demands(problem, problem.jobs), parts)


def _parts(problem: MemoryProblem, sharing: Sequence[Job], rest: Mapping[str, Region]) -> dict[str, int]:
    """Return the maximum number of packets in flight of each job with shared slots, by job.

    It is the number of shared slots divided by the number of jobs that share them, at the switch where this
    is smallest, but at least `LEAST_IN_FLIGHT`.
    """
    at = Counter(switch for job in sharing for switch in problem.switches[job.name])
    return {
        job.name: max(LEAST_IN_FLIGHT, min(rest[switch].size // at[switch] for switch in where))
        for job in sharing
        if (where := problem.switches[job.name])
    }


def grants(
    problem: MemoryProblem, wanted: Mapping[str, DeadlineNeed], *, lazy: bool
) -> dict[str, dict[str, int]]:
    """Return the number of slots granted to the jobs in `wanted`, by job and switch.

    Slots are granted to the job with the earliest deadline first. Jobs that cannot meet their deadline get no
    slots, nor do jobs for which too few slots are left. With `lazy`, a job gets slots only if it needs
    more than an equal part of the shared slots.
    """
    left = {switch.name: switch.slots for switch in problem.topology.switches}
    eligible = [job for job in problem.jobs if job.name not in wanted or wanted[job.name].feasible]
    sharing = Counter(at for job in eligible for at in problem.switches[job.name])
    waiting = {job.name: job for job in sorted(eligible, key=_urgency) if job.name in wanted}
    granted: dict[str, dict[str, int]] = {}
    again = True
    while again:
        again = False
        for name, job in list(waiting.items()):
            need = _needed(problem, job, wanted[name].rate_bps)
            if lazy and all(size <= left[at] // sharing[at] for at, size in need.items()):
                continue
            if need and all(size <= left[at] for at, size in need.items()):
                granted[name] = need
                del waiting[name]
                left = {at: slots - need.get(at, 0) for at, slots in left.items()}
                sharing.subtract(need.keys())
                again = lazy  # the other jobs' equal parts are smaller now
    return granted


def _urgency(job: Job) -> tuple[float, str]:
    return (job.due_s if job.due_s is not None else float("inf"), job.name)


def _needed(problem: MemoryProblem, job: Job, rate_bps: float) -> dict[str, int]:
    """Return the number of slots that carry `rate_bps`, for each switch that sums a job's gradients."""
    at = [problem.topology.switch[name] for name in problem.switches[job.name]]
    return {switch.name: slots_for(job, switch, rate_bps, problem.reading) for switch in at}


def arrange(
    total: int, sizes: Mapping[str, int], held: Mapping[str, Region]
) -> tuple[dict[str, Region], Region]:
    """Return a region of each size, by job, and the largest hole between these regions.

    Jobs keep their regions in `held` if possible. The sum of `sizes` must not exceed `total`. At most the
    fraction `WASTE` of the free slots lies outside the largest hole.

    >>> arrange(100, {"a": 20, "b": 10}, {"b": Region(90, 10)})
    ({'b': Region(offset=90, size=10), 'a': Region(offset=0, size=20)}, Region(offset=20, size=70))
    """
    placed: dict[str, Region] = {}
    for name, size in sizes.items():
        region = held.get(name, Region(0, 0))
        # Of the jobs that shared a region, one may keep it.
        if region.size == size and not any(region.overlaps(other) for other in placed.values()):
            placed[name] = region
    if not placed:
        return _packed(total, sizes)
    try:
        for name, size in sizes.items():
            if name not in placed:
                placed[name] = allocate(total, placed.values(), size)
    except OutOfMemory:
        return _packed(total, sizes)
    free = holes(total, placed.values())
    rest = max(free, key=lambda hole: hole.size, default=Region(total, 0))
    if sum(hole.size for hole in free) - rest.size > WASTE * sum(hole.size for hole in free):
        return _packed(total, sizes)
    return placed, rest


def _packed(total: int, sizes: Mapping[str, int]) -> tuple[dict[str, Region], Region]:
    placed, begin = {}, 0
    for name, size in sizes.items():
        placed[name] = Region(begin, size)
        begin += size
    return placed, Region(begin, total - begin)


def earliest(problem: MemoryProblem) -> MemoryDivision:
    """Grant jobs the slots that their deadlines need, earliest deadline first, and then the remaining slots.

    A simple policy to compare with `deadline`. Jobs with deadlines also get the remaining slots, earliest
    deadline first, up to the number that their links can use. So a job that could end early does not keep its
    slots until its deadline.
    Jobs that cannot meet their deadline even alone are ended. Raises BadSpec for unplaced and exclusive jobs.
    """
    refuse_exclusive(problem)
    wanted = demands(problem, problem.jobs)
    ended = frozenset(name for name, need in wanted.items() if not need.feasible)
    return by_urgency(problem, grants(problem, wanted, lazy=False), ended, best_effort=False)


def preemptive(problem: MemoryProblem) -> MemoryDivision:
    """Grant each job the slots that its links can use, in order of deadline, then of remaining work.

    O(n log n). Raises BadSpec for unplaced and exclusive jobs.
    """
    return by_urgency(problem, {}, frozenset())


def by_urgency(
    problem: MemoryProblem,
    needs: Mapping[str, Mapping[str, int]],
    ended: Collection[str],
    *,
    best_effort: bool = True,
) -> MemoryDivision:
    """Grant `needs` first, then the slots that links can use, most urgent job first; return the division.

    Args:
        problem: The jobs; none of them exclusive.
        needs: Slots to grant first, by job and switch; at each switch, their sum must not exceed its slots.
        ended: Names of the jobs to end.
        best_effort: Whether jobs without a deadline are granted slots, too; if not, they share the remaining
            slots.
    """
    refuse_exclusive(problem)
    sizes = {
        switch.name: {name: need[switch.name] for name, need in needs.items() if switch.name in need}
        for switch in problem.topology.switches
    }
    left = {
        switch.name: switch.slots - sum(sizes[switch.name].values()) for switch in problem.topology.switches
    }
    standing = {
        job.name: SlotStatus.ENDED if job.name in ended else SlotStatus.SHARED for job in problem.jobs
    } | dict.fromkeys(needs, SlotStatus.GRANTED)
    candidates = (job for job in problem.jobs if best_effort or job.deadline_s is not None)
    for job in sorted((job for job in candidates if job.name not in ended), key=_due_then_work):
        at = problem.switches[job.name]
        granted = {name: sizes[name].get(job.name, 0) for name in at}
        if not at or not min(left[name] + granted[name] for name in at):
            continue
        standing[job.name] = SlotStatus.GRANTED
        for name in at:
            wanted = slots_for(job, problem.topology.switch[name], problem.link_bps(job), problem.reading)
            sizes[name][job.name] = max(granted[name], min(wanted, left[name] + granted[name]))
            left[name] -= sizes[name][job.name] - granted[name]
    return divided(problem, sizes, standing)


def _due_then_work(job: Job) -> tuple[float, float, str]:
    due_s = job.due_s if job.due_s is not None else float("inf")
    return (due_s, job.iterations * job.iteration_at_s(float("inf")), job.name)
