"""One worker's window over the life of a job, without I/O."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.core.congestion import BadLimits, Congestion, FixedWindow, Limits, Round, asked
from hostlib.core.foresight import Foresight, Series, misfits
from hostlib.core.state import ALL_WAIT, CoreSettings, CoreState, CoreStruct, Counter, Pattern, RtoLimits
from hostlib.errors import JobFault, PsnRange
from hostlib.wire.encodings import Encoding, per_lane, why_no_room


class Kernel(Protocol):
    """The functions that run for every packet. All times are nanoseconds of the caller's clock."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        ...

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write packets that may be sent now into `out`, as many as fit; return how many.

        All have the same length, which `CoreStruct.emitted_bytes` is then. 0: nothing may be sent now.
        """
        ...

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Process received packets.

        Args:
            state: The state of the core.
            data: The packets, back to back.
            segment: Bytes of each packet; the last may be shorter.
            now: The time in nanoseconds.
        """
        ...

    def next_timeout(self, state: CoreState) -> int:
        """Return when the oldest packet in flight is overdue or to be probed for, or `NEVER`."""
        ...

    def time_out(self, state: CoreState, now: int) -> None:
        """Queue overdue packets for resending, or for a probe: see `Window.on_timeout`."""
        ...

    def end_round(self, state: CoreState, in_flight: int, claims: int) -> None:
        """Set the limits from now on, and count the results that are in, up to the end of the next round.

        The line between claim and bypass moves only for packets that no rank has sent yet, and not before
        those of its last move are sent. So all ranks draw it through the same packets, and a packet says the
        same of waiting however often it is sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class NumericErrors:
    """Numeric errors of a finished collective: of each the first element of the first packet concerned.

    Of shards, elements count in the array that has them all.
    """

    nonfinite: int | None
    """Some rank's values there are NaN or infinite; the packet's results are NaN."""
    overflow: int | None
    """A sum there left the int32 range; the packet's results are wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """`count` elements from `at` on of a shard."""

    shard: int
    at: int
    count: int


