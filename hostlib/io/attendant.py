"""Answer reminders for a worker that is not in a collective.

With a fallback server a result may be in no switch any more, only at the ranks that received it. For a rank
that lacks the result, the fallback server asks the other ranks by reminders. They must answer while they
compute, and after their last collective.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from hostlib.core.state import Counter
from hostlib.core.window import Window
from hostlib.io.link import Link

TICK_S: Final = 0.02
"""Seconds between checks for reminders: reminders are rare, and computing needs the processor."""

QUIET_S: Final = 0.6
"""Seconds without a reminder after which this rank stops answering, if it is unknown whether the other ranks
are done. A rank that lacks a result causes a reminder every 0.25 s."""

_SERVE_NS: Final = 200_000
_LINGER_NS: Final = 20_000_000


class Attendant:
    """Answers reminders for a window, in a thread of its own, while no other thread serves the window."""

    def __init__(self, link: Link, window: Window, turn: threading.Lock) -> None:
        """Start the thread; `turn` is the lock that a thread holds while it moves the window's packets."""
        self._link = link
        self._window = window
        self._turn = turn
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="attendant", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. May be called again."""
        self._stop.set()
        self._thread.join()

    def finish(self, finished: Callable[[], bool | None], *, patience_s: float) -> None:
        """Stop the thread, and go on answering in this thread until no rank needs answers any more.

        Return when `finished` returns True. If `finished` returns None (unknown), return after `QUIET_S`
        without a reminder. In any case return after `patience_s`.
        """
        self.stop()
        now = quiet_since = time.monotonic()
        reminders = self._window.count(Counter.REMINDERS)
        deadline = now + patience_s
        while now < deadline:
            known = finished()
            if known or (known is None and now - quiet_since >= QUIET_S):
                return
            self._link.serve(self._window, time.monotonic_ns() + _LINGER_NS)
            now = time.monotonic()
            if self._window.count(Counter.REMINDERS) > reminders:
                reminders = self._window.count(Counter.REMINDERS)
                quiet_since = now

    def _attend(self) -> None:
        while not self._stop.wait(TICK_S):
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if self._link.carrier.readable():
                    self._link.serve(self._window, time.monotonic_ns() + _SERVE_NS)
            finally:
                self._turn.release()
