"""What gets near a slot, in both programs: every check of docs/reference/protocol/switch.md in its order."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.p4.bed import (
    ALL,
    GRADIENT,
    LANES,
    NONE,
    PARTIAL,
    RAW,
    REMINDER,
    RESULT,
    STATUS,
    Bed,
    Job,
    Packet,
    changed,
)
from tests.softswitch.differential.stimuli import internet_checksum

JOB = Job(
    *(1, 4, 4, 1, 3, (1, 0b100, 3), 0b111),
    members={1: 0b0001, 2: 0b0110, 3: 0b1000},
    below={3: range(4, 6)},
)
"""Two children share port 2; behind port 3 are the nodes 4 and 5."""
GOOD = Packet(node=3)

WRONG: dict[str, tuple[Packet, dict[str, Any], int, str, int]] = {
    "another version": (GOOD, {"version": 1}, 1, "bad_version", 0),
    "kind 0": (GOOD, {"kind": 0}, 1, "bad_kind", 0),
    "kind 6": (GOOD, {"kind": 6}, 1, "bad_kind", 0),
    "a status with lanes": (GOOD, {"kind": STATUS}, 9, "bad_lanes", 0),
    "a reminder with lanes": (GOOD, {"kind": REMINDER}, 9, "bad_lanes", 0),
    "half the lanes": (GOOD, {"values": GOOD.values[:16], "valid": 16}, 1, "bad_lanes", 0),
    "more valid lanes than there are": (GOOD, {"valid": LANES + 1}, 1, "bad_length", 0),
    "a type where the lanes are not raw": (GOOD, {"valid": 0x8000 | LANES}, 1, "bad_length", 0),
    "a job that is not here": (GOOD, {"job": 2}, 1, "unknown_job", 0),
    "from a port of no child": (GOOD, {}, 4, "wrong_port", 1),
    "of an earlier admission": (GOOD, {"epoch": 2}, 1, "wrong_epoch", 1),
    "a status from below": (GOOD, {"kind": STATUS, "values": NONE, "valid": 0}, 1, "wrong_direction", 1),
    "a reminder from below": (GOOD, {"kind": REMINDER, "values": NONE, "valid": 0}, 1, "wrong_direction", 1),
    "a gradient from above": (GOOD, {}, 9, "wrong_direction", 1),
    "a part from above": (GOOD, {"kind": PARTIAL}, 9, "wrong_direction", 1),
    "the bit of another child": (GOOD, {"bitmap": 2}, 1, "wrong_rank", 1),
    "two bits": (GOOD, {"bitmap": 6}, 2, "wrong_rank", 1),
    "a bit too many": (GOOD, {"bitmap": 0b1010}, 2, "wrong_rank", 1),
    "no bit": (GOOD, {"bitmap": 0}, 1, "wrong_rank", 1),
    "another node": (GOOD, {"node": 0}, 1, "wrong_rank", 1),
    "a part of this node's own sum": (GOOD, {"kind": PARTIAL}, 1, "wrong_rank", 1),
    "a part of a node above": (GOOD, {"kind": PARTIAL, "node": 0}, 3, "wrong_rank", 1),
    "a part of a node behind another port": (GOOD, {"kind": PARTIAL, "node": 5}, 1, "wrong_rank", 1),
    "a part of a node behind no port": (GOOD, {"kind": PARTIAL, "node": 6}, 3, "wrong_rank", 1),
    "a result of some ranks only": (GOOD, {"kind": RESULT, "node": 0, "bitmap": 0b101}, 1, "wrong_rank", 1),
    "a result of this node": (GOOD, {"kind": RESULT, "bitmap": 0b111}, 1, "wrong_rank", 1),
    "another size": (GOOD, {"fan_in": 5}, 1, "wrong_fan_in", 1),
    "everything wrong at once": (
        GOOD,
        {"job": 2, "epoch": 2, "bitmap": 6, "fan_in": 5},
        1,
        "unknown_job",
        0,
    ),
    "right job, all else wrong": (GOOD, {"epoch": 2, "bitmap": 6, "fan_in": 5}, 1, "wrong_epoch", 1),
}


@pytest.fixture(params=["exclusive", "shared"])
def bed(request: pytest.FixtureRequest) -> Bed:
    return Bed(request.param, (JOB,))


@pytest.mark.parametrize("name", WRONG)
def test_a_packet_that_is_refused(bed: Bed, name: str) -> None:
    packet, changes, port, outcome, row = WRONG[name]
    state = bed.slot()
    assert bed.send(changed(packet, **changes), port) == []
    assert bed.counts(row) == {outcome: 1}
    assert bed.counts(1 - row) == {}
    assert bed.slot() == state


@pytest.mark.parametrize(("bitmap", "port"), [(1, 1), (2, 2), (4, 2), (8, 3)])
def test_a_child_counts_at_its_port(bed: Bed, bitmap: int, port: int) -> None:
    assert bed.send(changed(GOOD, bitmap=bitmap), port) == []
    assert bed.counts() == {"aggregated": 1}


def test_raw_lanes_say_their_type_beside_their_number() -> None:
    bed = Bed("shared", (JOB,))
    bed.send(changed(GOOD, flags=RAW, valid=0x8000 | LANES), 1)
    bed.send(changed(GOOD, flags=RAW, valid=0x8000 | LANES + 1), 1)
    assert bed.counts() == {"bypassed": 1}
    assert bed.counts(0) == {"bad_length": 1}


def test_a_result_may_have_no_lanes(bed: Bed) -> None:
    for port in (9, 1):
        bed.send(changed(GOOD, kind=RESULT, values=NONE, valid=0, target=ALL, node=0, bitmap=0b111), port)
    assert bed.counts() == {"passed_down": 1, "passed_up": 1}


def test_parts_come_from_the_nodes_behind_a_port(bed: Bed) -> None:
    for node in (4, 5):
        (left,) = bed.send(changed(GOOD, kind=PARTIAL, node=node, bitmap=0b1010, fan_in=5), 3)
        assert (left.port, left.packet.node, left.packet.bitmap) == (9, node, 0b1010)
    assert bed.counts() == {"passed_up": 2}


def _repaired(frame: bytearray) -> bytes:
    frame[24:26] = bytes(2)
    frame[24:26] = internet_checksum(bytes(frame[14:34])).to_bytes(2, "big")
    return bytes(frame)


@pytest.mark.parametrize("kind", [GRADIENT, RESULT])
def test_lengths_that_disagree(bed: Bed, kind: int) -> None:
    packet = changed(GOOD, kind=kind)
    good = packet.frame(1)
    for offset, add in ((16, 1), (16, -4), (38, 4), (38, -1)):
        frame = bytearray(good)
        (length,) = struct.unpack_from(">H", frame, offset)
        struct.pack_into(">H", frame, offset, length + add)
        assert bed.raw(_repaired(frame), 1) == []
    assert bed.raw(good + bytes(2), 1) == []
    assert bed.counts(0) == {"bad_length": 5}
    assert bed.counts() == {}


def test_frames_that_end_too_soon_or_were_changed_on_the_way(bed: Bed) -> None:
    good = GOOD.frame(1)
    for length in (36, 50, 69, 71, len(good) - 1):
        assert bed.raw(good[:length], 1) == []
    assert bed.raw(good[:22] + b"\x07" + good[23:], 1) == []
    assert bed.counts(0) == {"truncated": 5, "bad_checksum": 1}


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_a_job_of_thirty_two(program: str) -> None:
    job = Job(1, size=32, members={port + 1: 1 << port for port in range(32)}, uplink=99)
    bed = Bed(program, (job,))
    for child in range(32):
        left = bed.send(Packet(bitmap=1 << child, fan_in=32), child + 1)
        assert len(left) == (32 if child == 31 else 0)
    assert left[0].packet.bitmap == 2**32 - 1
    assert left[0].packet.values == tuple(32 * value for value in Packet().values)
    assert bed.counts() == {"aggregated": 31, "completed": 1}
