"""The state of a service for one command: it ends with the process, so events are counted but not stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal


class StateInMemory:
    """A state with the methods of `ina.service.store.Store`, in the process's memory alone."""

    folder = Path("/nonexistent")
    """A folder that does not exist: the state has no files."""
    kept: Literal[False] = False
    """Whether the state outlives the process."""
    trouble = ""
    last_s = 0.0

    def __init__(self) -> None:
        self.last = 0
        self._facts: dict[str, str] = {}

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return the fact `name` of this state; if it does not exist yet, set it to `value` if given."""
        return self._facts.get(name) if value is None else self._facts.setdefault(name, value)

    def set_fact(self, name: str, value: str) -> None:
        """Set the fact `name` of this state."""
        self._facts[name] = value

    def append(self, events: Sequence[tuple[float, Mapping[str, Any]]], *, synced: bool = True) -> list[int]:
        """Count events, without storing them; return their numbers."""
        first, self.last = self.last + 1, self.last + len(events)
        return list(range(first, self.last + 1))

    def sync(self) -> None:
        """Do nothing: the state never survives a power failure."""

    def archive(
        self, at_s: float, event: Mapping[str, Any], jobs: Sequence[tuple[int, str, Mapping[str, Any]]]
    ) -> int:
        """Count the event that removes ended jobs, without storing their records; return its number."""
        return self.append([(at_s, event)])[0]

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return an empty list: there is no archive."""
        return []
