"""The service's clock, which shows the seconds since the service was first started, and never goes back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ina.run.memory import ServiceState

STEP_S = 1.0
"""Minimum size, in s, of a step of the wall clock that `stepped_s` reports; smaller steps are ignored."""


def since_boot_s() -> float:
    """Return the seconds since the machine was started, including the time for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def this_boot() -> str:
    """Return the ID that the kernel has given to the machine's last boot; "": unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class Clock:
    """A clock that continues from the time of the last event. Steps of the wall clock do not affect it.

    It advances with the machine's time since boot, also while the service does not run. Only the time for
    which the machine was off is computed from the wall clock; it is 0 if the wall clock went back.

    Attributes:
        began_at: When the service was first started, as Unix time, by the current wall clock.
    """

    def __init__(
        self,
        began_at: float,
        last_s: float,
        kept: str = "",
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = since_boot_s,
        boot: str | None = None,
    ) -> None:
        """Continue from the time of the last event.

        Args:
            began_at: When the service was first started, as Unix time.
            last_s: Time of the service's last event on this clock.
            kept: The result of an earlier clock's method `kept`; "": there is none.
            wall: The wall clock.
            monotonic: Seconds since the machine was started.
            boot: ID of the machine's last start; None: as the kernel reports.
        """
        self._wall, self._monotonic = wall, monotonic
        self._boot = this_boot() if boot is None else boot
        self.began_at = began_at
        before = json.loads(kept) if kept else {}
        since_s = monotonic()
        if self._boot and before.get("boot") == self._boot:
            self._from_s: float = max(last_s - since_s, before["ahead_s"])
        else:
            self._from_s = max(last_s, wall() - began_at) - since_s

    @classmethod
    def of(cls, store: ServiceState) -> Self:
        """Return the clock that continues a stored state. Raises StoreError."""
        began_at = float(store.fact("began", repr(time.time())) or 0.0)
        return cls(began_at, store.last_s, store.fact("clock") or "")

    def now_s(self) -> float:
        """Return the current time in seconds since the service was first started."""
        return self._from_s + self._monotonic()

    def at_s(self, unix_s: float) -> float:
        """Convert a Unix time to this clock, by the wall clock's current setting."""
        return self.now_s() - (self._wall() - unix_s)

    def stepped_s(self) -> float:
        """Return the step of the wall clock since the last call, in s; 0.0: the wall clock was not stepped.

        Add the step to `began_at`.
        """
        began_at = self._wall() - self.now_s()
        if abs(step_s := began_at - self.began_at) < STEP_S:
            return 0.0
        self.began_at = began_at
        return step_s

    def kept(self) -> str:
        """Return the clock's state as text, for the argument `kept` of a later clock."""
        return json.dumps({"boot": self._boot, "ahead_s": self._from_s})
