"""Random contents of a switch: jobs that should be there, and what is there instead."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from controller.switches.jobs import Row, change_row, job_row, supporting_rows
from controller.switches.model import Admission, Member, RegionChange, Registration, Uplink
from controller.switches.target import TableEntry
from controller.vocabulary import Mode, Region

SLOTS = 32
"""As few as that, for regions to meet each other often."""
RUNS_OUT = Registration("a dead launcher", lease_s=60.0)
LASTS = Registration("somebody else", lease_s=60.0)
_UNIT = 4
_IDS = range(1, 7)


@dataclass(frozen=True)
class Case:
    """What should be on a switch, what is there, and the jobs of others that stay."""

    desired: list[Admission]
    rows: list[Row]
    foreign: list[Admission]


def may_remove(job: Admission) -> bool:
    """Return whether a job has no lease, or one that somebody has seen to run out."""
    return not job.leased or job.registration == RUNS_OUT


def all_rows(job: Admission) -> list[Row]:
    moves = [change_row(job)] if job.change is not None else []
    return [*supporting_rows(job), *moves, job_row(job)]


def slots_of(job: Admission) -> set[int]:
    held = [job.region] if job.change is None else [job.region, job.change.region]
    return {slot for region in held for slot in range(region.offset, region.end)}


def shared_slots(jobs: Mapping[int, Admission]) -> dict[tuple[int, int], set[int]]:
    """Return which slots two jobs of a switch hold."""
    pairs = itertools.combinations(sorted(jobs), 2)
    return {(a, b): slots_of(jobs[a]) & slots_of(jobs[b]) for a, b in pairs}


def member(job: int, rank: int, port: int) -> Member:
    return Member(rank, port, f"02:00:00:00:{job:02x}:{rank:02x}", f"10.0.{job}.{rank + 1}", 9000 + rank)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    start = draw(st.integers(0, SLOTS // _UNIT - 1))
    return Region(start * _UNIT, draw(st.integers(0, SLOTS // _UNIT - start)) * _UNIT)


@st.composite
def admissions(draw: st.DrawFn, job: int, row: int, mode: Mode) -> Admission:
    ranks = draw(st.integers(1, 3))
    members = tuple(member(job, rank, draw(st.integers(0, 2)) * 4 + rank) for rank in range(ranks))
    shares = mode == "shared"
    node = draw(st.integers(0, 2))
    transit = node > 0 and draw(st.booleans())
    uplink = None
    if shares or node > 0:
        uplink = Uplink(20 + draw(st.integers(0, 1)), "02:00:00:00:fb:01", "10.0.255.2")
    if node > 0 and uplink is not None:
        uplink = replace(uplink, node=node - 1, bitmap=0 if transit else 1, fan_in=4)
    region = Region(4 * (row - 1), 4) if mode == "exclusive" else draw(regions())
    return Admission(
        job=job,
        counter_row=row,
        region=Region(0, 0) if transit else region,
        generation=100 * job + draw(st.integers(0, 1)),
        group=row,
        members=members,
        fan_in=4 if transit else ranks,
        window=2 if mode == "exclusive" else draw(st.sampled_from([2, 8])),
        uplink=uplink,
        node=node,
        result_bitmap=0b1111,
        transit=transit,
        preempt=shares and draw(st.booleans()),
        max_age_us=1000 if shares else 0,
        registration=draw(st.sampled_from([None, RUNS_OUT])),
    )


@st.composite
def jobs(draw: st.DrawFn, mode: Mode) -> list[Admission]:
    ids = draw(st.lists(st.sampled_from(_IDS), unique=True, max_size=5))
    rows = draw(st.permutations(range(1, 8)))
    return [draw(admissions(job, row, mode)) for job, row in zip(ids, rows, strict=False)]


@st.composite
def altered(draw: st.DrawFn, job: Admission, mode: Mode) -> Admission:
    """The same job, as it may stand when it is not quite as it should be."""
    if mode == "shared" and not job.transit:
        job = replace(job, region=draw(st.sampled_from([job.region, Region(0, 0)]) | regions()))
        if draw(st.booleans()):
            number = job.generation << 32 | draw(st.sampled_from([0, 7]))
            job = replace(job, change=RegionChange(number, draw(regions())))
    return replace(job, registration=draw(st.sampled_from([None, RUNS_OUT, LASTS])))


@st.composite
def damaged(draw: st.DrawFn, rows: Sequence[Row]) -> list[Row]:
    """Some of these rows, and some of them wrong."""
    kept = []
    for row in rows:
        fate = draw(st.sampled_from(["right", "right", "right", "lost", "wrong"]))
        if fate == "wrong" and isinstance(row, TableEntry) and "bitmap" in row.params:
            row = replace(row, params={**row.params, "bitmap": row.params["bitmap"] ^ 0b1000})
        if fate != "lost":
            kept.append(row)
    return kept


@st.composite
def cases(draw: st.DrawFn, mode: Mode, *, foreign: bool = False) -> Case:
    """Desired jobs; what is there: some of them, altered, others, rows of all of these missing or wrong."""
    desired = draw(jobs(mode))
    there = {job.job: draw(altered(job, mode)) for job in desired if draw(st.booleans())}
    taken = {job.counter_row for job in there.values()}
    for job in draw(jobs(mode)):
        if job.job not in there and job.counter_row not in taken:
            there[job.job] = job
            taken.add(job.counter_row)
    ours = [row for job in there.values() for row in all_rows(job)]
    if draw(st.booleans()):
        ours = draw(damaged(ours))
    others = [
        replace(job, generation=job.generation + 50, registration=LASTS)
        for job in (draw(jobs(mode)) if foreign else [])
        if job.job not in there and job.counter_row not in taken
    ]
    groups = {other.group for other in others}
    rows = [row for row in ours if isinstance(row, TableEntry) or row.id not in groups]
    return Case(desired, [*rows, *(row for other in others for row in all_rows(other))], others)
