"""Agree with all ranks on the next collective; ranks may submit collectives, matched by name, in any order.

Every rank sends its requests to rank 0. Rank 0 announces a collective once all ranks of its process set have
submitted it, and all carry out collectives in the order of the announcements. This module has no I/O: the
caller moves the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hostlib.wire.encodings import Numbers


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks differ, a rank is gone, or the library raised its `__cause__`."""


class NotSupported(NotImplementedError, AttributeError):
    """A part of Horovod is not supported; the message names the alternative. `hasattr` returns False."""


ALL: Final = 0
"""Number of the process set of all ranks."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """Arguments of a reduction, the same at all ranks."""

    op: str
    """Value of a `hostlib.horovod.reductions.ReduceOp`, such as "sum"."""
    prescale: float = 1.0
    """Factor by which every rank's tensor is multiplied before the reduction."""
    postscale: float = 1.0
    """Factor of the result."""
    numbers: Numbers | None = None
    """Encoding of floats through the switch; None: the job's encoding."""

    def of(self, what: str) -> str:
        """Describe this reduction of `what`: "sum float32 of 3x4".

        Factors other than 1, and the encoding if it is set, follow.
        """
        scaled = f", scaled by {self.prescale!r} and {self.postscale!r}"
        return "".join(
            (
                f"{self.op} {what}",
                scaled if (self.prescale, self.postscale) != (1.0, 1.0) else "",
                f" as {self.numbers}" if self.numbers is not None else "",
            )
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A rank's request for a collective."""

    name: str
    kind: str
    """Kind of the collective, such as "allreduce"."""
    what: str
    """Readable description on which ranks must also agree, such as "float32 of 3x4"."""
    process_set: int = ALL
    reduction: Reduction | None = None
    """Reduction on which ranks must also agree; None: the collective does not reduce."""
    own: Sequence[int] = ()
    """Numbers of rows of this rank's tensors. They may differ between ranks, and are sent to every rank."""
    zeros: Sequence[tuple[str, Sequence[int]]] = ()
    """Type and shape of each tensor of zeros that a rank contributes after `join`; empty if such a rank
    cannot take part."""

    @property
    def agreed(self) -> tuple[str, str, Reduction | None]:
        """The properties that must be the same at all ranks."""
        return self.kind, self.what, self.reduction

    @property
    def title(self) -> str:
        """Name of the request in Horovod's timeline, with its kind, such as "allreduce.w"."""
        return self.name if self.name.startswith(f"{self.kind}.") else f"{self.kind}.{self.name}"

    def describe(self) -> str:
        """Return a description of `agreed`, such as "allreduce sum float32 of 3x4"."""
        what = self.reduction.of(self.what) if self.reduction else self.what
        return f"{self.kind} {what}".rstrip()


@dataclass(frozen=True, slots=True)
class Announcement:
    """Message to all ranks: carry out the next collective of a process set, or raise its error."""

    name: str
    process_set: int = ALL
    own: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """`Request.own` by rank, without ranks that have joined."""
    reduction: Reduction | None = None
    zeros: Sequence[tuple[str, Sequence[int]]] = ()
    error: str = ""
    last_joined: int | None = None
    """The last rank that called `join`; None: not all ranks have called it."""
    set_removed: bool = False
    """True if all ranks have removed the process set; no further announcement is about this set."""


@dataclass(slots=True)
class _Waiting:
    since: float
    requests: dict[int, Request] = field(default_factory=dict)
    reported: bool = False


class Coordinator:
    """Rank 0's state: the requests that wait for other ranks. Only one thread may use it at a time.

    Methods that record an event return the announcements that follow from the event, in order.
    """

    def __init__(self, size: int) -> None:
        self._sets: dict[int, Sequence[int]] = {ALL: range(size)}
        self._waiting: dict[tuple[int, str], _Waiting] = {}
        self._joined: list[int] = []
        self._gone: dict[int, str] = {}
        self._removed: dict[int, set[int]] = {}
        """By the number of a process set: ranks that have removed it. An entry is deleted when all ranks of
        the set have removed the set."""

    def add_set(self, number: int, ranks: Sequence[int]) -> list[Announcement]:
        """Add a process set; its ranks may have submitted collectives to it before."""
        self._sets[number] = ranks
        return self._ready([key for key in self._waiting if key[0] == number])

    def remove_set(self, rank: int, number: int) -> list[Announcement]:
        """Record that a rank has removed a process set, and submits no further collective to it."""
        self._removed.setdefault(number, set()).add(rank)
        announced = self._ready([key for key in self._waiting if key[0] == number])
        if len(self._removed[number]) == len(self._sets[ALL]):
            del self._removed[number], self._sets[number]
            announced.append(Announcement("remove", number, set_removed=True))
        return announced

    def submit(self, rank: int, request: Request, now: float) -> list[Announcement]:
        """Record a rank's request, made at the time `now` in seconds."""
        key = request.process_set, request.name
        waiting = self._waiting.setdefault(key, _Waiting(now))
        waiting.requests[rank] = request
        return self._ready([key])

    def join(self, rank: int) -> list[Announcement]:
        """Record that a rank has called `join`: it has no more data."""
        self._joined.append(rank)
        announced = self._ready(list(self._waiting))
        if len(self._joined) == len(self._sets[ALL]):
            announced.append(Announcement("join", last_joined=rank))
            self._joined.clear()
        return announced

    def leave(self, rank: int, why: str) -> list[Announcement]:
        """Record that a rank submits no further collective.

        `why` is a text to put after "rank N", such as "has shut down".
        """
        self._gone[rank] = why
        return self._ready(list(self._waiting))

    @property
    def everybody_left(self) -> bool:
        """True if all ranks have left."""
        return len(self._gone) == len(self._sets[ALL])

    def stalled(self, now: float, after_s: float) -> list[str]:
        """Describe the requests that have waited longer than `after_s`, with their missing ranks.

        Each request is described only once.
        """
        waiting = self._waiting.items()
        found = [key for key, each in waiting if not each.reported and now - each.since > after_s]
        for key in found:
            self._waiting[key].reported = True
        return [self._stall(key, now) for key in found]

    def overdue(self, now: float, limit_s: float) -> str:
        """Describe the first request that has waited longer than `limit_s`, with the ranks that it waits for.

        Return "" if no request has waited so long.
        """
        late = (key for key, waiting in self._waiting.items() if now - waiting.since > limit_s)
        return next((self._stall(key, now) for key in late), "")

    def _stall(self, key: tuple[int, str], now: float) -> str:
        waiting = self._waiting[key]
        return (
            f"{_kind(waiting)} {key[1]!r} has waited for {now - waiting.since:.0f} s: submitted by "
            f"{_ranks(waiting.requests)}, missing from {_ranks(self._missing(key[0], waiting))}"
        )

    def _ready(self, keys: Iterable[tuple[int, str]]) -> list[Announcement]:
        return [
            self._announce(key, waiting)
            for key in keys
            if self._is_complete(key[0], waiting := self._waiting[key])
        ]

    def _is_complete(self, number: int, waiting: _Waiting) -> bool:
        missing = self._missing(number, waiting)
        return not missing or any(self._why_never(number, rank) for rank in missing)

    def _why_never(self, number: int, rank: int) -> str:
        """Return the reason why a rank cannot submit to a process set any more; "" if it can."""
        if rank in self._gone:
            return f"rank {rank} {self._gone[rank]}"
        return f"rank {rank} has removed the process set" if rank in self._removed.get(number, ()) else ""

    def _missing(self, number: int, waiting: _Waiting) -> list[int]:
        if number not in self._sets:
            return [0]  # this rank, which has not called `add_set` yet
        ready = {*waiting.requests, *self._joined}
        return [rank for rank in self._sets[number] if rank not in ready]

    def _announce(self, key: tuple[int, str], waiting: _Waiting) -> Announcement:
        del self._waiting[key]
        number, name = key
        one = next(iter(waiting.requests.values()))
        return Announcement(
            name,
            number,
            {rank: request.own for rank, request in sorted(waiting.requests.items())},
            one.reduction,
            one.zeros,
            self._wrong(number, name, waiting),
        )

    def _wrong(self, number: int, name: str, waiting: _Waiting) -> str:
        """Return the reason why a collective cannot be carried out; "" if it can."""
        for rank in self._missing(number, waiting):
            if why := self._why_never(number, rank):
                return f"{_kind(waiting)} {name!r}: {why}"
        calls: dict[Any, tuple[str, list[int]]] = {}
        for rank, request in sorted(waiting.requests.items()):
            calls.setdefault(request.agreed, (request.describe(), []))[1].append(rank)
        if len(calls) > 1:
            described = ", but ".join(f"{call} at {_ranks(ranks)}" for call, ranks in calls.values())
            return f"{name!r} is {described}"
        members = self._sets[number]
        if not next(iter(waiting.requests.values())).zeros and (
            joined := [rank for rank in self._joined if rank in members]
        ):
            return (
                f"{_kind(waiting)} {name!r} after {_ranks(joined)} has called join(): then only sums and "
                "averages are possible"
            )
        return ""


def _kind(waiting: _Waiting) -> str:
    return next(iter(waiting.requests.values())).kind


def _ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3" or "ranks 0, 2"."""
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
