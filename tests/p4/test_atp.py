"""``atp.p4``: what it does otherwise than ``shared.p4`` without preemption."""

from __future__ import annotations

from random import Random

import pytest

from tests.p4.bed import (
    COLLISION,
    GRADIENT,
    PARTIAL,
    QUERY,
    REMINDER,
    RESEND,
    RESULT,
    SLOTS,
    Backend,
    Bed,
    Job,
    Left,
    Packet,
)

BACKENDS = pytest.mark.parametrize("backend", ["compiled", "interpreter"])

JOB = Job(1, size=2, offset=0, slots=SLOTS, window=8)
OTHER = Job(2, size=2, offset=0, slots=1, window=8, members={5: 1, 6: 2}, uplink=8)
HERE = Job(1, size=2, offset=0, slots=1, window=8)
CHILD = Job(1, size=2, offset=0, slots=1, node=1, above=(0, 0b10, 2), result_bitmap=0b11, window=8)


def of(rank: int, job: int = 1, **changes: int) -> Packet:
    return Packet(bitmap=1 << rank, fan_in=2, job=job, epoch=job, **changes)  # type: ignore[arg-type]


def slot_of(psn: int, salt: int) -> int:
    bed = Bed("atp", (JOB,))
    bed.send(of(0, psn=psn, priority=salt), 1)
    (index,) = (index for index in range(SLOTS) if bed.slot(index)["bitmap"])
    return index


def test_a_position_of_the_window_keeps_its_slot() -> None:
    assert slot_of(100, 0) == slot_of(108, 0) == slot_of(172, 0)
    assert len({slot_of(psn, 0) for psn in range(100, 108)}) > 4


def test_another_salt_is_another_slot() -> None:
    assert len({slot_of(100, salt) for salt in range(8)}) > 4


@BACKENDS
def test_a_complete_sum_goes_to_the_server_and_its_slot_stays_taken(
    backend: Backend,
) -> None:
    bed = Bed("atp", (HERE, OTHER), backend)
    bed.send(of(0), 1)
    (left,) = bed.send(of(1), 2)
    assert (left.port, left.packet.kind, left.packet.bitmap, left.packet.node) == (9, PARTIAL, 0b11, 0)
    assert left.packet.values == tuple(2 * value for value in of(0).values)
    (collided,) = bed.send(of(0, 2), 5)
    assert (collided.port, collided.packet.flags) == (8, COLLISION)

    results = bed.send(Packet(RESULT, bitmap=0b11, fan_in=2), 9)
    assert [(left.port, left.packet.kind) for left in results] == [(1, RESULT), (2, RESULT)]
    assert bed.send(of(0, 2), 5) == [], "the slot is free"


@BACKENDS
def test_a_complete_sum_is_sent_up_again_if_asked_for(
    backend: Backend,
) -> None:
    bed = Bed("atp", (HERE,), backend)
    for rank in range(2):
        bed.send(of(rank), rank + 1)
    assert bed.send(of(0), 1) == []
    (left,) = bed.send(of(0, flags=RESEND), 1)
    assert (left.port, left.packet.kind, left.packet.bitmap) == (9, PARTIAL, 0b11)
    assert bed.counts() == {"aggregated": 1, "completed": 1, "duplicate": 1, "relayed": 1}


@BACKENDS
def test_below_the_root_the_sum_goes_up_as_a_contribution_and_the_slot_stays_taken_too(
    backend: Backend,
) -> None:
    bed = Bed("atp", (CHILD, OTHER), backend)
    bed.send(of(0, node=1), 1)
    (left,) = bed.send(of(1, node=1), 2)
    assert (left.port, left.packet.kind, left.packet.bitmap, left.packet.node) == (9, 1, 0b10, 0)
    assert len(bed.send(of(0, 2), 5)) == 1
    bed.send(Packet(RESULT, bitmap=0b11, fan_in=2), 9)
    assert bed.send(of(0, 2), 5) == []


def test_a_reminder_with_the_salt_pulls_a_complete_sum() -> None:
    bed = Bed("atp", (JOB,))
    for rank in range(2):
        bed.send(of(rank, priority=3), rank + 1)
    reminder = Packet(REMINDER, bitmap=0b10, fan_in=2, priority=3, values=(), valid=0)
    (pulled,) = bed.send(reminder, 9)
    assert (pulled.port, pulled.packet.kind, pulled.packet.bitmap) == (9, PARTIAL, 0b11)
    assert [left.port for left in bed.send(reminder, 9)] == [1, 2], "the slot is free"


WHOLE = Job(1, size=2, offset=0, slots=8, window=4)
PART = Job(2, size=2, offset=4, slots=4, node=1, above=(0, 0b10, 2), result_bitmap=0b11, window=4)


def any_packet(random: Random) -> tuple[Packet, int]:
    """Return what a rank or the fallback server of one of both jobs may send, and its port."""
    job = random.choice([1, 2])
    psn, salt = random.randrange(100, 112), random.choice([0, 0, 1, 255])
    common = {"job": job, "epoch": job, "fan_in": 2, "psn": psn, "priority": salt}
    if random.random() < 0.8:
        rank = random.randrange(2)
        flags = random.choice([0, 0, 0, RESEND, RESEND | QUERY])
        node = int(job == 2)
        return Packet(GRADIENT, flags, bitmap=1 << rank, node=node, **common), rank + 1
    if random.random() < 0.7:
        return Packet(RESULT, bitmap=0b11, **common), 9
    return Packet(REMINDER, bitmap=0b11, node=int(job == 2), values=(), valid=0, **common), 9


def test_the_interpreter_agrees_with_the_compiled_program() -> None:
    def trace(backend: Backend) -> tuple[list[list[Left]], list[dict[str, int]], dict[str, int]]:
        random = Random(9)
        bed = Bed("atp", (WHOLE, PART), backend)
        left = [bed.send(*any_packet(random), after_us=random.choice([1, 20, 200])) for _ in range(400)]
        return left, [bed.slot(index) for index in range(8)], bed.counts(1) | bed.counts(2)

    compiled, interpreted = trace("compiled"), trace("interpreter")
    assert compiled == interpreted
    reached = {
        "aggregated",
        "completed",
        "collided",
        "relayed",
        "flushed",
        "pulled",
        "passed_down",
        "duplicate",
    }
    assert compiled[2].keys() >= reached | {"reclaimed", "status"}
