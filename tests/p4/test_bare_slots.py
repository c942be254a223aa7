"""Contributions without lanes, in both programs: whatever has none adds nothing, and goes on without."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest

from tests.p4.bed import (
    ALL,
    BARE,
    BUT,
    FINAL,
    FULL,
    NONE,
    PACKET,
    PARTIAL,
    QUERY,
    REMINDER,
    RESEND,
    RESULT,
    SLOT,
    Backend,
    Bed,
    Job,
    Packet,
    changed,
)

Program = Literal["exclusive", "shared"]
PROGRAMS: tuple[Program, ...] = ("exclusive", "shared")
ROOT = Job(1, slots=4)
CHILD = Job(1, slots=4, node=3, above=(1, 0b100, 3), result_bitmap=0b111)


def contribution(child: int, *, lanes: bool, **changes: object) -> Packet:
    """Return what a child sends: its number plus one in all lanes, or none."""
    values = tuple([child + 1] * len(PACKET)) if lanes else NONE
    return changed(Packet(bitmap=1 << child, values=values), **changes)


def sum_of(children: set[int]) -> tuple[int, ...]:
    """Return the lanes of the sum of those that have lanes."""
    return tuple([sum(child + 1 for child in children)] * len(PACKET)) if children else NONE


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_sum_has_lanes_if_one_of_its_contributions_has(program: Program, backend: Backend) -> None:
    beds = {node: Bed(program, (job,), backend) for node, job in ((0, ROOT), (3, CHILD))}
    psn = 100
    for giving, node in itertools.product(itertools.product((False, True), repeat=4), beds):
        psn += 16  # of a window on: nothing of the one before counts
        givers = {child for child in range(4) if giving[child]}
        for child in (2, 0, 3):
            assert not beds[node].send(
                contribution(child, lanes=giving[child], psn=psn, node=node), child + 1
            )
        left = beds[node].send(contribution(1, lanes=giving[1], psn=psn, node=node), 2)
        assert [packet.port for packet in left] == ([1, 2, 3, 4] if node == 0 else [9])
        assert all(packet.packet.values == sum_of(givers) for packet in left), givers
        # again: from the cache of the slot, in a packet that may have had lanes or none
        again = contribution(2, lanes=giving[1], psn=psn, node=node, flags=RESEND)
        (repeated,) = beds[node].send(again, 3)
        assert repeated.packet.values == sum_of(givers)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("target", "taking"),
    [
        pytest.param(ALL, {0, 1, 2, 3}, id="all"),
        pytest.param(2, {2}, id="one"),
        pytest.param(BUT | 2, {0, 1, 3}, id="all but one"),
    ],
)
def test_only_who_takes_a_result_gets_its_lanes(program: Program, target: int, taking: set[int]) -> None:
    bed = Bed(program, (ROOT,))
    for child in range(3):
        bed.send(contribution(child, lanes=child == 2, target=target), child + 1)
    left = bed.send(contribution(3, lanes=False, target=target), 4)
    assert {packet.port - 1: bool(packet.packet.values) for packet in left} == {
        child: child in taking for child in range(4)
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_slot_is_bare_until_a_contribution_has_lanes(program: Program) -> None:
    bed = Bed(program, (ROOT,))
    index = (
        4 + 100 % 4
        if program == "exclusive"
        else next(i for i in range(64) if holding(lanes=True).slot(i)["bitmap"] == 1)
    )
    bed.fill(index, {}, SLOT)
    bed.send(contribution(0, lanes=False), 1)
    assert (bed.slot(index)["flags"], bed.lanes(index)) == (BARE, SLOT)
    bed.send(contribution(1, lanes=True), 2)
    assert (bed.slot(index)["flags"], bed.lanes(index)) == (0, sum_of({1}))
    bed.send(contribution(2, lanes=False), 3)
    bed.send(contribution(3, lanes=True), 4)
    final = FINAL if program == "exclusive" else FINAL | FULL
    assert (bed.slot(index)["flags"], bed.lanes(index)) == (final, sum_of({1, 3}))


def holding(*, lanes: bool) -> Bed:
    """Return a bed whose slot holds the contribution of the first child, with lanes or without."""
    bed = Bed("shared", (ROOT,))
    bed.send(contribution(0, lanes=lanes), 1)
    return bed


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_a_part_that_is_flushed_has_lanes_if_one_of_its_contributions_has(held: bool, flushes: bool) -> None:
    bed = holding(lanes=held)
    (left,) = bed.send(contribution(1, lanes=flushes, flags=RESEND), 2)
    assert (left.port, left.packet.kind, left.packet.bitmap) == (9, PARTIAL, 0b11)
    assert left.packet.values == sum_of({child for child, gives in enumerate((held, flushes)) if gives})


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_a_part_that_is_flushed_by_what_it_contains_is_as_the_slot_has_it(held: bool, repeated: bool) -> None:
    bed = holding(lanes=held)
    (left,) = bed.send(contribution(0, lanes=repeated, flags=RESEND), 1)
    assert (left.packet.kind, left.packet.values) == (PARTIAL, sum_of({0} if held else set()))


@pytest.mark.parametrize("held", [False, True])
def test_a_reminder_pulls_what_the_slot_has(held: bool) -> None:
    bed = holding(lanes=held)
    reminder = Packet(kind=REMINDER, bitmap=0b1110, values=NONE, valid=0)
    (left,) = bed.send(reminder, 9)
    assert (left.port, left.packet.kind, left.packet.bitmap) == (9, PARTIAL, 1)
    assert left.packet.values == sum_of({0} if held else set())


@pytest.mark.parametrize("comes", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_a_sum_that_makes_room_takes_its_lanes_along_and_leaves_the_others(held: bool, comes: bool) -> None:
    one = Job(1, slots=1)
    bed = Bed("shared", (one, Job(2, size=2, slots=1, preempt=True, members={5: 1, 6: 2}, uplink=8)))
    bed.send(contribution(0, lanes=held), 1)
    urgent = {"job": 2, "epoch": 2, "fan_in": 2, "priority": 9, "psn": 7}
    (left,) = bed.send(contribution(0, lanes=comes, **urgent), 5)
    assert (left.port, left.packet.kind, left.packet.job, left.packet.bitmap) == (9, PARTIAL, 1, 1)
    assert left.packet.values == sum_of({0} if held else set())
    results = bed.send(contribution(1, lanes=False, **urgent), 6)
    assert [packet.packet.kind for packet in results] == [RESULT, RESULT]
    assert all(packet.packet.values == sum_of({0} if comes else set()) for packet in results)


@pytest.mark.parametrize("program", PROGRAMS)
def test_who_asks_without_lanes_is_answered(program: Program) -> None:
    bed = Bed(program, (ROOT,))
    bed.send(contribution(0, lanes=False), 1)
    (left,) = bed.send(contribution(0, lanes=False, flags=RESEND | QUERY), 1)
    assert (left.port, left.packet.bitmap, left.packet.values) == (1, 1, NONE)
