"""A worker's side of the protocol, without I/O: bytes and a clock in, bytes and timers out.

===================  ==================================================================================
`driver`             the steps of every loop around a window, over sockets or in virtual time
`window`             the interface for drivers: begin, emit, absorb, next_timeout, on_timeout
`state`              the state, with the limits of time-outs, and the theory of operation
`congestion`         how many packets may be in flight
`pace`               time-outs for a switch of unknown speed; how long a packet holds its slot
`priority`           the priority of packets
`foresight`          exponents of a sum, foreseen from an earlier one
`watchdog`           when a wait has become pointless
===================  ==================================================================================

What is done for every packet is in C (``_native/ina_core.c``); ``_native/ina_timeout.c`` decides which
packets are overdue.

The data path cannot distinguish a slow rank from a dead one: neither sends anything. The launcher, which
watches the processes, can, and a worker asks it through `Peers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

TIMEOUT_S: Final = 8.0
STRAGGLER_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Longest waits without a new result, seconds, after which a collective is given up."""

    timeout_s: float = TIMEOUT_S
    """Longest wait if the switch does not answer, or the missing ranks are not known to be alive."""
    straggler_timeout_s: float = STRAGGLER_TIMEOUT_S
    """Longest wait if the missing ranks are known to be alive: they compute, or wait for something else."""


@dataclass(frozen=True, slots=True)
class News:
    """What a worker has learned of the other ranks; absent fields are empty."""

    go: bool = False
    """True once all ranks have joined."""
    gone: Mapping[int, str] = field(default_factory=dict)
    """The ranks that are known to be dead, each with the reason."""
    left: Mapping[int, int] = field(default_factory=dict)
    """The ranks that sent a farewell, and the number of collectives that each had carried out."""
    fault: str | None = None
    """Reason why the job cannot go on (the switch failed, for example)."""
    granted: int | None = None
    """Number of packets that the job's grant of slots allows in flight; 0 or None: unknown."""

    def and_then(self, later: News) -> News:
        """Return these news and later ones together; the first fault counts."""
        return News(
            self.go or later.go,
            {**self.gone, **later.gone},
            {**self.left, **later.left},
            self.fault or later.fault,
            self.granted if later.granted is None else later.granted,
        )

    def ended(self) -> set[int]:
        """Return the ranks that are gone or have left."""
        return {*self.gone, *self.left}


class Peers:
    """News of the other ranks for a communicator; this base class has none, for jobs without a rendezvous.

    All methods return at once.
    """

    news = News()
    """All news so far."""

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return whether all of `ranks` are known to be running."""
        return not list(ranks)

    def report(self, statistics: Mapping[str, float]) -> None:
        """Send this worker's statistics to the launcher, which may miss them."""

    def farewell(self, collectives: int) -> None:
        """Announce that this worker leaves the job, after it has carried out `collectives` collectives."""

    def finished(self) -> bool | None:
        """Return whether every rank has sent a farewell or is gone; None if that is unknown."""
        return None

    def close(self) -> None:
        """Stop receiving news. Afterwards, no method may be called. A `farewell` is not required."""
