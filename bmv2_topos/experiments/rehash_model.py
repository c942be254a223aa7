"""Slots that jobs hash their packets into: a model of collisions, with the switch's real hash.

Theory of operation
-------------------
Every job keeps a window of packets in flight; packet `psn` leaves with the result of ``psn - window``. At
the switch its first contribution claims the slot that it hashes to, and the last one, up to `skew` later,
frees it. If the slot is taken, all contributions go to the job's fallback server instead, and share its
one link: the sum takes `fan_in` packet times there, one after the other, where a worker's own link
carries it in one. Time is counted in packet times of a link.

What `Scheme` says is only which slot that is. ``fresh`` is this project's: ``crc32(job, psn, 0)``, so every
packet draws a slot of its own. ``kept`` is ATP's (NSDI'21) before it rehashes: a position of the window,
``psn % window``, keeps its slot for good. ``rehashed`` is ATP's: a position that collided is hashed with
the next salt from its next packet on. ``random`` draws as ``fresh`` does, from a hash without the
structure of a CRC.

The model leaves out what rehashing does not touch: losses, reminders, sums that are partly in the switch
and partly at the server.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Scheme = Literal["fresh", "random", "kept", "rehashed"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)

Event = tuple[float, int, Callable[[float], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """One job; times in packet times."""

    window: int = 64
    tensor: int = 1024
    """Packets of an iteration."""
    compute: float = 400.0
    """Between two iterations."""
    skew: float = 10.0
    """The last contribution to a sum comes up to this much after the first."""
    packets: int = 16384


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job's packets."""

    collided: int
    again: int
    """Of the packets whose position had collided a window before, how many collided."""
    after: int
    """Packets whose position had collided a window before."""
    packets: int
    duration: float

    @property
    def share(self) -> float:
        """Part of the packets that collided."""
        return self.collided / self.packets

    @property
    def persistence(self) -> float | None:
        """Part of the packets that collided, of those whose position had collided a window before."""
        return self.again / self.after if self.after else None


def slot_of(job: int, psn: int, slots: int) -> int:
    """Return the slot that `shared.p4` computes, in a region of so many slots at 0."""
    return zlib.crc32(job.to_bytes(2, "big") + psn.to_bytes(4, "big") + b"\0") % slots


@dataclass
class _Runner:
    """One job under way."""

    number: int
    job: ModelJob
    scheme: Scheme
    slots: int
    random: random.Random
    sent: int = 0
    finished: int = 0
    link_free: float = 0.0
    server_free: float = 0.0
    ended: float = 0.0
    collided: int = 0
    again: int = 0
    after: int = 0
    salts: list[int] = field(default_factory=list)
    before: list[bool] = field(default_factory=list)
    """Whether a position's last packet collided."""

    def __post_init__(self) -> None:
        self.salts = [0] * self.job.window
        self.before = [False] * self.job.window

    def slot(self, psn: int) -> int:
        position = psn % self.job.window
        match self.scheme:
            case "fresh":
                return slot_of(self.number, psn, self.slots)
            case "random":
                digest = hashlib.blake2b(b"%d/%d" % (self.number, psn), digest_size=8).digest()
                return int.from_bytes(digest, "big") % self.slots
            case "kept":
                return slot_of(self.number, position, self.slots)
            case "rehashed":
                return slot_of(self.number, self.salts[position] << 16 | position, self.slots)

    def note(self, psn: int, collided: bool) -> None:
        position = psn % self.job.window
        if self.before[position]:
            self.after += 1
            self.again += collided
        self.before[position] = collided
        self.collided += collided
        self.salts[position] += collided


def simulate(
    jobs: tuple[ModelJob, ...],
    scheme: Scheme,
    *,
    slots: int,
    fan_in: int = 8,
    delay: float = 25.0,
    seed: int = 0,
) -> tuple[Outcome, ...]:
    """Run all jobs to their ends; `delay` is the way to the switch, and back, each.

    Jobs start at random moments of their first iteration. The same arguments give the same outcome.

    >>> alone, = simulate((ModelJob(packets=4096),), "kept", slots=1 << 16)
    >>> alone.collided
    0
    """
    draw = random.Random(seed)
    taken: set[int] = set()
    events: list[Event] = []
    counter = 0

    def at(time: float, what: Callable[[float], None]) -> None:
        nonlocal counter
        counter += 1
        heapq.heappush(events, (time, counter, what))

    def send(runner: _Runner, now: float) -> None:
        psn = runner.sent
        runner.sent += 1
        runner.link_free = max(now, runner.link_free) + 1
        at(runner.link_free + delay, lambda time: arrive(runner, psn, time))

    def arrive(runner: _Runner, psn: int, now: float) -> None:
        slot = runner.slot(psn)
        complete = now + runner.random.uniform(0, runner.job.skew)
        collided = slot in taken
        runner.note(psn, collided)
        if collided:
            runner.server_free = max(complete, runner.server_free) + fan_in
            at(runner.server_free + 2 * delay, lambda time: finish(runner, time))
            return
        taken.add(slot)

        def free(time: float) -> None:
            taken.remove(slot)
            at(time + delay, lambda later: finish(runner, later))

        at(complete, free)

    def finish(runner: _Runner, now: float) -> None:
        job = runner.job
        runner.finished += 1
        if runner.finished == job.packets:
            runner.ended = now
        elif runner.finished % job.tensor == 0:
            at(now + job.compute, lambda time: begin(runner, time))
        elif runner.sent % job.tensor and runner.sent < job.packets:
            send(runner, now)

    def begin(runner: _Runner, now: float) -> None:
        job = runner.job
        for _ in range(min(job.window, job.tensor, job.packets - runner.sent)):
            send(runner, now)

    runners = [
        _Runner(number, job, scheme, slots, random.Random(f"{seed}/{number}"))
        for number, job in enumerate(jobs, start=1)
    ]
    starts = [draw.uniform(0, job.compute) for job in jobs]
    for runner, start in zip(runners, starts, strict=True):
        at(start, lambda time, runner=runner: begin(runner, time))  # type: ignore[misc]
    while events:
        now, _, what = heapq.heappop(events)
        what(now)
    return tuple(
        Outcome(runner.collided, runner.again, runner.after, runner.job.packets, runner.ended - start)
        for runner, start in zip(runners, starts, strict=True)
    )
