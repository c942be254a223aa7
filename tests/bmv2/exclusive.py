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
    gradient,
    groups,
    readmission,
    readmitted,
    result,
    withdrawal,
)
from tests.bmv2.packets import LANES, QUERY, RESEND
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
        at_random(program, 1, readmitted(JOBS, SAME_EPOCH), 3000),
        Phase(
            [*withdrawal(program, PAIR), *admission(program, HEIR), *readmission(program, [FOUR_AGAIN])],
            groups(HEIR),
            list(random_traffic(2, (HEIR, FOUR_AGAIN), 1000)),
        ),
        at_random(program, 3, readmitted((RACK, THIN_RACK, BEHIND, ORPHANS), 2 * SAME_EPOCH + 1), 2000),
        replace(at_random(program, 4, readmitted((RACK, PASSAGE, THREE, HEIR), 3), 1000), mark_from=0),
    ]


def handwritten() -> Iterator[Arrival]:
    """Yield all cases."""
    for job in JOBS:
        yield from slots.rounds(job, 0, 3)
    yield from ordinary.traffic()
    for job in (PAIR, FOUR, THREE, BEHIND):
        yield from life_of_a_slot(job)
    yield from slots.rounds(ALONE, 3, 4)
    yield gradient(ALONE, 0, 6)
    yield gradient(ALONE, 0, 4)
    yield from slots.overflow_and_disagreement(PAIR)
    for job in (PAIR, THREE, RACK, THIN_RACK, BEHIND):
        yield from slots.flags_add_up(job, 200)
        yield from slots.reduced(job, 300)
    for job in (RACK, THIN_RACK):
        yield from slots.life_below_another(job, 1000)
        yield from results_out_of_order(job, 2000)
        yield from malformed.refused_from_above(job)
    for job in JOBS:
        yield from slots.passed_through(job, 3000)
    for job in (PAIR, RACK, PASSAGE, BEHIND):
        yield from malformed.refused(job)
        yield from malformed.disguised(job)


def life_of_a_slot(job: Job) -> Iterator[Arrival]:
    """Yield every row of the decision table, more than once, in one slot."""
    psn, later = 3, 3 + job.size
    last = job.bits[-1]
    yield gradient(job, 0, psn, exponent=100)
    yield gradient(job, 0, psn, flags=RESEND, exponent=255)  # duplicate
    yield gradient(job, 0, psn, [9] * LANES, flags=RESEND | QUERY)  # status
    yield gradient(job, 0, psn, flags=0x7F)  # status again; all flags but one set
    for bit in job.bits[1:]:
        yield gradient(job, bit, psn, [1 << bit] * LANES, exponent=255 if bit == last else 7)  # completed
    for bit in job.bits:
        yield gradient(job, bit, psn, [77] * LANES, flags=bit)  # replayed
    yield gradient(job, last, later)  # the slot moves on
    yield gradient(job, 0, psn, flags=QUERY)  # stale
    yield gradient(job, last, psn - job.size)  # stale, before zero
    yield gradient(job, 0, later + (1 << 31) - job.size % 8)  # as far ahead as it can be
    yield gradient(job, 0, later)  # stale now


def results_out_of_order(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield results from above that are older and newer than what the slot holds."""
    first = job.bits[0]
    for distance in (-job.size, job.size, 2 * job.size, 1 << 30, 1 << 31, (1 << 31) + 4):
        yield gradient(job, first, psn)
        yield result(job, psn + distance)
        yield gradient(job, first, psn, flags=RESEND | QUERY)
        yield gradient(job, first, psn + distance, flags=RESEND)
        yield result(job, psn)
        psn += 1 << 16
