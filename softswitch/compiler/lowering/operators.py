"""Lower operators: check the operands, determine the type of the result, and compute constant results.

This module emits no statements; the operands are values of checked expressions.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.convert import (
    Operand,
    balance,
    convert,
    joined,
    negation,
    underlying,
)
from softswitch.compiler.lowering.unit import Body, CodePlace
from softswitch.compiler.lowering.values import (
    ApplyOutcome,
    Default,
    GroupValue,
    Invalid,
    Number,
    Run,
    Text,
    Value,
    constant,
    number_of,
    parts_of,
    show,
    type_of,
    unknown,
)


def equality(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    """Return ``left == right`` of scalars, headers, stacks, structs and tuples. Raises CompileError."""
    a, b = left.value, right.value
    if isinstance(a, GroupValue | Invalid | Default) or isinstance(b, GroupValue | Invalid | Default):
        return _parts_equal(left, right, pos)
    if isinstance(a, Number) and isinstance(b, Number):
        return ir.Const(t.BOOL, fold.compare("==", a.value, b.value), pos=pos)
    if not (isinstance(a, Run) and isinstance(b, Run) and t.same(a.type, b.type)):
        return _mixed_equality(left, right, pos)
    if t.is_open(a.type):
        raise CompileError(
            f"cannot compare values of type {t.describe(a.type)}, which is unknown",
            pos,
            "values of a type that can be compared",
        )
    if isinstance(a.type, t.StackType):
        return _stacks_equal(a, b, a.type, pos)
    if isinstance(a.expr, ir.Const) and isinstance(b.expr, ir.Const):
        return ir.Const(t.BOOL, fold.compare("==", a.expr.value, b.expr.value), pos=pos)
    return ir.Binary(t.BOOL, "==", a.expr, b.expr, pos=pos)


def inequality(equal: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return the negation of an equality that `equality` has returned."""
    if isinstance(equal, ir.Binary) and equal.op == "==":
        return ir.Binary(t.BOOL, "!=", equal.left, equal.right, pos=equal.pos)
    return negation(equal, pos)


