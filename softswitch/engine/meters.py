"""Meters: two-rate three-colour markers (RFC 2698) that do not look at earlier colours.

The same in Python as ``runtime/meters.h`` in C, to the token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
    """The rates of a meter, None where everything is green, and (packets, bytes) by colour so far."""

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
class Meter:
    """One meter of the interpreter."""

    rates: MeterRates | None = None
    seen: list[tuple[int, int]] = field(default_factory=lambda: list(_NOTHING))
    _last_us: int = 0
    _committed: _Bucket = field(default_factory=_Bucket)
    _peak: _Bucket = field(default_factory=_Bucket)

    def configure(self, rates: MeterRates | None) -> None:
        """Set the rates, with full buckets; None makes everything green."""
        self.rates = rates
        if rates is not None:
            self._committed = _Bucket(rates.cir, rates.cburst, rates.cburst)
            self._peak = _Bucket(rates.pir, rates.pburst, rates.pburst)

    def read(self) -> MeterReading:
        """Return rates and counts."""
        return MeterReading(self.rates, tuple(self.seen))

    def colour(self, now_us: int, cost: int, length: int) -> int:
        """Return the colour of a packet of `length` bytes that takes `cost` tokens."""
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