def place_of(core: CoreStruct, data: int) -> Place:
    """Return the place of a data packet, by its number; as ``place_of`` in ``_native/ina_core.c``."""
    shard, number = 0, data
    if core.shards > 1:
        turns, in_round = divmod(data, core.turn * core.shards)
        turn = min(core.turn, core.data_packets // core.shards - core.turn * turns)
        shard, in_turn = divmod(in_round, turn)
        number = turns * core.turn + in_turn
    most = core.lanes * core.per_lane
    at = number * most
    return Place(shard, at, min(most, core.length - at))


class Exchange(NamedTuple):
    """A collective as a window carries it out; a tuple, for a frozen dataclass takes longer to make.

    The arrays are flat, contiguous and both float32 or both int32. An empty array takes one packet, so that
    all ranks still meet.

    ======== =========================== ============================================================
    pattern  `source`                    `output`
    ======== =========================== ============================================================
    SUM      the values of this rank     as long; gets the sum; may be the same array
    SCATTER  the values of this rank     gets the sum of this rank's shard
    GATHER   this rank's shard           gets all other ranks' shards; its own is left as it is
    ======== =========================== ============================================================
    """

    source: NDArray[Any]
    """See above. In a broadcast (GATHER with a target) it is `output`."""
    output: NDArray[Any]
    """See above. It may be part of `source`, in its place, or the other way round."""
    tag: int
    """Digest of everything that the ranks must agree on."""
    pattern: Pattern = Pattern.SUM
    average: bool = False
    """Divide the sum by the number of ranks."""
    priority: int = 0
    """Of its packets, 0 to 255, in a switch whose jobs may preempt each other."""
    target: int = wire.TARGET_ALL
    """SUM: the only rank that gets the sum; the `output` of the others stays; `wire.TARGET_ALL`: all ranks.
    GATHER: the only rank that has something to give, a broadcast; `wire.TARGET_ALL`: each has a shard."""
    stride: int | None = None
    """Elements from one shard to the next, in the array that has all shards; None: they lie back to back.
    The first begins with the array."""
    numbers: Encoding | None = None
    """How float32 values travel; None: as the settings say."""
    feedback: bool = False
    """Leave in `source`, which must be a separate array, its rounding error."""
    series: Sequence[tuple[str, int]] = ()
    """SUM of float32: names of the calls that it consists of, and elements of each, if it may take the
    exponents of earlier ones of these names (`hostlib.core.foresight`)."""


class Window:
    """Sends the packets of one collective after another and takes in their results.

    A driver calls `begin`, then sends what `emit` writes, feeds what arrives to `absorb`, and calls
    `on_timeout` when `next_timeout` has come, until `complete`. Times are integer nanoseconds.

    With a fallback server other ranks may depend on this one's answers even when it is `complete`, or has not
    begun for a while: `absorb` and `emit` go on to work, and there is nothing to time out.
    """

    def __init__(self, settings: CoreSettings, kernel: Kernel, congestion: Congestion | None = None) -> None:
        self.settings = settings
        self.kernel = kernel
        self.state = CoreState(settings)
        self._tree = settings.resolved_tree
        self._next_psn = settings.first_psn
        self.congestion = congestion or FixedWindow()
        self._foresight = Foresight()
        self._series: Sequence[Series] = ()
        self._missed = False

    @property
    def congestion(self) -> Congestion:
        """Congestion control of the window; setting it starts it. All ranks must set the same one alike.

        Raises:
            BadLimits: it fails, or its limits are none.
        """
        return self._congestion

    @congestion.setter
    def congestion(self, congestion: Congestion) -> None:
        core = self.state.struct
        limits = self._asked(congestion, lambda: congestion.start(core.most))
        self._congestion = congestion
        core.claims = core.claims_next = limits.claims
        core.allowed = limits.in_flight
        core.limit = min(core.allowed, core.room)
        core.round_target = core.allowed if congestion.wants_rounds else 0
        self._foresees = not getattr(congestion, "hears_waiting", True)
        core.rule, core.rule_state = getattr(congestion, "in_c", (None, None))  # the compiled core asks it

    def restrict_to(self, packets: int) -> None:
        """Keep no more packets in flight than this rank's socket, say, can hold: at least 1.

        The congestion control does not hear of it: its rounds come from the other ranks.
        """
        core = self.state.struct
        core.room = max(1, packets)
        core.limit = min(core.allowed, core.room)

    def follow(self, rto: RtoLimits) -> None:
        """Set other limits of time-outs; not within a collective.

        What is overtaken gets as much time: it may wait for another rank's packet in the switch's queue.
        """
        self.state.set_limits(rto)
        core = self.state.struct
        core.tolerance = max(core.tolerance, core.rto_margin)

    def begin(self, exchange: Exchange, now: int) -> None:
        """Start a collective at a time in nanoseconds; the previous one must be complete.

        Raises ValueError, and begins nothing, if the numbers have no room for the sum of all ranks.
        """
        source, output, tag, pattern, average, priority, target, stride, numbers, feedback, series = exchange
        if numbers or self.settings.numbers != "exponent" or not self._foresees:
            series = ()  # numbers of its own are a function of this sum's values alone
        numbers = numbers or self.settings.numbers
        fields = per_lane(numbers)
        shard = output if pattern is Pattern.SCATTER else source
        is_float = source.dtype == np.float32 and pattern is not Pattern.GATHER and len(shard) > 0
        if is_float and fields > 1 and (why := why_no_room(numbers, self.settings.size)):
            raise ValueError(why)
        self._end_last()
        core = self.state.struct
        alone = pattern is Pattern.SUM or target != wire.TARGET_ALL
        core.fixed = self.settings.numbers == "fixed" and fields == 1
        core.per_lane = fields if is_float else 1
        core.feedback = feedback and core.per_lane > 1
        core.pattern = pattern if len(shard) else Pattern.SUM  # of nothing: the ranks meet
        core.shards = 1 if alone or not len(shard) else self.settings.size
        core.target = target if alone or not len(shard) else 0
        core.length = len(shard)
        core.stride = len(shard) if stride is None else stride
        core.data_packets = core.shards * max(1, -(-len(shard) // self.packet_elements))
        core.is_float = is_float
        core.average = average
        core.tag = tag
        core.lookahead = 0
        if not (is_float and pattern is Pattern.SUM and series):
            self._series = ()
            self.state.set_exponents(None, None)
        elif (foreseen := self._foresee(series)) is not None:
            core.tag ^= zlib.crc32(foreseen)  # nobody sums with other scales, unnoticed
        if is_float and not core.fixed and not core.foreseen:
            core.lookahead = min(core.data_packets, self.settings.packets_in_flight)
        self.state.set_header("priority", priority)
        self.state.set_arrays(source, output)
        self._start(now)

    def _foresee(self, series: Sequence[tuple[str, int]]) -> bytes | None:
        """Set up exponents for a sum of these series, and return those that are foreseen; None: none."""
        core = self.state.struct
        self._series = [(name, max(1, -(-elements // core.lanes))) for name, elements in series]
        self._missed = False
        foreseen = self._foresight.foresee(self._series)
        array = None if foreseen is None else np.frombuffer(bytearray(foreseen), np.uint8)
        self.state.set_exponents(np.zeros(core.data_packets, np.uint8), array)
        return foreseen

    def _end_last(self) -> None:
        """Count the results of the last exchange, before another one begins."""
        self.on_round()
        core = self.state.struct
        core.change_at = max(0, core.change_at - core.total)

    def _start(self, now: int) -> None:
        """Take PSNs for an exchange, and begin it."""
        core = self.state.struct
        core.total = core.data_packets + core.lookahead
        core.base = self._next_psn
        self._next_psn = (self._next_psn + core.total) % core.psn_limit
        self.kernel.begin(self.state, now)

    def finish(self, now: int) -> bool:
        """Return whether the collective, all of whose results are in, is over.

        Otherwise this has begun an exchange of those packets alone whose exponents were not as foreseen.
        """
        core, found, foreseen = self.state.struct, self.state.found, self.state.foreseen
        if found is None:
            return True
        if core.misfits and foreseen is not None:
            picked = np.flatnonzero(misfits(found, foreseen)).astype(np.int64)
            foreseen[picked] = found[picked]
            self.state.set_exponents(found, foreseen, picked)
            self._missed, nonfinite = True, core.nonfinite_index
            self._end_last()
            core.tag = zlib.crc32(picked.tobytes() + foreseen.tobytes(), core.tag)
            core.data_packets = len(picked)
            self._start(now)
            core.nonfinite_index = nonfinite
            return False
        all_fit = foreseen is not None and not self._missed
        self._foresight.learn(self._series, found.tobytes(), all_fit=all_fit)
        return True

    def emit(self, out: NDArray[Any], now: int) -> int:
        """Write packets that may be sent now to `out`, bytes, as many as fit; return how many.

        All are of the same length, `emitted_bytes`. There may be more as long as it is not 0.
        """
        return self.kernel.emit(self.state, out, now)

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in what arrived: packets of `segment` bytes, the last maybe shorter, with anything in them."""
        self.kernel.absorb(self.state, data, segment, now)
        self.on_round()

    @property
    def round_due(self) -> bool:
        """True if the congestion control has to be asked: as many results are in as a round takes."""
        core = self.state.struct
        return bool(0 < core.round_target <= core.round_results)

    def on_round(self) -> None:
        """Tell the congestion control what each round that is over brought; `absorb` does so itself.

        For drivers that absorb in C, which stop when `round_due`.

        Raises:
            JobFault: the congestion control fails, or its limits are none.
        """
        core = self.state.struct
        while self.round_due:
            outcome = Round(
                results=core.round_results,
                marked=core.round_marked,
                collided=core.round_collided,
                waiting=core.round_waits / ALL_WAIT,
            )
            try:
                limits = self._asked(self._congestion, partial(self._decided, outcome))
            except BadLimits as error:
                raise JobFault(
                    str(error), job=self.settings.job, psns=self.outstanding()
                ) from error.__cause__
            self.kernel.end_round(self.state, limits.in_flight, limits.claims)

    def _decided(self, outcome: Round) -> Limits:
        core = self.state.struct
        if not core.refused:
            return self._congestion.on_round(outcome)
        if core.refused_status:
            raise BadLimits(f"the function returned {core.refused_status}, must be 0")
        return Limits(core.refused_in_flight, core.refused_claims)

    def _asked(self, congestion: Congestion, ask: Callable[[], Limits]) -> Limits:
        """Return the answer of a congestion control, with claims. Raises BadLimits."""
        return asked(congestion, ask, most=self.state.struct.most, may_bypass=self.settings.fallback)

    def next_timeout(self) -> int:
        """Return when `on_timeout` is due; `NEVER` if nothing is in flight."""
        return self.kernel.next_timeout(self.state)

    def on_timeout(self, now: int) -> None:
        """Queue overdue packets for resending, or for a probe; without effect if nothing is.

        A late result means a lost packet or a slow rank, and for a slow rank it would be a waste to send the
        window again. So only a few are resent at first, and they ask for a status. What a status shows as
        counted may lack its result all the same: that was lost, or the fallback server forgot the sum. So
        counted packets are resent too, the first of them in each case, for that is what the others wait for;
        one at first, twice as many in each further time-out, until they are eight, or an eighth of those
        that may be in flight if that is more.

        Without a fallback server time-outs count from the last result at the earliest: those of a slow switch
        come steadily, and what is sent again would make it slower. With one, what is asked for moves on a sum
        that waits in a slot or in the server, which the results of other packets do not.

        What had a round trip without being answered may be probed for before it is overdue.
        """
        self.kernel.time_out(self.state, now)

    @property
    def emitted_bytes(self) -> int:
        """Bytes of each packet that `emit` wrote last."""
        return int(self.state.struct.emitted_bytes)

    @property
    def packet_elements(self) -> int:
        """Elements of the collective that a packet carries."""
        return int(self.state.struct.lanes * self.state.struct.per_lane)

    @property
    def complete(self) -> bool:
        """True once every result of the collective is in."""
        return bool(self.state.struct.completed == self.state.struct.total)

    @property
    def ranks_disagree(self) -> bool:
        """True if the switch saw contributions with different tags: the collective can never complete."""
        return bool(self.state.struct.disagree_index >= 0)

    def numeric_errors(self) -> NumericErrors:
        """Return the numeric errors of the completed collective, by its elements in the source."""
        core = self.state.struct
        nonfinite, overflow = int(core.nonfinite_index), int(core.overflow_index)
        return NumericErrors(
            nonfinite=self._element(nonfinite) if nonfinite >= 0 else None,
            overflow=self._element(overflow - core.lookahead) if overflow >= 0 else None,
        )

    def _element(self, data: int) -> int:
        """Return the first element of a data packet, in the array that has all shards."""
        place = place_of(self.state.struct, data)
        return int(place.shard * self.state.struct.stride + place.at)

    def psns(self) -> PsnRange:
        """Return the PSNs of the collective."""
        return PsnRange(self.state.psn(0), self.state.psn(self.state.struct.total - 1))

    def outstanding(self) -> PsnRange:
        """Return the PSNs from the first without a result to the collective's last."""
        first = min(int(self.state.index.min()), self.state.struct.total - 1)
        return PsnRange(self.state.psn(first), self.state.psn(self.state.struct.total - 1))

    @property
    def first_result_at(self) -> int:
        """Time of the collective's first result; before that, of its beginning."""
        return int(self.state.struct.first_at)

    def stalled_ns(self, now: int) -> int:
        """Return the time since the last new result, or since the collective began, in nanoseconds."""
        return now - int(self.state.struct.progress_at)

    def missing_ranks(self, *, since: int) -> tuple[int, ...] | None:
        """Return the other ranks that statuses showed to be missing; None if none came after `since`.

        Of every node of the tree the last status counts: one switch may lack a rank only because that waits
        for another one, whom a switch above lacks. Empty if all that was heard of nodes is that their ranks
        have contributed. With a fallback server, what a status does not show may be on its way there from a
        switch for a few time-outs.
        """
        state = self.state
        heard = state.node_heard_at >= max(since, int(state.struct.progress_at))
        if not heard.any():
            return None
        nodes, bitmaps = state.node_id[heard].tolist(), state.node_bitmap[heard].tolist()
        missing = self._tree.missing(dict(zip(nodes, bitmaps, strict=True)))
        return tuple(rank for rank in missing if rank != self.settings.rank)

    def count(self, counter: Counter) -> int:
        """Return a counter's value since the job began."""
        return int(self.state.struct.counters[counter])

    @property
    def srtt_ns(self) -> int:
        """Smoothed round trip time, the wait for the other ranks included; 0 before the first."""
        return int(self.state.struct.srtt)
