"""The service's clock: seconds since the service was first started, which never go back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ina.service.memory import StateInMemory
    from ina.service.store import Store

STEP_S = 1.0
"""Smallest step of the wall clock that is recorded; smaller steps are ignored."""


def since_boot_s() -> float:
    """Return the seconds since the machine was started, including the time for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def this_boot() -> str:
    """Return an ID of the machine's last start (boot); "": unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class Clock:
    """A clock that continues from the last event's time, independent of steps of the wall clock.

    It follows the machine's time since boot, also while this process does not run. Only for the time that the
    machine was off it uses the wall clock, unless that went back.

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
        """Continue after the last event.

        Args:
            began_at: When the service was first started, as Unix time.
            last_s: Time of the service's last event on this clock.
            kept: The stored result of the method `kept`; "": none.
            wall: The wall clock.
            monotonic: Seconds since the machine was started.
            boot: ID of the machine's last start; None: as the kernel reports.
        """
        self._wall, self._monotonic = wall, monotonic
        self._boot = this_boot() if boot is None else boot
        self._from_s: float
        self.began_at = began_at
        before = json.loads(kept) if kept else {}
        since_s = monotonic()
        if self._boot and before.get("boot") == self._boot:
            self._from_s = max(last_s - since_s, before["ahead_s"])
        else:
            self._from_s = max(last_s, wall() - began_at) - since_s

    @classmethod
    def of(cls, store: Store | StateInMemory) -> Self:
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
        """Return the step of the wall clock since the last call, in s (0: none); adjust `began_at` by it."""
        began_at = self._wall() - self.now_s()
        if abs(step_s := began_at - self.began_at) < STEP_S:
            return 0.0
        self.began_at = began_at
        return step_s

    def kept(self) -> str:
        """Return the clock's state as text, which a later clock gets as `kept`."""
        return json.dumps({"boot": self._boot, "ahead_s": self._from_s})
