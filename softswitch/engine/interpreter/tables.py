"""Match-action tables of the interpreter: a list of entries, searched from the front."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.engine.entries import TableEntries, has_part, has_priorities
from softswitch.engine.interpreter.storage import width_of
from softswitch.engine.meters import Meter
from softswitch.engine.pipeline import NoSuchObject


class TableState:
    """The entries, the default action and the direct counters of one table."""

    def __init__(self, program: ir.Program, table: ir.Table) -> None:
        self.table = table
        self._control = TableEntries(program, table)
        self._by_priority = has_priorities(table)
        self._masks = [(1 << width_of(key.expr.type)) - 1 for key in table.keys]
        self._entries: list[ir.ConstEntry] = []
        # What entries have beside their actions; of None, the default action.
        self._counts: dict[ir.ConstEntry | None, tuple[int, int]] = {None: (0, 0)}
        self._last_hits: dict[ir.ConstEntry | None, int] = {}
        self._meters: dict[ir.ConstEntry | None, Meter] = {}
        self.cells: dict[ir.ConstEntry, list[int]] = {}
        # With exact keys alone at most one entry matches, so it can be looked up.
        self._exact: dict[tuple[int, ...], ir.ConstEntry] | None = None
        self._refresh()

    # ----------------------------------------------------------------- data plane

    def lookup(self, key: Sequence[int]) -> ir.ConstEntry | None:
        """Return the entry that wins for the values of the key, or None: a miss."""
        if not key:
            return None
        bits = tuple(value & mask for value, mask in zip(key, self._masks, strict=True))
        if self._exact is not None:
            return self._exact.get(bits)
        best: ir.ConstEntry | None = None
        for entry in self._entries:
            matches = all(_matches(*pair) for pair in zip(entry.patterns, bits, strict=True))
            if matches and (best is None or self._rank(entry) > self._rank(best)):
                best = entry
        return best

    def count(self, entry: ir.ConstEntry | None, length: int, now_us: int) -> None:
        """Note a packet of `length` bytes that hit `entry`; None: that missed."""
        packets, bytes_ = self._counts[entry]
        self._counts[entry] = (packets + 1, bytes_ + length)
        self._last_hits[entry] = now_us

    def meter(self, entry: ir.ConstEntry | None) -> Meter:
        """Return the meter of `entry`; None: of the default action."""
        return self._meters.setdefault(entry, Meter())

    def _rank(self, entry: ir.ConstEntry) -> int:
        if self._by_priority:
            return entry.priority
        return sum(pattern.mask.bit_count() for pattern in entry.patterns)  # the longest prefix

    # ----------------------------------------------------------------- control plane

    @property
    def default(self) -> ir.Invocation:
        """The default action: the one that a miss runs."""
        return self._control.default

    @property
    def entries(self) -> list[ir.ConstEntry]:
        """All entries in the order of their insertion."""
        return list(self._entries)

    def insert(self, entry: ir.ConstEntry) -> None:
        """Add an entry. Raises BadEntry, EntryExists or TableFull and then changes nothing."""
        self._control.insert(entry)
        self._refresh()

    def modify(self, entry: ir.ConstEntry) -> None:
        """Give the entry of this match another action; it keeps its place and its counter."""
        old = self._control.find(entry)
        new = self._control.modify(entry)
        for known in (self._counts, self._last_hits, self._meters, self.cells):
            if old in known:
                known[new] = known.pop(old)  # type: ignore[assignment]  # each its own values
        self._refresh()

    def delete(self, entry: ir.ConstEntry) -> None:
        """Remove the entry of this match."""
        self._control.delete(entry)
        self._refresh()

    def set_default(self, invocation: ir.Invocation | None) -> None:
        """Set the default action; None restores the program's own. Raises BadEntry."""
        self._control.set_default(invocation)

    def find(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Return the entry with the match of `entry`. Raises NoSuchEntry."""
        return self._control.find(entry)

    def owner(self, part: str, entry: ir.ConstEntry | None) -> ir.ConstEntry | None:
        """Return the entry that has a part (`has_part`). Raises NoSuchObject or NoSuchEntry."""
        if not has_part(self.table, part):
            raise NoSuchObject(f"table {self.table.name!r} has no {part}")
        return None if entry is None else self._control.find(entry)

    def read_count(self, entry: ir.ConstEntry | None) -> tuple[int, int]:
        """Return packets and bytes that hit this entry, or that missed."""
        return self._counts[self.owner("direct counter", entry)]

    def write_count(self, entry: ir.ConstEntry | None, packets: int, bytes_: int) -> None:
        """Set the counter of this entry, or of the default action."""
        self._counts[self.owner("direct counter", entry)] = (packets, bytes_)

    def read_last_hit(self, entry: ir.ConstEntry) -> int:
        """Return when this entry was hit last, microseconds."""
        return self._last_hits.get(self.owner("idle timeout", entry), 0)

    def write_last_hit(self, entry: ir.ConstEntry, now_us: int) -> None:
        """Take the entry for one that was hit at `now_us`."""
        self._last_hits[self.owner("idle timeout", entry)] = now_us

    def _refresh(self) -> None:
        self._entries = self._control.entries()
        kept: list[ir.ConstEntry | None] = [None, *self._entries]
        self._counts = {entry: self._counts.get(entry, (0, 0)) for entry in kept}
        self._last_hits = {entry: self._last_hits[entry] for entry in kept if entry in self._last_hits}
        self._meters = {entry: self._meters[entry] for entry in kept if entry in self._meters}
        self.cells = {entry: self.cells[entry] for entry in self._entries if entry in self.cells}
        if all(key.match == "exact" for key in self.table.keys):
            self._exact = {tuple(p.value for p in entry.patterns): entry for entry in self._entries}


def _matches(pattern: ir.Pattern, bits: int) -> bool:
    match pattern.kind:
        case "any":
            return True
        case "exact":
            return bits == pattern.value
        case "mask":
            return bits & pattern.mask == pattern.value
        case "range":
            return pattern.value <= bits <= pattern.mask
        case _:
            raise ValueError(f"no such pattern: {pattern.kind}")
