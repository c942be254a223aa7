"""Steps of a loop around a window, without I/O.

Loops differ in their clock and in how packets move; the rest is here. A loop waits until something has
arrived, or until the time that `serve` returned, and calls `serve` again. `serve` is `take`, `time_out` and
`transmit`, for loops that do more in between.

Over sockets ``_native/ina_pump.c`` takes in and sends, without Python while results come. What it leaves to
Python when it comes back is the same as in virtual time: `start`, `take` (of nothing) and `time_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib.core.state import NEVER
from hostlib.core.watchdog import Watchdog
from hostlib.core.window import Window
from hostlib.errors import RanksDisagree

CHECK_NS: Final = 250_000_000
"""Interval at which a waiting worker looks up: for the death of a peer, for signals, to report."""

Arrivals = Iterable[tuple[NDArray[Any], int]]
"""Packets of one length back to back, and that length; several such runs."""

Send = Callable[[NDArray[np.uint8], int, int], None]
"""Takes packets back to back at the beginning of a buffer, how many, and the length of each."""


class Driver:
    """Carries out one collective of a window after the other. Times are nanoseconds."""

    def __init__(
        self, window: Window, send: Send | None = None, *, batch: int = 0, watchdog: Watchdog | None = None
    ) -> None:
        """Emit up to `batch` packets at a time to `send`; None: others emit, and `transmit` is not called."""
        self.window = window
        self.busy = False
        """True while a collective is under way; the loop is to look for its end after `serve` or `take`."""
        self.done = 0
        """Collectives that have ended."""
        self.check_at = NEVER
        """Time to ask the watchdog, if there is one and a collective is under way."""
        self._send = send
        self._out = np.zeros(batch * window.state.packet_dtype.itemsize, np.uint8)
        self._watchdog = watchdog
        self._call = ""

    def start(self, now: int, *, call: str = "") -> None:
        """Carry the collective that `Window.begin` began to its end; `call` ends an error that names it."""
        self.busy = True
        self._call = call
        if self._watchdog is not None:
            self.check_at = now + CHECK_NS

    def serve(self, now: int, arrivals: Arrivals = ()) -> int:
        """Take in arrived packets, send further ones; return when to serve again at the latest.

        Raises what `take` and `time_out` raise.
        """
        self.take(now, arrivals)
        self.time_out(now)
        return self.transmit(now)

    def take(self, now: int, arrivals: Arrivals = ()) -> None:
        """Take in arrived packets, and note whether the collective has ended; release its arrays then.

        Raises:
            RanksDisagree: it never will.
        """
        window = self.window
        for packets, length in arrivals:
            window.absorb(packets, length, now)
        if not self.busy:
            return
        if window.complete and not window.finish(now):
            return
        if window.complete:
            self.busy = False
            self.done += 1
            window.state.let_go()
        elif window.ranks_disagree:
            raise RanksDisagree(
                "ranks disagree on shape, dtype, operation, layer, name, waiting or number of calls before"
                + self._call,
                job=window.settings.job,
                psns=window.outstanding(),
            )

    def time_out(self, now: int) -> bool:
        """Resend overdue packets; every `CHECK_NS` ask the watchdog. Return whether it was asked.

        Raises:
            JobBroken: waiting is pointless.
        """
        if not self.busy:
            return False
        self.window.on_timeout(now)
        if self._watchdog is None or now < self.check_at:
            return False
        self.check_at = now + CHECK_NS
        if error := self._watchdog.check(now, self.done):
            raise error
        return True

    def transmit(self, now: int) -> int:
        """Send what may be sent; return when to serve again at the latest, if nothing arrives."""
        assert self._send is not None, "somebody else sends"
        while count := self.window.emit(self._out, now):
            self._send(self._out, count, self.window.emitted_bytes)
        return min(self.window.next_timeout(), self.check_at) if self.busy else NEVER
