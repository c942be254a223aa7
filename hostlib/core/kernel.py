"""The part of the core that is compiled: `hostlib._native.NativeKernel`; tests have a twin in numpy."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from hostlib.core.state import CoreState


class Kernel(Protocol):
    """The functions that run for every packet. All times are nanoseconds of the caller's clock."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        ...

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write packets that may be sent now into `out`, as many as fit; return how many.

        All have the same length, which `CoreStruct.emitted_bytes` is then. 0: nothing may be sent now.
        """
        ...

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Process received packets.

        Args:
            state: The state of the core.
            data: The packets, back to back.
            segment: Bytes of each packet; the last may be shorter.
            now: The time in nanoseconds.
        """
        ...

    def next_timeout(self, state: CoreState) -> int:
        """Return when the oldest packet in flight is overdue or to be probed for, or `NEVER`."""
        ...

    def time_out(self, state: CoreState, now: int) -> None:
        """Queue what is overdue to be sent again, or to be probed for: see `Window.on_timeout`."""
        ...

    def end_round(self, state: CoreState, in_flight: int, claims: int) -> None:
        """Set the limits from now on, and count the results that are in, up to the end of the next round.

        The line between claim and bypass moves only for packets that no rank has sent yet, and not before
        those of its last move are sent. So all ranks draw it through the same packets, and a packet says the
        same of waiting however often it is sent.
        """
        ...
