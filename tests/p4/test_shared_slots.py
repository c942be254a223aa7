"""Jobs, slots, and the rows of ``shared.p4``: what a packet finds and what becomes of it.

Packets from above and past the slots: the tables of ``shared.p4`` (docs/reference/protocol/shared.md).

Contributions: the decision table of ``shared.p4``, row by row (docs/reference/protocol/shared.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.p4.bed import (
    ALL,
    ALONE_DOWN,
    BACK,
    BARE,
    BYPASS,
    COLLISION,
    DISAGREE,
    DOWN,
    ECN,
    FINAL,
    FULL,
    GRADIENT,
    LANES,
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

ROOT = Job(1)
CHILD = Job(1, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
"""The same job where this switch is no root: child 2 of the three of node 1."""
RIVAL = Job(2, size=2, preempt=True, members={5: 1, 6: 2}, uplink=8)
RIVAL_CHILD = Job(2, size=2, node=6, above=(5, 0b10, 2), members={5: 1, 6: 2}, uplink=8)
ALONE = Job(3, size=1, members={7: 1})
ALONE_CHILD = Job(3, size=1, node=3, above=(1, 0b100, 3), result_bitmap=0b111, members={7: 1})
HOMELESS = Job(4, slots=0, offset=0)
JOBS = (ROOT, RIVAL, ALONE, HOMELESS)
RIVAL_UP = (8,)

HELD = {
    "generation": ROOT.epochs,
    "psn": 100,
    "bitmap": 0b0010,
    "tag": 7,
    "touched": 9_990,
    "exponent": 130,
    "flags": ECN,
    "job": 1,
    "target": 2,
    "priority": 8,
}
"""A slot that a contribution of child 1 to PSN 100 of job 1 has claimed."""
RIVALS = HELD | {"generation": RIVAL.epochs, "psn": 55, "bitmap": 0b01, "job": 2, "tag": 9, "exponent": 90}
NOW = 10_001
FREED = {"bitmap": 0}
CLAIMED = {
    "generation": ROOT.epochs,
    "psn": 100,
    "bitmap": 1,
    "tag": 7,
    "touched": NOW,
    "exponent": 120,
    "flags": 0,
    "job": 1,
    "target": 2,
    "priority": 3,
}


def gradient(**changes: Any) -> Packet:
    return changed(Packet(priority=3, target=2), **changes)


def rival(**changes: Any) -> Packet:
    return gradient(**{"job": 2, "fan_in": 2, "epoch": 2, "priority": 9} | changes)


def alone(**changes: Any) -> Packet:
    return gradient(job=3, fan_in=1, epoch=3, **changes)


def part(**changes: Any) -> dict[str, Any]:
    """A single contribution on its way to the fallback server."""
    return {"kind": PARTIAL} | changes


BELOW = (CHILD, RIVAL, ALONE_CHILD, HOMELESS)
UPWARD = {"node": 1, "bitmap": 0b100, "fan_in": 3}
"""How a sum of CHILD presents itself to the switch above."""
COMPLETE = HELD | {"bitmap": 0b1111, "flags": ECN | FULL}
THREE = HELD | {"bitmap": 0b1110}


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
    check("shared", JOBS, row, 9)


@named(UPWARDS)
def test_a_packet_that_goes_up(row: Row) -> None:
    check("shared", JOBS, row, 2)


def test_every_other_kind_of_packet_is_here() -> None:
    kinds = {row.packet.kind for row in FROM_ABOVE + UPWARDS}
    assert kinds == {RESULT, STATUS, PARTIAL, REMINDER}


SAME = [
    Row("raw", HELD, gradient(flags=RAW), "bypassed", UP, part(flags=RAW)),
    Row(
        "raw int32 of a contribution that is in the slot, asked again",
        HELD,
        gradient(flags=RAW | RESEND | QUERY, bitmap=2, valid=0x8000 | LANES),
        "bypassed",
        UP,
        part(flags=RAW | RESEND | QUERY),
        port=2,
    ),
    Row(
        "the result is here",
        HELD | {"bitmap": 0b1111, "flags": ECN | FULL | FINAL},
        gradient(flags=RESEND | QUERY),
        "replayed",
        BACK,
        {"kind": RESULT, "flags": ECN, "exponent": 130, "bitmap": 0b1111, "values": SLOT},
    ),
    Row(
        "a raw result is here",
        HELD | {"bitmap": 0b1111, "flags": RAW | FULL | FINAL},
        gradient(),
        "replayed",
        BACK,
        {"kind": RESULT, "flags": RAW, "exponent": 130, "bitmap": 0b1111, "values": SLOT},
    ),
    Row(
        "the result is here, this is no root",
        HELD | {"bitmap": 0b1111, "flags": FULL | FINAL},
        gradient(node=3),
        "replayed",
        BACK,
        {"kind": RESULT, "exponent": 130, "bitmap": 0b111, "node": 0, "values": SLOT},
        jobs=BELOW,
    ),
    Row(
        "sent up, no result yet, asked again",
        COMPLETE,
        gradient(node=3, flags=RESEND),
        "relayed",
        UP,
        {**UPWARD, "flags": ECN | RESEND, "exponent": 130, "values": SLOT},
        jobs=BELOW,
    ),
    Row(
        "sent up, no result yet, asked again who is missing",
        COMPLETE,
        gradient(node=3, flags=RESEND | QUERY | OVERFLOW),
        "relayed",
        UP,
        {**UPWARD, "flags": ECN | RESEND | QUERY, "exponent": 130, "values": SLOT},
        jobs=BELOW,
    ),
    Row("sent up, a duplicate", COMPLETE, gradient(node=3, flags=QUERY), "duplicate", jobs=BELOW),
    Row(
        "last contribution, root",
        THREE,
        gradient(flags=RESEND),
        "completed",
        DOWN,
        {"kind": RESULT, "flags": ECN, "exponent": 130, "bitmap": 0b1111, "values": SUM},
        {"bitmap": 0b1111, "flags": ECN | FULL | FINAL, "priority": 3, "touched": NOW},
        SUM,
    ),
    Row(
        "last contribution, not root",
        THREE,
        gradient(flags=RESEND | QUERY, exponent=140, node=3),
        "completed",
        UP,
        {**UPWARD, "flags": ECN, "exponent": 140, "values": SUM},
        {"bitmap": 0b1111, "exponent": 140, "flags": ECN | FULL, "priority": 3, "touched": NOW},
        SUM,
        BELOW,
    ),
    Row(
        "last contribution overflows",
        THREE,
        gradient(values=(2**31 - 1, *PACKET[1:])),
        "completed",
        DOWN,
        {
            "kind": RESULT,
            "flags": ECN | OVERFLOW,
            "exponent": 130,
            "bitmap": 0b1111,
            "values": (-(2**31), *SUM[1:]),
        },
        {"bitmap": 0b1111, "flags": ECN | OVERFLOW | FULL | FINAL, "priority": 3, "touched": NOW},
        (-(2**31), *SUM[1:]),
        beside={(1, "overflow"): 1},
        before=(1, *SLOT[1:]),
    ),
    Row(
        "last contribution disagrees",
        THREE,
        gradient(tag=8),
        "completed",
        DOWN,
        {"kind": RESULT, "flags": ECN | DISAGREE, "tag": 7, "exponent": 130, "bitmap": 0b1111, "values": SUM},
        {"bitmap": 0b1111, "flags": ECN | DISAGREE | FULL | FINAL, "priority": 3, "touched": NOW},
        SUM,
        beside={(1, "disagree"): 1},
    ),
    Row(
        "resend of one more",
        HELD,
        gradient(flags=RESEND),
        "flushed",
        UP,
        part(flags=ECN, bitmap=0b0011, exponent=130, values=SUM),
        FREED,
        SUM,
    ),
    Row(
        "query of one more",
        HELD,
        gradient(flags=RESEND | QUERY),
        "aggregated",
        after={"bitmap": 0b0011, "priority": 3, "touched": NOW},
        lanes=SUM,
    ),
    Row(
        "one more, with all that a contribution may say",
        HELD,
        gradient(exponent=131, tag=8, priority=200, target=1, flags=OVERFLOW | COLLISION | BYPASS),
        "aggregated",
        after={
            "bitmap": 0b0011,
            "touched": NOW,
            "exponent": 131,
            "priority": 200,
            "flags": ECN | OVERFLOW | COLLISION | DISAGREE,
        },
        lanes=SUM,
    ),
    Row(
        "already counted, who is missing",
        HELD,
        gradient(bitmap=2, flags=RESEND | QUERY),
        "status",
        (2,),
        {"kind": STATUS, "flags": ECN, "exponent": 130, "values": NONE, "valid": 0},
        port=2,
    ),
    Row(
        "already counted, asked again",
        HELD,
        gradient(bitmap=2, flags=RESEND | OVERFLOW),
        "flushed",
        UP,
        part(flags=ECN, exponent=130, values=SLOT),
        FREED,
        port=2,
    ),
    Row("already counted, a duplicate", HELD, gradient(bitmap=2, tag=8, flags=OVERFLOW), "duplicate", port=2),
]

OTHERWISE = [
    Row(
        "alone, slot free",
        {},
        alone(flags=RESEND | QUERY | ECN),
        "completed",
        ALONE_DOWN,
        {"kind": RESULT, "flags": ECN},
        port=7,
        row=3,
    ),
    Row(
        "alone, slot taken",
        HELD,
        alone(),
        "completed",
        ALONE_DOWN,
        {"kind": RESULT},
        port=7,
        row=3,
    ),
    Row(
        "alone, not root",
        HELD,
        alone(node=3, flags=RESEND | QUERY | BYPASS),
        "completed",
        UP,
        {**UPWARD, "flags": RESEND | QUERY | BYPASS},
        jobs=BELOW,
        port=7,
        row=3,
    ),
    Row("resend, slot free", {}, gradient(flags=RESEND), "bypassed", UP, part(flags=RESEND)),
    Row(
        "resend, slot taken",
        RIVALS,
        gradient(flags=RESEND | QUERY | ECN),
        "bypassed",
        UP,
        part(flags=RESEND | QUERY | ECN),
    ),
    Row("not to claim, slot free", {}, gradient(flags=BYPASS), "bypassed", UP, part(flags=BYPASS)),
    Row(
        "not to claim, slot taken",
        RIVALS,
        gradient(flags=BYPASS | QUERY),
        "bypassed",
        UP,
        part(flags=BYPASS | QUERY),
    ),
    Row(
        "no slots",
        {},
        gradient(job=4, epoch=4),
        "bypassed",
        UP,
        part(),
        row=4,
    ),
    Row(
        "slot never used", {}, gradient(flags=ECN), "aggregated", after=CLAIMED | {"flags": ECN}, lanes=PACKET
    ),
    Row("slot freed", HELD | FREED, gradient(flags=QUERY), "aggregated", after=CLAIMED, lanes=PACKET),
    Row(
        "slot full, another job's",
        RIVALS | {"flags": FULL},
        gradient(),
        "aggregated",
        after=CLAIMED,
        lanes=PACKET,
    ),
    Row(
        "slot of an earlier admission of the job",
        HELD | {"generation": ROOT.epochs - 1},
        gradient(),
        "aggregated",
        after=CLAIMED,
        lanes=PACKET,
    ),
    Row(
        "slot of a PSN a window ago",
        HELD | {"psn": 92},
        gradient(),
        "aggregated",
        after=CLAIMED,
        lanes=PACKET,
    ),
    Row(
        "slot of a PSN a window ago, wrapped",
        HELD | {"psn": 2**32 - 4},
        gradient(psn=4),
        "aggregated",
        after=CLAIMED | {"psn": 4},
        lanes=PACKET,
    ),
    *(
        Row(name, slot, packet, "collided", UP, part(flags=COLLISION), {"flags": ECN | COLLISION})
        for name, slot, packet in (
            ("taken by a PSN of the window", HELD | {"psn": 93}, gradient()),
            ("taken by a later PSN", HELD | {"psn": 101}, gradient()),
            ("taken by another job", RIVALS, gradient(priority=200)),
            ("taken by another job, touched not too long ago", RIVALS | {"touched": NOW - 100}, gradient()),
        )
    ),
    *(
        Row(
            name,
            HELD | {"priority": priority},
            rival(priority=8, flags=QUERY),
            "collided",
            RIVAL_UP,
            part(flags=COLLISION | QUERY),
            {"flags": ECN | COLLISION, "priority": max(0, priority - RIVAL.ageing)},
            port=5,
            row=2,
        )
        for name, priority in (
            ("taken by one of higher priority", 9),
            ("taken by one of equal priority", 8),
        )
    ),
    Row(
        "taken by one that is too old",
        RIVALS | {"touched": NOW - 101, "flags": ECN | OVERFLOW},
        gradient(),
        "reclaimed",
        RIVAL_UP,
        part(
            job=2,
            psn=55,
            bitmap=0b01,
            fan_in=2,
            node=0,
            priority=8,
            exponent=90,
            epoch=2,
            tag=9,
            flags=ECN | OVERFLOW,
            values=SLOT,
        ),
        CLAIMED,
        PACKET,
        beside={(2, "evicted"): 1},
    ),
    Row(
        "taken by one that is too old, of another node, with few valid lanes in the packet that came",
        RIVALS | {"touched": NOW - 5000},
        gradient(valid=3, priority=200),
        "reclaimed",
        RIVAL_UP,
        part(
            job=2,
            psn=55,
            bitmap=0b01,
            fan_in=2,
            node=6,
            priority=8,
            exponent=90,
            epoch=2,
            tag=9,
            flags=ECN,
            values=SLOT,
            valid=LANES,
        ),
        CLAIMED | {"priority": 200},
        PACKET,
        (ROOT, RIVAL_CHILD),
        beside={(2, "evicted"): 1},
    ),
    Row(
        "taken by one of lower priority",
        HELD,
        rival(target=0),
        "preempted",
        UP,
        part(
            job=1,
            epoch=1,
            bitmap=0b0010,
            fan_in=4,
            priority=8,
            target=2,
            exponent=130,
            flags=ECN,
            values=SLOT,
        ),
        CLAIMED | {"generation": RIVAL.epochs, "job": 2, "priority": 9, "target": 0},
        PACKET,
        port=5,
        row=2,
        beside={(1, "evicted"): 1},
    ),
    Row(
        "taken by one of lower priority that is too old as well",
        HELD | {"touched": 0},
        rival(),
        "reclaimed",
        UP,
        part(job=1, epoch=1, bitmap=0b0010, fan_in=4, priority=8, exponent=130, flags=ECN, values=SLOT),
        CLAIMED | {"generation": RIVAL.epochs, "job": 2, "priority": 9},
        PACKET,
        port=5,
        row=2,
        beside={(1, "evicted"): 1},
    ),
    Row(
        "taken by a job that is gone",
        RIVALS | {"touched": 0},
        gradient(),
        "reclaimed",
        after=CLAIMED,
        lanes=PACKET,
        jobs=(ROOT,),
        beside={(0, "no_uplink"): 1},
    ),
]


@named(SAME + OTHERWISE)
def test_a_contribution(row: Row) -> None:
    check("shared", JOBS, row)


@named(
    [
        row
        for row in SAME + OTHERWISE
        if row.outcome in ("flushed", "preempted", "collided", "relayed", "status")
    ]
)
def test_the_interpreter_agrees(row: Row) -> None:
    check("shared", JOBS, row, backend="interpreter")


def test_contributions_are_of_workers_and_switches() -> None:
    assert {row.packet.kind for row in SAME + OTHERWISE} == {GRADIENT}
