"""Schedules for programs for Tofino, without features that these programs lack (docs/reference/tofino.md)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bmv2_topos.faults import Congest, Strangers, TimedFault
from bmv2_topos.soak.programs import SHARED_SLOTS
from bmv2_topos.soak.schedule import JobPlan, SoakSchedule
from controller.switches.tofino_rows import BITMAPS, STRENGTH
from controller.vocabulary import Region
from softswitch.engine.pipeline import Pipeline

LANE_REGISTERS: Final = "Ingress.slot.lanes.lane_"

OUTCOMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("wrong_epoch", "wrong_rank", "wrong_fan_in", "wrong_port"), "unknown_job"),
    **dict.fromkeys(("bad_version", "bad_kind", "bad_lanes"), "bad_length"),
    "wrong_direction": "unknown_job",
}
"""Outcomes that v1model programs count for refused packets, and programs for Tofino do not: the outcome that
a program for Tofino counts instead, by the v1model outcome. A program for Tofino checks several fields in one
table, so it cannot tell which field was wrong."""

_UNCOUNTED: Final = ("cut off", "too long")
"""Kinds of forged packets that programs for Tofino do not count as refused: their parser drops "cut off"
packets, and they accept "too long" packets."""
_TRIES = 20


def draw_racks(draw: random.Random, parents: Mapping[str, str | None], ranks: int) -> Sequence[str]:
    """Return a switch for each of 2 or more ranks, so that no switch has just one child in the job's tree.

    `parents` maps every switch to the switch above it, and the root to None.
    """
    for _ in range(_TRIES):
        racks = draw.choices(list(parents), k=ranks)
        children: dict[str, set[str]] = defaultdict(set)
        for rank, rack in enumerate(racks):
            below: str = f"rank {rank}"
            above: str | None = rack
            while above is not None:
                children[above].add(below)
                below, above = above, parents[above]
        if all(len(each) > 1 for each in children.values()):
            return racks
    return ["s1"] * ranks


def offered(schedule: SoakSchedule) -> SoakSchedule:
    """Return the schedule without the features that programs for Tofino lack."""
    jobs = tuple(_job(job, shared=schedule.testbed.program == "shared") for job in schedule.jobs)
    events = tuple(event for each in schedule.events for event in _events(each))
    return replace(schedule, jobs=jobs, events=events)


def _job(job: JobPlan, *, shared: bool) -> JobPlan:
    return replace(
        job,
        region=None if job.region is None else _aligned(job.region),
        numbers="exponent",
        first_psn=job.first_psn if shared else 0,  # slots of a new exclusive job expect PSN 0
        # with values whose sums fit int32: programs for Tofino report no overflows
        collectives=tuple(replace(each, large=False) for each in job.collectives),
    )


def _aligned(region: Region) -> Region:
    """Return a region of similar size and offset.

    The returned size is a power of two, and the returned offset is a multiple of this size.
    """
    size = 1 << max(region.size, 1).bit_length() - 1
    offset = min(region.offset, SHARED_SLOTS - size)
    return Region(offset - offset % size, size)


def _events(event: TimedFault) -> Sequence[TimedFault]:
    match event:
        case Congest():  # nothing marks packets
            return []
        case Strangers():
            kinds = tuple(kind for kind in event.kinds if kind not in _UNCOUNTED)
            return [replace(event, kinds=kinds)] if kinds else []
        case _:
            return [event]


def clear_slots(pipeline: Pipeline) -> None:
    """Free all slots of the shared program; in the exclusive program, the next admission frees the slots."""
    registers = pipeline.program.registers
    for register in (STRENGTH, *BITMAPS):
        if register in registers:
            for slot in range(registers[register].size):
                pipeline.write_register(register, slot, 0)
