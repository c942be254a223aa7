"""What the pace of results tells: time-outs for a switch of unknown speed, and how long slots are held."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hostlib.core.state import RtoLimits

UNKNOWN: Final = RtoLimits(initial_s=0.25, margin_s=0.1, max_s=0.5, probe_s=0.05)
"""Until a pace has been measured: what the slowest switch needs."""

_LEAST: Final = RtoLimits()


class SlotHold:
    """How long a packet holds its place in the window, and its slot, over the collectives of a job.

    By Little's law, from what the window brought: a wait for other ranks, for links and for the fallback
    server counts, but not the wait for the first result, which is for the slowest rank to begin.
    """

    def __init__(self) -> None:
        self.hold_s = 0.0
        """Seconds; 0: not known."""

    def collective(self, results: int, time_s: float, in_flight: int) -> None:
        """Take in what a collective brought.

        Args:
            results: how many came in; no more than `in_flight` say little.
            time_s: from the first of them to the last.
            in_flight: packets that were allowed in flight.
        """
        if results <= in_flight:
            return
        sample_s = in_flight * time_s / (results - 1)
        self.hold_s += (sample_s - self.hold_s) / (4 if self.hold_s else 1)


class Pace:
    """How long a full window takes at the pace of results, over the collectives of a job.

    The round trip of a packet is short where few are under way, and as long as that where all of a window
    are: time-outs that follow round trips alone expire when a window sets out after a pause.
    """

    def __init__(self, window: int) -> None:
        """Begin with `UNKNOWN`; `window` is the most packets that may be under way."""
        self._window = window
        self._full_s = 0.0

    def collective(self, results: int, time_s: float) -> RtoLimits | None:
        """Take in what a collective brought, and return the limits to go on with.

        Args:
            results: how many came in.
            time_s: from the first of them to the last.

        Returns:
            The limits; None if no more came in than a window, which says little.
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
