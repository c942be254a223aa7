"""Limits of the back ends that a program exceeds, reported with positions: headers and numbers.

Headers are whole bytes, as on BMv2, and so are varbits and what is in front of them. Values of more than
128 bits can be stored, copied and compared, but not computed with.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.walk import child_expressions, nodes

MAX_COMPUTED = 128
"""Bits of the widest number that is computed with."""


def check_limits(program: ir.Program) -> None:
    """Raise Unsupported for the first expression beyond the limits of the back ends."""
    for node in nodes(program):
        if isinstance(node, ir.Unary | ir.Binary | ir.Cast | ir.Mux | ir.Slice | ir.Lookahead):
            _check_width(node)


def check_stored(type_: ir.Type, pos: ir.Position) -> None:
    """Raise Unsupported if what is declared at `pos` with `type_` has a header beyond the limits."""
    match type_:
        case ir.Header():
            _check_header(type_, pos)
        case ir.Stack(element):
            _check_header(element, pos)
        case ir.Struct(_, members):
            for _, member in members:
                check_stored(member, pos)


def _check_header(header: ir.Header, pos: ir.Position) -> None:
    bits = 0
    for name, type_ in header.fields:
        wide = _bits(type_) > MAX_COMPUTED
        if isinstance(type_, ir.VarBits) and (bits % 8 or type_.max_width % 8):
            raise Unsupported(f"varbit {name} of header {header.name} is no whole bytes", pos, "whole bytes")
        if wide and (bits % 8 or _bits(type_) % 8):
            raise Unsupported(
                f"wide field {name} of header {header.name} is no whole bytes", pos, "whole bytes"
            )
        bits += _bits(type_)
    if bits % 8:
        raise Unsupported(f"header {header.name} has {bits} bits: no multiple of 8", pos, "whole bytes")


def _bits(type_: ir.Type) -> int:
    match type_:
        case ir.Bits(width):
            return width
        case ir.Bool():
            return 1
        case _:
            return 0


def _check_width(expr: ir.Expr) -> None:
    parts = child_expressions(expr)
    if isinstance(expr, ir.Binary) and expr.op in ("==", "!="):
        parts = tuple(part for part in parts if not isinstance(part, ir.Var | ir.Member | ir.Const))
    widest = max((_bits(part.type) for part in (expr, *parts)), default=0)
    if widest > MAX_COMPUTED:
        message = f"a computation with {widest} bits"
        raise Unsupported(message, expr.pos, f"at most {MAX_COMPUTED} bits")
