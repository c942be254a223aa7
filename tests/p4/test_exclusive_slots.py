"""The decision tables of ``exclusive.p4``, packet by packet (docs/reference/protocol/switch.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.p4.bed import (
    BACK,
    BARE,
    BYPASS,
    COLLISION,
    DISAGREE,
    DOWN,
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
    UP,
    Job,
    Packet,
    Row,
    changed,
    check,
    named,
)

ROOT = Job(1, offset=8, slots=16, uplink=None)
CHILD = Job(1, offset=8, slots=16, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
"""The same job where this switch is no root: child 2 of the three of node 1."""
ALONE = Job(2, size=1, offset=8, slots=16, uplink=None)
ALONE_CHILD = Job(2, size=1, offset=8, slots=16, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
HOMELESS = Job(3, offset=0, slots=0)
INDEX = 8 + 100 % 16
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


def gradient(**changes: Any) -> Packet:
    return changed(Packet(), **changes)


def result(**changes: Any) -> Packet:
    return gradient(**{"kind": RESULT, "bitmap": 0b111} | changes)


CONTRIBUTIONS = [
    Row("raw", HELD, gradient(flags=RAW), "no_uplink"),
    Row("no slots", {}, gradient(job=3, epoch=3), "no_uplink", jobs=(HOMELESS,), row=3),
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
        (ALONE,),
        row=2,
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
        (ALONE_CHILD,),
        row=2,
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
        (CHILD,),
        beside={(1, "disagree"): 1},
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
        jobs=(CHILD,),
    ),
    Row(
        "sent up, no result yet",
        COMPLETE,
        gradient(node=3, flags=RESEND | QUERY | OVERFLOW),
        "relayed",
        UP,
        {**UPWARD, "flags": ECN | RESEND | QUERY, "exponent": 130, "values": SLOT},
        jobs=(CHILD,),
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
        beside={(1, "no_uplink"): 1},
        jobs=(replace(ROOT, below=BELOW),),
    ),
    Row("part of this node's sum", HELD, gradient(kind=PARTIAL), "wrong_rank"),
    Row("result at the root", HELD, result(bitmap=0b1111), "passed_up", beside={(1, "no_uplink"): 1}),
    Row(
        *("part", HELD, gradient(kind=PARTIAL, node=4), "passed_up", UP),
        jobs=(replace(CHILD, below=BELOW),),
    ),
]


@named(CONTRIBUTIONS + UPWARDS)
def test_a_packet_from_below(row: Row) -> None:
    check("exclusive", (ROOT,), row)


@named(FROM_ABOVE)
def test_a_packet_from_above(row: Row) -> None:
    check("exclusive", (CHILD,), row, 9)


@named([row for row in CONTRIBUTIONS if row.outcome in ("completed", "replayed", "relayed", "status")])
def test_the_interpreter_agrees(row: Row) -> None:
    check("exclusive", (ROOT,), row, backend="interpreter")


def test_every_kind_of_packet_is_here() -> None:
    kinds = {row.packet.kind for row in CONTRIBUTIONS + FROM_ABOVE + UPWARDS}
    assert kinds == {GRADIENT, RESULT, STATUS, PARTIAL, REMINDER}
