"""A policy that changes running jobs' slots periodically, and samples of the slots in use.

A policy is a function of the time and of the running jobs; the testbed's controller applies its result::

    def equal_parts(time_s: float, jobs: Mapping[str, RunningJob]) -> Mapping[str, Region]:
        size = 1024 // max(1, len(jobs))
        return {name: Region(place * size, size) for place, name in enumerate(jobs)}

    VirtualTestbed(topology, jobs, placements, allocation=Reallocation(equal_parts, period_s=0.001))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bmv2_topos.testbeds.virtual.admission import VirtualFleet
from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.jobs import RunningJob
from bmv2_topos.testbeds.virtual.report import Occupancy
from bmv2_topos.testbeds.virtual.settings import TestbedError, VirtualSettings
from controller import Region
from controller.policies.memory.regions import place

# ---------------------------------------------------------------------------
# Samples how many slots hold part of a sum.


_PREFIX = "InaIngress.aggregator.slot_"
_LOOKED_AT = ("bitmap", "generation", "flags")
_FIRST_PERIOD_NS = 100_000
_MOST_SLOTS = 512
"""Maximum number of slots that a sample reads. On a larger switch it reads every n-th slot, and counts it n
times."""
_SLOT_DONE = 0x03
"""Mask of two flags of a slot: the slot holds the complete sum of this node, or of the job."""


def slots_in_use(fabric: Fabric, slots: int, present: Mapping[int, str]) -> dict[str, int]:
    """Return the number of slots of all switches that hold an incomplete sum now, by job name.

    `present` are the names of the admitted jobs by generation; each aggregating switch has `slots` slots.
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
    """Samples the slots in use at equal intervals.

    At `VirtualSettings.samples` samples, every other sample is dropped, and the interval doubles.
    """

    def __init__(self, fabric: Fabric, settings: VirtualSettings, jobs: Iterable[str]) -> None:
        self._fabric = fabric
        self._jobs = tuple(jobs)
        known = fabric.registers >= {f"{_PREFIX}{each}" for each in _LOOKED_AT}
        self._most = settings.samples if known else 0  # a user's program may keep slots differently
        self._slots = settings.slots
        self._period = _FIRST_PERIOD_NS
        self._due = 0
        self._samples: list[Occupancy] = []

    def sample(self, until: int, present: Callable[[], Mapping[int, str]]) -> None:
        """Take the samples that are due before the time `until`, in ns; the slots do not change until then.

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


Regions = Region | Mapping[str, Region]
"""New slots of a job: one region for every switch, or regions by switch; at other switches its slots stay."""

Policy = Callable[[float, Mapping[str, RunningJob]], Mapping[str, Regions]]
"""Function of the time in seconds, and of the jobs on the switches by name, in the testbed's order.

Returns new regions by the names of jobs; jobs left out keep their regions. An exception ends the run."""


@dataclass(frozen=True, slots=True)
class Reallocation:
    """A policy, and the period of its calls; the first call is one period after the start."""

    policy: Policy
    period_s: float

    def __post_init__(self) -> None:
        if not self.period_s >= 1e-6:
            raise TestbedError(f"period_s is {self.period_s:g}, must be a microsecond or more")


class Reallocator:
    """Calls the policy and applies its result. Times are nanoseconds."""

    def __init__(self, allocation: Reallocation, fleet: VirtualFleet, *, slots: int) -> None:
        self._policy = allocation.policy
        self._period = round(allocation.period_s * 1e9)
        self._fleet = fleet
        self._slots = slots
        self.due = self._period
        """Time of the policy's next call."""

    def serve(self, now: int, jobs: Iterable[RunningJob]) -> None:
        """Call the policy if it is due, and move the jobs to the regions that it returns.

        Raises:
            TestbedError: the policy named a job that is not on the switches, or a switch where the job has
                no slots.
            controller.BadJob: a region exceeds the memory of a switch.
            Exception: any exception of the policy.
        """
        if now < self.due:
            return
        self.due += self._period * ((now - self.due) // self._period + 1)
        present = {job.entry.name: job for job in jobs if job.admitted is not None}
        for name, regions in self._policy(now * 1e-9, present).items():
            if name not in present:
                names = ", ".join(map(repr, present)) or "none"
                raise TestbedError(
                    f"the policy gives slots to {name!r}; want one of the jobs on the switches: {names}"
                )
            self._change(present[name], regions)

    def _change(self, job: RunningJob, regions: Regions) -> None:
        now, name = job.regions, job.entry.name
        wanted = dict.fromkeys(now, regions) if isinstance(regions, Region) else dict(regions)
        for switch, region in wanted.items():
            if switch not in now:
                raise TestbedError(
                    f"the policy gives job {name!r} slots of {switch!r}; want switches that sum for the job:"
                    f" {', '.join(now)}"
                )
            place(self._slots, region)
        self._fleet.move(job.id, wanted)
