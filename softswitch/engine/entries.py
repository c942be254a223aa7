"""The control-plane side of one table: its entries, and their checks.

The compiled pipeline and the interpreter both keep a `TableEntries` for each table, and update their data
plane only after it accepts a change. So both refuse the same entries for the same reasons. Stored entries are
canonical: entries with equal matches have equal patterns.

`TableLayout` describes a table in C; it determines the C declarations and the packing of entries.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.ir import fold
from softswitch.compiler.ir.verify import is_wide, too_wide
from softswitch.engine.pipeline import BadEntry, EntryExists, NoSuchEntry, NoSuchObject, TableFull

PRIORITY_MATCHES = frozenset({"ternary", "range", "optional"})

PARTS = ("direct counter", "direct meter", "idle timeout")
"""Optional parts of an entry, in the order of ``enum`` P4_HITS ... in ``runtime/tables.h``."""

Match = tuple[tuple[ir.Pattern, ...], int]


def has_priorities(table: ir.Table) -> bool:
    """Return True if several entries may match and the highest priority wins."""
    return any(key.match in PRIORITY_MATCHES for key in table.keys)


class TableEntries:
    """The entries of `table`, in the order of their insertion, and its default action."""

    def __init__(self, program: ir.Program, table: ir.Table) -> None:
        self.table = table
        self.default = table.default
        self._actions = program.actions
        # The control plane may name a table's copy of an action without its number (`ir.plain_name`).
        self._refs = {ir.plain_name(ref.action): ref for ref in table.actions}
        self._refs |= {ref.action: ref for ref in table.actions}
        self._prioritised = has_priorities(table)
        self._matches = [key.match for key in table.keys]
        self._full = [(1 << ir.width_of(key.expr.type)) - 1 for key in table.keys]
        self._bounds = {
            ref.action: [fold.limits(param.type) for param in program.actions[ref.action].params]
            for ref in table.actions
        }
        self._entries: dict[Match, ir.ConstEntry] = {}
        self._ordered: list[ir.ConstEntry] | None = None  # sorted at the first request, then cached
        for entry in table.entries:
            canonical = self._canonical(entry)
            self._entries.setdefault(self._match(canonical), canonical)

    def entries(self) -> list[ir.ConstEntry]:
        """Return all entries in the order of their insertion."""
        return list(self._entries.values())

    def ordered(self) -> list[ir.ConstEntry]:
        """Return all entries in order of precedence: of two matching entries, the first one wins."""
        if self._ordered is None:
            self._ordered = sorted(self._entries.values(), key=self._precedence)
        return self._ordered

    def position(self, entry: ir.ConstEntry) -> int:
        """Return the position of an entry in `ordered`."""
        ordered = self.ordered()
        return ordered.index(entry, bisect_left(ordered, self._precedence(entry), key=self._precedence))

    def insert(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Add `entry` and return its canonical form. Raises BadEntry, EntryExists or TableFull."""
        self._check_mutable()
        canonical = self._canonical(entry)
        match = self._match(canonical)
        count = len(self._entries)  # one look-up tells whether the entry existed, as hashing a match is slow
        self._entries.setdefault(match, canonical)
        if len(self._entries) == count:
            raise EntryExists(f"table {self.table.name} has an entry for {_show(canonical)} already")
        if count >= self.table.size:
            del self._entries[match]
            raise TableFull(f"table {self.table.name} is full: its size is {self.table.size}")
        if self._ordered is not None:
            insort(self._ordered, canonical, key=self._precedence)
        return canonical

    def modify(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Replace the entry that has the match of `entry` by `entry`; return its canonical form.

        Raises BadEntry or NoSuchEntry.
        """
        self._check_mutable()
        canonical = self._canonical(entry)
        match = self._match(canonical)
        if match not in self._entries:
            raise NoSuchEntry(f"table {self.table.name} has no entry for {_show(canonical)}")
        if self._ordered is not None:
            self._ordered[self.position(self._entries[match])] = canonical
        self._entries[match] = canonical
        return canonical

    def delete(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Remove and return the stored entry with the match of `entry`. Raises NoSuchEntry or BadEntry."""
        self._check_mutable()
        found = self.find(entry)
        if self._ordered is not None:
            del self._ordered[self.position(found)]
        del self._entries[self._match(found)]
        return found

    def find(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Return the stored entry with the match of `entry`. Raises NoSuchEntry or BadEntry."""
        patterns = self._canonical_patterns(entry.patterns)
        priority = entry.priority if self._prioritised else 0
        found = self._entries.get((patterns, priority))
        if found is None:
            raise NoSuchEntry(f"table {self.table.name} has no entry for {_show(entry)}")
        return found

    def set_default(self, invocation: ir.Invocation | None) -> ir.Invocation:
        """Set the default action; None restores the program's default. Raises BadEntry."""
        if invocation is None:
            invocation = self.table.default
        elif (
            self.table.const_default
            and self._canonical_invocation(invocation, as_default=True) != self.table.default
        ):
            raise BadEntry(f"the default action of table {self.table.name} is constant")
        self.default = self._canonical_invocation(invocation, as_default=True)
        return self.default

    def part(self, part: str, entry: ir.ConstEntry | None) -> Any:
        """Return a part of the stored entry with the match of `entry` or, for None, of the default action.

        `part` is one of `PARTS`. Raises NoSuchEntry, or NoSuchObject if entries of this table lack the part.
        """
        table = self.table
        present = (table.direct_counter is not None, table.direct_meter is not None, table.idle_timeout)
        found = None
        if present[PARTS.index(part)]:
            found = self._part(part, None if entry is None else self.find(entry))
        if not found:
            raise NoSuchObject(f"table {table.name} has no {part}")
        return found

    def _part(self, part: str, entry: ir.ConstEntry | None) -> Any:
        """Return a part of the stored entry `entry` or, for None, of the default action."""
        raise NotImplementedError

    def _check_mutable(self) -> None:
        if self.table.const_entries:
            raise BadEntry(f"the entries of table {self.table.name} are constant")

    def _match(self, entry: ir.ConstEntry) -> Match:
        return entry.patterns, entry.priority

    def _canonical(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        patterns = self._canonical_patterns(entry.patterns)
        invocation = self._canonical_invocation(entry.invocation, as_default=False)
        priority = entry.priority if self._prioritised else 0
        if patterns is entry.patterns and invocation is entry.invocation and priority == entry.priority:
            return entry
        return ir.ConstEntry(patterns, invocation, priority)

    def _canonical_patterns(self, patterns: tuple[ir.Pattern, ...]) -> tuple[ir.Pattern, ...]:
        keys = self.table.keys
        if not keys:
            raise BadEntry(f"table {self.table.name} has no key, so it cannot have entries")
        if len(patterns) != len(keys):
            raise BadEntry(f"table {self.table.name} has {len(keys)} keys, the entry {len(patterns)}")
        for match, full, pattern in zip(self._matches, self._full, patterns, strict=True):
            if not _is_canonical(match, full, pattern):
                return tuple(map(self._canonical_pattern, keys, self._full, patterns))
        return patterns

    def _canonical_pattern(self, key: ir.Key, full: int, pattern: ir.Pattern) -> ir.Pattern:
        where = f"key {key.name} of table {self.table.name}"
        for number in (pattern.value, pattern.mask):
            if not 0 <= number <= full:
                raise BadEntry(f"{where} has {full.bit_length()} bits; {number:#x} does not fit")
        match key.match, pattern.kind:
            case _, "any" if key.match != "exact":
                return ir.Pattern("any")
            case "exact" | "optional", "exact":
                return ir.Pattern("exact", pattern.value)
            case "lpm" | "ternary", "exact":
                return ir.Pattern("mask", pattern.value, full)
            case "range", "exact":
                return ir.Pattern("range", pattern.value, pattern.value)
            case "lpm" | "ternary", "mask":
                inverse = full ^ pattern.mask
                if key.match == "lpm" and inverse & (inverse + 1):
                    raise BadEntry(f"{where} is lpm; mask {pattern.mask:#x} is not a prefix")
                if pattern.mask == 0:
                    return ir.Pattern("any")
                return ir.Pattern("mask", pattern.value & pattern.mask, pattern.mask)
            case "range", "range":
                if pattern.value > pattern.mask:
                    raise BadEntry(f"{where}: the range {pattern.value}..{pattern.mask} is empty")
                if pattern.value == 0 and pattern.mask == full:
                    return ir.Pattern("any")
                return ir.Pattern("range", pattern.value, pattern.mask)
            case _:
                raise BadEntry(f"{where} is {key.match} and takes no {pattern.kind} pattern")

    def _canonical_invocation(self, invocation: ir.Invocation, *, as_default: bool) -> ir.Invocation:
        name, (action, args) = self.table.name, invocation
        ref = self._refs.get(action)
        if ref is None:
            known = ", ".join(ir.plain_name(ref.action) for ref in self.table.actions)
            raise BadEntry(f"table {name} has no action {action}; it has {known}")
        if as_default and ref.scope == "table_only":
            raise BadEntry(f"action {ref.action} of table {name} is @tableonly: not for the default")
        if not as_default and ref.scope == "default_only":
            raise BadEntry(f"action {ref.action} of table {name} is @defaultonly: not for entries")
        bounds = self._bounds[ref.action]
        if len(bounds) != len(args):
            raise BadEntry(f"action {ref.action} takes {len(bounds)} parameters, not {len(args)}")
        for number, arg in enumerate(args):
            low, high = bounds[number]
            if not low <= arg <= high:
                param = self._actions[ref.action].params[number]
                raise BadEntry(f"parameter {param.name} of {ref.action} is {low}..{high}, not {arg}")
        return invocation if ref.action == action else ir.Invocation(ref.action, args)

    def _precedence(self, entry: ir.ConstEntry) -> int:
        """Return the sort key of an entry: of two matching entries, the one with the smaller key wins."""
        if self._prioritised:
            return -entry.priority
        return -sum(pattern.mask.bit_count() for pattern in entry.patterns if pattern.kind == "mask")


def _is_canonical(match: str, full: int, pattern: ir.Pattern) -> bool:
    """Return True if a quick check shows that `pattern` is canonical; False: the full check must decide."""
    kind, value, mask = pattern
    if kind == "exact":
        return match == "exact" and mask == 0 and 0 <= value <= full
    if kind == "mask":
        fits, beyond = 0 < mask <= full and value & mask == value, full ^ mask
        return fits and (match == "ternary" or (match == "lpm" and not beyond & (beyond + 1)))
    return kind == "any" and match != "exact" and value == 0 and mask == 0


def _show(entry: ir.ConstEntry) -> str:
    shown = []
    for pattern in entry.patterns:
        match pattern.kind:
            case "exact":
                shown.append(f"{pattern.value:#x}")
            case "mask":
                shown.append(f"{pattern.value:#x} &&& {pattern.mask:#x}")
            case "range":
                shown.append(f"{pattern.value}..{pattern.mask}")
            case _:
                shown.append("_")
    return f"({', '.join(shown)})"


MAX_CODE_ENTRIES = 64
"""Maximum number of constant entries of a table whose look-up is C code.

A table with more constant entries is filled with them when the program is loaded.
"""

ARG_WORDS = 2
"""Number of 64-bit words in which Python passes an action argument."""

RANGE_WORDS = 2
"""Number of 64-bit words for each end of a range."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One key field in the packed key; its lowest bit is bit `offset` of the packed key (0: lowest)."""

    key: ir.Key
    offset: int
    width: int
    full: int
    """Mask of all bits of this key field, not shifted by `offset`."""
    range_index: int | None


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table's representation in C.

    `kind` is the way to find an entry: none (the table has no key), code (comparisons in C), exact (hash
    table), lpm (hash table for all prefix lengths) or ordered (tuple space search, by priority).
    """

    table: ir.Table
    kind: str
    parts: tuple[KeyPart, ...]
    words: int
    ranges: int
    actions: tuple[str, ...]  # in the order of their numbers in entries

    @property
    def match_words(self) -> int:
        """Number of 64-bit words in which Python passes a match."""
        match self.kind:
            case "ordered":
                return 2 * self.words + 2 * RANGE_WORDS * self.ranges
            case "lpm":
                return 2 * self.words
            case _:
                return self.words

    @property
    def bits(self) -> int:
        """Width of the whole key in bits."""
        return sum(part.width for part in self.parts)

    @property
    def prefix_top(self) -> int:
        """Index of the bit above the first lpm key in the packed key; 0: there is no lpm key."""
        return next((part.offset + part.width for part in self.parts if part.key.match == "lpm"), 0)

    @property
    def prefix_width(self) -> int:
        """Width in bits of the first lpm key; 0: there is none."""
        return next((part.width for part in self.parts if part.key.match == "lpm"), 0)

    def pack(self, patterns: Sequence[ir.Pattern]) -> bytes:
        """Return, as bytes, the match words of canonical patterns.

        The match words are the values, followed by masks and ranges if the layout's `kind` needs these.
        """
        value = mask = 0
        lows = highs = b""
        for part, pattern in zip(self.parts, patterns, strict=True):
            if part.range_index is not None:
                low, high = (pattern.value, pattern.mask) if pattern.kind == "range" else (0, part.full)
                lows += packed(low, RANGE_WORDS)
                highs += packed(high, RANGE_WORDS)
                continue
            kind, wanted, bits = pattern  # 0 and 0 for "any"
            if kind == "exact":
                bits = part.full
            value |= (wanted & bits) << part.offset
            mask |= bits << part.offset
        if self.kind in ("lpm", "ordered"):
            return packed(value, self.words) + packed(mask, self.words) + lows + highs
        return packed(value, self.words)


def packed(number: int, count: int) -> bytes:
    """Return a number as `count` 64-bit words, the least significant first."""
    return number.to_bytes(8 * count, "little")


def lay_out_table(table: ir.Table) -> TableLayout:
    """Choose the layout of `table`. Raises Unsupported for keys that the back end cannot compare."""
    matches = {key.match for key in table.keys}
    if not table.keys:
        kind = "none"
    elif (
        table.const_entries
        and len(table.entries) <= MAX_CODE_ENTRIES
        and table.direct_meter is None
        and not table.idle_timeout
    ):
        kind = "code"
    elif has_priorities(table):
        kind = "ordered"
    else:
        kind = "lpm" if "lpm" in matches else "exact"
    offset = sum(ir.width_of(key.expr.type) for key in table.keys)
    words = max(1, (offset + 63) // 64)
    parts, ranges = [], 0
    for key in table.keys:
        width = ir.width_of(key.expr.type)
        if is_wide(key.expr.type):
            raise too_wide(f"key {key.name}", width, key.expr.pos)
        range_index = None
        if key.match == "range" and kind == "ordered":
            range_index, ranges = ranges, ranges + 1
        offset -= width
        parts.append(KeyPart(key, offset, width, (1 << width) - 1, range_index))
    actions = [ref.action for ref in table.actions]
    if table.default.action not in actions:
        actions.append(table.default.action)
    return TableLayout(table, kind, tuple(parts), words, ranges, tuple(actions))
