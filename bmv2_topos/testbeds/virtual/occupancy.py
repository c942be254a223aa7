"""Samples how many slots hold part of a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.report import Occupancy
from bmv2_topos.testbeds.virtual.settings import VirtualSettings

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
