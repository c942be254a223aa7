"""Targets that fail at a write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from controller.errors import Refused, Unreachable, UpdateError
from controller.switches.target import Entry, Kind, Match, MulticastGroup, TableEntry, Target

How = Literal["refused", "not written", "not answered"]
HOWS: tuple[How, ...] = ("refused", "not written", "not answered")


@dataclass
class Fault:
    """What befalls one entry: the one that is written when `left` others have been, to whatever switch.

    The switch refuses that one alone, or cannot be reached then, or does what it is told and the answer is
    lost. With `for_good` it cannot be reached from then on.
    """

    how: How
    for_good: bool = False
    left: int = 0


class Passing:
    """Passes to a target all that a subclass does not define."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class Failing(Passing):
    """Fails as the fault says."""

    def __init__(self, target: Target, fault: Fault) -> None:
        super().__init__(target)
        self.fault = fault

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        fault, at = self.fault, self.fault.left
        fault.left -= len(entries)
        if at < 0 and fault.for_good:
            raise Unreachable("the switch is gone")
        if not 0 <= at < len(entries):
            self.target.write(kind, entries)
        elif fault.how == "refused":
            self.target.write(kind, [*entries[:at], *entries[at + 1 :]])
            raise Refused(kind, "UNKNOWN", "no", (UpdateError(at, "INTERNAL", "no"),))
        else:
            if fault.how == "not answered":
                self.target.write(kind, entries)
            raise Unreachable("the switch does not answer")


# ---------------------------------------------------------------------------
# Targets that count what is read from them, and keep what is written to them.


class Recording(Passing):
    """Counts the reads, and keeps the writes."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.reads = 0
        """Requests."""
        self.entries = 0
        """Rows and groups that they returned."""
        self.turns = 0
        self.before_turn: Callable[[], None] = lambda: None
        """Called before each turn."""
        self.writes: list[tuple[Kind, Entry]] = []

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
