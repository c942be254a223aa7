"""The causes of a slow iteration: its critical path, and the cause of each part's time. Pure functions."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bmv2_topos.trace.events import Event
from bmv2_topos.trace.slots import tenures
from controller.vocabulary.lists import by_key
from hostlib import wire

SIGNIFICANT: Final = 0.1
"""Minimum fraction of an iteration's time that a reported cause has."""
PROMPT_NS: Final = 20_000
"""Longest time for an answer of a fallback server that does not count as slow."""


class Cause(StrEnum):
    """Causes to which the time of an iteration is attributed."""

    COMPUTE = "computing"
    NETWORK = "network"
    STRAGGLER = "straggler"
    LOSS = "loss"
    COLLISIONS = "collisions"
    QUEUE = "queue"
    SERVER = "server"


USUAL: Final = (Cause.COMPUTE, Cause.NETWORK)
"""Causes of time in every iteration, also if nothing goes wrong."""

End = tuple[str, int | None]
"""Place where a host's packets are captured: (host, None), or a switch and its port to the host."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job, and the places where its hosts' packets are captured."""

    job: int
    name: str
    workers: tuple[End, ...]
    """By rank."""
    server: End | None = None
    server_port: End | None = None
    """Switch port to the fallback server. The time that a packet waits in the queue of this port counts as a
    part of the packet's detour through the server."""
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of one tensor, as seen at one rank."""

    job: int
    iteration: int
    layer: int
    rank: int
    ready_ns: int
    """Time at which the rank's tensor was ready to be summed."""
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a critical path, with the cause of its time."""

    from_ns: int
    until_ns: int
    cause: Cause
    where: str = ""


@dataclass(frozen=True, slots=True)
class IterationPath:
    """The critical path of an iteration, in pieces with their causes."""

    job: str
    iteration: int
    from_ns: int
    until_ns: int
    pieces: tuple[Piece, ...]

    @property
    def spent_ns(self) -> dict[Cause, int]:
        """Time by cause; the times add up to the iteration's time."""
        spent = dict.fromkeys(Cause, 0)
        for piece in self.pieces:
            spent[piece.cause] += piece.until_ns - piece.from_ns
        return spent

    @property
    def causes(self) -> list[Cause]:
        """Causes that made the iteration slow: with a share of at least `SIGNIFICANT`, the largest first."""
        spent, whole = self.spent_ns, self.until_ns - self.from_ns
        found = [cause for cause in Cause if cause not in USUAL and spent[cause] >= SIGNIFICANT * whole > 0]
        return sorted(found, key=lambda cause: -spent[cause])

    def words(self) -> str:
        """Return a text that names the causes, with their shares, times and places."""
        spent, whole = self.spent_ns, max(1, self.until_ns - self.from_ns)
        if not self.causes:
            shares = ", ".join(f"{cause} {spent[cause] / whole:.0%}" for cause in USUAL)
            return f"nothing in particular: {shares}"
        return "; ".join(
            f"{cause} {spent[cause] / whole:.0%} ({spent[cause] / 1000:,.0f} µs): {self._where(cause)}"
            for cause in self.causes
        )

    def _where(self, cause: Cause) -> str:
        places: Counter[str] = Counter()
        for piece in self.pieces:
            if piece.cause == cause:
                places[piece.where] += piece.until_ns - piece.from_ns
        return places.most_common(1)[0][0]


def explain(events: Sequence[Event], sums: Iterable[Sum], jobs: Sequence[TracedJob]) -> list[IterationPath]:
    """Return the critical path of each finished iteration; `events` must be in order of time.

    Iterations in which a rank lacks a sum are left out.
    """
    of_job = by_key((one.job, one) for one in sums)
    names = {facts.job: facts.name for facts in jobs}
    holders = _holders(events, names)
    return [
        verdict
        for facts in jobs
        for verdict in _Job(facts, [e for e in events if e.job == facts.job], holders).verdicts(
            of_job.get(facts.job, [])
        )
    ]


_Attempted = tuple[int, int, int]


def _holders(events: Sequence[Event], names: Mapping[int, str]) -> dict[_Attempted, str]:
    """Return, for each packet that found its slot taken, a text that names the job that held the slot.

    A packet is identified by time, job and PSN.
    """
    found = {}
    for tenure in tenures(events):
        name = names.get(tenure.job, f"{tenure.job}").removeprefix("job ")
        whose = f"slot {tenure.slot} of {tenure.switch} was held by job {name}"
        evicted = [] if tenure.evicted_by is None else [tenure.evicted_by]
        for attempt in (*tenure.attempts, *evicted):
            found[attempt.time_ns, attempt.job, attempt.psn] = whose
    return found


