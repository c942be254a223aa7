"""The core's inner functions without a compiler: same decisions, same bytes as ``_native/ina_core.c``.

Packets are decided one by one, as in C; the values of all packets of a batch are converted at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hostlib import quantize, wire
from hostlib.core.state import NEVER, Chain, CoreState, CoreStruct, Counter

_FLIGHT = int(Chain.FLIGHT)


class NumpyKernel:
    """`hostlib.core.kernel.Kernel` in numpy."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        core = state.struct
        core.ready_head = core.ready_count = 0
        core.resend_head = core.resend_count = 0
        core.completed = core.in_flight = 0
        core.progress_at = now
        core.status_at = core.overflow_index = core.nonfinite_index = core.disagree_index = -1
        state.status[:] = 0
        indices = np.arange(core.window)
        state.index[(core.base + indices) % core.window] = indices
        for index in range(min(core.window, core.total)):
            _make_ready(state, index)

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write the packets that may be sent now into `out`, as many as fit; return how many."""
        core, status = state.struct, state.status
        room = out.nbytes // core.packet_bytes
        chains: list[int] = []
        flags: list[int] = []
        while len(chains) < room:
            if core.resend_count:
                chain = int(state.resend_ring[core.resend_head])
                core.resend_head = (core.resend_head + 1) % core.window
                core.resend_count -= 1
                if not status[chain] & Chain.QUEUED:
                    continue  # its result came in between
                query = wire.FLAG_QUERY if status[chain] & Chain.QUERY else 0
                flags.append(wire.FLAG_RESEND | query)
                status[chain] = status[chain] & ~(Chain.QUEUED | Chain.QUERY) | Chain.RESENT
                core.counters[Counter.RESENT] += 1
            elif core.ready_count and core.in_flight < core.limit:
                chain = int(state.ready_ring[core.ready_head])
                core.ready_head = (core.ready_head + 1) % core.window
                core.ready_count -= 1
                flags.append(0)
                status[chain] = Chain.FLIGHT
                core.in_flight += 1
                core.counters[Counter.SENT] += 1
            else:
                break
            chains.append(chain)
        if chains:
            packets = out[: len(chains) * core.packet_bytes].view(state.packet_dtype)
            _fill(state, packets, state.index[chains], np.array(flags))
            state.sent_at[chains] = now
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
            _measure(core, quickest)
        if core.newest_sent > newest_sent:
            _resend_overtaken(state, 8 + 2 * (core.completed - completed))

    def next_timeout(self, state: CoreState) -> int:
        """Return when the oldest packet in flight is overdue, or `NEVER`."""
        core = state.struct
        waits = state.status & (Chain.FLIGHT | Chain.QUEUED) == _FLIGHT
        oldest = int(state.sent_at.min(where=waits, initial=NEVER))
        if oldest == NEVER:
            return NEVER
        start = max(oldest, int(core.timeout_at))
        return start + min(int(core.rto) << min(int(core.backoff), 20), int(core.rto_max))


class _Results:
    """Values that a batch brought; written out together at its end."""

    def __init__(self) -> None:
        self.data: list[int] = []
        self.exponents: list[int] = []
        self.lanes: list[NDArray[Any]] = []

    def write(self, state: CoreState) -> None:
        if not self.data:
            return
        core = state.struct
        values: NDArray[Any] = np.stack(self.lanes).view(">i4").astype(np.int32)
        if core.is_float:
            exponents = np.array(self.exponents, np.uint8)
            values = quantize.dequantize(values, exponents, core.fan_in, average=bool(core.average))
        for data, row in zip(self.data, values, strict=True):
            target = state.output[data * core.lanes : (data + 1) * core.lanes]
            target[:] = row[: len(target)]


def _make_ready(state: CoreState, index: int) -> None:
    """Queue packet `index` if it is its chain's turn and the exponent of its values is known."""
    core = state.struct
    if index >= core.total:
        return
    chain = (core.base + index) % core.window
    if state.index[chain] != index or state.status[chain]:
        return
    source = index - core.lookahead
    if core.lookahead and source >= 0 and state.index[(core.base + source) % core.window] <= source:
        return
    state.status[chain] = Chain.READY
    state.ready_ring[(core.ready_head + core.ready_count) % core.window] = chain
    core.ready_count += 1


