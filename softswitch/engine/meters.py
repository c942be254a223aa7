"""Meters and counters.

Meters are two-rate three-colour markers (RFC 2698) that ignore earlier colours.

This module and ``runtime/meters.h`` give the same result for every packet, to the token.

The counters here belong to the switch and its ports, not to the program.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

GREEN, YELLOW, RED = range(3)
_MILLION = 1_000_000
_NOTHING = ((0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Committed and peak rates, in packets or bytes per second, and the bursts that they allow."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A meter's rates (None: all packets are green), and the (packets, bytes) seen so far of each colour."""

    rates: MeterRates | None = None
    seen: tuple[tuple[int, int], ...] = _NOTHING


@dataclass(slots=True)
class _Bucket:
    rate: int = 0
    burst: int = 0
    tokens: int = 0
    millionths: int = 0

    def refill(self, elapsed_us: int) -> None:
        more, millionths = divmod(self.rate * elapsed_us + self.millionths, _MILLION)
        full = self.tokens + more >= self.burst
        self.tokens = self.burst if full else self.tokens + more
        self.millionths = 0 if full else millionths


@dataclass(slots=True)
class TokenMeter:
    """One meter of the interpreter."""

    rates: MeterRates | None = None
    seen: list[tuple[int, int]] = field(default_factory=lambda: list(_NOTHING))
    _last_us: int = 0
    _committed: _Bucket = field(default_factory=_Bucket)
    _peak: _Bucket = field(default_factory=_Bucket)

    def configure(self, rates: MeterRates | None) -> None:
        """Set the rates and fill the buckets; with `rates` None, mark all packets green."""
        self.rates = rates
        if rates is not None:
            self._committed = _Bucket(rates.cir, rates.cburst, rates.cburst)
            self._peak = _Bucket(rates.pir, rates.pburst, rates.pburst)

    def read(self) -> MeterReading:
        """Return the meter's rates and counts."""
        return MeterReading(self.rates, tuple(self.seen))

    def colour(self, now_us: int, cost: int, length: int) -> int:
        """Return the colour of a packet of `length` bytes that takes `cost` tokens; count the packet."""
        colour = GREEN if self.rates is None else self._take(now_us, cost)
        packets, bytes_ = self.seen[colour]
        self.seen[colour] = (packets + 1, bytes_ + length)
        return colour

    def _take(self, now_us: int, cost: int) -> int:
        if now_us > self._last_us:
            self._committed.refill(now_us - self._last_us)
            self._peak.refill(now_us - self._last_us)
            self._last_us = now_us
        if self._peak.tokens < cost:
            return RED
        self._peak.tokens -= cost
        if self._committed.tokens < cost:
            return YELLOW
        self._committed.tokens -= cost
        return GREEN


def _counter(meaning: str) -> int:
    """Return a dataclass field that starts at 0; `meaning` is the sentence that `meanings` returns for it."""
    count: int = field(default=0, metadata={"meaning": meaning})
    return count


@dataclass(slots=True)
class PortStatistics:
    """Counters of the frames at one port. Only ``rx_bytes`` and ``tx_bytes`` count bytes."""

    rx_packets: int = _counter("Frames that arrived, before impairments.")
    rx_bytes: int = _counter("Bytes of the frames that arrived.")
    rx_lost: int = _counter("Arriving frames that an impairment dropped.")
    rx_corrupted: int = _counter("Arriving frames that an impairment corrupted.")
    rx_duplicated: int = _counter("Arriving frames that an impairment duplicated.")
    rx_reordered: int = _counter("Arriving frames that an impairment held back.")
    rx_queue_full: int = _counter(
        "Arriving frames dropped because the queue of the port's rate limit was full."
    )
    rx_malformed: int = _counter(
        "Frames that were empty, longer than 9216 bytes, or offloaded superframes that cannot be split."
    )
    rx_socket_full: int = _counter(
        "Frames dropped by the kernel because the switch was too slow; a superframe counts once."
    )
    rx_no_program: int = _counter("Frames that arrived before a program was loaded.")
    rx_stranger: int = _counter(
        "Datagrams dropped because they did not come from the UDP port's peer; not in rx_packets."
    )
    ingress_dropped: int = _counter("Packets that arrived at this port and were dropped by the program.")
    egress_dropped: int = _counter("Packets for this port that the program dropped in egress.")
    tx_packets: int = _counter("Frames that left the port.")
    tx_bytes: int = _counter("Bytes of the frames that left the port.")
    tx_lost: int = _counter("Leaving frames that an impairment dropped.")
    tx_corrupted: int = _counter("Leaving frames that an impairment corrupted.")
    tx_duplicated: int = _counter("Leaving frames that an impairment duplicated.")
    tx_reordered: int = _counter("Leaving frames that an impairment held back.")
    tx_queue_full: int = _counter("Frames dropped because the port's egress queue was full.")
    tx_blocked: int = _counter(
        "Frames dropped because the socket did not accept them, or because this memory port was full."
    )
    tx_no_peer: int = _counter("Frames dropped because no peer has sent to this UDP port yet.")
    tx_too_long: int = _counter("Frames dropped because they were longer than the interface's MTU.")


@dataclass(slots=True)
class SwitchStatistics:
    """Counters of dropped packets that no port's counters include."""

    no_port: int = _counter("Packets sent to a port that does not exist.")
    no_group: int = _counter("Packets multicast to a group, or cloned to a session, that does not exist.")
    loops: int = _counter("Packets dropped because they were resubmitted, recirculated or cloned too often.")
    overruns: int = _counter("Delayed frames dropped because the memory for delayed frames was full.")
    unloaded: int = _counter("Packets dropped from egress queues when another program was loaded.")


PORT_COUNTERS = [f.name for f in fields(PortStatistics)]
SWITCH_COUNTERS = [f.name for f in fields(SwitchStatistics)]


def meanings(statistics: type[PortStatistics] | type[SwitchStatistics]) -> dict[str, str]:
    """Return a sentence that describes each counter, by the counter's name, in the order of the fields."""
    return {each.name: each.metadata["meaning"] for each in fields(statistics)}
