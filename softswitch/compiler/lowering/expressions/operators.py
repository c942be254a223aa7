"""Operators: the operands they take, the types of their results, and their values if known.

Nothing here emits statements; operands are values that have been checked already.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.convert import (
    Operand,
    balance,
    conjunction,
    convert,
    negation,
    underlying,
)
from softswitch.compiler.lowering.values import (
    Default,
    Group,
    Invalid,
    Number,
    Run,
    Text,
    Value,
    constant,
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
