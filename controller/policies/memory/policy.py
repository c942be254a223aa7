"""The interface of memory policies.

A policy is a function of a `MemoryProblem`. It returns a region for each job at each switch of its tree::

    def nothing(problem: MemoryProblem) -> MemoryDivision:
        names = [job.name for job in problem.jobs]
        return MemoryDivision({name: {} for name in names}, dict.fromkeys(names, SlotStatus.SHARED))

A policy of your own is named ``path.py:nothing``, or a package's entry point of the group ``ina.memory``.

This module also has the two simplest policies, `static` and `common`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controller.errors import BadSpec
from controller.policies.memory.demand import DeadlineNeed, Reading, demand
from controller.policies.memory.regions import SlotStatus as SlotStatus
from controller.policies.placement.trees import slowest_link_bps, tree_of
from controller.vocabulary import Job, Region, Topology, Tree
from controller.vocabulary.errors import kind


@dataclass(frozen=True)
class MemoryProblem:
    """The placed jobs, the cluster, the time, and the present regions of jobs (`held`), by job and switch."""

    jobs: tuple[Job, ...]
    topology: Topology
    now_s: float = 0.0
    reading: Reading = "measured"
    held: Mapping[str, Mapping[str, Region]] = field(default_factory=dict)

    @cached_property
    def trees(self) -> Mapping[str, Tree]:
        """The trees of the jobs that use more than one server, by job. Raises BadSpec for an unplaced job."""
        return {job.name: tree_of(self.topology, job) for job in self.jobs if _communicates(job)}

    @cached_property
    def switches(self) -> Mapping[str, tuple[str, ...]]:
        """The switches that sum each job's gradients, by job; none for a job on one server."""
        return {
            job.name: tuple(sorted(self.trees[job.name].aggregators))
            if job.name in self.trees and job.aggregate
            else ()
            for job in self.jobs
        }

    def jobs_at(self, switch: str) -> list[Job]:
        """Return the jobs whose gradients are summed at a switch."""
        return [job for job in self.jobs if switch in self.switches[job.name]]

    def link_bps(self, job: Job) -> float:
        """Return the rate of a job's slowest link, bits per second; infinite for a job on one server."""
        if job.name not in self.trees:
            return math.inf
        return slowest_link_bps(self.topology, job, self.trees[job.name])


def _communicates(job: Job) -> bool:
    return not job.servers or len(job.hosts) > 1


@dataclass(frozen=True, slots=True)
class MemoryDivision:
    """A division of memory.

    Attributes:
        regions: Regions by job and switch.
        standing: Status of each job's slots: its own, shared, or none because the job is ended.
        demands: The demands of the jobs that have deadlines.
        parts: Maximum number of packets in flight of each job with shared slots, by job; no entry: no limit.
    """

    regions: Mapping[str, Mapping[str, Region]]
    standing: Mapping[str, SlotStatus]
    demands: Mapping[str, DeadlineNeed] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)

    def in_flight(self, job: str) -> int:
        """Return the maximum number of packets in flight of a job; 0: only the job's window limits them.

        For a job with slots of its own, the maximum is the number of slots of its smallest region. Further
        packets would find no slot and go to the fallback server. The link of this server is shared with other
        jobs, and the whole window would wait for these packets.
        """
        if self.standing[job] is SlotStatus.GRANTED:
            return min((region.size for region in self.regions[job].values()), default=0)
        return self.parts.get(job, 0)


Policy = Callable[[MemoryProblem], MemoryDivision]


def check(problem: MemoryProblem, division: MemoryDivision) -> MemoryDivision:
    """Return the division if it is valid.

    Raises BadSpec for wrong types, missing jobs, a region that exceeds its switch, or a granted region that
    overlaps another one.
    """
    if not isinstance(division, MemoryDivision):
        raise BadSpec(f"the policy's result is {kind(division)}; it must be a MemoryDivision")
    for part in ("regions", "standing", "demands", "parts"):
        if not isinstance(value := getattr(division, part), Mapping):
            raise BadSpec(f"the policy's result: {part} is {kind(value)}; it must be a mapping by job")
    for name, each in division.standing.items():
        if not isinstance(each, SlotStatus):
            raise BadSpec(f"the policy's result: standing[{name!r}] is {kind(each)}; it must be a SlotStatus")
    for name, held in division.regions.items():
        if not isinstance(held, Mapping) or not all(isinstance(each, Region) for each in held.values()):
            raise BadSpec(f"the policy's result: regions[{name!r}] must have a Region for each switch")
    jobs = {job.name: job for job in problem.jobs}
    if bad := [
        name for name, packets in division.parts.items() if not isinstance(packets, int) or packets < 1
    ]:
        raise BadSpec(
            f"the policy's result: parts[{bad[0]!r}] is {division.parts[bad[0]]}, must be 1 or more"
        )
    if unknown := (division.standing.keys() ^ jobs.keys()) | (division.regions.keys() ^ jobs.keys()):
        wanted = "a standing and regions for each job of the problem, and for no other"
        raise BadSpec(f"the policy's result: want {wanted}; {min(unknown)!r} differs")
    at: dict[str, list[tuple[str, Region]]] = {}
    for name, regions in division.regions.items():
        for place, region in regions.items():
            at.setdefault(place, []).append((name, region))
    for switch in problem.topology.switches:
        own: list[tuple[Region, str]] = []
        for name, region in at.get(switch.name, ()):
            if region.offset < 0 or region.size < 0 or region.end > switch.slots:
                raise BadSpec(
                    f"the policy gives {name!r} {region} of {switch.name!r}, which has {switch.slots} slots"
                )
            if region.size:
                own.append((region, name))
        _check_apart(switch.name, own, division.standing)
    return division


