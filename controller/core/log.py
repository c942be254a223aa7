"""The log of a core: every decision and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = (
    Literal["submitted", "refused", "waits", "started", "moved", "stopped", "placed", "memory", "note"]
    | Literal["ended", "failed", "retried", "cancelled", "interrupted", "missed", "late", "gone", "back"]
)
"""``missed``: the job was ended, for its deadline cannot be met any more; ``late``: for the same reason it
goes on as best effort; ``placed``: it has servers and a
tree; ``memory``: it has other slots; ``gone`` and ``back`` are servers' and switches'."""


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
    """Entries in the order in which they were made."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def note(self, at_s: float, event: Kind, jobs: tuple[str, ...], text: str, **numbers: float) -> None:
        """Add an entry.

        Args:
            at_s: Time.
            event: What happened, or was decided.
            jobs: Names of the jobs concerned.
            text: The reason, in words.
            **numbers: The numbers that led to it.
        """
        self.entries.append(Entry(at_s, event, jobs, text, numbers))
