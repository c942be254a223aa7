"""Other workers of a job, as far as a worker knows of them besides their packets.

The data path cannot tell a slow rank from a dead one: neither sends anything. Someone who watches
the processes can, and a worker asks that someone through `Peers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class Peers(Protocol):
    """The peers, as a communicator asks for them while it waits. All methods return at once."""

    def gone(self) -> Mapping[int, str]:
        """Return the ranks that are known to be dead, each with the reason."""
        ...

    def fault(self) -> str | None:
        """Return the reason why the whole job cannot go on (the switch died, say); None while it can."""
        ...

    def granted(self) -> int:
        """Return how many packets the job may have in flight, by its grant of slots; 0: no bound is known."""
        ...

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return whether every one of `ranks` is known to be running, only slow."""
        ...

    def left(self) -> Mapping[int, int]:
        """Return the ranks that said farewell, and how many collectives each had carried out."""
        ...

    def report(self, statistics: Mapping[str, float]) -> None:
        """Report this worker's progress to the observer; may be dropped."""
        ...

    def farewell(self, collectives: int) -> None:
        """Say that this worker is done: it has the results of so many collectives, and begins no other."""
        ...

    def finished(self) -> bool | None:
        """Return whether every rank has said farewell or is gone; None if nobody knows."""
        ...

    def close(self) -> None:
        """Need no more news; after a `farewell`, or instead of one."""
        ...


class NoPeers:
    """Nobody watches: silence is all a worker has to go by."""

    def gone(self) -> Mapping[int, str]:
        """Return nothing: no death is ever known."""
        return {}

    def fault(self) -> str | None:
        """Return None: no fault is ever known."""
        return None

    def granted(self) -> int:
        """Return 0: no bound is known."""
        return 0

    def alive(self, ranks: Iterable[int]) -> bool:
        """Return False unless nobody is asked about."""
        return not list(ranks)

    def left(self) -> Mapping[int, int]:
        """Return nothing: no farewell is ever known."""
        return {}

    def report(self, statistics: Mapping[str, float]) -> None:
        """Drop the report."""

    def farewell(self, collectives: int) -> None:
        """Do nothing: nobody listens."""

    def finished(self) -> bool | None:
        """Return None: nobody knows."""
        return None

    def close(self) -> None:
        """Do nothing."""
