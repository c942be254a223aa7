"""One direction of a port in Python: the draws of runtime/engine_intake.c and engine_impair.c, in order."""

from __future__ import annotations

from collections import deque

from softswitch.engine.impairments import LinkModel

_MASK = 2**64 - 1


class Link:
    """The state of one direction; times are in nanoseconds."""

    def __init__(self, model: LinkModel) -> None:
        self.model = model
        self._random = model.seed
        self._free_ns = 0
        self._last_ns = 0
        self._departures: deque[int] = deque()

    def _draw(self) -> int:
        self._random = z = (self._random + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def hit(self, threshold: int) -> bool:
        """Return True with a probability of `threshold` / 2⁶⁴, always for `_MASK`; zero draws no number."""
        return threshold != 0 and (self._draw() < threshold or threshold == _MASK)

    def _time_of(self, length: int) -> int:
        return length * 8 * 10**9 // self.model.rate_bps if self.model.rate_bps else 0

    @property
    def ready_ns(self) -> int:
        """The time from which on the rate allows the next frame to begin, nanoseconds."""
        return max(0, self._free_ns - self._time_of(self.model.burst_bytes))

    def transfer(self, length: int, now_ns: int) -> int:
        """Put a frame on the link; returns when it is through."""
        if not self.model.rate_bps:
            return now_ns
        self._free_ns = max(self._free_ns, now_ns) + self._time_of(length)
        return max(now_ns, self.ready_ns)

    def transfer_from_queue(self, length: int, now_ns: int) -> int | None:
        """The same behind a queue of `queue_packets`; None: the queue is full."""
        if not self.model.rate_bps:
            return now_ns
        while self._departures and self._departures[0] <= now_ns:
            self._departures.popleft()
        if len(self._departures) > self.model.queue_packets:
            return None
        self._departures.append(self.transfer(length, now_ns))
        return self._departures[-1]

    def arrival(self, through_ns: int) -> tuple[int, bool]:
        """Return the time at which one copy arrives at the far end, nanoseconds, and True if out of order."""
        time_ns = through_ns + self.model.delay_ns
        if self.model.jitter_ns:
            time_ns += self._draw() % (self.model.jitter_ns + 1)
        if self.hit(self.model.reorder):
            return time_ns + 1 + (self._draw() % self.model.reorder_ns if self.model.reorder_ns else 0), True
        self._last_ns = time_ns = max(time_ns, self._last_ns)
        return time_ns, False
