"""Aggregation case by case, as far as both programs have it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bmv2.jobs import DOWNWARDS, LARGEST, SMALLEST, Job, answer, gradient, partial, result
from tests.bmv2.packets import (
    BUT,
    BYPASS,
    COLLISION,
    DISAGREE,
    ECN,
    LANES,
    OVERFLOW,
    QUERY,
    RAW,
    RESEND,
)
from tests.bmv2.reference import Arrival


def rounds(job: Job, first: int, count: int) -> Iterator[Arrival]:
    """Yield `count` sums in order, contributions from all children that are here."""
    for psn in range(first, first + count):
        for bit in job.bits:
            values = [(bit + 1) * (psn % 1000 + lane) * (-1) ** lane for lane in range(LANES)]
            yield gradient(job, bit, psn, values, exponent=(40 * bit + psn) % 256, valid=LANES - psn % 3)


def wrap_around(job: Job) -> Iterator[Arrival]:
    """Yield sums whose PSN runs over 2**32, and late copies from before."""
    yield from rounds(job, (1 << 32) - 6, 12)
    yield gradient(job, job.bits[0], (1 << 32) - 1)
    yield gradient(job, job.bits[-1], 4)


def overflow_and_disagreement(job: Job) -> Iterator[Arrival]:
    """Yield sums at the edges of int32, and contributions with different tags; for a job of two."""
    edges = [LARGEST, SMALLEST, LARGEST, SMALLEST, -1, 0, LARGEST - 1, SMALLEST + 1]
    addends = [1, -1, 0, 0, SMALLEST, SMALLEST, 1, -1]
    for psn, (edge, addend) in enumerate(zip(edges, addends, strict=True), 20):
        yield gradient(job, 0, psn, [edge] * LANES)
        yield gradient(job, 1, psn, [addend] * LANES)
    for psn in range(30, 30 + LANES):  # each lane alone, both ways
        term = [0] * LANES
        term[psn - 30] = (LARGEST, SMALLEST)[psn % 2]
        yield gradient(job, 0, psn, term)
        yield gradient(job, 1, psn, term)
        yield gradient(job, 0, psn, term, flags=RESEND)  # replays the flag
    yield gradient(job, 0, 70, tag=1)
    yield gradient(job, 1, 70, tag=2)
    yield gradient(job, 1, 70, tag=1)
    yield gradient(job, 0, 71, tag=0)
    yield gradient(job, 0, 71, tag=3, flags=QUERY)  # one rank disagrees with itself: no matter
    yield gradient(job, 1, 71, tag=0, valid=0)


def flags_add_up(job: Job, first: int) -> Iterator[Arrival]:
    """Yield sums in which every flag comes with the first, and with the last contribution, then replays."""
    for psn, flag in enumerate((RESEND, QUERY, OVERFLOW, DISAGREE, COLLISION, ECN, BYPASS, RAW), first):
        for turn in (0, 1):
            for bit in job.bits:
                marked = bit == job.bits[-turn]
                yield gradient(job, bit, psn + 8 * turn, flags=flag if marked else 0)
            yield gradient(job, job.bits[0], psn + 8 * turn, flags=RESEND)


def reduced(job: Job, first: int) -> Iterator[Arrival]:
    """Yield sums for one receiver each, for all others, for a rank that is not there, and replays to all."""
    ranks = sorted({rank for bit in job.bits for rank in job.takers(bit)})
    targets = [*ranks, *(BUT | rank for rank in ranks), 30, 0xFFFE, 0xFFFF]
    for psn, target in enumerate(targets, first):
        for bit in job.bits:
            yield gradient(job, bit, psn, [bit + psn] * LANES, target=target)
        for bit in job.bits:
            yield gradient(job, bit, psn, flags=RESEND, target=target)
            yield gradient(job, bit, psn, flags=RESEND)  # another target than at first


def life_below_another(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield what a slot of a switch goes through that is not the root: sums go up, results come down."""
    first, last = job.bits[0], job.bits[-1]
    yield gradient(job, first, psn, exponent=100, flags=ECN)
    yield gradient(job, first, psn, flags=QUERY)
    yield gradient(job, first, psn)
    for bit in job.bits[1:]:
        yield gradient(job, bit, psn, [1 << bit] * LANES, exponent=9, priority=bit)
    # full, not final: only the sum can go up again
    for flags in (0, RESEND, QUERY, RESEND | QUERY, 0xFF & ~RAW, RAW, RAW | RESEND, BYPASS):
        for bit in (first, last):
            yield gradient(job, bit, psn, [9] * LANES, flags=flags, priority=200)
    yield result(job, psn, [12345] * LANES, exponent=77, flags=OVERFLOW | ECN)
    for flags in (0, RESEND, QUERY, RESEND | QUERY):
        yield gradient(job, last, psn, [9] * LANES, flags=flags)
    yield result(job, psn, [54321] * LANES)
    yield gradient(job, first, psn, flags=RESEND)
    for late in (psn - 1, psn - job.window, psn - job.size, psn + job.size):
        yield result(job, late, [1] * LANES)
    yield from interrupted(job, psn + 2 * job.size)


def interrupted(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield results from above that meet a slot at every stage, with lanes and without, and with a reduce."""
    first, last = job.bits[0], job.bits[-1]
    for step, make in enumerate(DOWNWARDS, psn):
        yield make(job, step)  # nothing there yet
        yield gradient(job, first, step, exponent=200, tag=5)
        yield make(job, step, tag=6, exponent=3, flags=DISAGREE | RAW)
        yield make(job, step)
        for bit in job.bits:
            yield gradient(job, bit, step, [7] * LANES)
        yield gradient(job, last, step, [7] * LANES, flags=RESEND)
        yield make(job, step)
        yield gradient(job, last, step, [7] * LANES, flags=RESEND | QUERY)
        yield make(job, step, epoch=job.generation + 1 & 0xFF)
        for target in (0, 1, *job.takers(last), BUT | job.takers(last).start):
            yield make(job, step + 4, target=target)
    yield result(job, psn + 9, valid=5, flags=0xFF, bitmap=0, node=9, fan_in=0, priority=9)
    yield gradient(job, first, psn + 9, flags=RESEND)


def passed_through(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield everything that a switch has no business with but to pass it on, up and down."""
    for bit in job.bits:
        for flags in (0, RESEND, RESEND | QUERY, RAW | RESEND, BYPASS, ECN):
            yield gradient(job, bit, psn, flags=flags, target=1)
        yield answer(job, bit, psn)
        yield answer(job, bit, psn, [], lanes=0, valid=0)
        yield answer(job, bit, psn, node=9, bitmap=0, fan_in=0)
        yield partial(job, bit, psn, target=2, priority=3)
        yield partial(job, bit, psn, flags=0xFF)
        yield partial(job, bit, psn, bitmap=0)
    if job.above is not None:
        for make in DOWNWARDS:
            yield make(job, psn)
            yield make(job, psn, node=77, target=job.takers(job.bits[0]).start)
