"""Decide which asynchronous collectives a rank carries out next, and which of them together.

All ranks must decide alike, or their packets would not meet. So a schedule holds only calls that all ranks
have submitted (by `ballot`), and decides by these alone:

- Small collectives (up to `Limits.fusion_bytes`) of one kind are one step together, each on packets of its
  own: *fused*. Their sums have the same bits as if they were carried out alone.
- Larger collectives are carried out in slices: front layers first, others in the order of submission. After a
  slice the small collectives submitted meanwhile have one step, so that large and small ones take turns.
  Slices of a collective with a layer are smaller: a more urgent collective waits for at most one slice.
- A barrier waits for all calls before it, and all calls behind it wait for the barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hostlib.collectives import PLAIN, Collective, arrays, is_whole
from hostlib.collectives.handle import Handle
from hostlib.core.state import Pattern
from hostlib.errors import ConfigError
from hostlib.wire.encodings import Encoding, per_lane

FUSION_BYTES: Final = 1 << 20
SLICE_BYTES: Final = 32 << 20
"""Default of `Limits.slice_bytes`. Each slice costs time: the window is filled and drained once, exponents
are announced for one window more, and the ranks vote."""
_OF_LAYERS: Final = 4
"""Divisor of `Limits.slice_bytes` for collectives with the option `layer`. DDP's buckets have no layer: up to
`slice_bytes` they stay whole."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of fused and sliced collectives in bytes; the same on all ranks.

    Raises ConfigError for an invalid size.
    """

    fusion_bytes: int = FUSION_BYTES
    """Maximum number of bytes of a fused step, and of a collective that counts as small. 0: do not fuse
    collectives."""
    slice_bytes: int = SLICE_BYTES
    """Maximum number of bytes of a slice of a large collective. Collectives with a layer have slices of a
    quarter of this. A slice has at least one packet."""

    def __post_init__(self) -> None:
        for name, least in (("fusion_bytes", 0), ("slice_bytes", 1)):
            if not is_whole(value := getattr(self, name)) or value < least:
                raise ConfigError(f"{name} is {value!r}, must be a whole number from {least} on")


@dataclass(frozen=True, slots=True)
class Packets:
    """Computes how many elements a packet carries, and how many packets a collective has."""

    lanes: int
    numbers: Encoding = "exponent"
    """Encoding of floats in collectives that do not set an encoding of their own."""

    def elements(self, collective: Collective) -> int:
        """Return the number of elements that a packet of a collective carries."""
        is_float = collective.staged.source.dtype == np.float32
        return self.lanes * (per_lane(collective.options.numbers or self.numbers) if is_float else 1)

    def count(self, collective: Collective) -> int:
        """Return the number of packets that a collective's elements fill, at least 1."""
        return self.filled(collective) // self.elements(collective)

    def filled(self, collective: Collective) -> int:
        """Return the number of elements for which a collective's packets have room."""
        packet = self.elements(collective)
        return collective.shards * packet * max(1, -(-collective.length // packet))


@dataclass(frozen=True, slots=True)
class Fused:
    """A step of the schedule: several small collectives, or one collective alone."""

    calls: Sequence[Handle[Any]]


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a large collective: `count` elements from `first` on, of each shard."""

    call: Handle[Any]
    first: int
    count: int
    is_last: bool


class Schedule:
    """Collectives that all ranks have submitted and that are not done, in the order of submission."""

    def __init__(self, limits: Limits, packets: Packets) -> None:
        self._limits = limits
        self._packets = packets
        self._small: list[Handle[Any]] = []
        self._large: list[Handle[Any]] = []
        self._begun: dict[int, int] = {}
        """Number of elements done so far, by the number of the call, for calls that are carried out in
        slices."""
        self._behind_barrier: list[Handle[Any]] = []
        self._turn_of_large = False

    def __bool__(self) -> bool:
        return bool(self._small or self._large or self._behind_barrier)

    def is_one_step(self, collective: Collective) -> bool:
        """Return whether a collective is carried out alone and whole, without a vote."""
        if collective.is_barrier:
            return False
        size = self._bytes(collective)
        if size > self._limits.fusion_bytes:
            return size <= self._slice_bytes(collective)
        if _is_alone(collective):
            return True
        packet = 4 * self._packets.elements(collective)
        return size + packet > self._limits.fusion_bytes  # no other fits beside it

    def add(self, call: Handle[Any]) -> None:
        """Add the next collective."""
        collective = call.collective
        if self._behind_barrier or (collective.is_barrier and self):
            self._behind_barrier.append(call)
        elif collective.is_barrier or self._bytes(collective) <= self._limits.fusion_bytes:
            self._small.append(call)
        else:
            self._large.append(call)

    def put_back(self, calls: Sequence[Handle[Any]]) -> None:
        """Return `calls` to the front of the schedule: `next` removed them, but they were not carried out."""
        self._small[:0] = calls

    def next(self) -> Fused | Slice:
        """Remove the next step from the schedule and return it. The schedule must not be empty."""
        take_large = self._large and (self._turn_of_large or not self._small)
        self._turn_of_large = not take_large
        step = self._next_slice() if take_large else self._next_fused()
        if not self._small and not self._large:
            held, self._behind_barrier = self._behind_barrier, []
            for call in held:
                self.add(call)
        return step

    def drain(self) -> list[Handle[Any]]:
        """Remove all calls, which will not be carried out, and return them."""
        left = [*self._small, *self._large, *self._behind_barrier]
        self._small, self._large, self._behind_barrier = [], [], []
        return left

    def _slice_bytes(self, collective: Collective) -> int:
        return self._limits.slice_bytes // (1 if collective.options.layer is None else _OF_LAYERS)

    def _bytes(self, collective: Collective) -> int:
        return 4 * self._packets.filled(collective)

    def _next_fused(self) -> Fused:
        first, room = self._small[0], self._limits.fusion_bytes
        taken: list[Handle[Any]] = []
        for call in self._small:
            size = self._bytes(call.collective)
            if call is first or (_kind(call) == _kind(first) and size <= room):
                taken.append(call)
                room -= size
        chosen = set(map(id, taken))
        self._small = [call for call in self._small if id(call) not in chosen]
        return Fused(taken)

    def _next_slice(self) -> Slice:
        call = min(self._large, key=_front)
        number, length = call.collective.number, call.collective.length
        first = self._begun.pop(number, 0)
        packet = self._packets.elements(call.collective)
        across = packet * call.collective.shards
        packets = max(1, self._slice_bytes(call.collective) // (4 * across))
        count = min(packets * packet, length - first)
        if first + count < length:
            self._begun[number] = first + count
            return Slice(call, first, count, is_last=False)
        self._large.remove(call)
        return Slice(call, first, count, is_last=True)


def _kind(call: Handle[Any]) -> object:
    """Return the properties that collectives must share to be fused.

    A reduce, a barrier, a collective of shards or one with a residual is never fused.
    """
    collective = call.collective
    if _is_alone(collective):
        return collective.number
    return collective.staged.source.dtype, collective.average, collective.options.numbers


def _is_alone(collective: Collective) -> bool:
    single = collective.root is not None or collective.pattern is not Pattern.SUM
    return single or collective.is_barrier or collective.options.residual is not None


def _front(call: Handle[Any]) -> float:
    layer = call.collective.options.layer
    return layer[0] / layer[1] if layer else 1.0


def ballot(ready: int, lanes: int, *, waits: bool, number: int, description: str, part: str) -> Collective:
    """Return the collective with which ranks vote on the number of ready calls.

    Args:
        ready: Number of this rank's ready calls, below `lanes`.
        lanes: Values per packet.
        waits: Whether this rank submits no further call before the first one is done.
        number: See `Collective`.
        description: See `Collective`.
        part: See `Collective`.
    """
    ones = np.zeros(lanes, np.int32)
    ones[:ready] = 1
    ones[-1] = waits
    staged = arrays.stage(ones, ones)
    return Collective(staged, False, PLAIN, description, number, part=part, calls=0)


def agreed(counted: Collective, size: int) -> tuple[int, bool]:
    """Return the number of calls that all `size` ranks have submitted, and whether all ranks wait.

    `counted` is the collective in which the ranks' ballots were summed.
    """
    all_have = counted.staged.target == size
    return int(np.count_nonzero(all_have[:-1])), bool(all_have[-1])
