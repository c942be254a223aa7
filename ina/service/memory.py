"""The state of a service inside one command. It ends with the process: events are counted, but not stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ina.service.records import ArchivedJob


class StateInMemory:
    """A state that is only in this process's memory, with the methods of `ina.service.store.Store`."""

    folder = Path("/nonexistent")
    """Path of a folder that does not exist, because the state has no files."""
    kept: Literal[False] = False
    """Whether the state outlives the process."""
    trouble = ""
    last_s = 0.0

    def __init__(self) -> None:
        self.last = 0
        self._facts: dict[str, str] = {}

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return the value stored under `name`; None: there is none.

        If there is none, and `value` is given, store and return `value`.
        """
        return self._facts.get(name) if value is None else self._facts.setdefault(name, value)

    def set_fact(self, name: str, value: str) -> None:
        """Store `value` under `name`, in place of an earlier value."""
        self._facts[name] = value

    def append(
        self,
        events: Sequence[tuple[float, Mapping[str, Any]]],
        *,
        synced: bool = True,
        archived: Sequence[ArchivedJob] = (),
    ) -> int:
        """Count events, without storing them or archived jobs; return the number of the last event."""
        self.last += len(events)
        return self.last

    def sync(self) -> None:
        """Do nothing: the state never survives a power failure."""

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return an empty list: there is no archive."""
        return []