# ------------------------------------------------------------------ one packet


@dataclass(slots=True)
class _Life:
    """State of a packet's path while its events are processed in order."""

    facts: TracedJob
    holders: Mapping[_Attempted, str]
    lost: Event | None = None
    at_server: bool = False
    """True while the fallback server has received a packet that it has not answered."""
    detour: str = ""
    """Reason why the packet takes a detour through the fallback server; "": the packet takes no detour."""

    def pieces(self, events: Iterable[Event], start: int, end: int) -> Iterator[Piece]:
        """Cut the time from `start` to `end` at the events; yield each piece with its cause."""
        at = start
        for event in events:
            if event.time_ns > end:
                break
            if event.time_ns > at:
                yield from self._gap(at, event)
                at = event.time_ns
            self._meet(event)
        if end > at:
            yield Piece(at, end, *self._transit())

    def _gap(self, at: int, event: Event) -> Iterator[Piece]:
        """Yield the pieces of the time from `at` to an event, with their causes."""
        until = event.time_ns
        cause, where = self._waited_for(at, event)
        queued = max(at, until - event.waited_ns) if event.inbound is False else until
        if queued > at:
            yield Piece(at, queued, cause, where)
        if until > queued:
            on_detour = (event.place, event.port) == self.facts.server_port and (self.detour or self.lost)
            yield Piece(
                queued, until, *(self._transit() if on_detour else (Cause.QUEUE, f"at {_place(event)}"))
            )

    def _waited_for(self, at: int, event: Event) -> tuple[Cause, str]:
        if _departs(event, self.facts.server):
            if event.kind == wire.KIND_RESULT and event.time_ns - at > PROMPT_NS:
                return Cause.SERVER, f"the fallback server at {event.place} answered slowly"
            return self._transit()
        again = event.resent and any(_departs(event, end) for end in self.facts.workers)
        if again and self.lost is None and self.at_server:
            return Cause.SERVER, "the fallback server did not answer"
        return self._transit()

    def _transit(self) -> tuple[Cause, str]:
        if self.lost is not None:
            where = f"{self.lost.kind_name} at {_place(self.lost)}"
            full = self.lost.fate == "queue_full"
            return (Cause.QUEUE if full else Cause.LOSS), f"{where}, {self.lost.fate}"
        return (Cause.COLLISIONS, self.detour) if self.detour else (Cause.NETWORK, "")

    def _meet(self, event: Event) -> None:
        if event.lost:
            self.lost = event
        elif _arrives(event, self.facts.server):
            self.at_server = True
            self.detour = self.detour or "its partial sum was evicted from its slot"
        elif _departs(event, self.facts.server):
            self.at_server = False
        elif event.outcome in ("collided", "preempted", "reclaimed"):
            unknown = f"slot {event.slot} of {event.place} was taken"
            whose = self.holders.get((event.time_ns, event.job, event.psn), unknown)
            self.detour = whose if event.outcome == "collided" else self.detour


def _place(event: Event) -> str:
    return event.place if event.port is None else f"{event.place} port {event.port}"


def _departs(event: Event, end: End | None) -> bool:
    """Return whether the event is a packet that leaves the host captured at `end`."""
    return (event.place, event.port) == end and event.inbound is (event.port is not None)


def _arrives(event: Event, end: End | None) -> bool:
    """Return whether the event is a packet that reaches the host captured at `end`."""
    return (event.place, event.port) == end and event.inbound is (event.port is None) and not event.fate


# ------------------------------------------------------------------ one job

_Key = tuple[int, int]
"""Epoch and PSN, which identify a packet: each admission of a job uses the same PSNs again."""


