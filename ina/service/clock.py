"""The service's clock: seconds since its first start, which never go back."""

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
"""A difference of the wall clock that is noted; smaller ones are adjusted to."""


def since_boot_s() -> float:
    """Return the seconds since the machine was started, those included for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def this_boot() -> str:
    """Return a name of the machine's start; "": not known."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class Clock:
    """Counts on from where the last event stood, whatever happens to the machine's wall clock.

    Until the machine is started again only the time since its start counts, whether this process lives or
    not. Only for how long the machine was off is what its wall clock says, if that is not negative.

    Attributes:
        began_at: When the service was first started, as Unix time, by the wall clock as it is now.
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
        """Go on after the last event.

        Args:
            began_at: When the service was first started, as Unix time.
            last_s: Its last event's time.
            kept: What `kept` returned before; "": not known.
            wall: The wall clock.
            monotonic: Seconds since the machine was started.
            boot: Names that start; None: as the kernel does.
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
        """Return the clock of a state. Raises StoreError."""
        began_at = float(store.fact("began", repr(time.time())) or 0.0)
        return cls(began_at, store.last_s, store.fact("clock") or "")

    def now_s(self) -> float:
        """Return the time."""
        return self._from_s + self._monotonic()

    def at_s(self, unix_s: float) -> float:
        """Return the time at which the wall clock showed this, by what it shows now."""
        return self.now_s() - (self._wall() - unix_s)

    def stepped_s(self) -> float:
        """Return by how much the wall clock was stepped since the last call; adjust `began_at`; 0: not."""
        began_at = self._wall() - self.now_s()
        if abs(step_s := began_at - self.began_at) < STEP_S:
            return 0.0
        self.began_at = began_at
        return step_s

    def kept(self) -> str:
        """Return how this clock stands, for one that goes on after it."""
        return json.dumps({"boot": self._boot, "ahead_s": self._from_s})
