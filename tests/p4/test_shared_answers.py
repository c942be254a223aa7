"""Packets from above and past the slots: every row of the tables of ``shared.p4`` (docs/protocol.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .bed import (
    ALL,
    BARE,
    ECN,
    FINAL,
    FULL,
    LANES,
    NONE,
    OVERFLOW,
    PACKET,
    PARTIAL,
    RAW,
    REMINDER,
    RESEND,
    RESULT,
    SLOT,
    STATUS,
    Packet,
)
from .shared_slots import (
    BELOW,
    COMPLETE,
    DOWN,
    FREED,
    HELD,
    NOW,
    RIVALS,
    ROOT,
    UP,
    Row,
    check,
    gradient,
    named,
    part,
)


def result(**changes: Any) -> Packet:
    return gradient(kind=RESULT, bitmap=0b1111, **changes)


def reminder(**changes: Any) -> Packet:
    return gradient(
        **{"kind": REMINDER, "values": NONE, "valid": 0, "bitmap": 0b1001, "target": ALL} | changes
    )


STORED = {"bitmap": 0b1111, "exponent": 120, "priority": 3, "touched": NOW}
FROM_ABOVE = [
    Row(
        "result of the slot's PSN",
        HELD,
        result(flags=OVERFLOW | RAW, tag=8),
        "stored",
        DOWN,
        after=STORED | {"tag": 8, "flags": OVERFLOW | RAW | FULL | FINAL},
        lanes=PACKET,
    ),
    Row(
        "result of a sum that was sent up",
        COMPLETE,
        gradient(kind=RESULT, bitmap=0b111),
        "stored",
        DOWN,
        after=STORED | {"flags": FULL | FINAL},
        lanes=PACKET,
        jobs=BELOW,
    ),
    Row(
        "result of the slot's PSN without lanes",
        HELD,
        result(values=NONE, valid=0),
        "stored",
        DOWN,
        after=STORED | {"flags": FULL | FINAL | BARE},
    ),
    Row("result of another PSN", HELD, result(psn=101), "passed_down", DOWN),
    Row("result, slot another job's", RIVALS, result(psn=55), "passed_down", DOWN),
    Row("result, no slots", {}, result(job=4, epoch=4), "passed_down", DOWN, row=4),
    Row(
        "reminder, the result is here",
        HELD | {"bitmap": 0b1111, "flags": ECN | FULL | FINAL},
        reminder(node=3),
        "pulled",
        UP,
        {
            "kind": RESULT,
            "flags": ECN,
            "exponent": 130,
            "priority": 8,
            "bitmap": 0b111,
            "node": 0,
            "target": 2,
            "values": SLOT,
            "valid": LANES,
        },
        jobs=BELOW,
    ),
    Row(
        "reminder, a part is here",
        HELD,
        reminder(tag=0, target=0, fan_in=0, exponent=0),
        "pulled",
        UP,
        part(
            flags=ECN,
            exponent=130,
            priority=8,
            bitmap=0b0010,
            tag=7,
            target=2,
            fan_in=4,
            values=SLOT,
            valid=LANES,
        ),
        FREED,
    ),
    Row(
        "reminder, the sum went up",
        COMPLETE,
        reminder(node=3),
        "pulled",
        UP,
        part(flags=ECN, exponent=130, priority=8, bitmap=0b1111, target=2, values=SLOT, valid=LANES),
        FREED,
        jobs=BELOW,
    ),
    Row(
        "reminder, a result without lanes is here, of a sum that others may take",
        HELD | {"bitmap": 0b1111, "flags": FULL | FINAL | BARE},
        reminder(node=3),
        "passed_down",
        DOWN,
        after=FREED,
        jobs=BELOW,
    ),
    Row("reminder of raw values, a part is here", HELD, reminder(flags=RAW), "passed_down", DOWN),
    Row(
        "reminder of raw values, a result that overflowed is here",
        HELD | {"bitmap": 0b1111, "flags": OVERFLOW | FULL | FINAL},
        reminder(flags=RAW),
        "passed_down",
        DOWN,
    ),
    Row("reminder for another node", HELD, reminder(node=4), "passed_down", DOWN),
    Row("reminder that asks one rank", HELD, reminder(node=4, target=2), "passed_down", (3,)),
    Row("reminder that asks a rank elsewhere", HELD, reminder(node=4, target=9), "passed_down"),
    Row("reminder of another PSN", HELD, reminder(psn=99), "passed_down", DOWN),
    Row("reminder, no slots", {}, reminder(job=4, epoch=4), "passed_down", DOWN, row=4),
    Row("status", HELD, gradient(kind=STATUS, values=NONE, valid=0, bitmap=5), "passed_down", DOWN),
]

UPWARDS = [
    Row(
        "part of a sum of a node below",
        HELD,
        gradient(kind=PARTIAL, bitmap=0b1010, flags=RESEND, node=4),
        "passed_up",
        UP,
        jobs=(replace(ROOT, below={2: range(3, 5)}),),
    ),
    Row("part of this node's sum", HELD, gradient(kind=PARTIAL, bitmap=0b0010), "wrong_rank"),
    Row(
        "part of the sum of a node behind another port",
        HELD,
        gradient(kind=PARTIAL, bitmap=0b1010, node=5),
        "wrong_rank",
        jobs=(replace(ROOT, below={2: range(3, 5), 3: range(5, 6)}),),
    ),
    Row("result of some ranks only", HELD, gradient(kind=RESULT, bitmap=0b0111), "wrong_rank"),
    Row("result of another node", HELD, result(node=4), "wrong_rank"),
    Row("result that a reminder asked for", HELD, result(flags=RESEND), "passed_up", UP),
    Row("result without lanes", HELD, result(values=NONE, valid=0), "passed_up", UP),
]


@named(FROM_ABOVE)
def test_a_packet_from_above(row: Row) -> None:
    check(row, 9)


@named(UPWARDS)
def test_a_packet_that_goes_up(row: Row) -> None:
    check(row, 2)


def test_every_other_kind_of_packet_is_here() -> None:
    kinds = {row.packet.kind for row in FROM_ABOVE + UPWARDS}
    assert kinds == {RESULT, STATUS, PARTIAL, REMINDER}
