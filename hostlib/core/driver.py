"""Steps of a loop around a window, without I/O.

Loops differ in their clock and in how they move packets; all other steps are here. A loop waits until a
packet arrives, or until the time that `serve` returned, and calls `serve` again. Loops with steps of their
own in between call the parts of `serve`: `take`, `time_out` and `transmit`.

Over sockets ``_native/ina_pump.c`` receives and sends, without Python while results arrive. The remaining
steps in Python are the same as in virtual time: `start`, `take` (without packets) and `time_out`.
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
"""Interval, in nanoseconds, at which a waiting worker checks for dead peers and signals, and sends its
statistics."""

Arrivals = Iterable[tuple[NDArray[Any], int]]
"""Arrived packets: pairs of an array with packets of one length, back to back, and that length."""

Send = Callable[[NDArray[np.uint8], int, int], None]
"""Sends packets. Arguments: a buffer with the packets back to back; their number; the length of each."""


class Driver:
    """Carries out collectives of a window, one after the other. Times are nanoseconds."""

    def __init__(
        self, window: Window, send: Send | None = None, *, batch: int = 0, watchdog: Watchdog | None = None
    ) -> None:
        """Make a driver of `window`, which passes up to `batch` packets at a time to `send`.

        `send` may be None if `transmit` is never called. Without a `watchdog` the driver never gives up.
        """
        self.window = window
        self.busy = False
        """True while a collective is under way; the loop checks it after `serve` or `take`."""
        self.done = 0
        """Number of collectives that have ended."""
        self.check_at = NEVER
        """Time of the next call of the watchdog, if there is one and a collective is under way."""
        self._send = send
        self._out = np.zeros(batch * window.state.packet_dtype.itemsize, np.uint8)
        self._watchdog = watchdog
        self._call = ""

    def start(self, now: int, *, call: str = "") -> None:
        """Start the collective that `Window.begin` set up; `call` is appended to errors about it."""
        self.busy = True
        self._call = call
        if self._watchdog is not None:
            self.check_at = now + CHECK_NS

    def serve(self, now: int, arrivals: Arrivals = ()) -> int:
        """Process arrived packets, send further ones; return the latest time for the next `serve`.

        Raises the errors of `take` and `time_out`.
        """
        self.take(now, arrivals)
        self.time_out(now)
        return self.transmit(now)

    def take(self, now: int, arrivals: Arrivals = ()) -> None:
        """Process arrived packets; if the collective has ended, clear `busy` and release its arrays.

        Raises:
            RanksDisagree: ranks called different collectives.
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
            window.state.release_arrays()
        elif window.ranks_disagree:
            raise RanksDisagree(
                "ranks disagree on shape, dtype, operation, layer, name, blocking or asynchronous call, "
                "or number of earlier calls" + self._call,
                job=window.settings.job,
                psns=window.outstanding(),
            )

    def time_out(self, now: int) -> bool:
        """Resend overdue packets; ask the watchdog every `CHECK_NS`. Return whether the watchdog was asked.

        Raises:
            JobBroken: a further wait is pointless.
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
        """Send all packets that may be sent; return the latest time for the next `serve`."""
        assert self._send is not None, "the driver has no send function"
        while count := self.window.emit(self._out, now):
            self._send(self._out, count, self.window.emitted_bytes)
        return min(self.window.next_timeout(), self.check_at) if self.busy else NEVER