@dataclass
class _Job:
    """One job's events, indexed for finding critical paths."""

    facts: TracedJob
    events: Sequence[Event]
    holders: Mapping[_Attempted, str]
    lives: dict[_Key, list[Event]] = field(default_factory=lambda: defaultdict(list))
    sent: dict[_Key, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Time of each rank's first transmission, by packet and rank."""
    results: list[list[tuple[int, _Key]]] = field(default_factory=list)
    """For each rank: the time of the first result of each packet, with the packet; in order of time."""
    free: dict[int, int] = field(default_factory=dict)
    """Time at which each rank had all sums of the previous iteration, and could continue computing."""

    def __post_init__(self) -> None:
        ends = {end: rank for rank, end in enumerate(self.facts.workers)}
        self.results = [[] for _ in ends]
        got: set[tuple[int, _Key]] = set()
        for event in self.events:
            key = event.epoch, event.psn
            self.lives[key].append(event)
            end = event.place, event.port
            rank = ends.get(end)
            if rank is None:
                continue
            if event.kind == wire.KIND_GRADIENT and _departs(event, end):
                self.sent[key].setdefault(rank, event.time_ns)
            elif event.kind == wire.KIND_RESULT and _arrives(event, end) and (rank, key) not in got:
                got.add((rank, key))
                self.results[rank].append((event.time_ns, key))

    def verdicts(self, sums: Iterable[Sum]) -> Iterator[IterationPath]:
        """Yield the critical path of each complete iteration."""
        iterations: dict[int, dict[tuple[int, int], Sum]] = defaultdict(dict)
        for one in sums:  # after a restart of the job, its last sum replaces earlier ones
            iterations[one.iteration][one.layer, one.rank] = one
        most = max(map(len, iterations.values()), default=0)
        start = self.facts.start_ns
        self.free = dict.fromkeys(range(len(self.facts.workers)), start)
        for number, by_rank in sorted(iterations.items()):
            found = list(by_rank.values())
            end = max(one.end_ns for one in found)
            if len(found) == most:
                pieces = tuple(reversed(list(self._path(found, start, end))))
                yield IterationPath(self.facts.name, number, start, end, pieces)
            start = end
            for one in found:
                self.free[one.rank] = max(self.free[one.rank], one.end_ns)

    def _path(self, sums: Sequence[Sum], start: int, at: int) -> Iterator[Piece]:
        """Yield the pieces of an iteration's critical path, from its end back to its start."""
        now: Sum | None = max(sums, key=lambda one: one.end_ns)
        while now is not None and at > start:
            found = self._last_result(now, at)
            if found is not None:
                got, key = found
                yield from _piece(max(got, start), at, Cause.NETWORK)
                rank, sent = self._last_sender(key, got) or (now.rank, start)
                sent = max(sent, start)
                life = _Life(self.facts, self.holders).pieces(self.lives[key], sent, max(got, start))
                yield from reversed(list(life))
                one = (now.layer, rank)
                at, now = sent, next((each for each in sums if (each.layer, each.rank) == one), None)
                continue
            before = self._before(sums, now)
            begin = max(now.ready_ns if before is None else before.end_ns, start)
            yield from _piece(min(begin, at), at, Cause.NETWORK)
            at = min(begin, at)
            if before is None:
                yield from self._computing(sums, now, start, at)
                return
            now = before
        yield from _piece(start, at, Cause.COMPUTE)

    def _last_result(self, now: Sum, at: int) -> tuple[int, _Key] | None:
        """Return the last result that the rank of `now` got during the sum `now` and before the time `at`.

        If `at` is the end of the sum, a result at `at` counts, too. Return None if there was no result.
        """
        results = self.results[now.rank]
        last = bisect.bisect_left(results, (at, (-1, -1))) - 1
        if at == now.end_ns:
            last = bisect.bisect_right(results, (at, (1 << 40, 0))) - 1
        return None if last < 0 or results[last][0] <= now.begin_ns else results[last]

    def _last_sender(self, key: _Key, got: int) -> tuple[int, int] | None:
        """Return the last rank to send its contribution before the result arrived, and the time of sending.

        `got` is the time at which the result arrived.
        """
        senders = [(time, rank) for rank, time in self.sent[key].items() if time < got]
        time, rank = max(senders, default=(-1, -1))
        return None if time < 0 else (rank, time)

    def _before(self, sums: Sequence[Sum], now: Sum) -> Sum | None:
        """Return the last sum of `now`'s rank that ended while the tensor of `now` was ready and waiting.

        Return None if the tensor did not wait.
        """
        ended = [one for one in sums if one.rank == now.rank and now.ready_ns < one.end_ns <= now.begin_ns]
        return max(ended, key=lambda one: one.end_ns, default=None)

    def _computing(self, sums: Sequence[Sum], now: Sum, start: int, at: int) -> Iterator[Piece]:
        """Yield the path's first pieces: the usual computing time, and the rank's extra computing time."""
        took = {one.rank: one.ready_ns - self.free[one.rank] for one in sums if one.layer == now.layer}
        own = took.pop(now.rank)
        late = min(max(0, own - int(statistics.median(took.values()))), at - start) if took else 0
        usual = at - late
        host = self.facts.workers[now.rank]
        name = host[0] if host[1] is None else f"{host[0]} port {host[1]}"
        yield from _piece(usual, at, Cause.STRAGGLER, f"rank {now.rank} ({name}), {late / 1000:,.0f} µs late")
        yield from _piece(start, usual, Cause.COMPUTE)


def _piece(start: int, end: int, cause: Cause, where: str = "") -> Iterator[Piece]:
    if end > start:
        yield Piece(start, end, cause, where)
