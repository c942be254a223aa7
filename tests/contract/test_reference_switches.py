"""The switches that the hosts' tests believe in do what the compiled programs do, packet by packet."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hostlib import wire
from tests.hostlib import reference_switch as reference
from tests.p4 import bed as p4

CHILD = (2, 0b100, 3)
JOBS = (
    p4.Job(1, size=3, offset=0, slots=16),
    p4.Job(
        *(2, 2, 16, 8),
        node=5,
        above=CHILD,
        result_bitmap=0b111,
        below={2: range(6, 8)},
        ranks_below={2: range(1, 3)},
    ),
    p4.Job(3, size=1, offset=24, slots=8),
    p4.Job(4, size=1, offset=32, slots=8, node=5, above=CHILD, result_bitmap=0b11),
    p4.Job(
        *(5, 4, 0, 0),
        node=7,
        transit=True,
        members={1: 0b0011, 2: 0b0100},
        ranks_below={1: range(0, 2), 2: range(1, 2)},
    ),
)
CROWDED = (
    *(replace(job, offset=0, slots=12) for job in JOBS[:4]),
    JOBS[4],
    p4.Job(6, size=4, offset=4, slots=6, preempt=True, max_age_us=40),
    p4.Job(7, size=2, offset=0, slots=0, node=3, above=CHILD, result_bitmap=0b111),
)
KINDS = (p4.GRADIENT, p4.RESULT, p4.STATUS, p4.PARTIAL, p4.REMINDER)
FLAGS = (0, 0, 0, 0, 1, 1, 3, 2, 0x40, 0x41, 0x20, 0x04, 0x80, 0x81, 0xC1)


def admission(job: p4.Job) -> reference.Job:
    return reference.Job(
        job.size,
        job.slots,
        generation=job.epochs,
        offset=job.offset,
        members=job.ports,
        ranks={port: port - 1 for port in job.ports if port not in job.ranks_below},
        uplink=job.uplink,
        node=job.node,
        parent=job.above if job.node else None,
        result_bitmap=job.result,
        transit=job.transit,
        below=job.below,
        ranks_below=job.ranks_below,
        preempt=job.preempt,
        ageing=job.ageing,
        window=job.window,
        max_age_us=job.max_age_us,
    )


def packet(random: Random, jobs: tuple[p4.Job, ...], base: int, *, laneless: bool) -> tuple[p4.Packet, int]:
    """A packet of a PSN near `base`, and where it comes from: nearly always right."""
    job = random.choice(jobs)
    port = random.choice([*job.ports])
    kind = random.choices(KINDS, (30, 1, 0, 1, 0))[0]
    if random.randrange(6) == 0:
        kind, port = random.choices(KINDS, (1, 5, 2, 1, 5))[0], 9
    has_lanes = kind in (p4.GRADIENT, p4.PARTIAL) or (
        kind == p4.RESULT and not (laneless and random.randrange(4) == 0)
    )
    bits = [1 << bit for bit in range(job.size) if job.ports.get(port, 0) >> bit & 1]
    values = tuple(random.choice((0, 7, -9, 2**31 - 1, -(2**31))) for _ in range(p4.LANES))
    psn = (base + random.choice((0, 0, 0, 0, 1, 1, 2, -1, 8, -8, 16))) % 2**32
    made = p4.Packet(
        kind,
        random.choice(FLAGS),
        job.job,
        psn,
        job.result if kind == p4.RESULT and random.randrange(4) else random.choice(bits) if bits else 1,
        fan_in=job.size,
        priority=random.choice((0, 1, 3, 200)),
        exponent=random.randrange(256),
        epoch=job.epochs & 0xFF,
        valid=p4.LANES if has_lanes else 0,
        tag=random.choice((7, 7, 7, 7, 8)),
        node=random.choice((6, 7, 8, job.node))
        if kind == p4.PARTIAL
        else 0
        if kind == p4.RESULT
        else job.node,
        target=(p4.ALL, 0, p4.ALL, 1, p4.BUT | 1, p4.BUT | 0, 2, 1)[psn % 8],
        values=values if has_lanes else (),
    )
    wrong: list[dict[str, Any]] = [
        *({"epoch": 77}, {"node": 9}, {"fan_in": 9}, {"bitmap": 0}, {"bitmap": 3}, {"job": 99}),
        *({"kind": 6}, {"version": 1}),
    ]
    if random.randrange(20) == 0:
        made = p4.changed(made, **random.choice(wrong))
    return made, port if random.randrange(30) else random.randrange(1, 10)


def seen(sent: p4.Packet) -> tuple[object, ...]:
    """What a receiver looks at."""
    fan_in = 0 if sent.kind == p4.RESULT else sent.fan_in
    lanes = len(sent.values)
    told = (sent.kind, sent.flags, sent.job, sent.psn, sent.bitmap, fan_in, sent.exponent, sent.epoch)
    return (*told, sent.tag, sent.node, sent.target, sent.values, sent.valid if lanes else 0)


@pytest.mark.parametrize(
    ("name", "jobs", "switch"),
    [
        ("exclusive", JOBS, reference.ReferenceSwitch),
        ("shared", JOBS, reference.SharedSwitch),
        ("shared", CROWDED, reference.SharedSwitch),
    ],
    ids=["exclusive", "shared, private regions", "shared, crowded"],
)
def test_a_reference_switch_does_what_the_program_does(
    name: str, jobs: tuple[p4.Job, ...], switch: type[reference.ReferenceSwitch | reference.SharedSwitch]
) -> None:
    assert wire.packet_dtype(p4.LANES, framed=True).itemsize == len(p4.Packet().frame())
    ours = switch({job.job: admission(job) for job in jobs}, p4.LANES)
    theirs = p4.Bed(name, jobs)
    random = Random(1)
    for step in range(6000):
        made, port = packet(random, jobs, step // 40 - 20, laneless=name == "shared")
        ours.inject(port, [made.frame(port)], theirs.now_us + 1)
        expected = [(left.port, seen(left.packet)) for left in theirs.send(made, port)]
        got = [
            (out, seen(p4.parse_loosely(out, frame).packet)) for out in range(10) for frame in ours.drain(out)
        ]
        assert got == expected, f"step {step}: {made} at port {port}"
    counted: Counter[str] = Counter()
    for row in range(8):
        counted.update(theirs.counts(row))
    for outcome in ("overflow", "disagree"):
        del counted[outcome]
    counted["bad_version_or_kind"] = counted.pop("bad_version") + counted.pop("bad_kind")
    assert +ours.outcomes == +counted
