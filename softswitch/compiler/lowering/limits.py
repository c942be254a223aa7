"""What the program is and the back ends cannot do, told with its place: headers and numbers.

Headers that leave or enter by the wire are whole bytes, as on BMv2. Values of more than 128 bits can be
stored, copied and compared, but not computed with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported

MAX_COMPUTED = 128
"""Bits of the widest number that is computed with."""


def check_limits(program: ir.Program) -> None:
    """Raise Unsupported for the first expression or header beyond the limits of the back ends."""
    for node in _nodes(program):
        match node:
            case ir.Extract(header, _, pos) | ir.Emit(header, pos):
                _check_header(header.type, pos)
            case ir.Unary() | ir.Binary() | ir.Cast() | ir.Mux() | ir.Slice() | ir.Lookahead():
                _check_width(node)


def _check_header(type_: ir.Type, pos: ir.Position) -> None:
    header = type_.element if isinstance(type_, ir.Stack) else type_
    assert isinstance(header, ir.Header)
    bits = sum(_bits(scalar) for _, scalar in header.fields)
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
    operands = [getattr(expr, item.name) for item in fields(expr)]
    parts = [part for part in operands if isinstance(part, ir.Expr)]
    if isinstance(expr, ir.Binary) and expr.op in ("==", "!="):
        parts = [part for part in parts if not isinstance(part, ir.Var | ir.Member | ir.Const)]
    widest = max((_bits(part.type) for part in (expr, *parts)), default=0)
    if widest > MAX_COMPUTED:
        message = f"a computation with {widest} bits"
        raise Unsupported(message, expr.pos, f"at most {MAX_COMPUTED} bits")


def _nodes(node: object) -> Iterator[object]:
    """Yield all statements and expressions below `node`, and itself."""
    match node:
        case ir.Program():
            for block in (node.verify, node.ingress, node.egress, node.compute, node.deparser):
                yield from _nodes(block)
            for state in node.states.values():
                yield from _nodes((*state.body, *state.transition.subjects))
            for action in node.actions.values():
                yield from _nodes(action.body)
            for table in node.tables.values():
                yield from _nodes(tuple(key.expr for key in table.keys))
        case tuple():
            for item in node:
                yield from _nodes(item)
        case _ if isinstance(node, ir.Expr | ir.Stmt):
            yield node
            for item in fields(node):
                if item.name not in ("type", "pos"):
                    yield from _nodes(getattr(node, item.name))
