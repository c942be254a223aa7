"""Contributions of the ranks to a collective, and the results that each rank may get.

The oracle is a NumPy sum in 64 bits, with the error bounds of the protocol page.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.schedule import CollectivePlan
from bmv2_topos.testbeds.virtual.settings import WrongSum
from hostlib import wire
from hostlib.core.state import Pattern
from hostlib.core.window import NumericErrors
from hostlib.wire import encodings

SCALE_BITS = 20
SENTINEL = 77
_INT32_MAX = 2**31 - 1
_FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class SumSettings:
    """How the values of a job are summed.

    Attributes:
        ranks: Number of ranks.
        numbers: Encoding of float32 values in packets.
        repaired: Whether there is a fallback server, which sums overflowed packets again.
        turn: Number of packets of a shard to send before packets of the next shard (`turn_of`).
    """

    ranks: int
    numbers: encodings.Encoding
    repaired: bool
    turn: int


def _numbers(first: int, turn: int, shard: int, of_shard: int) -> NDArray[Any]:
    """Return the numbers of the packets in one turn of a shard.

    The turn begins at packet `first` of the shard, and has up to `turn` packets. Each shard has `of_shard`
    packets.
    """
    return np.arange(first, min(first + turn, of_shard)) + shard * of_shard


class SoakSum:
    """One collective: the inputs of all ranks, the exact sum, and the error allowed in each packet."""

    def __init__(
        self,
        index: int,
        collective: CollectivePlan,
        summing: SumSettings,
        generator: np.random.Generator,
    ) -> None:
        self.collective = collective
        self.ranks = summing.ranks
        self.repaired = summing.repaired
        self.shards = self.ranks if collective.pattern is Pattern.SCATTER else 1
        self.numbers = summing.numbers if collective.dtype == "float32" else None
        described = (
            f"{index} {collective.name} {collective.dtype} {collective.length} {collective.target}"
            f" {collective.average}"
        )
        self.tag = zlib.crc32(described.encode())
        self.inputs = self._draw(generator)
        self.results: dict[int, tuple[bytes, NumericErrors]] = {}
        """Output and numeric errors of each rank that has finished, by rank."""
        self._prepare(summing.turn)

    # ------------------------------------------------------------------ right results

    def _draw(self, generator: np.random.Generator) -> list[NDArray[Any]]:
        shape = (self.ranks, self.shards * self.collective.length)
        if self.numbers is None:
            top = _INT32_MAX if self.collective.large else 10**7
            return list(generator.integers(-top, top, shape, dtype=np.int32, endpoint=True))
        values = generator.standard_normal(shape, dtype=np.float32)
        if self.numbers == "fixed":
            scale = (
                generator.choice((1.0, 1e4, 1e10), shape, p=(0.98, 0.01, 0.01))
                if self.collective.large
                else 20
            )
            values = (values * scale).astype(np.float32)
        else:
            most = 2 if self.collective.named else 126 if self.collective.large else 20
            values = np.ldexp(values, generator.integers(-most, most, (self.ranks, 1))).astype(np.float32)
        if self.collective.nonfinite and values.size:
            values[generator.integers(self.ranks), generator.integers(values.shape[1])] = generator.choice(
                (np.inf, -np.inf, np.nan)
            )
        return list(values)

    def _prepare(self, turn: int) -> None:
        length = self.collective.length
        moved = self.collective.pattern is Pattern.GATHER
        elements = LANES * (1 if moved or self.numbers is None else encodings.per_lane(self.numbers))
        of_shard = np.arange(0, length, elements)
        self.starts = np.concatenate([shard * length + of_shard for shard in range(self.shards)])
        places = [(first, shard) for first in range(0, len(of_shard), turn) for shard in range(self.shards)]
        self.order = np.concatenate(
            [np.arange(0), *(_numbers(first, turn, shard, len(of_shard)) for first, shard in places)]
        )
        """Packet numbers in the order of sending: first `turn` packets of every shard, then the next `turn`
        packets of every shard, and so on."""
        stacked = np.stack(self.inputs)
        with np.errstate(all="ignore"):
            total = stacked[0].astype(np.float64)
            # in the order of the ranks, as the fallback server adds; NumPy's `sum` may use another order
            for row in stacked[1:]:
                total = total + row
        self.exact: NDArray[np.float64] = total
        packets = len(self.starts)
        self.nonfinite = np.zeros(packets, np.bool_)
        """For each packet: whether a value is not finite, which must be reported to every rank."""
        self.nan = np.zeros(packets, np.bool_)
        """For each packet: whether its result must be NaN at every rank."""
        self.lost = np.zeros(packets, np.bool_)
        """For each packet: whether its sum overflows and cannot be repaired, which must be reported to every
        rank."""
        self.risky = np.zeros(packets, np.bool_)
        """For each packet: whether its sum overflows without repair in some orders of adding the inputs."""
        self.raw = np.zeros(packets, np.bool_)
        """For each packet: whether the fallback server sums unscaled values, and rounds only their sum."""
        self.bounds = np.zeros(packets)
        if not packets or moved:
            return
        with np.errstate(all="ignore"):
            self._classify(stacked)

    def _classify(self, stacked: NDArray[Any]) -> None:
        largest = np.maximum.reduceat(np.abs(stacked.astype(np.float64)).max(axis=0), self.starts)
        if self.numbers is None:
            outside = (self.exact > _INT32_MAX) | (self.exact < -(2**31))
            self.lost = np.logical_or.reduceat(outside, self.starts)
            if not self.repaired:
                reach = np.abs(stacked.astype(np.float64)).sum(axis=0)
                self.risky = np.logical_or.reduceat(reach > _INT32_MAX, self.starts)
            return
        finite = np.logical_and.reduceat(np.isfinite(stacked).all(axis=0), self.starts)
        self.nonfinite = ~finite
        self.nan = ~finite & (self.numbers != "fixed" or not self.repaired)
        if self.numbers != "fixed":
            fields = ((stacked.view(np.uint32) >> 23) & 0xFF).max(axis=0)
            largest_fields: list[int] = np.maximum.reduceat(fields, self.starts).tolist()
            for packet, exponent in enumerate(largest_fields):
                self.bounds[packet] = self._bound(exponent)
            return
        fits = finite & (np.rint(largest * 2.0**SCALE_BITS) <= _INT32_MAX // self.ranks)
        if self.repaired:
            self.raw = ~fits
        else:
            self.lost = ~fits & finite
        for fitting in np.flatnonzero(fits):
            self.bounds[fitting] = encodings.fixed_error_bound(
                float(largest[fitting]), SCALE_BITS, self.ranks
            )

    def _bound(self, exponent: int) -> float:
        average = self.collective.average
        if self.numbers in encodings.BLOCKS:
            return encodings.block_error_bound(exponent, self.ranks, self.numbers, average=average)
        return encodings.error_bound(exponent, self.ranks, average=average, foreseen=self.collective.named)

    # ------------------------------------------------------------------ checks of results

    def output_for(self, rank: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the source array and the output array of a rank."""
        source, collective = self.inputs[rank].copy(), self.collective
        own = slice(rank * collective.length, (rank + 1) * collective.length)
        if collective.name == "broadcast":
            return source, source
        if collective.name == "all-gather":
            output = np.full(self.ranks * len(source), SENTINEL, source.dtype)
            if not collective.in_place:
                return source, output
            output[own] = source
            return output[own], output
        if collective.name == "reduce-scatter":
            shard = source[own]
            return source, shard if collective.in_place else np.full_like(shard, SENTINEL)
        return source, source if collective.in_place else np.full_like(source, SENTINEL)

    def accept(self, rank: int, output: NDArray[Any], numeric_errors: NumericErrors) -> None:
        """Check a rank's output after the collective.

        Raises:
            WrongSum: the output or the reported numeric errors are wrong.
        """
        self._judge_numeric_errors(rank, numeric_errors)
        if self.collective.pattern is Pattern.GATHER:
            self._judge_moved(rank, output)
        elif self.collective.target in (wire.TARGET_ALL, rank):
            self._judge_values(rank, output, numeric_errors.overflow is not None)
        else:
            kept = self.inputs[rank] if self.collective.in_place else np.full_like(output, SENTINEL)
            if output.tobytes() != kept.tobytes():
                raise WrongSum(f"rank {rank} is not the target, but its output was changed")
        for other, (_, reported) in self.results.items():
            if reported != numeric_errors:
                raise WrongSum(
                    f"rank {rank} got the report {numeric_errors}, but rank {other} got {reported}"
                )
        self.results[rank] = output.tobytes(), numeric_errors

    def _judge_numeric_errors(self, rank: int, numeric_errors: NumericErrors) -> None:
        nonfinite = self._first(self.nonfinite)
        if numeric_errors.nonfinite != nonfinite:
            raise WrongSum(
                f"rank {rank}: first non-finite packet is at {numeric_errors.nonfinite}, must be {nonfinite}"
            )
        lost = self._first(self.lost)
        if numeric_errors.overflow == lost:
            return
        at = numeric_errors.overflow
        if (
            at is not None
            and self.risky[self._packet(at)]
            and (lost is None or self._turn(at) < self._turn(lost))
        ):
            return
        raise WrongSum(f"rank {rank}: the first reported overflow is at {at}, must be {lost}")

    def _packet(self, element: int) -> int:
        return int(np.searchsorted(self.starts, element, "right")) - 1

    def _turn(self, element: int) -> int:
        """Return the position of an element's packet in the order of sending."""
        return int(np.flatnonzero(self.order == self._packet(element))[0])

    def _first(self, concerned: NDArray[np.bool_]) -> int | None:
        """Return the index of the first element of the first `concerned` packet in the order of sending."""
        found = self.order[concerned[self.order]] if len(self.order) else self.order
        return int(self.starts[found[0]]) if len(found) else None

    def _judge_moved(self, rank: int, output: NDArray[Any]) -> None:
        collective = self.collective
        if collective.name == "broadcast":
            right = self.inputs[collective.target]
        else:
            right = np.concatenate(self.inputs)
            if not collective.in_place:  # the caller itself fills in its own shard
                right[rank * collective.length : (rank + 1) * collective.length] = SENTINEL
        if output.tobytes() != right.tobytes():
            at = int(np.flatnonzero(output.view(np.int32) != right.view(np.int32))[0])
            raise WrongSum(f"rank {rank}: element {at} is {output[at]!r}, must be {right[at]!r}")

    def _judge_values(self, rank: int, output: NDArray[Any], overflowed: bool) -> None:
        if not len(self.starts):
            return
        first = rank * self.collective.length if self.shards > 1 else 0
        mine = slice(first, first + len(output))
        lane_packets = np.searchsorted(self.starts, np.arange(first, first + len(output)), "right") - 1
        exact = self.exact[mine]
        got = output.astype(np.float64)
        with np.errstate(all="ignore"):
            if self.collective.average:
                exact = exact / self.ranks
            bound = self.bounds[lane_packets]
            if self.numbers == "fixed" and self.collective.average:
                bound = bound / self.ranks + np.abs(exact) * 2.0**-23 + math.ldexp(1.0, -149)
            right = np.abs(got - exact) <= bound
            right |= (got == np.copysign(np.inf, exact)) & (np.abs(exact) + bound > _FLOAT_MAX)
            right |= self.nan[lane_packets] & np.isnan(got)
            right |= self.lost[lane_packets]
            if overflowed:
                right |= self.risky[lane_packets]
            if self.raw.any():
                rounded = self.exact[mine].astype(np.float32)
                if self.collective.average:
                    rounded = rounded / np.float32(self.ranks)
                same = (output == rounded) | (np.isnan(output) & np.isnan(rounded))
                right = np.where(self.raw[lane_packets], same, right)
        if right.all():
            return
        at = int(np.flatnonzero(~right)[0])
        wrong = int((~right).sum())
        raise WrongSum(
            f"rank {rank}: {wrong} of {len(output)} elements are wrong; element {at} is {output[at]!r},"
            f" must be {exact[at]!r} within {bound[at]:g}"
        )