def _gather(state: CoreState, data: NDArray[Any]) -> NDArray[Any]:
    """Return the input's data packets of these numbers, one per row, zeros beyond the array's end."""
    core = state.struct
    rows = np.zeros((len(data), core.lanes), state.input.dtype)
    for row, number in zip(rows, data, strict=True):
        source = state.input[number * core.lanes : (number + 1) * core.lanes]
        row[: len(source)] = source
    return rows


def _fill(state: CoreState, packets: NDArray[Any], index: NDArray[Any], flags: NDArray[Any]) -> None:
    core = state.struct
    prefix_and_header = core.prefix + wire.INA_BYTES
    raw = packets.view(np.uint8).reshape(len(packets), core.packet_bytes)
    raw[:, :prefix_and_header] = np.frombuffer(core.header, np.uint8, prefix_and_header)
    raw[:, prefix_and_header:] = 0
    packets["flags"] = flags
    packets["psn"] = (core.base + index) % core.psn_limit
    packets["tag"] = core.tag

    data = index - core.lookahead
    carries = data >= 0
    packets["valid"] = np.where(carries, np.minimum(core.length - data * core.lanes, core.lanes), 0)
    if core.is_float:
        announces = index < core.data_packets
        packets["exponent"][announces] = quantize.exponents(_gather(state, index[announces]))
    if carries.any():
        values = _gather(state, data[carries])
        if core.is_float:
            exponents = state.exponent[(core.base + data[carries]) % core.window]
            values = quantize.quantize(values, exponents, core.fan_in)
        packets["values"][carries] = values


class _Header(NamedTuple):
    """The fields of `wire.HEADER_DTYPE`, in their order."""

    version_kind: int
    flags: int
    job: int
    psn: int
    bitmap: int
    fan_in: int
    priority: int
    exponent: int
    reserved: int
    valid: int
    lanes: int
    tag: int


def _take_packets(state: CoreState, packets: NDArray[Any], results: _Results, now: int) -> int:
    """Take in packets of one length, one per row. Returns the shortest round trip time, `NEVER` for none."""
    core = state.struct
    start = core.prefix + wire.INA_BYTES
    if packets.shape[1] < start:
        core.counters[Counter.BAD_LENGTH] += len(packets)
        return NEVER
    if core.prefix:
        ours = _are_ours(np.ascontiguousarray(packets[:, : core.prefix]).view(wire.PREFIX_DTYPE)[:, 0])
        core.counters[Counter.FOREIGN] += len(packets) - int(ours.sum())
        packets = packets[ours]
    headers = np.ascontiguousarray(packets[:, core.prefix : start]).view(wire.HEADER_DTYPE)[:, 0]
    quickest = NEVER
    for fields, lanes in zip(headers.tolist(), packets[:, start:], strict=True):
        quickest = min(quickest, _take_packet(state, _Header._make(fields), lanes, results, now))
    return quickest


def _take_packet(state: CoreState, header: _Header, lanes: NDArray[Any], results: _Results, now: int) -> int:
    """Check one packet and take it in. Returns a round trip time, `NEVER` if it gives none."""
    core = state.struct
    chain = header.psn % core.window
    reason = _refusal(state, header, len(lanes), chain)
    if reason is not None:
        core.counters[reason] += 1
        return NEVER
    if header.flags & wire.FLAG_DISAGREE:
        core.disagree_index = _first(core.disagree_index, state.index[chain])
        return NEVER
    if header.tag != core.tag:
        core.counters[Counter.WRONG_TAG] += 1
        return NEVER
    if header.version_kind & 0x0F == wire.KIND_STATUS:
        core.status_bitmap = header.bitmap
        core.status_at = now
        if core.status_bitmap & core.own_bitmap:
            state.status[chain] |= Chain.COUNTED
        core.counters[Counter.STATUSES] += 1
        return NEVER
    if header.bitmap != core.full_bitmap:
        core.counters[Counter.BAD_BITMAP] += 1
        return NEVER
    return _take_result(state, header, lanes[: 4 * core.lanes], chain, results, now)


