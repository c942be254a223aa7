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
from hostlib.core.congestion import BadLimits, Congestion, FixedWindow, Limits, Round, call_control
from hostlib.core.foresight import Foresight, Series, misfits
from hostlib.core.state import ALL_WAIT, CoreSettings, CoreState, CoreStruct, Counter, Pattern, RtoLimits
from hostlib.errors import JobFault, PsnRange
from hostlib.wire.encodings import Encoding, per_lane, why_no_room


class Kernel(Protocol):
    """The functions that run for every packet. All times are nanoseconds of the caller's clock."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write packets that may be sent now into `out`, as many as fit; return their number.

        All have the length `CoreStruct.emitted_bytes`. 0: no packet may be sent now.
        """

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Process received packets.

        Args:
            state: The state of the core.
            data: The packets, back to back.
            segment: Bytes of each packet; the last may be shorter.
            now: The time in nanoseconds.
        """

    def next_timeout(self, state: CoreState) -> int:
        """Return the time when the oldest packet in flight is overdue or needs a probe.

        Return `NEVER` if no packet is in flight.
        """

    def time_out(self, state: CoreState, now: int) -> None:
        """Queue overdue packets for resending, or for a probe: see `Window.on_timeout`."""

    def end_round(self, state: CoreState, in_flight: int, claims: int) -> None:
        """Start a round with new limits; count the results of the new round that have arrived already.

        The limit of claims changes only for packets that no rank has sent yet, and only after the packets of
        its last change are sent. So the limit is the same for a packet on all ranks, and a resent packet
        reports the same waiting as before.
        """


@dataclass(frozen=True, slots=True)
class NumericErrors:
    """Numeric errors of a finished collective.

    Each field is the index of the first element of the first packet with that kind of error; None: no error.

    With shards, elements are counted in the array of all shards.
    """

    nonfinite: int | None
    """A rank has a NaN or infinite value in that packet; the packet's results are NaN."""
    overflow: int | None
    """A sum in that packet left the int32 range; the packet's results are wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a packet's elements: `count` elements of a shard, from `at` on."""

    shard: int
    at: int
    count: int


def place_of(core: CoreStruct, data: int) -> Place:
    """Return the place of data packet number `data`, as ``place_of`` in ``_native/ina_core.c`` does."""
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
    """Description of a collective for a window; a tuple, because a frozen dataclass takes longer to make.

    The arrays are flat, contiguous and both float32 or both int32. An empty array takes one packet, so that
    all ranks still meet.

    ======== =========================== ============================================================
    pattern  `source`                    `output`
    ======== =========================== ============================================================
    SUM      the values of this rank     same length; gets the sum; may be the same array
    SCATTER  the values of this rank     gets the sum of this rank's shard
    GATHER   this rank's shard           gets all other ranks' shards; its own is not written
    ======== =========================== ============================================================
    """

    source: NDArray[Any]
    """Array to read: the table's column. In a broadcast (GATHER with a `target`) it is also the `output`."""
    output: NDArray[Any]
    """Array to write: the table's column. It may be this rank's part of `source`, or contain `source`."""
    tag: int
    """Digest of the properties on which ranks must agree."""
    pattern: Pattern = Pattern.SUM
    average: bool = False
    """True to divide the sum by the number of ranks."""
    priority: int = 0
    """Priority of the collective's packets, 0 to 255, in a switch with preemption."""
    target: int = wire.TARGET_ALL
    """SUM: the only rank whose `output` gets the sum; `wire.TARGET_ALL`: all ranks.
    GATHER: the only rank that sends (a broadcast); `wire.TARGET_ALL`: each rank has a shard."""
    stride: int | None = None
    """Elements from the start of one shard to the start of the next, in the array of all shards; None: shards
    lie back to back."""
    numbers: Encoding | None = None
    """Encoding of float32 values; None: as in the settings."""
    feedback: bool = False
    """True to write the rounding error to `source`, which must not share memory with `output`."""
    series: Sequence[tuple[str, int]] = ()
    """For a SUM of float32: (name, number of elements) of each of its calls, if its exponents may be
    predicted from earlier calls of the same names (`hostlib.core.foresight`). Empty: do not predict
    exponents."""


