"""What the switches are given that run p4src/exclusive.p4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softswitch.compiler import ir
from tests.bmv2 import below, malformed, ordinary, slots
from tests.bmv2.jobs import (
    SAME_EPOCH,
    Job,
    admission,
    groups,
    readmission,
    readmitted,
    withdrawal,
)
from tests.bmv2.random_traffic import at_random, random_traffic
from tests.bmv2.reference import Arrival
from tests.bmv2.stations import WORKERS
from tests.bmv2.targets import Phase

OUTCOMES = [*range(18), 25, 26, 27, 28, 29, 30, 31]

PAIR = Job(id=1, row=1, offset=0, size=8, generation=1, group=1, children=dict(enumerate(WORKERS[:2])))
FOUR = Job(id=2, row=2, offset=8, size=6, generation=2, group=2, children=dict(enumerate(WORKERS[:4])))
THREE = Job(
    id=0xFFFF,
    row=255,
    offset=16,
    size=4,
    generation=0xFFFFFFFF,
    group=3,
    children={0: WORKERS[5], 1: WORKERS[2], 2: WORKERS[4]},
    ranks={0: 8, 1: 3, 2: 0},
)
ALONE = Job(id=300, row=3, offset=30, size=2, generation=7, group=4, children={0: WORKERS[3]})

RACK = replace(below.RACK, offset=20, size=4)
THIN_RACK = replace(below.THIN_RACK, offset=24, size=2)
ORPHANS = replace(below.ORPHANS, offset=26, size=4)
PASSAGE = below.PASSAGE
BEHIND = replace(below.BEHIND, offset=32, size=8)
JOBS = (PAIR, FOUR, THREE, ALONE, RACK, THIN_RACK, ORPHANS, PASSAGE, BEHIND)

# Afterwards PAIR is gone, FOUR has been admitted anew at another place, and a new job has PAIR's slots.
FOUR_AGAIN = replace(FOUR, offset=10, size=4, generation=8)
HEIR = Job(id=5, row=1, offset=0, size=8, generation=9, group=5, children=dict(enumerate(WORKERS[6:8])))


def phases(program: ir.Program) -> list[Phase]:
    """Return all there is, in the order in which it is to happen."""
    setup = [write for job in JOBS for write in admission(program, job)]
    return [
        Phase(
            [*setup, *ordinary.forwarding(program)],
            groups(*JOBS) | ordinary.FLOODED,
            list(handwritten()),
        ),
        Phase([], {}, [p for job in (PAIR, ALONE, FOUR, RACK, BEHIND) for p in slots.wrap_around(job)]),
        at_random(program, 1, readmitted(JOBS, SAME_EPOCH), 6000),
        Phase(
            [*withdrawal(program, PAIR), *admission(program, HEIR), *readmission(program, [FOUR_AGAIN])],
            groups(HEIR),
            list(random_traffic(2, (HEIR, FOUR_AGAIN), 1000)),
        ),
        at_random(program, 3, readmitted((RACK, THIN_RACK, BEHIND, ORPHANS), 2 * SAME_EPOCH + 1), 4000),
        replace(at_random(program, 4, readmitted((RACK, PASSAGE, THREE, HEIR), 3), 1000), mark_from=0),
    ]


def handwritten() -> Iterator[Arrival]:
    """Yield what random traffic does not come by: full int32 lanes, and refused packets."""
    for job in JOBS:
        yield from slots.rounds(job, 0, 3)
    yield from ordinary.traffic()
    yield from slots.overflow_and_disagreement(PAIR)
    for job in (RACK, THIN_RACK):
        yield from malformed.refused_from_above(job)
    for job in (PAIR, RACK, PASSAGE, BEHIND):
        yield from malformed.refused(job)
        yield from malformed.disguised(job)
