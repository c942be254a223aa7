"""The interface of memory policies, the demand of jobs, and explanations of their slots.

Slots that a job needs to meet its deadline (INAlloc, INFOCOM'23; the survey article's formula).

``t_round = (deadline - now) / rounds``, ``B = bytes / (t_round - t_compute)`` and
``slots = ⌈B · t_slot / payload⌉``.

In the article's reading, communication begins when computing has ended, and a packet holds a slot for one
round trip. In the *measured* reading, `t_compute` excludes computing that overlaps with communication and
includes the ranks' skew. A packet holds a slot for the measured time: until the last rank's packet has
arrived and the results are back. O(1) per job and switch.

>>> job = Job(
...     name="a", workers=2, layers_bytes=(12_500_000,), iterations=100, compute_s=0.09, deadline_s=10
... )
>>> need = demand(job, now_s=0, link_bps=100e9)
>>> slots_for(job, Switch("s1", slots=8192, lanes=64, rtt_s=20e-6), need.rate_bps)  # 10 Gb/s
98

A policy is a function of a `MemoryProblem`. It returns a region for each job at each switch of its tree::

    def nothing(problem: MemoryProblem) -> MemoryDivision:
        names = [job.name for job in problem.jobs]
        return MemoryDivision({name: {} for name in names}, dict.fromkeys(names, SlotStatus.SHARED))

A policy of your own is named ``path.py:nothing``, or a package's entry point of the group ``ina.memory``.

This module also has the two simplest policies, `static` and `common`.

Explanations of a job's slots, in words and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controller.errors import BadSpec
from controller.policies.memory.regions import Reading, region_size
from controller.policies.memory.regions import SlotStatus as SlotStatus
from controller.policies.placement.flows import slowest_link_bps, tree_of
from controller.vocabulary import Job, Region, Switch, Topology, Tree
from controller.vocabulary.errors import kind, plural
from controller.vocabulary.lists import by_key

_MOST = 2.0**62
"""Maximum number of packets in flight of a job that no link limits."""


@dataclass(frozen=True, slots=True)
class DeadlineNeed:
    """The demand of a job with a deadline.

    `rate_bps` is the rate at which the job's gradients have to be summed; infinite: no rate is enough.
    `link_bps` is the rate of the job's slowest link. `round_s` is the time that the deadline leaves for one
    iteration, and `communication_s` the part of this time that is left for sending gradients. `estimate_s`
    is the time at which the job ends if it has its links for itself.
    """

    round_s: float
    communication_s: float
    rate_bps: float
    link_bps: float
    estimate_s: float

    @property
    def feasible(self) -> bool:
        """Whether a free link and enough slots would meet the deadline."""
        return math.isfinite(self.rate_bps) and self.rate_bps <= self.link_bps


def demand(job: Job, *, now_s: float, link_bps: float, reading: Reading = "measured") -> DeadlineNeed:
    """Return the demand of a job with a deadline, from `now_s` on.

    Args:
        job: A job with a deadline.
        now_s: The time, on the clock of `arrival_s`.
        link_bps: Rate of the slowest link that the job uses, bits per second.
        reading: "article" or "measured"; see the module's docstring.
    """
    assert job.due_s is not None, "only a job with a deadline has a demand"
    begin_s = max(now_s, job.arrival_s)
    round_s = (job.due_s - begin_s) / job.iterations
    hidden, skew_s = (job.overlap, job.skew_s) if reading == "measured" else (0.0, 0.0)
    communication_s = round_s - skew_s - (1 - hidden) * job.compute_s
    possible = communication_s > 0 and round_s >= job.compute_s + skew_s
    rate_bps = job.model_bytes * 8 / communication_s if possible else math.inf
    bare_s = job.model_bytes * 8 / link_bps
    alone_s = skew_s + max(job.compute_s, (1 - hidden) * job.compute_s + bare_s)
    return DeadlineNeed(round_s, communication_s, rate_bps, link_bps, begin_s + job.iterations * alone_s)


def slot_time_s(job: Job, switch: Switch, reading: Reading = "measured") -> float:
    """Return how long a packet of the job holds a slot, in seconds: as measured, or else a round trip."""
    measured = job.hold_s if reading == "measured" else None
    return switch.rtt_s if measured is None else measured


def slots_for(job: Job, switch: Switch, rate_bps: float, reading: Reading = "measured") -> int:
    """Return the number of slots of `switch` that carry `rate_bps`.

    An exclusive region has two slots for each packet in flight, and its size is a power of two (SwitchML). A
    job whose window is known gets no more slots than its window has packets.

    Args:
        job: The job whose packets hold the slots.
        switch: The switch with the slots.
        rate_bps: Rate of the job's gradients, bits per second.
        reading: "article" or "measured"; see the module's docstring.
    """
    in_flight = min(rate_bps / 8 * slot_time_s(job, switch, reading) / switch.payload_bytes, _MOST)
    window = max(1, math.ceil(in_flight * (1 - 1e-12)))
    if job.window is not None:
        window = min(window, job.window)
    return region_size(2 * window) if job.mode == "exclusive" else window


def rate_of(job: Job, switch: Switch, slots: int, reading: Reading = "measured") -> float:
    """Return the rate that a number of slots carries, bits per second: the inverse of `slots_for`.

    Args:
        job: The job whose packets hold the slots.
        switch: The switch with the slots.
        slots: Number of slots of the job's region.
        reading: "article" or "measured"; see the module's docstring.
    """
    window = slots // 2 if job.mode == "exclusive" else slots
    if job.window is not None:
        window = min(window, job.window)
    return window * switch.payload_bytes * 8 / slot_time_s(job, switch, reading)


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
        connected = (job for job in self.jobs if not job.servers or len(job.hosts) > 1)
        return {job.name: tree_of(self.topology, job) for job in connected}

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
    at = by_key(
        (place, (name, region))
        for name, regions in division.regions.items()
        for place, region in regions.items()
    )
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


def explain(problem: MemoryProblem, division: MemoryDivision, job: Job) -> list[str]:
    """Return sentences about a job's slots at each switch, their rate, and the gain of one more slot.

    Why the job has these slots is explained in `controller.core.desired`.
    """
    if not problem.switches[job.name]:
        why = (
            "aggregate is off" if not job.aggregate else "it has one server, or no switch sums its gradients"
        )
        return [f"The job uses no switch memory: {why}."]
    return [
        line
        for name, region in division.regions[job.name].items()
        for line in _at_switch(problem, division, job, problem.topology.switch[name], region)
    ]


def _at_switch(
    problem: MemoryProblem, division: MemoryDivision, job: Job, switch: Switch, region: Region
) -> list[str]:
    time_s = slot_time_s(job, switch, problem.reading)
    held = "a round trip" if job.hold_s is None or problem.reading == "article" else "as measured"
    rate_bps = rate_of(job, switch, region.size, problem.reading)
    begin = (
        f"{switch.name}: {region.size} of {plural(switch.slots, 'slot')}"
        + (f", {region.offset} to {region.end - 1}" if region.size else "")
        + f" ({division.standing[job.name]}). A slot carries {switch.payload_bytes} bytes in"
        f" {time_s * 1e6:.4g} µs, {held}: {rate_bps / 1e9:.4g} Gb/s in all."
    )
    lines = [begin]
    need = division.demands.get(job.name)
    if division.standing[job.name] is SlotStatus.SHARED:
        sharers = [n for n, on in division.regions.items() if on.get(switch.name) == region]
        lines.append(f"{switch.name}: {len(sharers)} jobs share these slots: {', '.join(sharers[:8])}.")
        if need is not None and need.feasible:
            wanted = slots_for(job, switch, need.rate_bps, problem.reading)
            granted = sum(
                on[switch.name].size
                for n, on in division.regions.items()
                if switch.name in on and division.standing[n] is SlotStatus.GRANTED
            )
            lines.append(
                f"{switch.name}: the job's deadline needs {wanted} slots; more urgent jobs have {granted},"
                f" and {switch.slots - granted} are left."
            )
    return [*lines, _one_more(problem, job, switch, region)]


def _one_more(problem: MemoryProblem, job: Job, switch: Switch, region: Region) -> str:
    link_bps = problem.link_bps(job)
    now_bps, more_bps = (
        min(link_bps, rate_of(job, switch, size, problem.reading)) for size in (region.size, region.size + 1)
    )
    if more_bps <= now_bps:
        full = now_bps >= link_bps
        why = f"its slowest link has {link_bps / 1e9:.4g} Gb/s" if full else "the job's window would not grow"
        return f"{switch.name}: one more slot would bring nothing: {why}."
    gain_s = (job.iteration_at_s(now_bps) - job.iteration_at_s(more_bps)) * job.iterations
    if not math.isfinite(gain_s):
        return f"{switch.name}: one slot would let the switch sum {more_bps / 1e9:.4g} Gb/s of the job."
    return (
        f"{switch.name}: one more slot would carry {(more_bps - now_bps) / 1e6:.4g} Mb/s more, and end the"
        f" job {gain_s:.4g} s earlier, if only slots limit its rate."
    )
