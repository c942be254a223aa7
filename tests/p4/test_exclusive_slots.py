"""The decision tables of ``exclusive.p4``, packet by packet (docs/reference/protocol/switch.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.p4.bed import (
    BARE,
    BYPASS,
    COLLISION,
    DISAGREE,
    ECN,
    FINAL,
    GRADIENT,
    NONE,
    OVERFLOW,
    PACKET,
    PARTIAL,
    QUERY,
    RAW,
    REMINDER,
    RESEND,
    RESULT,
    SLOT,
    STATUS,
    SUM,
    Backend,
    Bed,
    Job,
    Packet,
    changed,
)

ROOT = Job(1, offset=8, slots=16, uplink=None)
CHILD = Job(1, offset=8, slots=16, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
"""The same job where this switch is no root: child 2 of the three of node 1."""
ALONE = Job(2, size=1, offset=8, slots=16, uplink=None)
ALONE_CHILD = Job(2, size=1, offset=8, slots=16, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
HOMELESS = Job(3, offset=0, slots=0)
INDEX = 8 + 100 % 16
BACK, DOWN, UP = (1,), (1, 2, 3, 4), (9,)
UPWARD = {"node": 1, "bitmap": 0b100, "fan_in": 3}

BELOW = {port: range(4, 5) for port in (1, 2)}
"""Node 4 is behind both, so that it does not matter which."""
HELD = {
    "generation": ROOT.epochs,
    "psn": 100,
    "bitmap": 0b0010,
    "tag": 7,
    "exponent": 130,
    "flags": ECN,
}
THREE = HELD | {"bitmap": 0b1110}
COMPLETE = HELD | {"bitmap": 0b1111}
FINISHED = HELD | {"bitmap": 0b1111, "flags": ECN | FINAL}
CLAIMED = HELD | {"bitmap": 1, "exponent": 120, "flags": 0}


@dataclass(frozen=True)
class Row:
    """What a packet finds and what becomes of it: `sent` as changes to the packet, `after` to the slot."""

    name: str
    slot: dict[str, int]
    packet: Packet
    outcome: str
    ports: tuple[int, ...] = ()
    sent: dict[str, Any] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    lanes: tuple[int, ...] = SLOT
    job: Job = ROOT
    port: int = 1
    beside: tuple[str, ...] = ()


def gradient(**changes: Any) -> Packet:
    return changed(Packet(), **changes)


def result(**changes: Any) -> Packet:
    return gradient(**{"kind": RESULT, "bitmap": 0b111} | changes)


CONTRIBUTIONS = [
    Row("raw", HELD, gradient(flags=RAW), "no_uplink"),
    Row("no slots", {}, gradient(job=3, epoch=3), "no_uplink", job=HOMELESS),
    Row("slot never used", {}, gradient(flags=QUERY), "aggregated", after=CLAIMED, lanes=PACKET),
    Row(
        "slot of an older PSN",
        HELD | {"psn": 84},
        gradient(flags=RESEND | BYPASS | COLLISION),
        "aggregated",
        after=CLAIMED | {"flags": COLLISION},
        lanes=PACKET,
    ),
    Row(
        "slot of an older PSN, wrapped",
        HELD | {"psn": 2**32 - 12},
        gradient(psn=4),
        "aggregated",
        after=CLAIMED | {"psn": 4},
        lanes=PACKET,
    ),
    Row(
        "slot of a job that is gone",
        FINISHED | {"generation": 1, "psn": 116},
        gradient(),
        "aggregated",
        after=CLAIMED,
        lanes=PACKET,
    ),
    Row(
        "alone",
        {},
        gradient(job=2, epoch=2, fan_in=1, flags=ECN),
        "completed",
        BACK,
        {"kind": RESULT, "flags": ECN},
        CLAIMED | {"generation": ALONE.epochs, "flags": ECN | FINAL},
        PACKET,
        ALONE,
    ),
    Row(
        "alone, not root",
        {},
        gradient(job=2, epoch=2, fan_in=1, node=3, flags=RESEND | QUERY),
        "completed",
        UP,
        {**UPWARD, "flags": 0},
        CLAIMED | {"generation": ALONE.epochs},
        PACKET,
        ALONE_CHILD,
    ),
    Row(
        "one more, with all that a contribution may say",
        HELD,
        gradient(exponent=131, tag=8, flags=OVERFLOW | COLLISION | RESEND),
        "aggregated",
        after={"bitmap": 0b0011, "exponent": 131, "flags": ECN | OVERFLOW | COLLISION | DISAGREE},
        lanes=SUM,
    ),
    Row(
        "last contribution",
        THREE,
        gradient(flags=RESEND | QUERY),
        "completed",
        DOWN,
        {"kind": RESULT, "flags": ECN, "exponent": 130, "bitmap": 0b1111, "values": SUM},
        {"bitmap": 0b1111, "flags": ECN | FINAL},
        SUM,
    ),
    Row(
        "last contribution, not root",
        THREE,
        gradient(node=3, flags=RESEND | QUERY, tag=8),
        "completed",
        UP,
        {**UPWARD, "flags": ECN | DISAGREE, "exponent": 130, "tag": 7, "values": SUM},
        {"bitmap": 0b1111, "flags": ECN | DISAGREE},
        SUM,
        CHILD,
        beside=("disagree",),
    ),
    Row(
        "the result is here",
        FINISHED,
        gradient(flags=RESEND | QUERY, tag=8, exponent=200),
        "replayed",
        BACK,
        {"kind": RESULT, "flags": ECN, "exponent": 130, "tag": 7, "bitmap": 0b1111, "values": SLOT},
    ),
    Row(
        "the result is here, not root",
        FINISHED,
        gradient(node=3),
        "replayed",
        BACK,
        {"kind": RESULT, "flags": ECN, "exponent": 130, "bitmap": 0b111, "node": 0, "values": SLOT},
        job=CHILD,
    ),
    Row(
        "sent up, no result yet",
        COMPLETE,
        gradient(node=3, flags=RESEND | QUERY | OVERFLOW),
        "relayed",
        UP,
        {**UPWARD, "flags": ECN | RESEND | QUERY, "exponent": 130, "values": SLOT},
        job=CHILD,
    ),
    Row(
        "already counted, who is missing",
        HELD,
        gradient(bitmap=2, flags=QUERY),
        "status",
        (2,),
        {"kind": STATUS, "flags": ECN, "exponent": 130, "values": NONE, "valid": 0},
        port=2,
    ),
    Row("already counted", HELD, gradient(bitmap=2, flags=RESEND | OVERFLOW), "duplicate", port=2),
    Row("late copy", HELD | {"psn": 116}, gradient(flags=RESEND | QUERY), "stale"),
    Row("late copy, wrapped", HELD | {"psn": 4}, gradient(psn=2**32 - 12), "stale"),
]

FROM_ABOVE = [
    Row(
        "result of the slot's PSN",
        COMPLETE,
        result(flags=OVERFLOW, tag=8),
        "stored",
        DOWN,
        after={"flags": OVERFLOW | FINAL, "tag": 8, "exponent": 120},
        lanes=PACKET,
    ),
    Row(
        "result of the slot's PSN, some of it missing here",
        HELD,
        result(),
        "stored",
        DOWN,
        after={"flags": FINAL, "exponent": 120, "bitmap": 0b1111},
        lanes=PACKET,
    ),
    Row("result again", FINISHED, result(), "duplicate"),
    Row("result again, without lanes", FINISHED, result(values=NONE, valid=0), "duplicate"),
    Row(
        "result without lanes",
        HELD,
        result(values=NONE, valid=0),
        "stored",
        DOWN,
        after={"flags": FINAL | BARE, "exponent": 120, "bitmap": 0b1111},
    ),
    Row("late result", HELD | {"psn": 116}, result(), "stale"),
    Row("result of a later PSN", HELD | {"psn": 84}, result(), "passed_down", DOWN),
    Row("result, slot of a job that is gone", HELD | {"generation": 9}, result(), "passed_down", DOWN),
    Row("status", HELD, gradient(kind=STATUS, values=NONE, valid=0), "passed_down", DOWN),
    Row("reminder", HELD, gradient(kind=REMINDER, values=NONE, valid=0, node=3), "wrong_direction"),
]

UPWARDS = [
    Row(
        "part at the root",
        HELD,
        gradient(kind=PARTIAL, node=4),
        "passed_up",
        beside=("no_uplink",),
        job=replace(ROOT, below=BELOW),
    ),
    Row("part of this node's sum", HELD, gradient(kind=PARTIAL), "wrong_rank"),
    Row("result at the root", HELD, result(bitmap=0b1111), "passed_up", beside=("no_uplink",)),
    Row(
        *("part", HELD, gradient(kind=PARTIAL, node=4), "passed_up", UP),
        job=replace(CHILD, below=BELOW),
    ),
]


def check(row: Row, port: int, backend: Backend = "compiled") -> None:
    bed = Bed("exclusive", (row.job,), backend)
    index = row.job.offset + row.packet.psn % 16
    bed.fill(index, row.slot)
    before = bed.slot(index)
    left = bed.send(row.packet, port)
    assert [packet.port for packet in left] == list(row.ports)
    for packet in left:
        assert packet.packet == changed(row.packet, **row.sent), packet.port
    assert bed.slot(index) == before | row.after
    assert bed.lanes(index) == row.lanes
    assert bed.counts(row.job.job) == dict.fromkeys((row.outcome, *row.beside), 1)


def named(rows: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


@named(CONTRIBUTIONS)
def test_a_contribution(row: Row) -> None:
    check(row, row.port)


@named(FROM_ABOVE)
def test_a_packet_from_above(row: Row) -> None:
    check(
        Row(row.name, row.slot, row.packet, row.outcome, row.ports, row.sent, row.after, row.lanes, CHILD), 9
    )


@named(UPWARDS)
def test_a_packet_that_goes_up(row: Row) -> None:
    check(row, row.port)


@named([row for row in CONTRIBUTIONS if row.outcome in ("completed", "replayed", "relayed", "status")])
def test_the_interpreter_agrees(row: Row) -> None:
    check(row, row.port, "interpreter")


def test_every_kind_of_packet_is_here() -> None:
    kinds = {row.packet.kind for row in CONTRIBUTIONS + FROM_ABOVE + UPWARDS}
    assert kinds == {GRADIENT, RESULT, STATUS, PARTIAL, REMINDER}