def _check_apart(switch: str, regions: list[tuple[Region, str]], standing: Mapping[str, SlotStatus]) -> None:
    """Raise BadSpec if a region that is granted to one job overlaps another job's."""
    end, last = 0, ""
    granted_end, granted = 0, ""
    for region, name in sorted(regions, key=lambda each: (each[0].offset, each[1])):
        mine = standing[name] is SlotStatus.GRANTED
        if (mine and region.offset < end) or region.offset < granted_end:
            raise BadSpec(
                f"the policy grants slots of {switch!r} twice: to {last if mine else granted!r} and {name!r}"
            )
        if region.end > end:
            end, last = region.end, name
        if mine:
            granted_end, granted = region.end, name


def regions_of(problem: MemoryProblem, job: Job, regions: Mapping[str, Region]) -> dict[str, Region]:
    """Return the part of `regions` (one region per switch) for the switches that sum a job's gradients."""
    return {switch: regions[switch] for switch in problem.switches[job.name]}


def demands(problem: MemoryProblem, jobs: Iterable[Job]) -> dict[str, DeadlineNeed]:
    """Return the demands of the jobs that have deadlines."""
    return {
        job.name: demand(job, now_s=problem.now_s, link_bps=problem.link_bps(job), reading=problem.reading)
        for job in jobs
        if job.deadline_s is not None
    }


def refuse_exclusive(problem: MemoryProblem) -> None:
    """Raise BadSpec if a job of the problem is exclusive, and so cannot share slots."""
    if exclusive := [job.name for job in problem.jobs if job.mode == "exclusive"]:
        raise BadSpec(
            f'job {exclusive[0]!r} is exclusive, and this policy shares slots; want mode = "shared",'
            " or the policy static"
        )


def static(problem: MemoryProblem) -> MemoryDivision:
    """Divide each switch equally among the jobs that are summed there (SwitchML, NSDI'21).

    Slots that a job does not use stay idle. Raises BadSpec for unplaced jobs.

    >>> from dataclasses import replace
    >>> from controller.vocabulary import fabrics
    >>> job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h2"))
    >>> cluster = fabrics.star(2, fabrics.Parts(slots=100))
    >>> static(MemoryProblem((job, replace(job, name="b")), cluster)).regions["b"]
    {'s1': Region(offset=50, size=50)}
    """
    regions: dict[str, dict[str, Region]] = {job.name: {} for job in problem.jobs}
    for switch in problem.topology.switches:
        here = problem.jobs_at(switch.name)
        for number, job in enumerate(here):
            regions[job.name][switch.name] = _part(switch.slots, number, len(here), job)
    return MemoryDivision(regions, dict.fromkeys(regions, SlotStatus.GRANTED), demands(problem, problem.jobs))


def _part(slots: int, number: int, count: int, job: Job) -> Region:
    begin, end = slots * number // count, slots * (number + 1) // count
    size = end - begin
    if job.mode == "exclusive" and size:
        size = 1 << (size.bit_length() - 1)
    return Region(begin, size)


def common(problem: MemoryProblem) -> MemoryDivision:
    """Let every job use all slots of its switches, first come, first served (ATP, NSDI'21; A2TP, EuroSys'23).

    Raises BadSpec for unplaced and exclusive jobs.
    """
    refuse_exclusive(problem)
    whole = {switch.name: Region(0, switch.slots) for switch in problem.topology.switches}
    regions = {job.name: regions_of(problem, job, whole) for job in problem.jobs}
    return MemoryDivision(regions, dict.fromkeys(regions, SlotStatus.SHARED), demands(problem, problem.jobs))
