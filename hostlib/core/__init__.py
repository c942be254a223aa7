"""The worker's side of the protocol without I/O: bytes and a clock in, bytes and timers out; and its peers.

===================  ==================================================================================
`driver`             what every loop around a window does, over sockets or in virtual time
`window`             what a driver calls: begin, emit, absorb, next_timeout, on_timeout
`state`              the state, and the theory of operation
`congestion`         how many packets may be in flight
`watchdog`           when waiting has become pointless
===================  ==================================================================================

The data path cannot tell a slow rank from a dead one: neither sends anything. Someone who watches the
processes can, and a worker asks that someone through `Peers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

TIMEOUT_S: Final = 8.0
STRAGGLER_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Times to wait without a new result, seconds."""

    timeout_s: float = TIMEOUT_S
    """If the switch does not answer, or the missing ranks are not known to live."""
    straggler_timeout_s: float = STRAGGLER_TIMEOUT_S
    """If the missing ranks are known to live: they compute, or wait for something else."""


class Peers:
    """The peers, as a communicator asks for them while it waits; here no process watches over them.

    All methods return at once.
    """

    def gone(self) -> Mapping[int, str]:
        """Return the ranks that are known to be dead, each with the reason."""
        return {}

    def fault(self) -> str | None:
        """Return the reason why the whole job cannot go on (the switch died, say); None while it can."""
        return None

    def granted(self) -> int:
        """Return how many packets the job may have in flight, by its grant of slots; 0: no bound is known."""
        return 0

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return whether every one of `ranks` is known to be running, only slow."""
        return not list(ranks)

    def left(self) -> Mapping[int, int]:
        """Return the ranks that said farewell, and how many collectives each had carried out."""
        return {}

    def report(self, statistics: Mapping[str, float]) -> None:
        """Report this worker's progress to the observer; may be dropped."""

    def farewell(self, collectives: int) -> None:
        """Report that this worker is done: it has the results of this number of collectives, and ends."""

    def finished(self) -> bool | None:
        """Return whether every rank has said farewell or is gone; None if that is unknown."""
        return None

    def close(self) -> None:
        """Need no more news; after a `farewell`, or instead of one."""
