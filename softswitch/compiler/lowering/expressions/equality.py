"""``==`` of scalars, and of headers, stacks, structs and tuples part by part."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.convert import convert
from softswitch.compiler.lowering.expressions.logic import conjunction, negation
from softswitch.compiler.lowering.expressions.operands import Operand, balance, underlying
from softswitch.compiler.lowering.values import (
    Default,
    Group,
    Invalid,
    Number,
    Run,
    Value,
    parts_of,
    show,
    type_of,
)


def equality(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    """Return ``left == right`` of scalars, headers, stacks, structs and tuples. Raises CompileError."""
    a, b = left.value, right.value
    if isinstance(a, Group | Invalid | Default) or isinstance(b, Group | Invalid | Default):
        return _parts_equal(left, right, pos)
    if isinstance(a, Number) and isinstance(b, Number):
        return ir.Const(t.BOOL, fold.compare("==", a.value, b.value), pos)
    if not (isinstance(a, Run) and isinstance(b, Run) and t.same(a.type, b.type)):
        return _mixed_equality(left, right, pos)
    if t.is_open(a.type):
        message = f"a comparison of values of type {t.describe(a.type)}, of which nothing is known"
        raise CompileError(message, pos, "values of a type that can be compared")
    if isinstance(a.type, t.StackType):
        return _stacks_equal(a, b, a.type, pos)
    if isinstance(a.expr, ir.Const) and isinstance(b.expr, ir.Const):
        return ir.Const(t.BOOL, fold.compare("==", a.expr.value, b.expr.value), pos)
    return ir.Binary(t.BOOL, "==", a.expr, b.expr, pos)


def inequality(equal: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return the opposite of an equality."""
    if isinstance(equal, ir.Binary) and equal.op == "==":
        return ir.Binary(t.BOOL, "!=", equal.left, equal.right, equal.pos)
    return negation(equal, pos)


def _mixed_equality(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    left = Operand(underlying(left.value), left.pos)
    right = Operand(underlying(right.value), right.pos)
    try:
        a, b, type_ = balance("==", left, right, pos)
    except CompileError as error:
        if error.pos != pos:
            raise
        message = f"{show(left.value)} and {show(right.value)} cannot be compared"
        raise CompileError(message, pos, "two operands of one type") from None
    return equality(Operand(Run(type_, a), pos), Operand(Run(type_, b), pos), pos)


def _stacks_equal(a: Run, b: Run, type_: t.StackType, pos: ir.Position) -> ir.Expr:
    result: ir.Expr = ir.Const(t.BOOL, 1, pos)
    for number in range(type_.size):
        index = ir.Const(t.BIT32, number, pos)
        x = ir.Index(type_.element.ir, a.expr, index, pos)
        y = ir.Index(type_.element.ir, b.expr, index, pos)
        result = conjunction(result, ir.Binary(t.BOOL, "==", x, y, pos), pos)
    return result


def _parts_equal(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    """Compare where at least one side is given by its parts: part by part."""
    type_ = _common_type(left.value, right.value, pos)
    a = convert(left.value, type_, left.pos)
    b = convert(right.value, type_, right.pos)
    shape = t.base(type_)
    if isinstance(shape, t.HeaderType):
        if isinstance(a, Invalid) or isinstance(b, Invalid):
            return conjunction(_is_invalid(a, pos), _is_invalid(b, pos), pos)
        result = conjunction(_is_valid(a, pos), _is_valid(b, pos), pos)
    else:
        result = ir.Const(t.BOOL, 1, pos)
    for x, y in zip(parts_of(a, pos), parts_of(b, pos), strict=True):
        result = conjunction(result, equality(Operand(x, left.pos), Operand(y, right.pos), pos), pos)
    return result


def _common_type(a: Value, b: Value, pos: ir.Position) -> t.Type:
    for value in (a, b):
        type_ = type_of(value)
        if not isinstance(type_, t.Record | t.Rest | t.Tuple):
            return type_
    for value in (a, b):
        type_ = type_of(value)
        if isinstance(type_, t.Tuple):
            return type_
    raise CompileError(
        f"{show(a)} and {show(b)} cannot be compared", pos, "a type for one operand, by a cast"
    )


def _is_valid(value: Value, pos: ir.Position) -> ir.Expr:
    if isinstance(value, Run):
        return ir.IsValid(t.BOOL, value.expr, pos)
    return ir.Const(t.BOOL, 0 if isinstance(value, Invalid) else 1, pos)


def _is_invalid(value: Value, pos: ir.Position) -> ir.Expr:
    return negation(_is_valid(value, pos), pos)
