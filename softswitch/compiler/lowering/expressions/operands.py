"""Two operands of one operator, and the type that they share."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.convert import fit
from softswitch.compiler.lowering.values import Number, Run, Value, show


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and where it is in the source."""

    value: Value
    pos: ir.Position


def underlying(value: Value) -> Value:
    """Return the value of a serialisable enum as its underlying type, others as they are."""
    if isinstance(value, Run) and isinstance(value.type, t.SerialEnum):
        return Run(value.type.underlying, value.expr)
    return value


def balance(op: str, left: Operand, right: Operand, pos: ir.Position) -> tuple[ir.Expr, ir.Expr, ir.Bits]:
    """Return both operands in the type that they share. Raises CompileError."""
    a, b = left.value, right.value
    if isinstance(a, Number) and isinstance(b, Run) and isinstance(b.type, ir.Bits):
        return fit(a.value, b.type, left.pos), b.expr, b.type
    if isinstance(b, Number) and isinstance(a, Run) and isinstance(a.type, ir.Bits):
        return a.expr, fit(b.value, a.type, right.pos), a.type
    if isinstance(a, Run) and isinstance(b, Run) and isinstance(a.type, ir.Bits) and a.type == b.type:
        return a.expr, b.expr, a.type
    raise CompileError(f"{op} of {show(a)} and {show(b)}", pos, "two operands of one bit<W> or int<W> type")
