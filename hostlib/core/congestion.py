"""How many packets of the window may be in flight."""

from __future__ import annotations

from typing import Protocol


class Congestion(Protocol):
    """Decides a limit between 1 and the window; asked between batches, never per packet."""

    def limit(self, window: int) -> int:
        """Return how many packets may be in flight from now on."""
        ...

    def on_timeout(self) -> None:
        """Learn that packets were lost, or are late."""
        ...


class FixedWindow:
    """The whole window at any time: a result in is a packet out (SwitchML)."""

    def __init__(self, packets: int | None = None) -> None:
        """`packets`: a limit below the window, None for all of it."""
        self._packets = packets

    def limit(self, window: int) -> int:
        """Return the configured limit, at most the window."""
        return window if self._packets is None else max(1, min(self._packets, window))

    def on_timeout(self) -> None:
        """Change nothing: self-clocking already sends nothing new without a result."""
