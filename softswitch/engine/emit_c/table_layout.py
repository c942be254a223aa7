"""The representation of match-action tables: what the C text declares, and what entries are packed for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.engine.emit_c.text import is_wide, too_wide
from softswitch.engine.entries import has_priorities

MAX_CODE_ENTRIES = 64
"""Constant entries up to this many become code; more of them, a table that is filled when loaded."""

ARG_WORDS = 2
"""64-bit words in which an action argument crosses from Python."""

RANGE_WORDS = 2
"""64-bit words of each end of a range."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One key in the packed key: its bits start at `offset` from the least significant end."""

    key: ir.Key
    offset: int
    width: int
    full: int
    """All its bits."""
    range_index: int | None


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The representation of a table: `kind` is none, code, exact, lpm or ordered."""

    table: ir.Table
    kind: str
    parts: tuple[KeyPart, ...]
    words: int
    ranges: int
    actions: tuple[str, ...]  # by the number that entries carry

    @property
    def match_words(self) -> int:
        """Words of a match as Python passes it."""
        match self.kind:
            case "ordered":
                return 2 * self.words + 2 * RANGE_WORDS * self.ranges
            case "lpm":
                return 2 * self.words
            case _:
                return self.words

    @property
    def bits(self) -> int:
        """Bits of key."""
        return sum(part.width for part in self.parts)

    @property
    def prefix_top(self) -> int:
        """Where the first lpm key ends, in bits from the least significant end; 0: there is none."""
        return next((part.offset + part.width for part in self.parts if part.key.match == "lpm"), 0)

    @property
    def prefix_width(self) -> int:
        """Width in bits of the first lpm key; 0: there is none."""
        return next((part.width for part in self.parts if part.key.match == "lpm"), 0)

    def pack(self, patterns: Sequence[ir.Pattern]) -> bytes:
        """Return the match words of canonical patterns: value, then mask, low and high where kept."""
        value = mask = 0
        lows = highs = b""
        for part, pattern in zip(self.parts, patterns, strict=True):
            if part.range_index is not None:
                low, high = (pattern.value, pattern.mask) if pattern.kind == "range" else (0, part.full)
                lows += packed(low, RANGE_WORDS)
                highs += packed(high, RANGE_WORDS)
                continue
            kind, wanted, bits = pattern  # of "any" 0 and 0
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
    """Choose the layout of `table`. Raises Unsupported for keys that we cannot compare."""
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
