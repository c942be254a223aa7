"""What the numpy core keeps: jobs, entries, and the rules by which entries are forgotten.

The C core keeps the same in ``_native/ina_fallback_store.c`` and forgets the same entries.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.fallback.config import LEVELS, Count, FallbackJob, FallbackSettings, Node, flatten

SPREAD_FACTOR = 2
INTERVAL_GROWTH = 4


class Phase(enum.Enum):
    """Where an entry is."""

    SUMMING = 0
    REPAIRING = 1
    """Raw values are gathered, one piece per rank."""
    FINISHED = 2


@dataclass(slots=True, eq=False)
class Piece:
    """One packet's worth of lanes, in the byte order of the machine."""

    bitmap: int
    lanes: NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Entry:
    """What is known of one PSN of a job."""

    psn: int
    tag: int
    target: int
    valid: int
    first_at: int
    at: int
    """When it came into the list that it is in."""
    heard_at: int
    """When the last packet about it came."""
    priority: int = 0
    exponent: int = 0
    flags: int = 0
    phase: Phase = Phase.SUMMING
    pieces: dict[int, Piece] = field(default_factory=dict)
    """By index of a node; by rank in a repair; 0 once finished."""
    level: int = 0
    """Reminders since something was added, at most `LEVELS` - 1."""
    reminded_at: int = -1
    """-1: never."""
    sent_at: int = -1
    """When the result was sent last, -1: never."""
    asked: int = -1
    """Index of the node whose status is queued, -1: none."""
    alive: bool = True
    starved: bool = False
    """Whether something of it has come for which there was no room."""


class Job:
    """A job's tree, entries and counters."""

    def __init__(self, job: FallbackJob, settings: FallbackSettings) -> None:
        self.id = job.job
        self.epoch = job.epoch & 0xFF
        self.nodes = flatten(job.tree)
        self.node_index = {node.id: index for index, node in enumerate(self.nodes)}
        self.ranks = job.tree.size
        self.window = job.window
        self.psn_limit = job.psn_limit
        self.front: int | None = None
        """Two windows before it everything is finished everywhere."""
        self.spread = 0
        """How long after the first contribution the last one comes, ns, smoothed; 0: not known."""
        self.remind_ns = round(settings.remind_s * 1e9)
        self.remind_max_ns = round(settings.remind_max_s * 1e9)
        self.entries: dict[int, Entry] = {}
        self.finished: dict[int, Entry] = {}
        self.waiting: list[dict[int, Entry]] = [{} for _ in range(LEVELS)]
        """Unfinished entries by level; in each the one that has been there longest is the first."""
        self.pieces = 0
        self.counters = [0] * len(Count)

    def ahead(self, psn: int, other: int) -> int:
        """Return by how many PSNs `psn` comes after `other`; negative if before."""
        distance = (psn - other) % self.psn_limit
        return distance if distance < self.psn_limit // 2 else distance - self.psn_limit

    def is_stale(self, psn: int) -> bool:
        """Whether every worker is known to have the result of this PSN."""
        if self.window is None or self.front is None:
            return False
        return self.ahead(self.front, psn) >= 2 * self.window

    def advance(self, psn: int) -> None:
        """Note that the job has reached this PSN."""
        if self.window is not None and (self.front is None or self.ahead(psn, self.front) > 0):
            self.front = psn % self.psn_limit

    def delay(self, level: int) -> int:
        """Return how long an entry waits for its next reminder."""
        interval = max(self.remind_ns, min(SPREAD_FACTOR * self.spread, INTERVAL_GROWTH * self.remind_ns))
        return min(interval << level, self.remind_max_ns)

    def asked_rank(self, index: int, missing: int) -> int:
        """Return whom a reminder is for: the worker asked, a rank behind the switch asked, or all."""
        lacking = [child for bit, child in enumerate(self.nodes[index].children) if missing >> bit & 1]
        workers = [child for child in lacking if child >= 0]
        if len(workers) > 1:
            return wire.TARGET_ALL
        (child,) = workers or lacking[:1]
        while child < 0:
            child = self.nodes[-child].children[0]
        return child

    def measure(self, sample: int) -> None:
        """Follow the time between first and last contributions, quicker down than up."""
        sample = max(1, min(sample, self.remind_max_ns))
        if self.spread == 0:
            self.spread = sample
        elif sample < self.spread:
            self.spread -= (self.spread - sample) // 4
        else:
            self.spread += (sample - self.spread) // 16

    def enlist(self, entry: Entry, level: int, now: int) -> None:
        """Let an unfinished entry wait at the end of a level."""
        self.waiting[entry.level].pop(entry.psn, None)
        self.finished.pop(entry.psn, None)
        entry.level, entry.at = level, now
        self.waiting[level][entry.psn] = entry

    def hasten(self, entry: Entry, now: int) -> None:
        """Ask soon for what an entry lacks: some of that has come, and had to be dropped."""
        if now + self.delay(0) < entry.at + self.delay(entry.level):
            self.enlist(entry, 0, now)

    def unfinished(self) -> Iterator[Entry]:
        """Return the unfinished entries, those that have waited through most reminders first."""
        for level in reversed(self.waiting):
            yield from level.values()

    def covered(self, entry: Entry, index: int) -> bool:
        """Whether the sum of some node above includes all of this one's."""
        while index:
            node = self.nodes[index]
            index = node.parent
            if (piece := entry.pieces.get(index)) and piece.bitmap & node.bit:
                return True
        return False

    def bitmaps(self, entry: Entry) -> list[int]:
        """Return what an unfinished entry has, for each node."""
        have = [0] * len(self.nodes)
        if entry.phase is Phase.REPAIRING:
            for index in reversed(range(len(self.nodes))):
                for bit, child in enumerate(self.nodes[index].children):
                    inside = child in entry.pieces if child >= 0 else have[-child] == self.nodes[-child].full
                    have[index] |= inside << bit
            return have
        for index, node in enumerate(self.nodes):
            piece = entry.pieces.get(index)
            have[index] = piece.bitmap if piece else 0
            if index and have[node.parent] & node.bit:
                have[index] = node.full
        return have

    def missing(self, entry: Entry) -> list[tuple[Node, int]]:
        """Return the nodes where something has to come in, and what."""
        have = self.bitmaps(entry)
        return [
            (node, node.full & ~have[index])
            for index, node in enumerate(self.nodes)
            if have[index] != node.full
        ]


