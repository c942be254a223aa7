"""Packets that the switch must refuse, each for its reason, and contributions that only look like some."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.bmv2 import packets
from tests.bmv2.jobs import DOWNWARDS, ONES, Job, answer, contribution, gradient, partial
from tests.bmv2.packets import FRAME_BYTES, INA_BYTES, INA_OFFSET, Ipv4
from tests.bmv2.reference import Arrival
from tests.bmv2.stations import PORTS, WORKERS
from tests.p4.bed import GRADIENT, LANES, PARTIAL, REMINDER, RESULT, STATUS

UNKNOWN_JOB = 4
KINDS = (GRADIENT, RESULT, STATUS, PARTIAL, REMINDER)


def refused(job: Job, psn: int = 80) -> Iterator[Arrival]:
    """Yield what admission refuses, for each reason, and twice wrong to show which reason comes first."""
    bit = job.bits[0]
    child = job.children[bit]
    good = contribution(job, bit, psn)

    def send(port: int = child.port, **changes: int) -> Arrival:
        return port, packets.frame(child, replace(good, **changes), ONES)

    for changes in (
        *({"version": version} for version in (0, 1, 3, 15)),
        *({"kind": kind} for kind in (0, 6, 15)),
    ):
        yield send(**changes)
    for kind in KINDS:
        for lanes in (0, LANES - 1, LANES + 1, 256, 0xFFFF):
            yield send(kind=kind, lanes=lanes)
            yield child.port, packets.frame(child, replace(good, kind=kind, lanes=lanes, valid=0), [])
        yield send(kind=kind, valid=LANES + 1)
        yield send(kind=kind, valid=0xFFFF)
        yield send(kind=kind, epoch=good.epoch ^ 1)
        yield send(kind=kind, port=job.children[job.bits[-1]].port)
    for changes in (
        {"job": UNKNOWN_JOB},
        {"job": 0},
        {"port": WORKERS[7].port},
        *({"epoch": epoch & 0xFF} for epoch in (good.epoch + 1, good.epoch - 1, good.epoch ^ 0x80)),
        *(
            {"bitmap": bitmap}
            for bitmap in (0, good.bitmap ^ 3, good.bitmap | 3, good.bitmap | 1 << 31, 1 << 31, 0xFFFFFFFF)
        ),
        *({"node": node} for node in (good.node ^ 1, good.node ^ 0x8000, 0xFFFF)),
        *({"fan_in": fan_in} for fan_in in (0, good.fan_in + 1, 0xFF)),
        {"version": 1, "kind": 9},
        {"kind": 9, "lanes": 4, "job": UNKNOWN_JOB},
        {"job": UNKNOWN_JOB, "bitmap": 0},
        {"epoch": good.epoch ^ 1, "kind": STATUS},
        {"epoch": good.epoch ^ 1, "bitmap": 0},
        {"node": good.node ^ 1, "bitmap": 0, "fan_in": 0},
        {"bitmap": 0, "fan_in": 0},
    ):
        yield send(**changes)
    yield from _lengths(job, psn)
    yield send()  # and now one that is right


def _lengths(job: Job, psn: int) -> Iterator[Arrival]:
    bit = job.bits[0]
    child = job.children[bit]
    good = contribution(job, bit, psn)
    for values in ([], ONES[1:], [*ONES, 1], ONES * 2, ONES * 60):
        yield child.port, packets.frame(child, good, values)
    lanes = 4 * LANES
    for length in (8, 31, 35, 36, lanes + 35, lanes + 37, lanes + 32):
        yield child.port, packets.frame(child, good, ONES, udp_length=length)
    for length in (0, 20, lanes + 55, lanes + 57, 0xFFFF):
        yield child.port, packets.frame(child, good, ONES, ipv4=Ipv4(src=child.ip, total_len=length))
    for checksum in (0, 0xFFFF, 0x1234):
        yield child.port, packets.frame(child, good, ONES, ipv4=Ipv4(src=child.ip, checksum=checksum))
    whole = packets.frame(child, good, ONES)
    ends = (0, 1, 13, 14, 15, 33, 34, 41, 42, 65, 66, 67, 69, 70, 71, 150, FRAME_BYTES - 1)
    for length in ends:
        yield child.port, whole[:length] or b"\1"
    yield child.port, whole + b"\0"
    yield child.port, whole + bytes(1400)
    yield child.port, whole + bytes(9000 - len(whole))


def refused_from_above(job: Job, psn: int = 80) -> Iterator[Arrival]:
    """Yield what must not come down, or not like that."""
    assert job.above is not None
    for make in DOWNWARDS:
        for changes in (
            {"version": 1},
            {"job": UNKNOWN_JOB},
            {"epoch": job.generation + 1 & 0xFF},
            {"lanes": LANES},
            {"lanes": 0},
            {"lanes": 5},
            {"valid": 1},
            {"valid": LANES + 1},
            {"kind": GRADIENT},
            {"kind": PARTIAL},
            {"bitmap": 0},
            {"node": 0x1234},
            {"fan_in": 0},
        ):
            yield make(job, psn, **changes)
        port, frame = make(job, psn)
        yield job.children[job.bits[0]].port, frame  # as if a child were the parent
        yield port, frame[:-1]
        yield port, frame + b"\0"
    for send in (gradient, answer, partial):
        yield job.above.station.port, send(job, job.bits[0], psn)[1]


def disguised(job: Job, psn: int = 90) -> Iterator[Arrival]:
    """Yield contributions that only look like some: fragments, options, other ports and protocols."""
    bit = job.bits[0]
    child = job.children[bit]
    good = contribution(job, bit, psn)
    for ipv4 in (
        Ipv4(src=child.ip, fragment=1),
        Ipv4(src=child.ip, fragment=0x2000),  # a first fragment: still read
        Ipv4(src=child.ip, options=b"\x94\x04\0\0"),
        Ipv4(src=child.ip, options=b"\x94\x04\0\0", checksum=0),  # not checked with options
        Ipv4(src=child.ip, protocol=6),
        Ipv4(src=child.ip, ttl=1, tos=3),
        Ipv4(src=child.ip, ttl=0, dst=WORKERS[6].ip),
    ):
        yield child.port, packets.frame(child, good, ONES, ipv4=ipv4)
    yield child.port, packets.frame(child, good, ONES, dst_port=42593)
    yield child.port, packets.frame(child, replace(good, psn=good.psn + 1, priority=9, target=1), ONES)


def garbled(rng: random.Random, port: int, frame: bytes) -> Arrival:
    """Return the packet at another port, cut short, longer, or with one bit of its headers turned over."""
    match rng.randrange(5):
        case 0:
            return rng.choice(PORTS), frame
        case 1:
            return port, frame[: rng.randrange(1, len(frame))]
        case 2:
            return port, frame + rng.randbytes(rng.randrange(1, 60))
        case 3:
            return port, _flipped(rng, frame, 0, INA_OFFSET)
        case _:
            return port, _flipped(rng, frame, INA_OFFSET, INA_OFFSET + INA_BYTES)


def _flipped(rng: random.Random, frame: bytes, start: int, end: int) -> bytes:
    changed = bytearray(frame)
    changed[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
    return bytes(changed)
