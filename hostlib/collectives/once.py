"""An event that happens once, for those that have mostly happened before anybody waits for them."""

from __future__ import annotations

import threading


class Once:
    """Like `threading.Event`, of which it makes one for the first that waits: making those takes time."""

    __slots__ = ("_event", "_lock", "has_happened")

    def __init__(self) -> None:
        self.has_happened = False
        self._lock = threading.Lock()
        self._event: threading.Event | None = None

    def happen(self) -> None:
        """Have it happen, for all who wait and will wait."""
        with self._lock:
            self.has_happened = True
        if self._event:
            self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has happened, but not longer; None: for ever. Return whether it has."""
        with self._lock:
            if self.has_happened:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout_s)
