"""Jobs, slots, and the rows of ``shared.p4``: what a packet finds and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from .bed import ECN, FULL, NONE, PARTIAL, RESULT, SLOT, Backend, Bed, Job, Packet, changed

ROOT = Job(1)
CHILD = Job(1, node=3, above=(1, 0b100, 3), result_bitmap=0b111)
"""The same job where this switch is no root: child 2 of the three of node 1."""
RIVAL = Job(2, size=2, preempt=True, members={5: 1, 6: 2}, uplink=8)
RIVAL_CHILD = Job(2, size=2, node=6, above=(5, 0b10, 2), members={5: 1, 6: 2}, uplink=8)
ALONE = Job(3, size=1, members={7: 1})
ALONE_CHILD = Job(3, size=1, node=3, above=(1, 0b100, 3), result_bitmap=0b111, members={7: 1})
HOMELESS = Job(4, slots=0, offset=0)
BACK, DOWN, UP, RIVAL_UP, ALONE_DOWN = (1,), (1, 2, 3, 4), (9,), (8,), (7,)

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
    jobs: tuple[Job, ...] = (ROOT, RIVAL, ALONE, HOMELESS)
    port: int = 1
    row: int = 1
    beside: dict[tuple[int, str], int] = field(default_factory=dict)
    before: tuple[int, ...] = SLOT


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


def check(row: Row, port: int, backend: Backend = "compiled") -> None:
    bed = Bed("shared", row.jobs, backend)
    bed.fill(4, row.slot, row.before)
    before = bed.slot()
    left = bed.send(row.packet, port)
    assert [packet.port for packet in left] == list(row.ports)
    for packet in left:
        expected = changed(row.packet, **row.sent)
        if row.ports in (DOWN, ALONE_DOWN) and expected.kind == RESULT and packet.port != expected.target + 1:
            expected = changed(expected, values=NONE, valid=0)  # only the receiver gets the lanes
        assert packet.packet == expected, packet.port
    assert bed.slot() == before | row.after
    assert bed.lanes() == (row.before if row.lanes == SLOT else row.lanes)
    counted = {(number, name): count for number in range(5) for name, count in bed.counts(number).items()}
    assert counted == {(row.row, row.outcome): 1} | row.beside


def named(rows: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])
