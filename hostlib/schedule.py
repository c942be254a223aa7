"""Which of a rank's asynchronous collectives is carried out next, and with which others: pure decisions.

All ranks must decide alike, or their packets would not meet. So a schedule knows only what all ranks have
submitted (`hostlib.agreement`), and decides by that alone:

- Small collectives (up to `Limits.fusion_bytes`) of one kind are one step together, each on packets of its
  own: *fused*. Their sums are bit for bit those that they would be alone.
- A larger one is carried out in slices, front layers first, then as submitted. After a slice small ones that
  have come meanwhile go first, once: large ones and small ones take turns.
- A barrier waits for all before it, and all behind it wait for the barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from hostlib.collectives import Collective, is_whole
from hostlib.errors import ConfigError

FUSION_BYTES: Final = 1 << 20
SLICE_BYTES: Final = 8 << 20
"""A slice fills and drains the window once, and announces exponents for one window more: 6 % of 8 MB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes; the same on all ranks. Raises ConfigError for what is no size."""

    fusion_bytes: int = FUSION_BYTES
    """The most that is fused, and the largest collective that counts as small. 0: nothing is fused."""
    slice_bytes: int = SLICE_BYTES
    """The most of a large collective that is carried out at a time, but at least a packet."""

    def __post_init__(self) -> None:
        for name, least in (("fusion_bytes", 0), ("slice_bytes", 1)):
            if not is_whole(value := getattr(self, name)) or value < least:
                raise ConfigError(f"{name} is {value!r}, must be a whole number from {least} on")


class Call(Protocol):
    """Whatever is scheduled."""

    @property
    def collective(self) -> Collective:
        """What is to be carried out."""
        ...


AnyCall = TypeVar("AnyCall", bound=Call)


@dataclass(frozen=True, slots=True)
class Fused(Generic[AnyCall]):
    """Small collectives to be carried out together; or one alone."""

    calls: Sequence[AnyCall]


@dataclass(frozen=True, slots=True)
class Slice(Generic[AnyCall]):
    """Part of a large collective: `count` elements from `first` on."""

    call: AnyCall
    first: int
    count: int
    is_last: bool


class Schedule(Generic[AnyCall]):
    """The collectives that all ranks have submitted and that are not done, in the order of submission."""

    def __init__(self, limits: Limits, lanes: int) -> None:
        """`lanes`: elements of a packet."""
        self._limits = limits
        self._lanes = lanes
        self._slice = max(1, limits.slice_bytes // (4 * lanes)) * lanes
        self._small: list[AnyCall] = []
        self._large: list[AnyCall] = []
        self._begun: dict[int, int] = {}
        """Elements that are done, by number of the call."""
        self._behind_barrier: list[AnyCall] = []
        self._turn_of_large = False

    def __bool__(self) -> bool:
        return bool(self._small or self._large or self._behind_barrier)

    def add(self, call: AnyCall) -> None:
        """Take in the next collective."""
        collective = call.collective
        if self._behind_barrier or (collective.is_barrier and self):
            self._behind_barrier.append(call)
        elif self._is_small(collective):
            self._small.append(call)
        else:
            self._large.append(call)

    def put_back(self, calls: Sequence[AnyCall]) -> None:
        """Take in again, before all others, what `next` has given away and could not be carried out."""
        self._small[:0] = calls

    def next(self) -> Fused[AnyCall] | Slice[AnyCall]:
        """Return what is to be carried out now; it counts as done. There must be something."""
        take_large = self._large and (self._turn_of_large or not self._small)
        self._turn_of_large = not take_large
        step = self._next_slice() if take_large else self._next_fused()
        if not self._small and not self._large:
            held, self._behind_barrier = self._behind_barrier, []
            for call in held:
                self.add(call)
        return step

    def drain(self) -> list[AnyCall]:
        """Give away everything, for it will not be carried out."""
        left = [*self._small, *self._large, *self._behind_barrier]
        self._small, self._large, self._behind_barrier = [], [], []
        return left

    def _is_small(self, collective: Collective) -> bool:
        return collective.is_barrier or self._bytes(collective) <= self._limits.fusion_bytes

    def _bytes(self, collective: Collective) -> int:
        return 4 * self._lanes * packets(collective, self._lanes)

    def _next_fused(self) -> Fused[AnyCall]:
        first, room = self._small[0], self._limits.fusion_bytes
        taken: list[AnyCall] = []
        for call in self._small:
            size = self._bytes(call.collective)
            if call is first or (_kind(call) == _kind(first) and size <= room):
                taken.append(call)
                room -= size
        chosen = set(map(id, taken))
        self._small = [call for call in self._small if id(call) not in chosen]
        return Fused(taken)

    def _next_slice(self) -> Slice[AnyCall]:
        call = min(self._large, key=_front)
        number, length = call.collective.number, len(call.collective.staged.source)
        first = self._begun.pop(number, 0)
        count = min(self._slice, length - first)
        if first + count < length:
            self._begun[number] = first + count
            return Slice(call, first, count, is_last=False)
        self._large.remove(call)
        return Slice(call, first, count, is_last=True)


def packets(collective: Collective, lanes: int) -> int:
    """Return how many packets the elements of a collective fill; one if there are none."""
    return max(1, -(-len(collective.staged.source) // lanes))


def _kind(call: Call) -> object:
    """Return what fused collectives have in common.

    A reduce, a barrier, or one with numbers of its own, has it with no other.
    """
    collective = call.collective
    if collective.root is not None or collective.is_barrier or collective.block16 is not None:
        return collective.number
    return collective.staged.source.dtype, collective.average


def _front(call: Call) -> float:
    layer = call.collective.layer
    return layer[0] / layer[1] if layer else 1.0
