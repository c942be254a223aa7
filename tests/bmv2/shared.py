"""What the switches are given that run p4src/shared.p4.

Where jobs have a region of one slot, all of them meet in it whatever the hash makes of their PSNs: the cases
by hand use that. The random traffic has regions of several kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from softswitch.compiler import ir
from tests.bmv2 import below, malformed, ordinary, slots
from tests.bmv2.jobs import SAME_EPOCH, Above, Job, admission, groups, move, readmitted, withdrawal
from tests.bmv2.random_traffic import at_random, random_traffic
from tests.bmv2.reference import Arrival
from tests.bmv2.stations import OTHER_SERVER, SERVER, WORKERS
from tests.bmv2.targets import Phase

REPLAYED, STALE, STORED = 2, 5, 26
OUTCOMES = [outcome for outcome in range(32) if outcome != STALE]
OUTCOMES_OF_ATP = [outcome for outcome in OUTCOMES if outcome not in (REPLAYED, STORED)]
"""Its slots keep no results."""
MEETING_POINT = 17

MEEK = Job(
    id=1,
    row=1,
    offset=MEETING_POINT,
    size=1,
    generation=1,
    group=1,
    children=dict(enumerate(WORKERS[:2])),
    above=Above(SERVER),
    window=8,
)
BOLD = Job(
    id=2,
    row=2,
    offset=MEETING_POINT,
    size=1,
    generation=0x10002,
    group=2,
    children=dict(enumerate(WORKERS[:4])),
    ranks={0: 3, 1: 2, 2: 1, 3: 0},
    above=Above(OTHER_SERVER),
    preempt=True,
    window=4,
)
BOLDER = Job(
    id=0xFFFF,
    row=255,
    offset=MEETING_POINT,
    size=1,
    generation=0xFFFFFFFF,
    group=3,
    children={0: WORKERS[5], 1: WORKERS[2], 2: WORKERS[4]},
    above=Above(SERVER),
    preempt=True,
)
HASTY = Job(
    id=11,
    row=9,
    offset=MEETING_POINT,
    size=1,
    generation=0x70B,
    group=11,
    children=dict(enumerate(WORKERS[2:4])),
    above=Above(OTHER_SERVER),
    max_age_us=0,
)
ALONE = Job(
    id=300,
    row=3,
    offset=MEETING_POINT,
    size=1,
    generation=7,
    group=4,
    children={0: WORKERS[3]},
    above=Above(SERVER),
)
RACK = replace(below.RACK, offset=MEETING_POINT, size=1, window=16, preempt=True)
THIN_RACK = replace(below.THIN_RACK, offset=MEETING_POINT, size=1)
ORPHANS = replace(below.ORPHANS, offset=MEETING_POINT, size=1)
PASSAGE = below.PASSAGE
BEHIND = replace(below.BEHIND, offset=MEETING_POINT, size=1, above=Above(SERVER), window=8)
JOBS = (MEEK, BOLD, BOLDER, HASTY, ALONE, RACK, THIN_RACK, ORPHANS, PASSAGE, BEHIND)

# (offset, size) of the jobs in turn
OVERLAPPING = ((0, 8), (4, 8), (8, 8), (0, 16), (3, 1), (10, 5), (0, 2), (6, 6), (0, 0), (12, 7))
WHOLE_ARRAY = ((0, 64),) * len(JOBS)
SCARCE = ((40, 3),) * len(JOBS)
NOTHING = ((0, 0),) * len(JOBS)

# Afterwards MEEK is gone and its id has another job; the others but PASSAGE are admitted anew.
HEIR = replace(MEEK, generation=0x3001, group=21, children=dict(enumerate(WORKERS[5:8])), preempt=True)


def phases(program: ir.Program) -> list[Phase]:
    """Return all there is, in the order in which it is to happen."""
    setup = [write for job in JOBS for write in admission(program, job)]
    again = readmitted(JOBS, SAME_EPOCH)
    return [
        Phase(
            [*setup, *ordinary.forwarding(program)],
            groups(*JOBS) | ordinary.FLOODED,
            [*ordinary.traffic(), *handwritten()],
        ),
        at_random(program, 11, placed(JOBS, OVERLAPPING), 6000),
        at_random(program, 12, placed(JOBS, WHOLE_ARRAY), 2000),
        at_random(program, 13, placed(JOBS, SCARCE), 6000),
        at_random(program, 14, placed(JOBS, NOTHING), 1000),
        # what the slots hold from before is of another generation now
        at_random(program, 15, placed(again, SCARCE), 1000),
        Phase(
            [*withdrawal(program, MEEK), *admission(program, HEIR)],
            groups(HEIR),
            list(random_traffic(16, (HEIR, *again[1:4]), 1500)),
        ),
        replace(at_random(program, 17, placed(again, OVERLAPPING)[1:], 1000), mark_from=0),
        moving(program, placed(again, OVERLAPPING)[1:]),
    ]


def moving(program: ir.Program, jobs: Sequence[Job]) -> Phase:
    """Return a phase in which jobs move to other regions; how soon depends on their windows."""
    phase = at_random(program, 18, [replace(job, window=1 << place) for place, job in enumerate(jobs)], 3000)
    moves = [
        move(program, job, (1 << 40) + job.id, 20 + 3 * place, place)
        for place, job in enumerate(jobs)
        if job.role != "transit"
    ]
    return replace(phase, writes=[*phase.writes, *moves])


def handwritten() -> Iterator[Arrival]:
    """Yield what random traffic does not come by: full int32 lanes, PSNs that wrap, and refused packets."""
    for job in JOBS:
        yield from slots.rounds(job, 0, 3)
    yield from slots.overflow_and_disagreement(MEEK)
    for job in (MEEK, BOLD, RACK, THIN_RACK, ALONE, BEHIND):
        yield from slots.wrap_around(job)
    for job in (MEEK, RACK, PASSAGE, BEHIND):
        yield from malformed.refused(job)
        yield from malformed.disguised(job)
        yield from malformed.refused_from_above(job)


def placed(jobs: Sequence[Job], regions: Sequence[tuple[int, int]]) -> list[Job]:
    """Return the jobs with other regions; a transit switch has none."""
    return [
        job if job.role == "transit" else replace(job, offset=offset, size=size)
        for job, (offset, size) in zip(jobs, regions, strict=True)
    ]
