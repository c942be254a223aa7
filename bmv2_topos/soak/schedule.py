"""Schedules: jobs on a testbed, faults and their times, as plain data that prints as a readable list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bmv2_topos.faults import TimedFault
from bmv2_topos.testbeds.virtual.placement import Placement
from controller.switches.model import Feature
from controller.vocabulary import Mode, Region, Topology
from hostlib import wire
from hostlib.core.congestion import CongestionName
from hostlib.core.state import Pattern
from hostlib.wire.encodings import Encoding
from softswitch import Impairments

Dtype = Literal["int32", "float32"]

TESTBED_SEEDS = 32
"""Number of consecutive seeds that share a testbed: building a testbed takes longer than a schedule."""


@dataclass(frozen=True, slots=True)
class SoakTestbed:
    """A network, and the placement of jobs on it."""

    number: int
    program: Mode
    topology: Topology
    placements: tuple[Placement, ...]
    """Placements of the jobs 1, 2, …, in this order."""
    strangers: Mapping[str, str]
    """For each switch: a host at the switch; this host belongs to no job."""
    slots: tuple[int, ...]
    """Number of slots in each job's region (exclusive); 0 if jobs share slots."""
    lacks: frozenset[Feature] = frozenset()
    """Features that the program lacks; schedules do not use them."""
    tofino: bool = False
    """True if the program is one for Tofino (`bmv2_topos.soak.tofino`)."""

    @property
    def levels(self) -> int:
        """Number of switches on the longest path up to the root."""
        return 1 + max(self.topology.hops(self.topology.root))

    def describe(self) -> str:
        """Return the testbed in words, in a few lines."""
        topology = self.topology
        lines = [f"testbed {self.number}: program {self.program}"]
        for switch in topology.switches:
            above = topology.parents[switch.name]
            role = "sums" if switch.aggregates else "transit"
            lines.append(f"  switch {switch.name}, {role}" + (f", below {above}" if above else ", the root"))
        for number, placement in enumerate(self.placements, start=1):
            places = ", ".join(
                f"rank {rank} at {topology.rack_of[host]}" for rank, host in enumerate(placement.workers)
            )
            server = f", fallback server {placement.server}" if placement.server else ""
            lines.append(f"  job {number}: {places}{server}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """A collective that all ranks of a job call."""

    dtype: Dtype
    length: int
    target: int = wire.TARGET_ALL
    """The rank that gets the sum of a reduce, or that sends a broadcast; `wire.TARGET_ALL`: none."""
    average: bool = False
    in_place: bool = False
    large: bool = False
    """True if the values are so large that their sums overflow, or that they do not fit a fixed scale."""
    nonfinite: bool = False
    """True if some values are infinite or NaN."""
    priority: int = 0
    waits_us: tuple[int, ...] = ()
    """For each rank: time from the end of its previous collective to its call of this one."""
    pattern: Pattern = Pattern.SUM
    """Kind of data movement. If the collective moves shards, `length` is the number of elements of one
    shard."""
    named: bool = False
    """True if this is one of several calls with the same name and similar values, whose exponents workers
    predict."""

    @property
    def name(self) -> str:
        """Usual name of the collective, such as ``reduce-scatter``."""
        alone = self.target != wire.TARGET_ALL
        match self.pattern:
            case Pattern.SUM:
                return "reduce" if alone else "allreduce"
            case Pattern.SCATTER:
                return "reduce-scatter"
            case Pattern.GATHER:
                return "broadcast" if alone else "all-gather"

    def describe(self) -> str:
        """Return the collective in words, in one line."""
        place = "" if self.target == wire.TARGET_ALL else f" with rank {self.target}"
        what = self.name + place
        extras = [
            name for name in ("average", "in_place", "large", "nonfinite", "named") if getattr(self, name)
        ]
        waits = f", ranks wait {self.waits_us} µs" if any(self.waits_us) else ""
        return f"{what} of {self.length} {self.dtype}, priority {self.priority}{waits}" + "".join(
            f", {extra}" for extra in extras
        )


@dataclass(frozen=True, slots=True)
class Defector:
    """A rank that dies before its job's last collective, or calls another collective than the other ranks."""

    rank: int
    dies: bool
    """True: the rank dies before the last collective; False: it calls a different collective than the other
    ranks."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Plan of one job: its admission and its collectives."""

    number: int
    generation: int
    window: int
    region: Region | None
    """Slots of the job at every switch; None: all slots."""
    preempt: bool
    max_age_us: int
    congestion: CongestionName
    numbers: Encoding
    first_psn: int
    collectives: tuple[CollectivePlan, ...]
    defector: Defector | None = None
    """Rank that makes the last collective impossible, so that all other ranks must raise an error."""
    bare: bool = False
    """True if packets that only announce exponents are sent without lanes."""

    def describe(self) -> str:
        """Return the plan in words, in a few lines."""
        region = "all slots" if self.region is None else f"slots {self.region.offset}+{self.region.size}"
        lines = [
            f"  job {self.number}: generation {self.generation:#x}, window {self.window}, {region},"
            f" {'may preempt, ' if self.preempt else ''}max age {self.max_age_us} µs, {self.congestion},"
            f" {self.numbers}{', bare announcements' if self.bare else ''}, first PSN {self.first_psn}"
        ]
        lines += [f"    {each.describe()}" for each in self.collectives]
        if self.defector is not None:
            does = "dies before" if self.defector.dies else "disagrees on"
            lines.append(f"    rank {self.defector.rank} {does} the last collective")
        return "\n".join(lines)


def _described(link: Impairments) -> str:
    shown = [
        f"{name} {getattr(link, name):.1%}"
        for name in ("loss", "duplicate", "reorder", "corrupt")
        if getattr(link, name)
    ]
    if link.reorder:
        shown.append(f"held back up to {link.reorder_s * 1e6:.0f} µs")
    return ", ".join([*shown, f"delay {link.delay_s * 1e6:.0f} µs"])


def end_us(event: TimedFault) -> int:
    """Return the time at which an event is over, in µs."""
    lasts_s: float = getattr(event, "down_s", 0.0) + getattr(event, "for_s", 0.0)
    return round((event.at_s + lasts_s) * 1e6)


@dataclass(frozen=True, slots=True)
class SoakSchedule:
    """The jobs, links and events drawn from one seed, for the testbed of this seed."""

    seed: int
    testbed: SoakTestbed
    jobs: tuple[JobPlan, ...]
    links: tuple[Impairments, ...]
    """Impairments of each link, in the topology's order and in both directions."""
    coalesce_us: int
    """Hosts process together the packets that arrive within this time."""
    server_capacity: int
    clock_us: int
    """Time of the switches' clock at the start of the schedule, in µs; the clock wraps at 2**32."""
    events: tuple[TimedFault, ...]
    """Faults during the run; they name a job by its number."""
    calm_us: int
    """Start of the calm, when all events are over and links deliver every packet once, in order."""

    @property
    def settled_us(self) -> int:
        """Time by which the last packet that a link held back before the calm has arrived."""
        return self.calm_us + max(round(link.reorder_s * 1e6) if link.reorder else 0 for link in self.links)

    def describe(self) -> str:
        """Return the schedule in words, for people to read."""
        lines = [f"schedule {self.seed} on {self.testbed.describe()}", "links:"]
        for number, (link, does) in enumerate(zip(self.testbed.topology.links, self.links, strict=True)):
            lines.append(f"  {number}: {link.a}-{link.b}: {_described(does)}")
        lines.append(
            f"fallback server's memory {self.server_capacity} packets; hosts process packets every"
            f" {self.coalesce_us} µs; switches' clock {self.clock_us} µs; jobs:"
        )
        lines += [job.describe() for job in self.jobs]
        lines.append("events:" if self.events else "no events")
        lines += [f"  {event}" for event in self.events]
        lines.append(f"calm after {self.calm_us} µs")
        return "\n".join(lines)
