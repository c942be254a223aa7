"""The state of a service of one command: it ends with the process, so events are counted and not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal


class StateInMemory:
    """A state like `ina.service.store.Store`, in the process's memory alone."""

    folder = Path("/nonexistent")
    """There are no other files."""
    kept: Literal[False] = False
    """Whether it outlives the process."""
    trouble = ""
    last_s = 0.0

    def __init__(self) -> None:
        self.last = 0
        self._facts: dict[str, str] = {}

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about this state; if there is none yet and `value` is given, keep that."""
        return self._facts.get(name) if value is None else self._facts.setdefault(name, value)

    def set_fact(self, name: str, value: str) -> None:
        """Change a fact about this state."""
        self._facts[name] = value

    def append(self, events: Sequence[tuple[float, Mapping[str, Any]]], *, synced: bool = True) -> list[int]:
        """Return the numbers of these events."""
        first, self.last = self.last + 1, self.last + len(events)
        return list(range(first, self.last + 1))

    def sync(self) -> None:
        """Do nothing: the state never survives a loss of power."""

    def archive(
        self, at_s: float, event: Mapping[str, Any], jobs: Sequence[tuple[int, str, Mapping[str, Any]]]
    ) -> int:
        """Forget jobs; return the number of that event."""
        return self.append([(at_s, event)])[0]

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return an empty list: forgotten jobs are not kept."""
        return []
