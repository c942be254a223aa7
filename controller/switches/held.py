"""The rows that a switch holds, as a controller knows them without reading them again. No I/O.

Only a primary writes, and each of our controllers is primary under an election id of its own, one more than
the highest before (`controller.p4runtime_shim.mastership`). So if the id of a controller's turn follows that
of its last turn, nobody has written in between, and the switch holds what this controller read and wrote.
In any other turn, and after a write that failed, the rows have to be read.

Controllers of other kinds, which claim an id that was there before or write under a role of their own, are
not noticed that way; `SwitchSession.observe` reads what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.switches.entries import Entry, MulticastGroup, TableEntry
from controller.switches.jobs import Key, Row, key_of
from controller.switches.target import Kind


class Held:
    """What a controller knows of the rows of a switch in the tables of jobs, and of its multicast groups."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._read: Sequence[Row] | None = None
        """The rows as they were read last; None: they are not known."""
        self._rows: dict[Key, Row] | None = None
        """The same with what was written since; None: nothing."""
        self.in_turn = False
        """Whether the controller has its turn at the switch."""
        self._in_doubt = False

    def begin(self, *, undisturbed: bool) -> None:
        """Begin a turn; `undisturbed`: nobody else has had one since this controller's last."""
        self.in_turn, self._in_doubt = True, False
        if not undisturbed:
            self._read = self._rows = None

    def end(self) -> None:
        """End the turn."""
        self.in_turn = False

    def rows(self) -> list[Row] | None:
        """Return the rows if they are known, within a turn (else others may be writing); None: read them."""
        if self._read is None or not self.in_turn:
            return None
        return list(self._read if self._rows is None else self._rows.values())

    def read(self, rows: Sequence[Row]) -> None:
        """Note all rows, as they were read."""
        if not self._in_doubt:  # what has failed may still be carried out, until this turn is over
            self._read, self._rows = rows, None

    def wrote(self, kind: Kind, entries: Iterable[Entry]) -> None:
        """Note a write that the switch has carried out."""
        if self._read is None:
            return
        if self._rows is None:
            self._rows = {key_of(row): row for row in self._read}
        for entry in entries:
            if isinstance(entry, MulticastGroup) or (
                isinstance(entry, TableEntry) and entry.table in self._tables and not entry.default
            ):
                if kind == "DELETE":
                    self._rows.pop(key_of(entry), None)
                else:
                    self._rows[key_of(entry)] = entry

    def lose(self) -> None:
        """Note that the rows are not known any more, as after a write that has failed."""
        self._read = self._rows = None
        self._in_doubt = True
