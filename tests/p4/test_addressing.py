"""Which slots a shared job's packets meet, and how a job moves from one region to another."""

from __future__ import annotations

import itertools

import pytest

from tests.p4.bed import GRADIENT, PARTIAL, REMINDER, RESEND, RESULT, SLOTS, Backend, Bed, Job, Left, Packet
from tests.softswitch.differential.script import parse_entry

BACKENDS = pytest.mark.parametrize("backend", ["compiled", "interpreter"])
PREFIX = "InaIngress.aggregator.addressing."


def taken(bed: Bed) -> dict[int, int]:
    """Return the slots that hold something, with the PSNs."""
    slots = {index: bed.slot(index) for index in range(SLOTS)}
    return {index: slot["psn"] for index, slot in slots.items() if slot["bitmap"]}


def claimed(bed: Bed, job: Job, psn: int) -> int:
    """Return the slot that the first contribution to a PSN claims."""
    before = taken(bed)
    bed.send(Packet(job=job.job, epoch=job.epochs & 0xFF, psn=psn, fan_in=job.size), next(iter(job.ports)))
    (index,) = taken(bed).keys() - before.keys()
    return index


@BACKENDS
@pytest.mark.parametrize("size", [1, 7, 16, 41])
def test_consecutive_psns_meet_each_slot_of_a_region_once(size: int, backend: Backend) -> None:
    job = Job(3, offset=5, slots=size, window=100)
    bed = Bed("shared", (job,), backend)
    slots = [claimed(bed, job, psn) for psn in range(1000, 1000 + size)]
    assert sorted(slots) == list(range(5, 5 + size))
    assert all((b - a) % size == 1 % size for a, b in itertools.pairwise(slots))


def test_jobs_that_share_a_region_start_apart() -> None:
    starts = []
    for number in range(1, 9):
        job = Job(number, offset=0, slots=SLOTS, window=100)
        starts.append(claimed(Bed("shared", (job,)), job, 0))
    assert len(set(starts)) == len(starts)


class Move:
    """A job of two in slots 0 to 9 that is to move to slots 20 to 26."""

    OLD, NEW = range(10), range(20, 27)
    JOB = Job(1, size=2, offset=0, slots=10, window=8)

    def __init__(self, backend: Backend = "compiled", *, begun: bool = True) -> None:
        self.bed = Bed("shared", (self.JOB,), backend)
        if begun:
            self.begin(7)

    def begin(self, number: int, region: range = NEW) -> None:
        text = f"change 1 => move({number}, {region.start}, {len(region)})"
        self.bed.pipeline.insert(*parse_entry(self.bed.pipeline.program, text))

    def send(self, psn: int, rank: int = 0, **changes: int) -> list[Left]:
        return self.bed.send(Packet(psn=psn, bitmap=1 << rank, fan_in=2, **changes), rank + 1)  # type: ignore[arg-type]

    @property
    def settled(self) -> int:
        return self.bed.pipeline.read_counter(PREFIX + "settled", 1)[0]


@BACKENDS
def test_a_job_moves_a_window_after_its_first_contribution(backend: Backend) -> None:
    move = Move(backend, begun=False)
    move.send(99)
    move.begin(7)
    for psn in range(100, 112):
        move.send(psn)
    held = taken(move.bed)
    assert {psn for index, psn in held.items() if index in move.OLD} == set(range(99, 108))
    assert {psn for index, psn in held.items() if index in move.NEW} == set(range(108, 112))
    # sums that were under way end where they began
    for psn in (99, 103, 107, 108, 111):
        left = move.send(psn, 1)
        assert [(packet.port, packet.packet.kind) for packet in left] == [(1, RESULT), (2, RESULT)]


def test_a_move_is_settled_when_nobody_needs_the_old_region() -> None:
    move = Move()
    for psn in range(100, 116):
        move.send(psn)
    assert move.settled == 0
    move.send(116, flags=RESEND)
    assert move.settled == 0, "what is sent again may have been sent before long"
    move.send(117)
    assert move.settled == 1


def test_what_is_sent_again_does_not_begin_a_move() -> None:
    move = Move()
    move.send(100, flags=RESEND)
    move.send(110, flags=0)
    move.send(112)
    move.send(117)
    assert all(index in move.OLD for index in taken(move.bed))
    move.send(118)
    assert [index for index in taken(move.bed) if index in move.NEW]


def test_what_comes_from_above_meets_the_region_that_its_psn_met() -> None:
    move = Move()
    for psn in (100, 108):
        move.send(psn)
        reminder = Packet(REMINDER, psn=psn, bitmap=3, fan_in=2, values=(), valid=0)
        (left,) = move.bed.send(reminder, 9)
        assert (left.port, left.packet.kind, left.packet.psn) == (9, PARTIAL, psn)


def test_a_later_move_is_another() -> None:
    move = Move()
    for psn in range(100, 117):
        move.send(psn)
    program = move.bed.pipeline.program
    move.bed.pipeline.delete(*parse_entry(program, "change 1 => move(7, 20, 7)"))
    _, row = parse_entry(program, next(iter(Job(1, size=2, offset=20, slots=7, window=8).entries())))
    move.bed.pipeline.modify("InaIngress.admission.job", row)
    move.begin(8, range(40, 45))
    move.send(200)
    move.send(207)
    assert not any(index >= 40 for index in taken(move.bed))
    move.send(208)
    assert 208 in {psn for index, psn in taken(move.bed).items() if index >= 40}


def test_a_region_of_no_slots_may_be_moved_to_and_from() -> None:
    move = Move(begun=False)
    move.begin(7, range(30, 30))
    move.send(100)
    assert [left.packet.kind for left in move.send(108)] == [PARTIAL]
    nothing = Job(1, size=2, offset=0, slots=0, window=8)
    bed = Bed("shared", (nothing,))
    bed.pipeline.insert(*parse_entry(bed.pipeline.program, "change 1 => move(9, 5, 4)"))
    assert [left.packet.kind for left in bed.send(Packet(psn=100, fan_in=2), 1)] == [PARTIAL]
    assert bed.send(Packet(GRADIENT, psn=108, fan_in=2), 1) == []