def _mixed_equality(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    left = Operand(underlying(left.value), left.pos)
    right = Operand(underlying(right.value), right.pos)
    try:
        a, b, type_ = balance("==", left, right, pos)
    except CompileError as error:
        if error.pos != pos:
            raise
        raise CompileError(
            f"{show(left.value)} and {show(right.value)} cannot be compared", pos, "two operands of one type"
        ) from None
    return equality(Operand(Run(type_, a), pos), Operand(Run(type_, b), pos), pos)


def _stacks_equal(a: Run, b: Run, type_: t.StackType, pos: ir.Position) -> ir.Expr:
    result: ir.Expr = ir.Const(t.BOOL, 1, pos=pos)
    for number in range(type_.size):
        index = ir.Const(t.BIT32, number, pos=pos)
        x = ir.Index(type_.element.ir, a.expr, index, pos=pos)
        y = ir.Index(type_.element.ir, b.expr, index, pos=pos)
        result = joined("&&", result, ir.Binary(t.BOOL, "==", x, y, pos=pos), pos)
    return result


def _parts_equal(left: Operand, right: Operand, pos: ir.Position) -> ir.Expr:
    """Return ``left == right`` if one side is like ``{a, b}``: the conjunction of the parts' equalities."""
    type_ = _common_type(left.value, right.value, pos)
    a = convert(left.value, type_, left.pos)
    b = convert(right.value, type_, right.pos)
    shape = t.base(type_)
    if isinstance(shape, t.HeaderType):
        if isinstance(a, Invalid) or isinstance(b, Invalid):
            return joined("&&", negation(is_valid(a, pos), pos), negation(is_valid(b, pos), pos), pos)
        result = joined("&&", is_valid(a, pos), is_valid(b, pos), pos)
    else:
        result = ir.Const(t.BOOL, 1, pos=pos)
    for x, y in zip(parts_of(a, pos), parts_of(b, pos), strict=True):
        result = joined("&&", result, equality(Operand(x, left.pos), Operand(y, right.pos), pos), pos)
    return result


def _common_type(a: Value, b: Value, pos: ir.Position) -> t.Type:
    types = (type_of(a), type_of(b))
    found: list[t.Type] = [type_ for type_ in types if not isinstance(type_, t.RecordType | t.Rest | t.Tuple)]
    found += (type_ for type_ in types if isinstance(type_, t.Tuple))
    if not found:
        raise CompileError(
            f"{show(a)} and {show(b)} cannot be compared", pos, "a cast that gives one operand a type"
        )
    return found[0]


def is_valid(value: Value, pos: ir.Position) -> ir.Expr:
    """Return ``value.isValid()`` of a header."""
    if isinstance(value, Run):
        return ir.IsValid(t.BOOL, value.expr, pos=pos)
    return ir.Const(t.BOOL, 0 if isinstance(value, Invalid) else 1, pos=pos)


_ORDERING = ("<", "<=", ">", ">=")


def unary(op: str, value: Value, pos: ir.Position) -> Value:
    """Return ``op value``. Raises CompileError if the operator does not apply to the value."""
    value = underlying(value)
    if op == "!":
        if isinstance(value, Run) and value.type == t.BOOL:
            return Run(t.BOOL, negation(value.expr, pos))
        raise CompileError(f"! does not apply to {show(value)}", pos, "bool")
    if isinstance(value, Number):
        if op == "~":
            raise CompileError("~ does not apply to an int without a width", pos, "a width, such as 8w1")
        return Number(-value.value if op == "-" else value.value)
    if not (isinstance(value, Run) and isinstance(value.type, ir.Bits)):
        raise CompileError(f"{op} does not apply to {show(value)}", pos, "bit<W>, int<W> or int")
    if op == "+":
        return Run(value.type, value.expr)
    if isinstance(value.expr, ir.Const):
        number = value.expr.value
        return constant(value.type, fold.wrap(value.type, -number if op == "-" else ~number), pos)
    return Run(value.type, ir.Unary(value.type, op, value.expr, pos=pos))


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
                raise CompileError(
                    f"{op} does not apply to the negative number {operand.value.value}",
                    operand.pos,
                    "operands that are not negative",
                )
    a, b, type_ = balance(op, left, right, pos)
    if op in _ORDERING:
        if isinstance(a, ir.Const) and isinstance(b, ir.Const):
            return constant(t.BOOL, fold.compare(op, a.value, b.value), pos)
        return Run(t.BOOL, ir.Binary(t.BOOL, op, a, b, pos=pos))
    if op in ("/", "%"):
        if type_.signed:
            raise CompileError(f"{op} does not apply to {t.describe(type_)}", pos, "operands of type bit<W>")
        if isinstance(b, ir.Const) and b.value == 0:
            raise CompileError(f"{op} by zero has no value", pos, "a divisor other than 0")
    if isinstance(a, ir.Const) and isinstance(b, ir.Const):
        return constant(type_, fold.bits(op, type_, a, b, pos), pos)
    return Run(type_, ir.Binary(type_, op, a, b, pos=pos))


def _numbers(op: str, left: int, right: int, pos: ir.Position) -> Value:
    if op in _ORDERING:
        return constant(t.BOOL, fold.compare(op, left, right), pos)
    if op in ("|+|", "|-|"):
        raise CompileError(
            f"{op} does not apply to ints without a width", pos, "a width for one operand, such as 8w1"
        )
    return Number(fold.bounded(fold.arithmetic(op, left, right, pos), pos))


def _shift(op: str, left: Operand, right: Operand, pos: ir.Position) -> Value:
    a, b = left.value, right.value
    if (
        isinstance(b, Run)
        and isinstance(b.type, ir.Bits)
        and b.type.signed
        and not isinstance(b.expr, ir.Const)
    ):
        raise CompileError(f"cannot shift by {show(b)}", right.pos, "an amount of type bit<W>, or a constant")
    amount = b.value if isinstance(b, Number) else None
    if isinstance(b, Run) and isinstance(b.expr, ir.Const) and isinstance(b.type, ir.Bits):
        amount = b.expr.value
    if amount is not None and amount < 0:
        raise CompileError(f"cannot shift by {amount}", right.pos, "an amount that is not negative")
    if isinstance(a, Number):
        if amount is not None:
            return Number(fold.bounded(fold.arithmetic(op, a.value, amount, pos), pos))
        raise CompileError(
            f"cannot shift {a.value}, which has no width, by an amount known only at run time",
            left.pos,
            "a width, such as 8w1",
        )
    if not (isinstance(a, Run) and isinstance(a.type, ir.Bits)):
        raise CompileError(f"{op} does not apply to {show(a)}", left.pos, "bit<W>, int<W> or int")
    if amount is not None:
        if isinstance(a.expr, ir.Const):
            return constant(
                a.type,
                fold.wrap(a.type, fold.arithmetic(op, a.expr.value, min(amount, a.type.width), pos)),
                pos,
            )
        by: ir.Expr = ir.Const(t.BIT32, min(amount, a.type.width), pos=right.pos)
    elif isinstance(b, Run) and isinstance(b.type, ir.Bits):
        by = b.expr
    else:
        raise CompileError(f"cannot shift by {show(b)}", right.pos, "an amount of type bit<W> or int")
    return Run(a.type, ir.Binary(a.type, op, a.expr, by, pos=pos))


def _concatenation(left: Operand, right: Operand, pos: ir.Position) -> Value:
    if isinstance(left.value, Text) and isinstance(right.value, Text):
        return Text(left.value.value + right.value.value)
    for operand in (left, right):
        if isinstance(operand.value, Number):
            raise CompileError(
                "++ does not apply to an int without a width",
                operand.pos,
                f"a width, such as 8w{operand.value.value}",
            )
        if not (isinstance(operand.value, Run) and isinstance(operand.value.type, ir.Bits)):
            raise CompileError(f"++ does not apply to {show(operand.value)}", operand.pos, "bit<W> or int<W>")
    a, b = left.value, right.value
    assert isinstance(a, Run)
    assert isinstance(a.type, ir.Bits)
    assert isinstance(b, Run)
    assert isinstance(b.type, ir.Bits)
    type_ = ir.Bits(a.type.width + b.type.width, a.type.signed)
    if isinstance(a.expr, ir.Const) and isinstance(b.expr, ir.Const):
        return constant(type_, fold.bits("++", type_, a.expr, b.expr, pos), pos)
    return Run(type_, ir.Binary(type_, "++", a.expr, b.expr, pos=pos))


def error_or_enum_member(owner: t.Type, expr: ast.MemberExpr) -> Value:
    """Return ``owner.name`` of an enum or of ``error``. Raises CompileError."""
    match owner:
        case ir.Enum(name, members):
            if expr.name in members:
                return constant(owner, members.index(expr.name), expr.pos)
            raise unknown("error" if name == "error" else f"member of {name}", expr.name, members, expr.pos)
        case t.SerialEnum(name, _, values):
            if expr.name in values:
                return constant(owner, values[expr.name], expr.pos)
            raise unknown(f"member of {name}", expr.name, values, expr.pos)
        case _:
            raise CompileError(
                f"{t.describe(owner)} is a type: it has no member {expr.name!r}",
                expr.pos,
                "a variable, an enum or error before the dot",
            )


def member_of(body: Body, base: Value, expr: ast.MemberExpr) -> Value:
    """Return ``base.name`` of a value. Raises CompileError."""
    match base:
        case Run():
            shape = t.base(base.type)
            if isinstance(shape, t.StackType):
                return _stack_member(body, base, shape, expr)
            fields = t.fields_of(shape)
            if isinstance(shape, t.HeaderType | t.StructType | t.UnionType) and fields is not None:
                return _field(base, shape, expr)
        case GroupValue(type_, parts):
            named = dict(type_.fields) if isinstance(type_, t.RecordType) else t.fields_of(t.base(type_))
            if named is not None and not isinstance(type_, t.Tuple):
                if expr.name not in named:
                    raise unknown(f"field of {t.describe(type_)}", expr.name, named, expr.pos)
                return parts[list(named).index(expr.name)]
        case ApplyOutcome():
            return _outcome(body, base, expr)
    raise CompileError(
        f"{show(base)} has no member {expr.name!r}", expr.pos, "a struct, header or stack before the dot"
    )


def _field(base: Run, shape: t.HeaderType | t.StructType | t.UnionType, expr: ast.MemberExpr) -> Value:
    type_ = shape.fields.get(expr.name)
    if type_ is None:
        raise unknown(f"field of {t.describe(shape)}", expr.name, shape.fields, expr.pos)
    lowered = t.stored(type_)
    return Run(type_, ir.Member(lowered, base.expr, expr.name, pos=expr.pos), base.writable, base.why)


def _stack_member(body: Body, base: Run, stack: t.StackType, expr: ast.MemberExpr) -> Value:
    match expr.name:
        case "size":
            return constant(t.BIT32, stack.size, expr.pos)
        case "lastIndex":
            _in_parser(body, expr)
            return Run(t.BIT32, ir.LastIndex(t.BIT32, base.expr, pos=expr.pos))
        case "next":
            _in_parser(body, expr)
            return Run(
                stack.element, ir.Next(stack.element.ir, base.expr, pos=expr.pos), base.writable, base.why
            )
        case "last":
            _in_parser(body, expr)
            return Run(
                stack.element, ir.Last(stack.element.ir, base.expr, pos=expr.pos), base.writable, base.why
            )
    raise unknown("member of a header stack", expr.name, ("next", "last", "lastIndex", "size"), expr.pos)


def _in_parser(body: Body, expr: ast.MemberExpr) -> None:
    if body.place is not CodePlace.PARSER:
        raise CompileError(
            f"stack.{expr.name} cannot be used in {body.place.value}",
            expr.pos,
            "an index, or use in a parser",
        )


def _outcome(body: Body, outcome: ApplyOutcome, expr: ast.MemberExpr) -> Value:
    """Return ``hit`` or ``miss`` of a table's application.

    Change its `Apply`, which is the last emitted statement, so that it stores the hit in a variable.
    """
    apply = outcome.apply
    if expr.name not in ("hit", "miss"):
        if expr.name == "action_run":
            raise CompileError(
                "action_run can be used only as the subject of a switch", expr.pos, "switch (….action_run)"
            )
        raise unknown("result of apply()", expr.name, ("hit", "miss", "action_run"), expr.pos)
    hit = outcome.hit
    if hit is None:
        assert body.out[-1] is apply
        hit = body.temporary(t.BOOL, "hit", expr.pos)
        body.out[-1] = ir.Apply(apply.table, hit, None, pos=apply.pos)
    if expr.name == "hit":
        return Run(t.BOOL, hit)
    return Run(t.BOOL, ir.Unary(t.BOOL, "!", hit, pos=expr.pos))


def index_of(base: Value, index: Value, expr: ast.IndexExpr) -> Value:
    """Return ``base[index]`` of a header stack or tuple. Raises CompileError."""
    shape = t.base(base.type) if isinstance(base, Run | GroupValue) else None
    number = number_of(index)
    if isinstance(shape, t.StackType):
        return _element(base, shape, index, number, expr)
    if isinstance(shape, t.Tuple):
        if number is None and shape.array:
            raise Unsupported("a run-time index into an array", expr.index.pos, "a constant")
        if number is None:
            raise CompileError("a tuple cannot have a run-time index", expr.index.pos, "a constant")
        _check_range(number, len(shape.elements), t.describe(shape), expr)
        if isinstance(base, GroupValue):
            return base.parts[number]
        assert isinstance(base, Run)
        lowered = t.stored(shape.elements[number])
        member = ir.Member(lowered, base.expr, f"f{number}", pos=expr.pos)
        return Run(shape.elements[number], member, base.writable, base.why)
    raise CompileError(f"there is no index into {show(base)}", expr.pos, "a header stack or tuple")


def _check_range(number: int, size: int, what: str, expr: ast.IndexExpr) -> None:
    if not 0 <= number < size:
        raise CompileError(f"index {number} is out of range for {what}", expr.index.pos, f"0 to {size - 1}")


def _element(base: Value, stack: t.StackType, index: Value, number: int | None, expr: ast.IndexExpr) -> Value:
    if number is not None:
        _check_range(number, stack.size, t.describe(stack), expr)
        if isinstance(base, GroupValue):
            return base.parts[number]
        position: ir.Expr = ir.Const(t.BIT32, number, pos=expr.index.pos)
    elif isinstance(index, Run) and isinstance(t.lowered(index.type), ir.Bits):
        position = index.expr
    else:
        raise CompileError(f"{show(index)} cannot be an index", expr.index.pos, "bit<W> or int")
    if not isinstance(base, Run):
        raise Unsupported("a run-time index into a constant stack", expr.pos)
    return Run(
        stack.element, ir.Index(stack.element.ir, base.expr, position, pos=expr.pos), base.writable, base.why
    )
