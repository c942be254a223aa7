"""The log of a core: every decision and its reason."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = (
    Literal["submitted", "refused", "waits", "started", "moved", "stopped", "placed", "memory", "note"]
    | Literal["ended", "failed", "retried", "cancelled", "interrupted", "missed", "late", "gone", "back"]
    | Literal["measured"]
)
"""``missed``: the job was ended, for its deadline has passed or cannot be met any more; ``late``: for the
same reason it goes on as best effort; ``placed``: it has servers and a tree; ``memory``: it has other slots;
``gone`` and ``back`` are servers' and switches'."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log.

    Attributes:
        at_s: Time.
        event: What happened, or was decided.
        jobs: The jobs concerned.
        text: The reason, in words.
        numbers: The numbers that led to the decision, by name.
    """

    at_s: float
    event: Kind
    jobs: tuple[str, ...]
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Log:
    """Entries in the order in which they were made.

    Attributes:
        entries: Those that are kept.
        counts: How many were made, by event.
        last: The number of the last one; they count from 1.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.counts: Counter[str] = Counter()
        self.last = 0
        self._numbers: list[int] = []

    def note(self, at_s: float, event: Kind, jobs: tuple[str, ...], text: str, **numbers: float) -> None:
        """Add an entry.

        Args:
            at_s: Time.
            event: What happened, or was decided.
            jobs: Names of the jobs concerned.
            text: The reason, in words.
            **numbers: The numbers that led to it.
        """
        self.last += 1
        self.counts[event] += 1
        self._numbers.append(self.last)
        self.entries.append(Entry(at_s, event, jobs, text, numbers))

    def after(self, number: int) -> list[tuple[int, Entry]]:
        """Return the entries that are kept and have a higher number, with their numbers."""
        begin = bisect_right(self._numbers, number)
        return list(zip(self._numbers[begin:], self.entries[begin:], strict=True))

    def keep(self, jobs: Container[str], most: int) -> None:
        """Drop the entries about none but other jobs, and the oldest beyond `most`."""
        kept = [
            (number, entry)
            for number, entry in zip(self._numbers, self.entries, strict=True)
            if not entry.jobs or any(name in jobs for name in entry.jobs)
        ][-most:]
        self._numbers = [number for number, _ in kept]
        self.entries = [entry for _, entry in kept]
