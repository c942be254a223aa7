"""Packets at random, of jobs whose parties lose, repeat, reorder and garble."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from softswitch.compiler import ir
from tests.bmv2.jobs import (
    LARGEST,
    SMALLEST,
    Job,
    answer,
    bare_result,
    gradient,
    partial,
    readmission,
    reminder,
    result,
    status,
)
from tests.bmv2.malformed import garbled
from tests.bmv2.reference import Arrival
from tests.bmv2.targets import Phase
from tests.p4.bed import ALL, BUT, BYPASS, COLLISION, ECN, LANES, QUERY, RAW, RESEND

FLAGS = (0,) * 10 + (
    RESEND,
    RESEND,
    RESEND | QUERY,
    RESEND | QUERY,
    QUERY,
    BYPASS,
    ECN,
    COLLISION,
    RAW | RESEND,
)
FROM_ABOVE = (result,) * 6 + (bare_result, status, reminder, reminder, reminder, reminder)
REACH = 8
"""PSNs that a job is busy with at a time, at least."""


def at_random(program: ir.Program, seed: int, jobs: Sequence[Job], count: int) -> Phase:
    """Return a phase in which these jobs, admitted anew, send so many packets at random."""
    return Phase(list(readmission(program, jobs)), {}, list(random_traffic(seed, jobs, count)))


def random_traffic(seed: int, jobs: Sequence[Job], count: int) -> Iterator[Arrival]:
    """Yield `count` packets; the jobs go forwards as workers with windows would, from a PSN near a wrap."""
    rng = random.Random(seed)
    parties = [_Parties(rng, job) for job in jobs]
    for _ in range(count):
        port, frame = rng.choice(parties).next()
        yield garbled(rng, port, frame) if rng.random() < 0.05 else (port, frame)


class _Parties:
    """The children of one job, and whoever is above, in the middle of their work."""

    def __init__(self, rng: random.Random, job: Job) -> None:
        self._rng = rng
        self._job = job
        self._first = rng.choice((0, 5000, (1 << 32) - 12))
        self._done = dict.fromkeys(job.bits, 0)
        self._reach = max(job.size, REACH)
        self._priority = rng.randrange(256)

    def next(self) -> Arrival:
        chance = self._rng.random()
        if self._job.above is not None and chance < 0.15:
            return self._from_above()
        if chance < 0.19:
            send = self._rng.choice((answer, partial))
            return send(self._job, self._rng.choice(self._job.bits), self._recent(), self._values())
        return self._contribution()

    def _contribution(self) -> Arrival:
        rng, done = self._rng, self._done
        slowest = min(self._job.bits, key=lambda bit: (done[bit], rng.random()))
        bit = slowest if rng.random() < 0.6 else rng.choice(self._job.bits)
        psn = done[bit]
        if rng.random() < 0.3 or psn >= min(done.values()) + self._reach:
            psn = max(0, psn - rng.randrange(1, self._reach + 2))
        else:
            done[bit] += 1
        return gradient(
            self._job,
            bit,
            self._first + psn,
            self._values(),
            flags=rng.choice(FLAGS) if rng.random() < 0.95 else rng.randrange(256),
            priority=self._priority if rng.random() < 0.7 else rng.randrange(256),
            exponent=rng.randrange(256),
            valid=rng.randrange(LANES + 1),
            tag=rng.choice((7, 7, 7, 7, 7, 7, 7, 8)),
            target=rng.choice((ALL, ALL, ALL, ALL, ALL, 0, 1, 3, BUT | 1, BUT | 4)),
        )

    def _from_above(self) -> Arrival:
        rng, job = self._rng, self._job
        make = rng.choice(FROM_ABOVE)
        flags = rng.choice((0, 0, 0, RAW, ECN, rng.randrange(256)))
        if make is result:
            values, exponent = self._values(), rng.randrange(256)
            return result(job, self._recent(), values, flags=flags, exponent=exponent, tag=7)
        if make is reminder:
            return reminder(
                job, self._recent(), node=rng.choice((job.node, job.node, job.node, 77)), flags=flags
            )
        return make(job, self._recent(), flags=flags)

    def _recent(self) -> int:
        """Return a PSN that the job is busy with, or was, or soon will be."""
        front = max(self._done.values())
        return self._first + max(0, front - self._rng.randrange(-1, self._reach))

    def _values(self) -> list[int]:
        rng = self._rng
        if rng.random() < 0.8:
            return [rng.randrange(-1000, 1000) for _ in range(LANES)]
        edges = (LARGEST, SMALLEST, -1, 0, 1, rng.randrange(SMALLEST, LARGEST))
        return [rng.choice(edges) for _ in range(LANES)]
