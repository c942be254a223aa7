"""Internet checksums over headers as they lie in memory, instead of over fields one by one."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.engine.emit_c.expressions import Expressions
from softswitch.engine.emit_c.layout import HeaderHome, Slot
from softswitch.engine.emit_c.text import width_of


def header_sums(expressions: Expressions, data: Sequence[ir.Expr]) -> str:
    """Return C text of the sum of the 16-bit words of `data`, their bytes exchanged; empty: no such pieces.

    A piece is whole words of a header that is kept as on the wire (``P4_WIRED``), from one field to another.
    It suits headers that were just extracted: to load words across fields that were just stored is slow.
    """
    terms: list[str] = []
    home: HeaderHome | None = None
    first = end = 0
    for expr in data:
        found = _field(expressions, expr)
        if found is None:
            return ""
        owner, slot = found
        if owner == home and slot.offset == end:
            end += width_of(expr.type)
            continue
        if home is not None and not _add(terms, home, first, end):
            return ""
        home, first = owner, slot.offset
        end = first + width_of(expr.type)
    if home is None or not _add(terms, home, first, end):
        return ""
    return " + ".join(terms)


def _field(expressions: Expressions, expr: ir.Expr) -> tuple[HeaderHome, Slot] | None:
    """Return the header and the slot of a field that lies in a header as on the wire."""
    if not isinstance(expr, ir.Member) or not isinstance(expr.base.type, ir.Header):
        return None
    header = expressions.header(expr.base)
    layout = header.home.layout
    if header.guard is not None or header.home.where is not None or not layout.wired:
        return None
    return header.home, layout.by_name[expr.field]


def _add(terms: list[str], home: HeaderHome, first: int, end: int) -> bool:
    """Add the term of a piece, from bit `first` to `end`; returns whether it is of whole words."""
    if first % 16 or end % 16:
        return False
    start = f" + {first // 8}" if first else ""
    terms.append(f"p4_sum_words((const uint8_t *)&{home.text}{start}, {(end - first) // 8})")
    return True