class Store:
    """All jobs, and the memory that they share."""

    def __init__(self, settings: FallbackSettings) -> None:
        self.capacity = settings.capacity
        self.lanes = settings.lanes
        self.jobs: dict[int, Job] = {}
        self.used = 0
        self.starved = False
        """Whether an entry may be."""
        self.results: dict[tuple[int, int], tuple[Job, Entry]] = {}
        """Results that wait to be sent, by job and PSN."""
        self.statuses: deque[tuple[Job, Entry, int]] = deque()
        """Statuses that wait to be sent, with the index of the node that they are about."""
        self.counters = [0] * len(Count)
        """Of what belongs to no job."""

    def place(self, job: Job, psn: int, current: Entry | None) -> NDArray[np.int32] | None:
        """Return room for a piece of the entry `current` (None: a new one), or None if there is none.

        The caller counts it with `keep`.
        """
        if self.used == self.capacity and not self._make_room(job, psn, current):
            job.counters[Count.NO_ROOM] += 1
            if current is not None:
                current.starved = self.starved = True
            return None
        return np.empty(self.lanes, np.int32)

    def hasten_starved(self, now: int) -> None:
        """Ask soon for what had to be dropped: there is room now."""
        if not self.starved:
            return
        self.starved = False
        for job in self.jobs.values():
            for entry in list(job.unfinished()):
                if entry.starved:
                    job.hasten(entry, now)
                entry.starved = False

    def keep(self, job: Job, entry: Entry, key: int, piece: Piece) -> None:
        """Add a piece to an entry."""
        entry.pieces[key] = piece
        job.pieces += 1
        self.used += 1

    def drop(self, job: Job, entry: Entry, key: int) -> Piece:
        """Take a piece from an entry."""
        job.pieces -= 1
        self.used -= 1
        return entry.pieces.pop(key)

    def forget(self, job: Job, entry: Entry, reason: Count) -> None:
        """Drop an entry, whatever its state."""
        for key in list(entry.pieces):
            self.drop(job, entry, key)
        self.results.pop((job.id, entry.psn), None)
        job.waiting[entry.level].pop(entry.psn, None)
        job.finished.pop(entry.psn, None)
        del job.entries[entry.psn]
        entry.alive = False
        job.counters[reason] += 1

    def _make_room(self, job: Job, psn: int, current: Entry | None) -> bool:
        victim = job
        if job.pieces < self.capacity // len(self.jobs):
            victim = max(self.jobs.values(), key=lambda other: (other.pieces, -other.id))
        for entry in victim.finished.values():  # never the current one: it needs no more pieces
            self.forget(victim, entry, Count.FORGOTTEN)
            return True
        furthest: Entry | None = None
        for entry in victim.unfinished():
            if victim.is_stale(entry.psn):
                self.forget(victim, entry, Count.EXPIRED)
                return True
            if entry is not current and (furthest is None or victim.ahead(entry.psn, furthest.psn) > 0):
                furthest = entry
        if furthest is None or (victim is job and job.ahead(furthest.psn, psn) <= 0):
            return False
        self.forget(victim, furthest, Count.FORGOTTEN)
        return True
