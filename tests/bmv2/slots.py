"""Aggregation case by case, as far as both programs have it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bmv2.jobs import LARGEST, SMALLEST, Job, gradient
from tests.bmv2.reference import Arrival
from tests.p4.bed import LANES, QUERY, RESEND


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
