"""What every kind of table does with entries, and tables that are rows in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from p4src.messages import bfruntime
from softswitch.bfrt.values import Table, Value, exact_entry, exact_key, read_data
from softswitch.p4runtime.errors import AlreadyExists, InvalidArgument, NotFound, Unimplemented

Row = dict[str, Value]


class Rows(Protocol):
    """The entries of one table. All methods raise RequestError, and then have changed nothing."""

    table: Table

    def write(self, kind: int, entry: Any) -> None:
        """Carry out an update of one entry, or of all where it has no key."""

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the entry of a key, or all entries where it has none."""

    def usage(self) -> int:
        """Return the number of entries."""


class Stored:
    """A table with an exact key whose entries are kept here; subclasses tell the switch."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: dict[tuple[int, ...], Row] = {}

    def write(self, kind: int, entry: Any) -> None:
        """Carry out an update; see `Rows.write`."""
        key = exact_key(entry, self.table)
        if key is None:
            if kind != bfruntime.DELETE:
                raise InvalidArgument(f"an entry of '{self.table.name}' has a key")
            for known in list(self.rows):
                self._replace(known, None)
            return
        columns = (*self.table.data, *(c for action in self.table.actions for c in action.data))
        given = read_data(entry.data.fields, columns, self.table)
        old = self.rows.get(key)
        if kind == bfruntime.INSERT and old is not None:
            raise AlreadyExists(f"'{self.table.name}' has an entry {_text(key)} already")
        if kind in (bfruntime.MODIFY, bfruntime.MODIFY_INC, bfruntime.DELETE) and old is None:
            raise NotFound(f"'{self.table.name}' has no entry {_text(key)}")
        match kind:
            case bfruntime.INSERT | bfruntime.MODIFY | bfruntime.INSERT_OR_MODIFY:
                self._replace(key, {**(old or {}), **given})
            case bfruntime.MODIFY_INC:
                assert old is not None
                flags = entry.table_flags.mod_del or entry.table_mod_inc_flag.type == 1
                self._replace(key, self.incremented(old, given, takes_away=bool(flags)))
            case bfruntime.DELETE:
                self._replace(key, None)
            case _:
                raise Unimplemented(f"an update of kind {kind} of '{self.table.name}'")

    def _replace(self, key: tuple[int, ...], row: Row | None) -> None:
        self.check(key, row)
        if row is None:
            del self.rows[key]
        else:
            self.rows[key] = row
        self.changed(key)

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise RequestError if a row cannot become `row`; None: if it cannot go."""

    def changed(self, key: tuple[int, ...]) -> None:
        """Tell the switch that a row is new, another or gone."""

    def incremented(self, old: Row, given: Row, *, takes_away: bool) -> Row:
        """Return a row with `given` added to its lists, or taken away from them."""
        raise Unimplemented(f"'{self.table.name}' has no lists to add to")

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield entries; see `Rows.read`."""
        key = exact_key(entry, self.table)
        if key is not None and key not in self.rows:
            raise NotFound(f"'{self.table.name}' has no entry {_text(key)}")
        for known in list(self.rows) if key is None else [key]:
            yield exact_entry(self.table, known, self.shown(known))

    def shown(self, key: tuple[int, ...]) -> Row:
        """Return a row as a read finds it."""
        return self.rows[key]

    def usage(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


class Refused(Stored):
    """A table of the chip that has nothing here to work on: it is empty, and takes no entries."""

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Refuse every entry."""
        raise Unimplemented(f"this switch has no '{self.table.name}': it stays empty")


def _text(key: tuple[int, ...]) -> str:
    return ", ".join(map(str, key))
