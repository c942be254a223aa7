"""The state that a service stores; a service inside one command stores it in memory, until it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from controller.vocabulary import Topology
from ina.run.records import ArchivedJob

P = TypeVar("P")


class ServiceState:
    """The state of a service, in this process's memory: it is lost at the process's end.

    An interface, because a controller's state must outlive it, and is on disk (`ina.run.store.Store`),
    which a command would wait for at its start. `Store` describes the methods.

    Attributes:
        folder: The state's folder; here one that cannot exist, because the state has no files.
        last: Number of the last event; 0: there is none.
        last_s: Time of the last event when the state was opened; 0: there was none.
        trouble: Why the last write failed; "": it succeeded.
    """

    folder = Path("/dev/null/state")
    last = 0
    last_s = 0.0
    trouble = ""

    def __init__(self) -> None:
        self._facts: dict[str, str] = {}

    def first(self, policies: P, cluster: Topology) -> tuple[P, Topology]:
        """Return the policies and the cluster with which the state was created: here the arguments."""
        return policies, cluster

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return the fact `name`; store `value` first if there is none, and `value` is given."""
        return self._facts.get(name) if value is None else self._facts.setdefault(name, value)

    def set_fact(self, name: str, value: str) -> None:
        """Set the fact `name` to `value`."""
        self._facts[name] = value

    def append(
        self,
        events: Sequence[tuple[float, Mapping[str, Any]]],
        *,
        synced: bool = True,
        archived: Sequence[ArchivedJob] = (),
    ) -> None:
        """Count events. They and archived jobs are not stored."""
        self.last += len(events)

    def sync(self) -> None:
        """Do nothing: the state never survives a power failure."""

    def events(self, after: int = 0) -> Iterable[Mapping[str, Any]]:
        """Return (): no earlier process has stored events."""
        return ()

    def snapshot(self, known: Mapping[str, Any]) -> None:
        """Do nothing: no later process can read a snapshot."""

    def last_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return None: there is no snapshot."""

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return an empty list: there is no archive."""
        return []

    def hold(self, runs: Mapping[int, object]) -> None:
        """Do nothing: no later process can find the runs."""

    def remove_hold(self, run: int) -> None:
        """Do nothing, as `hold` does."""

    def holds(self) -> dict[int, dict[str, Any]]:
        """Return an empty dictionary: there are no runs of an earlier process."""
        return {}