class Window:
    """Sends the packets of collectives, one after another, and processes their results.

    A driver calls `begin`, then sends the packets that `emit` writes, passes arrived packets to `absorb`, and
    calls `on_timeout` when `next_timeout` is reached, until `complete`. Times are integer nanoseconds.

    With a fallback server other ranks may depend on this rank's answers even between its collectives: then
    `absorb` and `emit` still work, and there are no time-outs.
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
        """Congestion control of the window; setting it starts the congestion control.

        All ranks must set the same congestion control.

        Raises:
            BadLimits: the congestion control fails, or its limits are invalid.
        """
        return self._congestion

    @congestion.setter
    def congestion(self, congestion: Congestion) -> None:
        core = self.state.struct
        if hasattr(congestion, "packet_bytes"):
            congestion.packet_bytes = core.packet_bytes - core.prefix + wire.FRAME_PREFIX_BYTES
        limits = self._call_control(congestion, lambda: congestion.start(core.most))
        self._congestion = congestion
        core.claims = core.claims_next = limits.claims
        core.allowed = limits.in_flight
        core.limit = min(core.allowed, core.room)
        core.round_target = core.allowed if congestion.wants_rounds else 0
        core.tells_losses = congestion.wants_rounds and getattr(congestion, "hears_losses", False)
        self._foresees = not getattr(congestion, "hears_waiting", True)
        core.rule, core.rule_state = getattr(congestion, "in_c", (None, None))  # for the compiled core

    def restrict_to(self, packets: int) -> None:
        """Limit the packets in flight to `packets` (at least 1), such as the capacity of the socket.

        The congestion control is not affected: its rounds are the same on all ranks.
        """
        core = self.state.struct
        core.room = max(1, packets)
        core.limit = min(core.allowed, core.room)

    def follow(self, rto: RtoLimits) -> None:
        """Set new limits of time-outs; call this only between collectives.

        A packet whose result is missing while later results have arrived counts as lost only after the new
        margin: it may wait behind another rank's packet in the switch's queue.
        """
        self.state.set_limits(rto)
        core = self.state.struct
        core.tolerance = max(core.tolerance, core.rto_margin)

    def begin(self, exchange: Exchange, now: int) -> None:
        """Start a collective at a time in nanoseconds; the previous one must be complete.

        Raises ValueError, and starts nothing, if the encoding has no room for the sum of all ranks.
        """
        source, output, tag, pattern, average, priority, target, stride, numbers, feedback, series = exchange
        if numbers or self.settings.numbers != "exponent" or not self._foresees:
            series = ()  # the scale of such an encoding must depend on this sum's values alone
        numbers = numbers or self.settings.numbers
        fields = per_lane(numbers)
        shard = output if pattern is Pattern.SCATTER else source
        is_float = source.dtype == np.float32 and pattern is not Pattern.GATHER and len(shard) > 0
        if is_float and fields > 1 and (why := why_no_room(numbers, self.settings.size)):
            raise ValueError(why)
        self._end_last()
        core = self.state.struct
        alone = pattern is Pattern.SUM or target != wire.TARGET_ALL
        core.fixed = numbers == "fixed"
        core.per_lane = fields if is_float else 1
        core.feedback = feedback and core.per_lane > 1
        core.pattern = pattern if len(shard) else Pattern.SUM  # an empty array: the ranks only meet
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
            core.tag ^= zlib.crc32(foreseen)  # ranks with other scales raise RanksDisagree
        if is_float and not core.fixed and not core.foreseen:
            core.lookahead = min(core.data_packets, self.settings.packets_in_flight)
        self.state.set_header("priority", priority)
        self.state.set_arrays(source, output)
        self._start(now)

    def _foresee(self, series: Sequence[tuple[str, int]]) -> bytes | None:
        """Set up the exponents of a sum of these series.

        Return the exponents foreseen for its packets; None if they cannot be foreseen.
        """
        core = self.state.struct
        self._series = [(name, max(1, -(-elements // core.lanes))) for name, elements in series]
        self._missed = False
        foreseen = self._foresight.foresee(self._series)
        array = None if foreseen is None else np.frombuffer(bytearray(foreseen), np.uint8)
        self.state.set_exponents(np.zeros(core.data_packets, np.uint8), array)
        return foreseen

    def _end_last(self) -> None:
        """Count the last exchange's results for the congestion control, before the next exchange begins."""
        self.on_round()
        core = self.state.struct
        core.change_at = max(0, core.change_at - core.total)

    def _start(self, now: int) -> None:
        """Assign PSNs to an exchange, and begin it."""
        core = self.state.struct
        core.total = core.data_packets + core.lookahead
        core.base = self._next_psn
        self._next_psn = (self._next_psn + core.total) % core.psn_limit
        self.kernel.begin(self.state, now)

    def finish(self, now: int) -> bool:
        """End the collective, all of whose results have arrived, and return True.

        If exponents do not fit the foreseen exponents, exchange the packets concerned again, and return
        False.
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
        """Write packets that may be sent now to `out`, an array of bytes; return their number.

        All have the length `emitted_bytes`. Unless the number is 0, there may be more packets to send.
        """
        return self.kernel.emit(self.state, out, now)

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Process arrived packets of `segment` bytes (the last may be shorter), with any content."""
        self.kernel.absorb(self.state, data, segment, now)
        self.on_round()

    @property
    def round_due(self) -> bool:
        """True if a round is complete, and the congestion control must decide."""
        core = self.state.struct
        return bool(0 < core.round_target <= core.round_results)

    def on_round(self) -> None:
        """Report completed rounds to the congestion control, and apply the limits that it returns.

        A driver that absorbs packets in C must call this method: the loop in C stops at `round_due`.

        Raises:
            JobFault: the congestion control fails, or its limits are invalid.
        """
        core = self.state.struct
        while self.round_due:
            outcome = Round(
                results=core.round_results,
                marked=core.round_marked,
                collided=core.round_collided,
                waiting=core.round_waits / ALL_WAIT,
                lost=core.round_lost,
            )
            try:
                limits = self._call_control(self._congestion, partial(self._decided, outcome))
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
            raise BadLimits(f"its C function returned {core.refused_status}, must be 0 for success")
        return Limits(core.refused_in_flight, core.refused_claims)

    def _call_control(self, congestion: Congestion, call: Callable[[], Limits]) -> Limits:
        """Ask a congestion control, check its answer, and return it as limits. Raises BadLimits."""
        return call_control(congestion, call, most=self.state.struct.most, may_bypass=self.settings.fallback)

    def next_timeout(self) -> int:
        """Return the time at which `on_timeout` is due; `NEVER` if no packet is in flight."""
        return self.kernel.next_timeout(self.state)

    def on_timeout(self, now: int) -> None:
        """Queue overdue packets for resending, or a probe; no effect before the time of `next_timeout`.

        A late result means a lost packet or a slow rank, and for a slow rank it would be a waste to send the
        window again. So only a few are resent at first, and they ask for a status. A packet that a status
        shows as counted may never get its result: the result was lost, or the fallback server dropped the
        sum. So counted packets are resent, too, the first of them in any case, because the other ranks wait
        for it. The first time-out resends one packet, each further one twice as many, up to eight, or an
        eighth of the packets that may be in flight if that is more.

        Without a fallback server a time-out begins with the last result at the earliest: a slow switch
        answers steadily, and resends would make it slower. With a fallback server other results do not delay
        it: only a request moves on a sum that waits in a slot or in the server.

        If a packet has no answer after a round trip, a probe may ask for it before it is overdue.
        """
        self.kernel.time_out(self.state, now)

    @property
    def emitted_bytes(self) -> int:
        """Number of bytes of each packet that the last `emit` wrote."""
        return int(self.state.struct.emitted_bytes)

    @property
    def packet_elements(self) -> int:
        """Number of elements of the collective that a packet carries."""
        return int(self.state.struct.lanes * self.state.struct.per_lane)

    @property
    def complete(self) -> bool:
        """True once all results of the collective have arrived."""
        return bool(self.state.struct.completed == self.state.struct.total)

    @property
    def ranks_disagree(self) -> bool:
        """True if the switch got contributions with different tags: the collective can never complete."""
        return bool(self.state.struct.disagree_index >= 0)

    def numeric_errors(self) -> NumericErrors:
        """Return the numeric errors of the completed collective, as indices of elements."""
        core = self.state.struct
        nonfinite, overflow = int(core.nonfinite_index), int(core.overflow_index)
        return NumericErrors(
            nonfinite=self._element(nonfinite) if nonfinite >= 0 else None,
            overflow=self._element(overflow - core.lookahead) if overflow >= 0 else None,
        )

    def _element(self, data: int) -> int:
        """Return the index of a data packet's first element in the array of all shards."""
        place = place_of(self.state.struct, data)
        return int(place.shard * self.state.struct.stride + place.at)

    def psns(self) -> PsnRange:
        """Return the PSNs of the collective."""
        return PsnRange(self.state.psn(0), self.state.psn(self.state.struct.total - 1))

    def outstanding(self) -> PsnRange:
        """Return the PSNs from the first packet without a result to the collective's last packet."""
        first = min(int(self.state.index.min()), self.state.struct.total - 1)
        return PsnRange(self.state.psn(first), self.state.psn(self.state.struct.total - 1))

    @property
    def first_result_at(self) -> int:
        """Time of the collective's first result, in ns; before that, time of the collective's start."""
        return int(self.state.struct.first_at)

    def stalled_ns(self, now: int) -> int:
        """Return the nanoseconds since the collective's last new result; before that, since its start."""
        return now - int(self.state.struct.progress_at)

    def missing_ranks(self, *, since: int) -> tuple[int, ...] | None:
        """Return the other ranks that statuses showed to be missing; None if no status arrived after `since`.

        The last status of each node of the tree counts: a rank that one switch lacks may only be waiting for
        a rank that a switch above lacks. Empty if all known statuses show that the node's ranks
        have contributed. With a fallback server, a contribution that no status shows may be on its way from a
        switch to the server, for a few time-outs.
        """
        state = self.state
        is_recent = state.node_heard_at >= max(since, int(state.struct.progress_at))
        if not is_recent.any():
            return None
        nodes, bitmaps = state.node_id[is_recent].tolist(), state.node_bitmap[is_recent].tolist()
        missing = self._tree.missing(dict(zip(nodes, bitmaps, strict=True)))
        return tuple(rank for rank in missing if rank != self.settings.rank)

    def count(self, counter: Counter) -> int:
        """Return a counter's value since the job began."""
        return int(self.state.struct.counters[counter])

    @property
    def srtt_ns(self) -> int:
        """Smoothed round trip time, with the wait for the other ranks; 0 before the first round trip."""
        return int(self.state.struct.srtt)
