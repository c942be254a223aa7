"""Fuse several collectives into one, and cut one into slices, for the steps of a schedule."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.collectives import CallOptions, Collective
from hostlib.collectives.arrays import staged_as
from hostlib.collectives.schedule import Packets
from hostlib.errors import InaError, NonFiniteError, SumOverflow

_NAMED: Final = 3
"""Maximum number of collectives that the description of a fused step names."""


class FusedCollective:
    """Several allreduces of one kind as one collective; each still fills packets of its own."""

    def __init__(self, parts: Sequence[Collective], packets: Packets) -> None:
        self.parts = parts
        self._packet = packets.elements(parts[0])
        ends = np.cumsum([self._packet * packets.count(part) for part in parts])
        self._starts: list[int] = [0, *map(int, ends[:-1])]
        first = parts[0]
        self._sums = np.zeros(int(ends[-1]), first.staged.source.dtype)
        for part, start in zip(parts, self._starts, strict=True):
            self._sums[start : start + len(part.staged.source)] = part.staged.source
        self.collective = Collective(
            staged_as(self._sums, self._sums),
            first.average,
            CallOptions(
                nonfinite="raise" if any(map(_raises, parts)) else "propagate",
                layer=_front_most(parts),
                priority=_highest(parts),
                numbers=first.options.numbers,
            ),
            _description(parts),
            first.number,
            part=_digest(parts),
            calls=len(parts),
            fused=[series for part in parts for series in part.series]
            if all(p.series for p in parts)
            else (),
        )

    def carry_out(self, run: Callable[[Collective], None]) -> list[InaError | None]:
        """Carry out the fused collective, and distribute the sums to its parts.

        Return one item for each part: its error, or None. If the sum of a part overflowed, the list ends with
        this part, and the parts behind it must be carried out again.

        Raises:
            JobBroken: the job is over.
        """
        error: SumOverflow | NonFiniteError | None = None
        try:
            run(self.collective)
        except (SumOverflow, NonFiniteError) as raised:
            error = raised
        ended = range(self._ended(error))
        for place in ended:
            self._hand_out(place)
        return [error and self._outcome(place, error) for place in ended]

    def _ended(self, error: InaError | None) -> int:
        if not isinstance(error, SumOverflow):
            return len(self.parts)
        return sum(start <= error.element for start in self._starts)

    def _outcome(self, place: int, error: SumOverflow | NonFiniteError) -> InaError | None:
        part, start = self.parts[place], self._starts[place]
        if isinstance(error, SumOverflow) and place == self._ended(error) - 1:
            return SumOverflow(error.job, error.psns, error.element - start, error.reason)
        unfit = np.isnan(self._sums[start : start + len(part.staged.source)])
        if not _raises(part) or not unfit.any():
            return None
        element = int(np.argmax(unfit)) // self._packet * self._packet
        return NonFiniteError(error.job, element, part.staged.unfit(element, self._packet))

    def _hand_out(self, place: int) -> None:
        target, start = self.parts[place].staged.target, self._starts[place]
        target[:] = self._sums[start : start + len(target)]


def slice_of(collective: Collective, first: int, count: int, *, is_last: bool) -> Collective:
    """Return a part of a collective: a range of elements of each shard.

    Args:
        collective: The whole collective.
        first: First element of the range; a multiple of the number of elements per packet.
        count: Number of elements of the range.
        is_last: Whether this is the last part.
    """
    staged, end, length = collective.staged, first + count, collective.length
    beyond = staged.beyond and (staged.beyond[0] - first, staged.beyond[1])

    def part(array: NDArray[Any]) -> NDArray[Any]:
        return array[first : len(array) - length + end]  # of all shards, or of one

    return collective._replace(
        staged=staged._replace(source=part(staged.source), target=part(staged.target), beyond=beyond),
        stride=length if collective.shards > 1 else None,
        part=f"from {first} to {end}",
        calls=int(is_last),
    )


def error_of_slice(error: BaseException, first: int) -> BaseException:
    """Return a slice's error as an error of the whole collective; `first` is the slice's first element."""
    match error:
        case SumOverflow():
            return SumOverflow(error.job, error.psns, error.element + first, error.reason)
        case NonFiniteError():
            return NonFiniteError(error.job, error.element + first, error.what)
    return error


def _raises(part: Collective) -> bool:
    return part.options.nonfinite == "raise"


def _description(parts: Sequence[Collective]) -> str:
    named = "; ".join(part.description for part in parts[:_NAMED])
    more = len(parts) - _NAMED
    return f"{named}; and {more} more" if more > 0 else named


def _digest(parts: Sequence[Collective]) -> str:
    every = "; ".join(f"{part.number} {part.description}" for part in parts)
    return f"{len(parts)} fused, {zlib.crc32(every.encode()):08x}"


def _front_most(parts: Sequence[Collective]) -> tuple[int, int] | None:
    layers = [part.options.layer for part in parts if part.options.layer]
    return min(layers, key=lambda layer: layer[0] / layer[1], default=None)


def _highest(parts: Sequence[Collective]) -> int | None:
    return max((p.options.priority for p in parts if p.options.priority is not None), default=None)
