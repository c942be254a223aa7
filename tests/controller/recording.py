"""Targets that count what is read from them, and keep what is written to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from controller.switches.target import Entry, Kind, Match, MulticastGroup, TableEntry, Target


class Recording:
    """Passes all on to a target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.reads = 0
        """Requests."""
        self.entries = 0
        """Rows and groups that they returned."""
        self.turns = 0
        self.before_turn: Callable[[], None] = lambda: None
        """Called before each turn."""
        self.writes: list[tuple[Kind, Entry]] = []
        self.address, self.close, self.program = target.address, target.close, target.program
        self.doubt = target.doubt
        self.load, self.runs, self.read_counter = target.load, target.runs, target.read_counter

    @property
    def restarts(self) -> int:
        return self.target.restarts

    @property
    def undisturbed(self) -> bool:
        return self.target.undisturbed

    @contextmanager
    def turn(self, *, timeout_s: float) -> Iterator[None]:
        self.turns += 1
        self.before_turn()
        with self.target.turn(timeout_s=timeout_s):
            yield

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        self.reads += 1
        found = self.target.read(tables)
        self.entries += len(found)
        return found

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        self.reads += 1
        found = self.target.read_row(table, match)
        self.entries += found is not None
        return found

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        self.writes += ((kind, entry) for entry in entries)
        self.target.write(kind, entries)
