"""Estimate time-outs for a switch of unknown speed, and how long slots are held, from the pace of results."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hostlib.core.state import RtoLimits

UNKNOWN: Final = RtoLimits(initial_s=0.25, margin_s=0.1, max_s=0.5, probe_s=0.05)
"""Time-outs until a pace has been measured: long enough for the slowest switch."""

_LEAST: Final = RtoLimits()


class SlotHold:
    """Measures how long a packet holds its place in the window, and its slot, over the collectives of a job.

    It uses Little's law and the window's results. Waits for other ranks, for links and for the fallback
    server count. The wait for the first result does not count, because the slowest rank has not begun in that
    time.
    """

    def __init__(self) -> None:
        self.hold_s = 0.0
        """Seconds that a packet holds its slot; 0: unknown."""

    def collective(self, results: int, time_s: float, in_flight: int) -> None:
        """Update the estimate with a collective.

        Args:
            results: number of the collective's results; ignored unless it is more than `in_flight`.
            time_s: time from the collective's first result to the last one, in seconds.
            in_flight: number of packets that were allowed in flight.
        """
        if results <= in_flight:
            return
        sample_s = in_flight * time_s / (results - 1)
        self.hold_s += (sample_s - self.hold_s) / (4 if self.hold_s else 1)


class Pace:
    """Measures how long a full window takes at the pace of results, over the collectives of a job.

    With few packets under way a packet's round trip is short; with a full window it takes this time. So
    time-outs that follow only round trips would expire when a full window starts after a pause.
    """

    def __init__(self, window: int) -> None:
        """Start with the limits `UNKNOWN`; `window` is the maximum number of packets under way."""
        self._window = window
        self._full_s = 0.0

    def collective(self, results: int, time_s: float) -> RtoLimits | None:
        """Update the estimate with a collective, and return new limits of time-outs.

        Args:
            results: number of the collective's results.
            time_s: time from the collective's first result to the last one, in seconds.

        Returns:
            The limits; None (no change) unless there were more results than packets in a window.
        """
        if results <= self._window:
            return None
        full_s = self._window * time_s / (results - 1)
        self._full_s += (full_s - self._full_s) / (4 if self._full_s else 1)
        return replace(
            UNKNOWN,
            margin_s=min(max(2 * self._full_s, _LEAST.margin_s), UNKNOWN.margin_s),
            probe_s=min(max(self._full_s, 0.002), 0.05),
        )
