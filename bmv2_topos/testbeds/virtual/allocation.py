"""A policy that gives running jobs other slots every so often: what it sees, and what it may answer.

A policy is a function of a `SlotView`; what it returns the testbed's controller carries out::

    def equal_parts(view: SlotView) -> Mapping[str, Region]:
        size = view.slots // max(1, len(view.jobs))
        return {name: Region(place * size, size) for place, name in enumerate(view.jobs)}

    VirtualTestbed(topology, jobs, placements, allocation=Reallocation(equal_parts, period_s=0.001))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bmv2_topos.testbeds.virtual.admission import VirtualFleet
from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.jobs import RunningJob
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.report import Occupancy
from bmv2_topos.testbeds.virtual.settings import DEFAULT_WINDOW, TestbedError, VirtualSettings
from controller import Region, TreeAdmission
from controller.policies.memory.regions import place
from controller.vocabulary import Job

# ---------------------------------------------------------------------------
# Samples how many slots hold part of a sum.


_PREFIX = "InaIngress.aggregator.slot_"
_LOOKED_AT = ("bitmap", "generation", "flags")
_FIRST_PERIOD_NS = 100_000
_MOST_SLOTS = 512
"""Slots that are looked at; of more, every n-th stands for n."""
_SLOT_DONE = 0x03
"""Flags of a slot that holds a whole sum, this node's or the job's."""


def slots_in_use(fabric: Fabric, slots: int, present: Mapping[int, str]) -> dict[str, int]:
    """Return how many of the switches' slots hold part of a sum now, by the names of jobs.

    `present` are the names of the admitted jobs by generation; `slots` has each switch that aggregates.
    """
    counts = dict.fromkeys(present.values(), 0)
    stride = max(1, -(-slots // _MOST_SLOTS))
    for switch in fabric.topology.switches:
        if not switch.aggregates:
            continue
        read = fabric.pipelines[switch.name].read_register
        for index in range(0, slots, stride):
            if not read(f"{_PREFIX}bitmap", index):
                continue
            job = present.get(read(f"{_PREFIX}generation", index))
            if job is not None and not read(f"{_PREFIX}flags", index) & _SLOT_DONE:
                counts[job] += stride
    return counts


class OccupancySampler:
    """Takes samples evenly over a run of unknown length: twice as far apart whenever there are too many."""

    def __init__(self, fabric: Fabric, settings: VirtualSettings, jobs: Iterable[str]) -> None:
        self._fabric = fabric
        self._jobs = tuple(jobs)
        known = fabric.registers >= {f"{_PREFIX}{each}" for each in _LOOKED_AT}
        self._most = settings.samples if known else 0  # a program of one's own may keep slots otherwise
        self._slots = settings.slots
        self._period = _FIRST_PERIOD_NS
        self._due = 0
        self._samples: list[Occupancy] = []

    def sample(self, until: int, present: Callable[[], Mapping[int, str]]) -> None:
        """Take the samples that are due before `until`, until when nothing happens.

        `present` returns the names of the admitted jobs by generation.
        """
        if self._due >= until or not self._most:
            return
        held = slots_in_use(self._fabric, self._slots, present())
        counts = {job: held.get(job, 0) for job in self._jobs}
        while self._due < until:
            self._samples.append(Occupancy(self._due * 1e-9, counts))
            if len(self._samples) >= self._most:
                self._samples = self._samples[::2]
                self._period *= 2
                self._due = len(self._samples) * self._period
            else:
                self._due += self._period

    def samples(self) -> tuple[Occupancy, ...]:
        """Return the samples so far."""
        return tuple(self._samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSlots:
    """A job that is on the switches."""

    job: Job
    placement: Placement
    admitted: TreeAdmission
    regions: Mapping[str, Region]
    """The slots that it uses, or moves to, by switch; switches that only pass its packets are left out."""
    leaving: Mapping[str, Region]
    """The slots that it still uses, by switch, while it moves to others."""
    iterations_done: int
    """By all ranks."""
    mean_iteration_s: float | None
    """So far; None: none is done."""
    outcomes: Mapping[str, Mapping[str, int]]
    """Packets by outcome since the policy was asked last, or since the job's admission if
    that is later, by switch."""
    slots_in_use: int
    """Slots of all switches that hold part of a sum of it now; an estimate where switches have many."""

    @property
    def window(self) -> int:
        """Packets that a worker may have in flight."""
        return self.job.window or DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """State of the jobs, as a policy is told."""

    time_s: float
    slots: int
    """Of every switch that aggregates."""
    jobs: Mapping[str, JobSlots]
    """Those that are on the switches, by name, in the order of the testbed's jobs."""


