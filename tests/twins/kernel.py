"""The window core's inner functions: the twin of ``hostlib/_native/ina_core.c``.

Packets are decided one by one, as in C; the values of all packets of a batch are converted at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.core.foresight import misfits
from hostlib.core.state import (
    ALL_WAIT,
    NEVER,
    PROBES,
    Chain,
    CoreState,
    CoreStruct,
    Counter,
    Kept,
    Mark,
    Pattern,
)
from hostlib.core.window import Place, place_of
from hostlib.wire import encodings
from tests.twins import quantize
from tests.twins.fallback_packets import Header, is_udp

_FLIGHT = int(Chain.FLIGHT)
_PROMPT_TRIPS = 8
_LOSS = wire.FLAG_ECN | wire.FLAG_COLLISION
_MAX_DOUBLINGS = 20
_FIRST_PROBES = 8


class NumpyKernel:
    """`hostlib.core.window.Kernel` in numpy."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        core = state.struct
        core.ready_head = core.ready_count = 0
        core.resend_head = core.resend_count = 0
        core.completed = core.in_flight = core.oldest = core.frontier = core.settled = 0
        core.progress_at = core.first_at = now
        core.overflow_index = core.nonfinite_index = core.disagree_index = -1
        core.misfits = 0
        state.status[:] = 0
        state.marks[:] = 0
        state.node_heard_at[:] = -1
        indices = np.arange(core.window)
        state.index[(core.base + indices) % core.window] = indices
        for index in range(min(core.window, core.total)):
            _make_ready(state, index)

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write packets of one length that may be sent now into `out`, as many as fit; return how many."""
        core, status = state.struct, state.status
        room = out.nbytes // core.packet_bytes
        chains: list[int] = []
        flags: list[int] = []
        answers: dict[int, tuple[int, bool]] = {}
        while len(chains) < room:
            queue, has_lanes = _next_queue(state)
            size = core.packet_bytes if has_lanes else core.prefix + wire.INA_BYTES
            if queue is None or (chains and size != core.emitted_bytes):
                break
            core.emitted_bytes = size
            if queue == "resends":
                chain = int(state.resend_ring[core.resend_head])
                core.resend_head = (core.resend_head + 1) % core.window
                core.resend_count -= 1
                query = wire.FLAG_QUERY if status[chain] & Chain.QUERY else 0
                raw = wire.FLAG_RAW if status[chain] & Chain.RAW else 0
                lost = wire.FLAG_ECN if status[chain] & Chain.LOST else 0
                lost |= _LOSS if core.tells_losses and not raw else 0
                flags.append(wire.FLAG_RESEND | query | raw | lost)
                asked = Chain.ASKED if query else 0
                if status[chain] & Chain.PROBE:
                    asked = int(status[chain]) & Chain.ASKED | Chain.PROBED
                kept = int(status[chain]) & ~(
                    Chain.QUEUED | Chain.QUERY | Chain.ASKED | Chain.LOST | Chain.PROBE
                )
                status[chain] = kept | Chain.RESENT | asked
                core.counters[Counter.RESENT] += 1
            elif queue == "answers":
                chain = int(state.answer_ring[core.answer_head])
                core.answer_head = (core.answer_head + 1) % core.window
                core.answer_count -= 1
                answers[len(chains)] = chain, _only_tells(state, chain)
                state.kept[chain] = Kept.THERE
                flags.append(0)
                core.counters[Counter.ANSWERS] += 1
            else:
                chain = int(state.ready_ring[core.ready_head])
                core.ready_head = (core.ready_head + 1) % core.window
                core.ready_count -= 1
                way = _way_of(state, chain) if core.fallback else 0
                told = _LOSS if core.tells_losses else wire.FLAG_ECN
                flags.append(way | (told if core.echo else 0))
                core.echo = max(0, core.echo - 1)
                status[chain] = Chain.FLIGHT
                core.in_flight += 1
                core.frontier = max(core.frontier, int(state.index[chain]) + 1)
                core.counters[Counter.SENT] += 1
            chains.append(chain)
        raw_out = out[: len(chains) * core.emitted_bytes].reshape(len(chains), core.emitted_bytes)
        ours = [at for at in range(len(chains)) if at not in answers]
        if ours:
            packets = np.zeros(len(ours), state.packet_dtype)
            sent = [chains[at] for at in ours]
            _fill(state, packets, state.index[sent], np.array([flags[at] for at in ours]))
            raw_out[ours] = packets.view(np.uint8).reshape(len(ours), core.packet_bytes)[
                :, : core.emitted_bytes
            ]
            state.sent_at[sent] = now
        for at, (chain, only_tells) in answers.items():
            raw_out[at] = state.answers[chain, : core.emitted_bytes]
            if only_tells:
                _tell_complete(state, raw_out[at])
        return len(chains)

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in received packets: `segment` bytes each, the last may be shorter."""
        core = state.struct
        newest_sent, completed = core.newest_sent, core.completed
        results = _Results()
        whole = len(data) // segment * segment
        quickest = _take_packets(state, data[:whole].reshape(-1, segment), results, now)
        if whole < len(data):
            quickest = min(quickest, _take_packets(state, data[whole:].reshape(1, -1), results, now))
        results.write(state)
        if quickest != NEVER:
            _measure(core, quickest, now)
            core.tolerance -= core.tolerance // 256
        if core.newest_sent > newest_sent:
            _resend_overtaken(state, 8 + 2 * (core.completed - completed))

    def next_timeout(self, state: CoreState) -> int:
        """Return when the oldest packet in flight is overdue or to be probed for, or `NEVER`."""
        core = state.struct
        waits = state.status & (Chain.FLIGHT | Chain.QUEUED) == _FLIGHT
        oldest = int(state.sent_at.min(where=waits, initial=NEVER))
        if oldest == NEVER:
            return NEVER
        start = max(oldest, int(core.timeout_at))
        if not core.fallback:
            start = max(start, int(core.progress_at))
        timeout = start + min(int(core.rto) << min(int(core.backoff), _MAX_DOUBLINGS), int(core.rto_max))
        return min(timeout, _next_probe(core, oldest))

    def time_out(self, state: CoreState, now: int) -> None:
        """Queue what is overdue to be sent again, or to be probed for."""
        core = state.struct
        if now < self.next_timeout(state):
            return
        while state.index[(core.base + core.oldest) % core.window] > core.oldest:
            core.oldest += 1
        rto = min(core.rto << min(core.backoff, _MAX_DOUBLINGS), core.rto_max)
        waits = state.status & (Chain.FLIGHT | Chain.QUEUED) == int(Chain.FLIGHT)
        start = max(int(state.sent_at.min(where=waits, initial=NEVER)), core.timeout_at)
        if not core.fallback:
            start = max(start, core.progress_at)
        if now < start + rto:
            _probe(state, waits, now)
            return
        # those almost overdue too: they would wait for the next time-out
        chains = np.flatnonzero(waits & (state.sent_at <= now - (rto - rto // 4)))
        chains = chains[np.argsort((chains - core.base - core.oldest) % core.window)]
        is_counted = state.status[chains] & Chain.COUNTED != 0
        counted, uncounted = chains[is_counted], chains[~is_counted]
        doublings = min(core.backoff, _MAX_DOUBLINGS)
        reminders = min(1 << doublings, max(_FIRST_PROBES, core.most // 8))
        probes = _FIRST_PROBES << 2 * doublings
        if core.fallback:
            probes = max(probes, core.most // 32)
        uncounted = uncounted[:probes]
        # asked for a status already, and none came: that can be no slow rank, so all are to hear of it
        unanswered = uncounted[state.status[uncounted] & Chain.ASKED != 0]
        state.status[unanswered] |= np.uint16(Chain.LOST)
        chains = np.concatenate([counted[:reminders], uncounted])
        asked = state.status[chains] & Chain.ASKED != 0
        flushes = asked if core.fallback else np.zeros_like(asked)
        state.status[chains] |= np.where(flushes, Chain.QUEUED, Chain.QUEUED | Chain.QUERY).astype(np.uint16)
        _append(state, chains)
        core.backoff += 1
        core.timeout_at = now

    def end_round(self, state: CoreState, in_flight: int, claims: int) -> None:
        """Set the limits from now on, and count the results that are in, up to the end of the next round."""
        core = state.struct
        core.late += core.round_late
        core.uncollided += core.round_results - core.round_collided
        core.round_results = core.round_marked = core.round_collided = core.round_lost = core.round_late = 0
        if core.settled >= core.change_at:
            core.claims, core.waits = core.claims_next, core.waits_next
            core.claims_next = claims
            if core.uncollided:
                core.waits_next = ALL_WAIT * core.late // core.uncollided
                core.late = core.uncollided = 0
            core.change_at = core.settled + 2 * core.allowed
        core.limit = min(in_flight, core.room)
        core.round_target = max(in_flight, core.allowed)  # what comes in next was sent under the limit before
        core.allowed = in_flight
        _settle(state)


class _Results:
    """Values that a batch brought; written out together at its end."""

    def __init__(self) -> None:
        self.data: list[int] = []
        self.exponents: list[int] = []
        self.is_raw: list[bool] = []
        self.lanes: list[NDArray[Any]] = []
        self.own: list[NDArray[Any]] = []
        """Lanes of ours to add, which went to nobody."""

    def write(self, state: CoreState) -> None:
        if not self.data:
            return
        core = state.struct
        lanes: NDArray[Any] = np.stack(self.lanes).view(">i4").astype(np.int32) + np.stack(self.own)
        values: NDArray[Any] = lanes
        if core.is_float:
            exponents = np.array(self.exponents, np.uint8)
            average = bool(core.average)
            if core.fixed:
                values = quantize.dequantize_fixed(lanes, core.scale_bits, core.ranks, average=average)
                values[exponents == encodings.NONFINITE] = np.nan
            elif core.per_lane > 1:
                values = quantize.unpack(lanes, exponents, core.ranks, core.per_lane, average=average)
            else:
                values = quantize.dequantize(lanes, exponents, core.ranks, average=average)
            divisor = np.float32(core.ranks if average else 1)
            if core.per_lane == 1:
                raw = np.array(self.is_raw)
                values[raw] = lanes[raw].view(np.float32) / divisor
        for data, row in zip(self.data, values, strict=True):
            place = place_of(core, data)
            first = place.at + (0 if core.pattern == Pattern.SCATTER else place.shard * core.stride)
            _words(core, state.output)[first : first + place.count] = row[: place.count]


def _make_ready(state: CoreState, index: int) -> None:
    """Queue packet `index` if it is its chain's turn and the exponent of its values is known."""
    core = state.struct
    if index >= core.total:
        return
    chain = (core.base + index) % core.window
    if state.index[chain] != index or state.status[chain]:
        return
    if core.fallback and index >= core.oldest + core.window:
        return
    source = index - core.lookahead
    if core.lookahead and source >= 0 and state.index[(core.base + source) % core.window] <= source:
        return
    state.status[chain] = Chain.READY
    state.ready_ring[(core.ready_head + core.ready_count) % core.window] = chain
    core.ready_count += 1


def _prefer_oldest(state: CoreState) -> bool:
    """Let the oldest packet without a result leave next, if it is ready.

    Ranks do not all get results in the same order: if none may send more, and each has sent others, they
    would wait for each other for good.
    """
    core = state.struct
    while state.index[chain := (core.base + core.oldest) % core.window] > core.oldest:
        core.oldest += 1
    if state.index[chain] != core.oldest or state.status[chain] != Chain.READY:
        return False
    places = (core.ready_head + np.arange(core.ready_count)) % core.window
    ring = state.ready_ring[places]
    at = int(np.flatnonzero(ring == chain)[0])
    state.ready_ring[places[: at + 1]] = np.roll(ring[: at + 1], 1)
    return True


def _way_of(state: CoreState, chain: int) -> int:
    """Return how a packet that is sent for the first time goes, as a flag.

    Past the slots, taking along what they have of its sum, if the fallback server waits for it already; past
    them too if it is not to claim one.
    """
    core = state.struct
    index = int(state.index[chain])
    if state.wanted[chain] == state.psn(index):
        state.wanted[chain] = -1
        return wire.FLAG_RESEND
    if chain % core.most < (core.claims if index < core.change_at else core.claims_next):
        return 0
    core.counters[Counter.BYPASSED] += 1
    return wire.FLAG_BYPASS


def _gather(state: CoreState, data: NDArray[Any]) -> NDArray[Any]:
    """Return the input's data packets of these numbers, one per row, zeros beyond the array's end."""
    core = state.struct
    elements = core.lanes * core.per_lane
    given = _words(core, state.input)
    rows = np.zeros((len(data), elements), given.dtype)
    for row, number in zip(rows, data, strict=True):
        place = place_of(core, int(number))
        first = place.at + (0 if core.pattern == Pattern.GATHER else place.shard * core.stride)
        row[: place.count] = given[first : first + place.count]
    return rows


def _words(core: CoreStruct, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as the core treats it: words of 32 bits, unless it sums float32."""
    return array if core.is_float else array.view(np.int32)


def _owner_of(core: CoreStruct, place: Place) -> int:
    return place.shard if core.shards > 1 else int(core.target)


def _adds_own(core: CoreStruct, place: Place) -> bool:
    """Whether the owner of a shard adds its own values to the sum of the others' by itself."""
    scatters = core.pattern == Pattern.SCATTER and core.is_float and core.ranks > 1
    return bool(scatters and _owner_of(core, place) == core.rank)


def _packet(state: CoreState, index: int) -> int:
    """Return the data packet that packet `index` announces."""
    return index if state.picked is None else int(state.picked[index])


def _data(state: CoreState, index: int) -> int:
    """Return the data packet whose values packet `index` carries; below 0: none."""
    return index - state.struct.lookahead if state.struct.lookahead else _packet(state, index)


def _scales(state: CoreState, data: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the exponents by which data packets are scaled."""
    kept: NDArray[np.uint8] = state.exponent[data % (2 * state.struct.window)]
    return kept if state.foreseen is None else state.foreseen[data]


def _gives(state: CoreState, index: int, *, raw: bool) -> bool:
    """Whether our contribution to a packet has lanes."""
    core = state.struct
    data = _data(state, index)
    if core.pattern == Pattern.SUM:
        return data >= 0 or not core.bare
    if data < 0:
        return False
    place = place_of(core, data)
    if core.pattern == Pattern.GATHER:
        return bool(_owner_of(core, place) == core.rank)
    return raw or not _adds_own(core, place)


def _takes(state: CoreState, index: int) -> bool:
    """Whether the result of a packet has to bring us lanes."""
    core = state.struct
    data = _data(state, index)
    if data < 0 and (core.bare or core.pattern != Pattern.SUM):
        return False
    if core.pattern == Pattern.SUM:
        return core.target in (wire.TARGET_ALL, core.rank)
    owns = _owner_of(core, place_of(core, data)) == core.rank
    return bool(owns == (core.pattern == Pattern.SCATTER))


def _next_queue(state: CoreState) -> tuple[str | None, bool]:
    """Return the queue from which the next packet comes, and whether it has lanes."""
    core = state.struct
    while core.resend_count:
        chain = int(state.resend_ring[core.resend_head])
        if state.status[chain] & Chain.QUEUED:
            raw = bool(state.status[chain] & Chain.RAW)
            return "resends", _gives(state, int(state.index[chain]), raw=raw)
        core.resend_head = (core.resend_head + 1) % core.window  # its result came in between
        core.resend_count -= 1
    if core.answer_count:
        chain = int(state.answer_ring[core.answer_head])
        return "answers", bool(_answer(state, chain)["lanes"][0]) and not _only_tells(state, chain)
    if core.ready_count and (core.in_flight < core.limit or _prefer_oldest(state)):
        return "ready", _gives(state, int(state.index[state.ready_ring[core.ready_head]]), raw=False)
    return None, False


def _fill(state: CoreState, packets: NDArray[Any], index: NDArray[Any], flags: NDArray[Any]) -> None:
    core = state.struct
    prefix_and_header = core.prefix + wire.INA_BYTES
    raw = packets.view(np.uint8).reshape(len(packets), core.packet_bytes)
    has_lanes = [
        _gives(state, int(number), raw=bool(flag & wire.FLAG_RAW))
        for number, flag in zip(index, flags, strict=True)
    ]
    for row, full in zip(raw, has_lanes, strict=True):
        row[:prefix_and_header] = (core.header if full else core.bare_header)[:prefix_and_header]
    raw[:, prefix_and_header:] = 0
    packets["psn"] = (core.base + index) % core.psn_limit
    packets["tag"] = core.tag
    if core.salted:
        packets["priority"] = state.salts[(core.base + index) % core.window]

    announced = np.array([_packet(state, int(number)) for number in index])
    data = index - core.lookahead if core.lookahead else announced
    carries = data >= 0
    is_raw = flags & wire.FLAG_RAW != 0
    places = [place_of(core, int(number)) if number >= 0 else Place(0, 0, 0) for number in data]
    packets["valid"] = [min(place.count, core.lanes) for place in places]
    owners = [
        _owner_of(core, place) if number >= 0 else int(core.target)
        for place, number in zip(places, data, strict=True)
    ]
    packets["target"] = np.array(owners) | (wire.TARGET_BUT if core.pattern == Pattern.GATHER else 0)
    packets["exponent"] = np.where(index < core.change_at, core.waits, core.waits_next)
    if core.is_float:
        announces = index < core.data_packets
        exponents = quantize.exponents(_gather(state, announced[announces]))
        waits = packets["exponent"][announces]
        tells = (exponents != encodings.NONFINITE) if core.fixed else np.zeros(len(exponents), bool)
        packets["exponent"][announces] = np.where(tells, waits, exponents)
    else:
        packets["valid"][is_raw] |= wire.VALID_INT32
    if carries.any():
        packets["values"][carries], fits = _encode(state, data[carries], is_raw[carries])
        flags[carries] |= np.where(fits, 0, wire.FLAG_OVERFLOW)
    packets["values"][~np.array(has_lanes)] = 0
    packets["flags"] = flags


def _encode(
    state: CoreState, data: NDArray[Any], raw: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return our values of data packets as lanes, and whether they fit a fixed scale."""
    core = state.struct
    values = _gather(state, data)
    fits = np.ones(len(data), np.bool_)
    if not core.is_float:
        return values, fits
    if core.fixed:
        quantized, fits = quantize.quantize_fixed(values, core.scale_bits, core.ranks)
    elif core.per_lane > 1:
        quantized = _pack(core, values, _scales(state, data), data)
    else:
        quantized = quantize.quantize(values, _scales(state, data), core.ranks)
    if core.per_lane == 1:
        quantized[raw] = values.view(np.int32)[raw]
    return quantized, fits | raw


def _pack(
    core: CoreStruct, values: NDArray[Any], exponents: NDArray[Any], data: NDArray[Any]
) -> NDArray[np.int32]:
    """Pack rows of several values per lane, of which the array's last one may be short."""
    rows = [
        quantize.pack(
            *(row[None], exponent[None], core.ranks, core.per_lane), place_of(core, int(number)).count
        )
        for row, exponent, number in zip(values, exponents, data, strict=True)
    ]
    return np.concatenate(rows)


def _take_packets(state: CoreState, packets: NDArray[Any], results: _Results, now: int) -> int:
    """Take in packets of one length, one per row. Returns the shortest round trip time, `NEVER` for none."""
    core = state.struct
    start = core.prefix + wire.INA_BYTES
    if packets.shape[1] < start:
        core.counters[Counter.BAD_LENGTH] += len(packets)
        return NEVER
    if core.prefix:
        prefixes = np.ascontiguousarray(packets[:, : core.prefix]).view(wire.PREFIX_DTYPE)[:, 0]
        ours = is_udp(prefixes) & (prefixes["udp_src"] == wire.INA_UDP_PORT)  # nothing else is for us
        core.counters[Counter.FOREIGN] += len(packets) - int(ours.sum())
        packets = packets[ours]
    headers = np.ascontiguousarray(packets[:, core.prefix : start]).view(wire.HEADER_DTYPE)[:, 0]
    quickest = NEVER
    congested = np.zeros(len(packets), bool)
    if core.prefix:
        congested = prefixes[ours]["ip_tos"] & wire.ECN_MASK == wire.ECN_CONGESTED
    rows = zip(headers.tolist(), packets[:, start:], congested.tolist(), strict=True)
    for fields, lanes, ecn in rows:
        completed = core.completed
        quickest = min(quickest, _take_packet(state, Header._make(fields), lanes, results, now))
        hears = core.round_target > 0 and not core.tells_losses
        core.echo += ecn and core.completed > completed and hears
    return quickest


def _take_packet(state: CoreState, header: Header, lanes: NDArray[Any], results: _Results, now: int) -> int:
    """Check one packet and take it in. Returns a round trip time, `NEVER` if it gives none."""
    core = state.struct
    chain = header.psn % core.window
    reason = _refusal(state, header, len(lanes), chain)
    if reason is not None:
        core.counters[reason] += 1
        return NEVER
    if header.version_kind & 0x0F == wire.KIND_REMINDER:
        _take_reminder(state, header, chain, now)
        return NEVER
    if header.flags & wire.FLAG_DISAGREE:
        core.disagree_index = _first(core.disagree_index, state.index[chain])
        return NEVER
    if header.tag != core.tag:
        core.counters[Counter.WRONG_TAG] += 1
        return NEVER
    if header.version_kind & 0x0F == wire.KIND_STATUS:
        _take_status(state, header, chain, now)
        return NEVER
    if not header.lanes and _takes(state, int(state.index[chain])):
        core.counters[Counter.BAD_LANES] += 1
        return NEVER
    if header.bitmap != core.result_bitmap or header.node != wire.ROOT_NODE:
        core.counters[Counter.BAD_BITMAP] += 1
        return NEVER
    if core.fallback and header.flags & (wire.FLAG_OVERFLOW | wire.FLAG_RAW) == wire.FLAG_OVERFLOW:
        if state.status[chain] & Chain.RAW:
            return NEVER
        sample = NEVER if state.status[chain] & Chain.RESENT else now - int(state.sent_at[chain])
        core.progress_at = now
        core.backoff = core.probes = 0
        _repair(state, chain)
        return sample
    return _take_result(state, header, lanes[: 4 * core.lanes], chain, results, now)


def _refusal(state: CoreState, header: Header, lane_bytes: int, chain: int) -> Counter | None:
    core = state.struct
    if header.version_kind >> 4 != wire.INA_VERSION:
        return Counter.BAD_VERSION
    kind = header.version_kind & 0x0F
    is_reminder = bool(kind == wire.KIND_REMINDER and core.fallback)
    if kind not in (wire.KIND_RESULT, wire.KIND_STATUS) and not is_reminder:
        return Counter.BAD_KIND
    if header.job != core.job:
        return Counter.WRONG_JOB
    if header.epoch != core.epoch:
        return Counter.WRONG_EPOCH
    has_lanes = kind == wire.KIND_RESULT and header.lanes > 0
    raw = core.per_lane > 1 and header.flags & wire.FLAG_RAW and has_lanes
    if raw or header.lanes != (core.lanes if has_lanes else 0):
        return Counter.BAD_LANES
    if lane_bytes < 4 * header.lanes:
        return Counter.BAD_LENGTH
    if is_reminder:
        return None
    if not state.status[chain] & Chain.FLIGHT or state.psn(int(state.index[chain])) != header.psn:
        return Counter.STALE
    return None


def _take_result(
    state: CoreState, header: Header, lanes: NDArray[Any], chain: int, results: _Results, now: int
) -> int:
    """Take in a result that has passed every check. Returns its round trip time, `NEVER` if ambiguous."""
    core = state.struct
    index = int(state.index[chain])
    data = _data(state, index)
    sent_at, status = int(state.sent_at[chain]), int(state.status[chain])
    resent, counted = bool(status & Chain.RESENT), bool(status & Chain.COUNTED)
    sample = NEVER if resent else now - sent_at
    # whether it came for the latest sending: not if that was just now, if we were counted before it, or if it
    # took the way by the fallback server
    detour = bool(header.flags & (wire.FLAG_COLLISION | wire.FLAG_BYPASS))
    probed = state.status[chain] & Chain.PROBED
    prompted = not resent or (now - sent_at >= core.srtt // 2 and not (counted or detour or probed))
    if prompted:
        core.newest_sent = max(core.newest_sent, sent_at)
    if core.fallback:
        # it was under way when we sent again: the fallback server takes longer than the switch
        if not (prompted or counted or probed) and core.tolerance < 2 * core.srtt:
            core.tolerance += core.srtt // 8
        _keep_answer(state, header, lanes, chain)

    if data >= 0 and core.feedback:
        exponent = state.exponent[data % (2 * core.window)]
        left = state.input[data * core.lanes * 2 : (data + 1) * core.lanes * 2]
        left[:] = quantize.rest(left[None], exponent[None], core.ranks, core.per_lane)[0]
    foreseen = None if state.foreseen is None or header.flags & wire.FLAG_RAW else state.foreseen[[data]]
    misfit = foreseen is not None and bool(misfits(bytes([header.exponent]), foreseen)[0])
    core.misfits += misfit
    if data >= 0 and _takes(state, index) and not misfit:
        results.data.append(data)
        results.own.append(_own_lanes(state, index, raw=bool(header.flags & wire.FLAG_RAW)))
        told = core.fixed or (foreseen is not None and header.exponent == encodings.NONFINITE)
        results.exponents.append(header.exponent if told else int(_scales(state, np.array([data]))[0]))
        results.is_raw.append(bool(header.flags & wire.FLAG_RAW))
        results.lanes.append(lanes)
    announced = core.is_float and index < core.data_packets
    nonfinite = announced and header.exponent == encodings.NONFINITE
    if header.flags & wire.FLAG_OVERFLOW and not nonfinite:
        core.overflow_index = _first(core.overflow_index, index)
    if nonfinite:
        core.nonfinite_index = _first(core.nonfinite_index, _packet(state, index))
    if announced and state.found is not None:
        state.found[_packet(state, index)] = header.exponent
    if announced:
        state.exponent[index % (2 * core.window)] = header.exponent
    if core.salted:  # the salt that counted; another slot for the next of this chain if it collided
        state.salts[chain] = header.priority + bool(header.flags & wire.FLAG_COLLISION) & 0xFF
    if core.round_target > 0:
        _note_marks(state, header, chain, announced, sample)
    asked = status & (Chain.COUNTED | Chain.ASKED | Chain.PROBED)
    core.echo += core.tells_losses and resent and not asked and header.flags & _LOSS != _LOSS
    state.status[chain] = 0
    state.index[chain] = index + core.window
    if core.completed == 0:
        core.first_at = now
    core.in_flight -= 1
    core.completed += 1
    if core.srtt == 0 and resent and core.backoff:
        # before the first sample only doubling finds out how long a trip takes: once for each stall, for good
        core.rto = min(2 * core.rto, core.rto_max)
    core.backoff = 0
    if not resent:  # or probes might go on for ever, each for the answer to the one before
        core.probes = 0
    core.progress_at = now
    core.counters[Counter.RESULTS] += 1
    core.counters[Counter.MARKED] += bool(header.flags & wire.FLAG_ECN)
    core.counters[Counter.COLLIDED] += bool(header.flags & wire.FLAG_COLLISION)
    _settle(state)
    if 0 < core.lookahead < core.window:
        _make_ready(state, index + core.lookahead)
    if not core.fallback:
        _make_ready(state, index + core.window)
        return sample
    while state.index[(core.base + core.oldest) % core.window] > core.oldest:
        core.oldest += 1
        _make_ready(state, core.oldest + core.window - 1)
    return sample


def _own_lanes(state: CoreState, index: int, *, raw: bool) -> NDArray[np.int32]:
    """Return the lanes that the owner of a shard did not send, zeros for everybody else."""
    core = state.struct
    data = _data(state, index)
    if raw or not _adds_own(core, place_of(core, data)):
        return np.zeros(core.lanes, np.int32)
    rows, _ = _encode(state, np.array([data]), np.zeros(1, np.bool_))
    lanes: NDArray[np.int32] = rows[0]
    return lanes


def _settle(state: CoreState) -> None:
    """Count the results that are in, in the order of their PSNs, until there are as many as make a round."""
    core = state.struct
    while core.round_results < core.round_target and core.settled < core.total:
        chain = (core.base + core.settled) % core.window
        if state.index[chain] <= core.settled:
            return
        marks = int(state.marks[chain])
        state.marks[chain] = 0
        core.settled += 1
        core.round_results += 1
        core.round_marked += bool(marks & Mark.ECN)
        core.round_collided += bool(marks & Mark.COLLISION)
        core.round_lost += marks & (Mark.ECN | Mark.COLLISION) == Mark.ECN | Mark.COLLISION
        core.round_late += bool(marks & Mark.LATE)
        if marks & Mark.WAITS:
            core.round_waits = marks >> 8


def _note_marks(state: CoreState, header: Header, chain: int, announced: bool, sample: int) -> None:
    """Note what a result brought, for when its round counts it."""
    core = state.struct
    marks = Mark.ECN if header.flags & wire.FLAG_ECN else Mark(0)
    if header.flags & wire.FLAG_COLLISION:
        marks |= Mark.COLLISION
    else:
        if sample != NEVER and (core.min_rtt == 0 or sample < core.min_rtt):
            core.min_rtt = max(sample, 1)
        marks |= Mark.LATE if sample == NEVER or sample > _PROMPT_TRIPS * core.min_rtt else Mark(0)
    waits = 0
    if not announced or (core.fixed and header.exponent != encodings.NONFINITE):
        marks |= Mark.WAITS
        waits = header.exponent << 8
    before = int(state.marks[chain]) & 0xFF  # without a fallback server chains run ahead
    state.marks[chain] = before | int(marks) | waits


def _keep_answer(state: CoreState, header: Header, lanes: NDArray[Any], chain: int) -> None:
    """Keep what a reminder of this packet asks for: the result, in a frame of ours.

    Or, if the values went elsewhere, our own contribution. Of a RAW sum that must be RAW; so may be any of
    int32, which other ranks might have to repair whose sums were added in another order. Its flags say that
    we have the result: it begins no sum anew.
    """
    core = state.struct
    state.kept[chain] |= Kept.THERE
    packet = state.answers[chain : chain + 1].view(state.packet_dtype)[0]
    if not header.lanes:
        raw = header.flags & wire.FLAG_RAW or state.status[chain] & Chain.RAW or not core.is_float
        raw = raw and core.pattern != Pattern.GATHER
        flags = np.array([wire.FLAGS_OF_ANSWER | (wire.FLAG_RAW if raw else 0)])
        _fill(state, packet, state.index[chain : chain + 1], flags)
        return
    start = core.prefix + wire.INA_BYTES
    state.answers[chain, : core.prefix] = core.header[: core.prefix]
    state.answers[chain, start:] = lanes
    answer = state.answers[chain, core.prefix : start].view(wire.HEADER_DTYPE)
    answer[0] = tuple(header)
    told = wire.FLAG_OVERFLOW | wire.FLAG_RAW | wire.FLAG_ECN | wire.FLAG_COLLISION
    answer["flags"] = header.flags & told | wire.FLAG_RESEND


def _take_status(state: CoreState, header: Header, chain: int, now: int) -> None:
    """Note who has contributed to a packet that we wait for.

    Where we are counted, but the next time-out is the longest, that is not waited for to take along a sum in
    whose slot nobody else may join.
    """
    core = state.struct
    about = state.node_id == header.node
    state.node_bitmap[about], state.node_heard_at[about] = header.bitmap, now
    for bit in state.path_bits[state.path_nodes == header.node]:
        if header.bitmap & int(bit):
            state.status[chain] |= Chain.COUNTED
        else:
            state.status[chain] &= ~np.uint16(Chain.COUNTED)
    answered = int(state.status[chain]) & (Chain.COUNTED | Chain.ASKED | Chain.QUEUED)
    if core.fallback and answered == Chain.COUNTED | Chain.ASKED and _waits_longest(core):
        _queue_resend(state, chain)
    core.counters[Counter.STATUSES] += 1


def _waits_longest(core: CoreStruct) -> bool:
    """Whether time-outs have doubled as far as they do."""
    return bool(core.backoff > 0 and core.rto << min(core.backoff, 20) >= core.rto_max)


def _send_along(state: CoreState, chain: int) -> None:
    """Send the packet in flight of a chain again, so that what the switch has of it goes up too."""
    state.status[chain] &= ~np.uint16(Chain.QUERY | Chain.COUNTED)
    if not state.status[chain] & Chain.QUEUED:
        _queue_resend(state, chain)


def _ask_for_hindrance(state: CoreState, psn: int, now: int) -> None:
    """Ask for the result that keeps us from sending `psn`, which another rank has; once in a trip."""
    core = state.struct
    index = (psn - core.base) % core.psn_limit
    hindrance = index - core.lookahead
    if index >= core.total or index >= core.oldest + core.window:
        hindrance = core.oldest
    if hindrance < core.oldest:
        return
    chain = (core.base + hindrance) % core.window
    waits = state.index[chain] == hindrance and state.status[chain] & Chain.FLIGHT
    if waits and now - state.sent_at[chain] >= core.srtt:
        _send_along(state, chain)


def _take_reminder(state: CoreState, header: Header, chain: int, now: int) -> None:
    """Send what the fallback server lacks of us: the packet in flight, or the answer that we kept.

    What is not sent yet is noted, and goes that way when it goes: it may be of the next collective.
    """
    core, status = state.struct, state.status
    asked = header.node == state.path_nodes[0] and header.bitmap & core.own_bitmap
    answer = _answer(state, chain)
    if asked and status[chain] & Chain.FLIGHT and state.psn(int(state.index[chain])) == header.psn:
        if header.flags & wire.FLAG_RAW:  # others have learned already that the sum overflowed
            _repair(state, chain)
        _send_along(state, chain)
    elif asked and state.kept[chain] and _keeps(core, int(answer["psn"][0]), header.psn):
        if not state.kept[chain] & Kept.QUEUED:
            state.answer_ring[(core.answer_head + core.answer_count) % core.window] = chain
            core.answer_count += 1
        state.kept[chain] |= Kept.QUEUED | (Kept.ASKED if answer["psn"][0] == header.psn else 0)
    elif asked and header.psn < core.psn_limit:
        state.wanted[chain] = header.psn  # not sent yet, or it would be in flight or kept
        _ask_for_hindrance(state, header.psn, now)
    else:
        core.counters[Counter.STALE] += 1
        return
    core.counters[Counter.REMINDERS] += 1


def _answer(state: CoreState, chain: int) -> NDArray[Any]:
    """Return the header of the answer that a chain keeps, as an array of one."""
    prefix = state.struct.prefix
    return state.answers[chain, prefix : prefix + wire.INA_BYTES].view(wire.HEADER_DTYPE)


def _only_tells(state: CoreState, chain: int) -> bool:
    """Whether to say only that a packet is complete: an older one was asked for, and this is no result."""
    is_result = int(_answer(state, chain)["version_kind"][0]) & 0x0F == wire.KIND_RESULT
    return not is_result and not state.kept[chain] & Kept.ASKED


def _tell_complete(state: CoreState, packet: NDArray[Any]) -> None:
    """Turn a contribution, of which there is just the header, into a result without lanes."""
    core = state.struct
    header = packet[core.prefix :].view(wire.HEADER_DTYPE)
    kept = header.copy()
    packet[:] = core.bare_header[: len(packet)]
    header[["psn", "tag", "target"]] = kept[["psn", "tag", "target"]]
    header["version_kind"] = wire.INA_VERSION << 4 | wire.KIND_RESULT
    header["flags"] = wire.FLAG_RESEND
    header["node"], header["bitmap"] = wire.ROOT_NODE, core.result_bitmap


def _keeps(core: CoreStruct, kept: int, psn: int) -> bool:
    """Whether an answer is of this PSN, or of a later one: that says that nobody lacks this one."""
    return bool(psn < core.psn_limit and (kept - psn) % core.psn_limit < core.psn_limit // 2)


def _repair(state: CoreState, chain: int) -> None:
    """Ask for the sum of the raw values instead of one that overflowed."""
    status = state.status
    if status[chain] & Chain.RAW or state.struct.per_lane > 1 or state.struct.pattern == Pattern.GATHER:
        return
    status[chain] &= ~np.uint16(Chain.QUERY | Chain.COUNTED)
    status[chain] |= Chain.RAW
    if not status[chain] & Chain.QUEUED:
        _queue_resend(state, chain)
    state.struct.counters[Counter.REPAIRS] += 1


def _queue_resend(state: CoreState, chain: int, query: int = 0) -> None:
    core = state.struct
    state.status[chain] |= np.uint16(Chain.QUEUED | query)
    state.resend_ring[(core.resend_head + core.resend_count) % core.window] = chain
    core.resend_count += 1


def _first(first: int, index: int) -> int:
    return int(index) if first < 0 else min(first, int(index))


def _measure(core: CoreStruct, sample: int, now: int) -> None:
    """Follow the round trip time, quicker down than up.

    A result that waited for the lost packet of another rank says nothing of the network, so no single one
    may count for much.
    """
    if core.fallback and core.srtt > 0:
        # no packet runs far ahead of a lost one, so all may wait for it: that must not count for each of them
        stalled = sample > core.srtt and now - sample <= core.timeout_at
        if stalled and core.stall_measured == core.timeout_at:
            return
        if stalled:
            core.stall_measured = core.timeout_at
        sample = min(sample, 4 * core.srtt)
    sample = min(sample, 2 * core.rto)
    if core.srtt == 0:
        core.srtt = max(sample, 1)
    elif sample < core.srtt:
        core.srtt -= (core.srtt - sample) // 4
    else:
        core.srtt += (sample - core.srtt) // 16
    core.rto = min(core.srtt + max(core.srtt // 2, core.rto_margin), core.rto_max)


def _next_probe(core: CoreStruct, oldest: int) -> int:
    """Return when a probe is due, if the oldest packet in flight was sent then; `NEVER` if none is.

    A bit after its round trip, and that of the probe before; and when no result has come for a quarter of a
    round trip: where they come in a slow but steady stream nothing is lost, and what probes bring would slow
    it more.
    """
    if core.probe_margin == NEVER or core.srtt == 0 or core.backoff > 0 or core.probes >= PROBES:
        return NEVER
    quiet = max(int(core.srtt) // 4, int(core.probe_margin))
    late = max(oldest, core.probed_at) + core.srtt + (core.probe_margin << core.probes)
    return int(max(late, core.progress_at + (quiet << core.probes)))


def _probe(state: CoreState, waits: NDArray[np.bool_], now: int) -> None:
    """Ask for a few that had a round trip without being answered; those first that may not be counted.

    A probe only asks: it does not flush a sum, and it is no sign of congestion.
    """
    core = state.struct
    chains = np.flatnonzero(waits & (state.sent_at <= now - core.srtt))
    is_counted = state.status[chains] & Chain.COUNTED != 0
    chains = chains[np.lexsort(((chains - core.base - core.oldest) % core.window, is_counted))]
    chains = chains[: _FIRST_PROBES if core.completed else 1]
    state.status[chains] |= np.uint16(Chain.QUEUED | Chain.QUERY | Chain.PROBE)
    _append(state, chains)
    core.probes += 1
    core.probed_at = now


def _append(state: CoreState, chains: NDArray[np.intp]) -> None:
    """Put chains at the end of the resend ring."""
    core = state.struct
    tail = core.resend_head + core.resend_count
    state.resend_ring[(tail + np.arange(len(chains))) % core.window] = chains
    core.resend_count += len(chains)


def _resend_overtaken(state: CoreState, most: int) -> None:
    """Queue again what was sent a round trip before something whose result is here already.

    As RACK does (RFC 8985). Less would be too little: after a loss, ranks send in different orders. A few
    more than results came in, so that a wrong guess cannot flood the network.
    """
    core = state.struct
    count = min(core.frontier - core.oldest, core.window)
    chains = (core.base + core.frontier - count + np.arange(count)) % core.window
    waits = state.status[chains] & (Chain.FLIGHT | Chain.QUEUED) == _FLIGHT
    before = core.newest_sent - core.srtt - core.tolerance
    for chain in chains[waits & (state.sent_at[chains] < before)][:most]:
        # with a fallback server: a sum that waits for another rank is not to be flushed at once for that
        asks = core.fallback and not state.status[chain] & Chain.ASKED
        _queue_resend(state, chain, Chain.QUERY if asks else 0)
