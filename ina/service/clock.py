"""The service's clock: seconds since its first start, which never go back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Counts on from where the last event stood, whatever happens to the machine's wall clock.

    While the process lives only the monotonic clock counts. The time that it was down for is what the wall
    clock says, if that is not negative.
    """

    def __init__(
        self,
        began_at: float,
        last_s: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`began_at` is when the service was first started, as Unix time; `last_s` its last event's time."""
        self._wall, self._monotonic = wall, monotonic
        self._from_s = max(last_s, wall() - began_at) - monotonic()

    def now_s(self) -> float:
        """Return the time."""
        return self._from_s + self._monotonic()

    def at_s(self, unix_s: float) -> float:
        """Return the time at which the wall clock showed this, by what it shows now."""
        return self.now_s() - (self._wall() - unix_s)