Regions = Region | Mapping[str, Region]
"""The slots that a job may use from now on: the same at every switch, or by switch, others as they are."""

Policy = Callable[[SlotView], Mapping[str, Regions]]
"""Returns new regions by the names of jobs; jobs left out keep theirs. What it raises ends the run."""


@dataclass(frozen=True, slots=True)
class Reallocation:
    """A policy, and how often it is asked, from one period after the beginning on."""

    policy: Policy
    period_s: float

    def __post_init__(self) -> None:
        if not self.period_s >= 1e-6:
            raise TestbedError(f"period_s is {self.period_s:g}, must be a microsecond or more")


class Reallocator:
    """Asks the policy and does as it says. Times are nanoseconds."""

    def __init__(self, allocation: Reallocation, fleet: VirtualFleet, fabric: Fabric, *, slots: int) -> None:
        self._policy = allocation.policy
        self._period = round(allocation.period_s * 1e9)
        self._fleet = fleet
        self._fabric = fabric
        self._slots = slots
        self._seen: Mapping[int, Mapping[str, Mapping[str, int]]] = {}
        """Counters when the policy was asked last, by the generations of jobs."""
        self.due = self._period
        """Time at which the policy is to be asked next."""

    def serve(self, now: int, jobs: Iterable[RunningJob]) -> None:
        """Ask the policy if it is time, and change the regions that it returns.

        Raises:
            TestbedError: it named a job that is not on the switches, or a switch without slots for it.
            controller.BadJob: a region leaves the memory.
            Exception: whatever the policy raises.
        """
        if now < self.due:
            return
        self.due += self._period * ((now - self.due) // self._period + 1)
        view = self._look(now, jobs)
        for name, regions in self._policy(view).items():
            if name not in view.jobs:
                there = ", ".join(map(repr, view.jobs)) or "none"
                raise TestbedError(f"the policy gives slots to {name!r}; jobs on the switches are {there}")
            self._change(name, view.jobs[name], regions)

    def _change(self, name: str, job: JobSlots, regions: Regions) -> None:
        now = job.regions
        wanted = dict.fromkeys(now, regions) if isinstance(regions, Region) else dict(regions)
        for switch, region in wanted.items():
            if switch not in now:
                raise TestbedError(
                    f"the policy gives {name!r} slots of {switch!r}; it has some at {', '.join(now)}"
                )
            place(self._slots, region)
        self._fleet.move(job.admitted.job, {at: slots for at, slots in wanted.items() if slots != now[at]})

    def _look(self, now: int, jobs: Iterable[RunningJob]) -> SlotView:
        present = [(job, job.admitted) for job in jobs if job.admitted is not None]
        names = {admitted.generation: job.entry.name for job, admitted in present}
        in_use = slots_in_use(self._fabric, self._slots, names)
        views, seen = {}, {}
        for job, admitted in present:
            name, generation = job.entry.name, admitted.generation
            counts = seen[generation] = self._fleet.counters(admitted)
            views[name] = JobSlots(
                job=job.entry,
                placement=job.placement,
                admitted=admitted,
                leaving=self._fleet.leaving(job.id),
                regions={at: on.region for at, on in admitted.switches.items() if not on.transit},
                iterations_done=len(job.ends_ns),
                mean_iteration_s=job.mean_iteration_s,
                outcomes=_since(self._seen.get(generation, {}), counts),
                slots_in_use=in_use[name],
            )
        self._seen = seen
        return SlotView(time_s=now * 1e-9, slots=self._slots, jobs=views)


def _since(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    return {
        switch: {name: count - before.get(switch, {}).get(name, 0) for name, count in counts.items()}
        for switch, counts in after.items()
    }