def _are_ours(prefixes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which frames are UDP over plain IPv4 from the INA port: nothing else is for us."""
    ours: NDArray[np.bool_] = (
        (prefixes["ether_type"] == wire.TYPE_IPV4)
        & (prefixes["ip_version_ihl"] == 0x45)
        & (prefixes["ip_fragment"] & 0x1FFF == 0)
        & (prefixes["ip_protocol"] == wire.PROTO_UDP)
        & (prefixes["udp_src"] == wire.INA_UDP_PORT)
    )
    return ours


def _refusal(state: CoreState, header: _Header, lane_bytes: int, chain: int) -> Counter | None:
    core = state.struct
    if header.version_kind >> 4 != wire.INA_VERSION:
        return Counter.BAD_VERSION
    kind = header.version_kind & 0x0F
    if kind not in (wire.KIND_RESULT, wire.KIND_STATUS):
        return Counter.BAD_KIND
    if header.job != core.job:
        return Counter.WRONG_JOB
    lanes = core.lanes if kind == wire.KIND_RESULT else 0
    if header.lanes != lanes:
        return Counter.BAD_LANES
    if lane_bytes < 4 * lanes:
        return Counter.BAD_LENGTH
    if not state.status[chain] & Chain.FLIGHT or state.psn(int(state.index[chain])) != header.psn:
        return Counter.STALE
    return None


def _take_result(
    state: CoreState, header: _Header, lanes: NDArray[Any], chain: int, results: _Results, now: int
) -> int:
    """Take in a result that has passed every check. Returns its round trip time, `NEVER` if ambiguous."""
    core = state.struct
    index = int(state.index[chain])
    data = index - core.lookahead
    sent_at, status = int(state.sent_at[chain]), int(state.status[chain])
    resent = bool(status & Chain.RESENT)
    sample = NEVER if resent else now - sent_at
    # whether it came for the latest sending: not if that was just now, or if we were counted before it
    if not resent or (now - sent_at >= core.srtt // 2 and not status & Chain.COUNTED):
        core.newest_sent = max(core.newest_sent, sent_at)

    if header.flags & wire.FLAG_OVERFLOW:
        core.overflow_index = _first(core.overflow_index, index)
    if data >= 0:
        results.data.append(data)
        results.exponents.append(int(state.exponent[(core.base + data) % core.window]))
        results.lanes.append(lanes)
    if core.is_float and index < core.data_packets:
        state.exponent[chain] = header.exponent
        if header.exponent == quantize.NONFINITE:
            core.nonfinite_index = _first(core.nonfinite_index, index)
    state.status[chain] = 0
    state.index[chain] = index + core.window
    core.in_flight -= 1
    core.completed += 1
    if core.srtt > 0 or not resent:  # before the first sample only doubling finds out how long a trip takes
        core.backoff = 0
    core.progress_at = now
    core.counters[Counter.RESULTS] += 1
    if 0 < core.lookahead < core.window:
        _make_ready(state, index + core.lookahead)
    _make_ready(state, index + core.window)
    return sample


def _first(first: int, index: int) -> int:
    return int(index) if first < 0 else min(first, int(index))


def _measure(core: CoreStruct, sample: int) -> None:
    """Follow the round trip time, quicker down than up.

    A result that waited for the lost packet of another rank says nothing of the network, so no single one
    may count for much.
    """
    sample = min(sample, 2 * core.rto)
    if core.srtt == 0:
        core.srtt = max(sample, 1)
    elif sample < core.srtt:
        core.srtt -= (core.srtt - sample) // 4
    else:
        core.srtt += (sample - core.srtt) // 16
    core.rto = min(core.srtt + max(core.srtt // 2, core.rto_margin), core.rto_max)


def _resend_overtaken(state: CoreState, most: int) -> None:
    """Queue again what was sent a round trip before something whose result is here already.

    As RACK does (RFC 8985). Less would be too little: after a loss, ranks send in different orders. A few
    more than results came in, so that a wrong guess cannot flood the network.
    """
    core = state.struct
    waits = state.status & (Chain.FLIGHT | Chain.QUEUED) == _FLIGHT
    chains = np.flatnonzero(waits & (state.sent_at < core.newest_sent - core.srtt))[:most]
    state.status[chains] |= np.uint8(Chain.QUEUED)
    tail = core.resend_head + core.resend_count
    state.resend_ring[(tail + np.arange(len(chains))) % core.window] = chains
    core.resend_count += len(chains)
