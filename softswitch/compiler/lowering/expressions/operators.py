"""Operators: the operands they take, the types of their results, and their values if known.

Nothing here emits statements; operands are values that have been checked already.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.equality import equality, inequality
from softswitch.compiler.lowering.expressions.logic import negation
from softswitch.compiler.lowering.expressions.operands import Operand, balance, underlying
from softswitch.compiler.lowering.values import Number, Run, Text, Value, constant, show

_ORDERING = ("<", "<=", ">", ">=")


def unary(op: str, value: Value, pos: ir.Position) -> Value:
    """Return ``op value``. Raises CompileError if the operator does not take it."""
    value = underlying(value)
    if op == "!":
        if isinstance(value, Run) and value.type == t.BOOL:
            return Run(t.BOOL, negation(value.expr, pos))
        raise CompileError(f"! of {show(value)}", pos, "bool")
    if isinstance(value, Number):
        if op == "~":
            raise CompileError("~ of an int without a width", pos, "a width, such as 8w1")
        return Number(-value.value if op == "-" else value.value)
    if not (isinstance(value, Run) and isinstance(value.type, ir.Bits)):
        raise CompileError(f"{op} of {show(value)}", pos, "bit<W>, int<W> or int")
    if op == "+":
        return Run(value.type, value.expr)
    if isinstance(value.expr, ir.Const):
        number = value.expr.value
        return constant(value.type, fold.wrap(value.type, -number if op == "-" else ~number), pos)
    return Run(value.type, ir.Unary(value.type, op, value.expr, pos))


def binary(op: str, left: Operand, right: Operand, pos: ir.Position) -> Value:
    """Return ``left op right`` of any operator but ``&&`` and ``||``. Raises CompileError."""
    if op in ("==", "!="):
        equal = equality(left, right, pos)
        return Run(t.BOOL, equal if op == "==" else inequality(equal, pos))
    left = Operand(underlying(left.value), left.pos)
    right = Operand(underlying(right.value), right.pos)
    if op in ("<<", ">>"):
        return _shift(op, left, right, pos)
    if op == "++":
        return _concatenation(left, right, pos)
    if isinstance(left.value, Number) and isinstance(right.value, Number):
        return _numbers(op, left.value.value, right.value.value, pos)
    if op in ("/", "%"):
        for operand in (left, right):
            if isinstance(operand.value, Number) and operand.value.value < 0:
                message = f"{op} of the negative number {operand.value.value}"
                raise CompileError(message, operand.pos, "operands that are not negative")
    a, b, type_ = balance(op, left, right, pos)
    if op in _ORDERING:
        if isinstance(a, ir.Const) and isinstance(b, ir.Const):
            return constant(t.BOOL, fold.compare(op, a.value, b.value), pos)
        return Run(t.BOOL, ir.Binary(t.BOOL, op, a, b, pos))
    if op in ("/", "%"):
        if type_.signed:
            raise CompileError(f"{op} of {t.describe(type_)}", pos, "operands of type bit<W>")
        if isinstance(b, ir.Const) and b.value == 0:
            raise CompileError(f"{op} by zero has no value", pos, "a divisor other than 0")
    if isinstance(a, ir.Const) and isinstance(b, ir.Const):
        return constant(type_, fold.bits(op, type_, a, b, pos), pos)
    return Run(type_, ir.Binary(type_, op, a, b, pos))


def _numbers(op: str, left: int, right: int, pos: ir.Position) -> Value:
    if op in _ORDERING:
        return constant(t.BOOL, fold.compare(op, left, right), pos)
    if op in ("|+|", "|-|"):
        raise CompileError(f"{op} of ints without a width", pos, "a width for one operand, such as 8w1")
    return Number(fold.bounded(fold.arithmetic(op, left, right, pos), pos))


def _shift(op: str, left: Operand, right: Operand, pos: ir.Position) -> Value:
    a, b = left.value, right.value
    if (
        isinstance(b, Run)
        and isinstance(b.type, ir.Bits)
        and b.type.signed
        and not isinstance(b.expr, ir.Const)
    ):
        raise CompileError(f"shift by {show(b)}", right.pos, "an amount of type bit<W>, or a constant")
    amount = b.value if isinstance(b, Number) else None
    if isinstance(b, Run) and isinstance(b.expr, ir.Const) and isinstance(b.type, ir.Bits):
        amount = b.expr.value
    if amount is not None and amount < 0:
        raise CompileError(f"shift by {amount}", right.pos, "an amount that is not negative")
    if isinstance(a, Number):
        if amount is not None:
            return Number(fold.bounded(fold.arithmetic(op, a.value, amount, pos), pos))
        raise CompileError(
            f"shift of int {a.value} by an amount known only at run time", left.pos, "a width, such as 8w1"
        )
    if not (isinstance(a, Run) and isinstance(a.type, ir.Bits)):
        raise CompileError(f"{op} of {show(a)}", left.pos, "bit<W>, int<W> or int")
    if amount is not None:
        if isinstance(a.expr, ir.Const):
            return constant(
                a.type,
                fold.wrap(a.type, fold.arithmetic(op, a.expr.value, min(amount, a.type.width), pos)),
                pos,
            )
        by: ir.Expr = ir.Const(t.BIT32, min(amount, a.type.width), right.pos)
    elif isinstance(b, Run) and isinstance(b.type, ir.Bits):
        by = b.expr
    else:
        raise CompileError(f"shift by {show(b)}", right.pos, "an amount of type bit<W> or int")
    return Run(a.type, ir.Binary(a.type, op, a.expr, by, pos))


def _concatenation(left: Operand, right: Operand, pos: ir.Position) -> Value:
    if isinstance(left.value, Text) and isinstance(right.value, Text):
        return Text(left.value.value + right.value.value)
    for operand in (left, right):
        if isinstance(operand.value, Number):
            raise CompileError(
                "++ of an int without a width", operand.pos, f"a width, such as 8w{operand.value.value}"
            )
        if not (isinstance(operand.value, Run) and isinstance(operand.value.type, ir.Bits)):
            raise CompileError(f"++ of {show(operand.value)}", operand.pos, "bit<W> or int<W>")
    a, b = left.value, right.value
    assert isinstance(a, Run)
    assert isinstance(a.type, ir.Bits)
    assert isinstance(b, Run)
    assert isinstance(b.type, ir.Bits)
    type_ = ir.Bits(a.type.width + b.type.width, a.type.signed)
    if isinstance(a.expr, ir.Const) and isinstance(b.expr, ir.Const):
        return constant(type_, fold.bits("++", type_, a.expr, b.expr, pos), pos)
    return Run(type_, ir.Binary(type_, "++", a.expr, b.expr, pos))
