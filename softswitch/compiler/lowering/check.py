"""Check expressions and lower them to the IR.

`evaluate` returns a `Value`. Calls inside an expression (functions, ``t.apply().hit``) are emitted as
statements before the expression, in the order that P4 prescribes: operands from left to right; the right
operand of ``&&`` and ``||`` and the branches of ``?:`` only if they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.convert import (
    Operand,
    cast,
    convert,
    fits,
    joined,
    mismatch,
    saved,
    steady,
    store,
)
from softswitch.compiler.lowering.operators import (
    binary,
    error_or_enum_member,
    index_of,
    member_of,
    unary,
)
from softswitch.compiler.lowering.resolve import TypeReader, check_width, resolve
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import (
    Default,
    GroupValue,
    Invalid,
    Number,
    Run,
    Text,
    TypeName,
    Value,
    Variable,
    constant,
    is_constant,
    show,
    type_of,
)


def evaluate(body: Body, expr: ast.Expr) -> Value:
    """Return the value of an expression, without any conversion. Raises CompileError."""
    match expr:
        case ast.Name():
            return _name(body, expr)
        case ast.MemberExpr():
            return _member(body, expr)
        case ast.IntLiteral():
            return _integer(body, expr)
        case ast.BinaryExpr():
            return _binary(body, expr)
        case ast.CallExpr():
            return body.unit.call(body, expr)
        case ast.SliceExpr():
            return _slice(body, expr)
        case ast.UnaryExpr(op, operand):
            return unary(op, evaluate(body, operand), expr.pos)
        case ast.CastExpr(ref, operand):
            return cast(type_at(body, ref), evaluate(body, operand), expr.pos)
        case ast.MuxExpr():
            return _mux(body, expr)
        case ast.BoolLiteral(value):
            return constant(t.BOOL, int(value), expr.pos)
        case ast.ListExpr(elements, dots):
            parts = evaluate_all(body, elements)
            return GroupValue(
                t.Tuple(tuple(map(type_of, parts))), parts, dots, tuple(e.pos for e in elements)
            )
        case ast.StructExpr():
            return _record(body, expr)
        case ast.IndexExpr():
            return _index(body, expr)
        case ast.StringLiteral(text):
            return Text(text)
        case ast.Word("..."):
            return Default()
        case ast.Word("{#}"):
            return Invalid(None)
        case ast.PlusSlice(base_expr, low_expr, width_expr):
            low, width = whole_number(body, low_expr), whole_number(body, width_expr)
            return _cut(evaluate(body, base_expr), low + width - 1, low, expr)
        case ast.TypeExpr():
            raise CompileError(
                "a type is not a value", expr.pos, "a member of the type, such as error.NoError"
            )
        case ast.Word("this"):
            return _this(body, expr)
        case ast.Word() | ast.Mask() | ast.RangeExpr():
            raise CompileError("a pattern is not a value", expr.pos, "an expression")


def type_at(body: Body, ref: ast.TypeRef) -> t.Type:
    """Return the type that `ref` means in the scope of `body`."""
    return resolve(body.scope, ref, reader(body))


def reader(body: Body) -> TypeReader:
    """Return the `TypeReader` for the scope of `body`."""
    return TypeReader(lambda expr: whole_number(body, expr), body.unit.refuse, body.unit.match_kinds)


# --------------------------------------------------------------------------- with a known type


def evaluate_as(body: Body, expr: ast.Expr, type_: t.Type, what: str = "the value") -> Value:
    """Return the value of an expression, converted to `type_`."""
    return convert(evaluate(body, expr), type_, expr.pos, what)


def condition(body: Body, expr: ast.Expr, what: str = "the condition") -> ir.Expr:
    """Return the value of an expression that must be Bool. Raises CompileError if it is not."""
    value = evaluate(body, expr)
    if isinstance(value, Run) and value.type == t.BOOL:
        return value.expr
    raise mismatch(value, t.BOOL, expr.pos, what)


def known(body: Body, expr: ast.Expr, type_: t.Type | None = None, what: str = "the value") -> Value:
    """Return the value of an expression. Raises CompileError if it is not known at compile time."""
    if isinstance(expr, ast.IntLiteral) and type_ is None:
        return _integer(body, expr)
    mark = len(body.out)
    value = evaluate(body, expr)
    if type_ is not None:
        value = convert(value, type_, expr.pos, what)
    if len(body.out) != mark or not is_constant(value):
        raise CompileError(f"{what} is known only at run time", expr.pos, "a compile-time constant")
    return value


def whole_number(body: Body, expr: ast.Expr) -> int:
    """Return the value of a constant expression of any integer type. Raises CompileError for others."""
    match known(body, expr):
        case Number(value):
            return value
        case Run(ir.Bits() | t.SerialEnum(), ir.Const(_, value)):
            return value
        case other:
            raise CompileError(f"{show(other)} is not a number", expr.pos, "a constant of type int or bit<W>")


def ir_annotations(body: Body, annotations: Sequence[ast.SourceAnnotation]) -> tuple[ir.Annotation, ...]:
    """Return annotations in the IR's form for P4Info.

    Raises CompileError for the values in structured annotations that P4Info cannot represent.
    """
    return tuple(
        ir.Annotation(
            note.name,
            note.body,
            None
            if note.elements is None
            else tuple((given.name or "", _annotation_value(body, given)) for given in note.elements),
        )
        for note in annotations
    )


def _annotation_value(body: Body, element: ast.GivenArgument) -> int | str | bool:
    match known(body, element.value, what="the value of an annotation"):
        case Text(text):
            return text
        case Number(number) if fits(number, ir.Bits(64, signed=True)):
            return number
        case Run(ir.Bool(), ir.Const(_, value)):
            return bool(value)
        case other:
            raise CompileError(
                f"{show(other)} cannot be the value of an annotation",
                element.pos,
                "an int of 64 bits, a string or a bool",
            )


def writable(body: Body, expr: ast.Expr) -> Run:
    """Return the l-value of an expression. Raises CompileError if it cannot be assigned to."""
    value = evaluate(body, expr)
    if isinstance(value, Run) and value.writable:
        return value
    reason = f": {value.why}" if isinstance(value, Run) and value.why else ""
    raise CompileError(f"this cannot be assigned to{reason}", _root(expr).pos, "a variable, or a part of one")


def _root(expr: ast.Expr) -> ast.Expr:
    while isinstance(expr, ast.MemberExpr | ast.IndexExpr | ast.SliceExpr | ast.PlusSlice):
        expr = expr.base
    return expr


def evaluate_all(body: Body, exprs: Sequence[ast.Expr]) -> tuple[Value, ...]:
    """Evaluate expressions from left to right, and return their values."""
    return tuple(evaluate_arguments(body, (False,) * len(exprs), exprs))


def evaluate_arguments(body: Body, returns: Sequence[bool], args: Sequence[ast.Expr]) -> list[Value]:
    """Return the values of arguments, evaluated from left to right.

    Where `returns` is True, the argument must be an l-value, or ``_``, for which the value is `Default`.
    Raises CompileError.
    """
    values: list[Value] = []
    marks: list[int] = []
    for is_target, arg in zip(returns, args, strict=True):
        if not is_target:
            values.append(evaluate(body, arg))
        elif ast.is_word(arg, "_"):
            values.append(Default())
        else:
            values.append(writable(body, arg))
        marks.append(len(body.out))
    for i in reversed(range(len(values))):
        if len(body.out) > marks[i]:
            later = body.take_since(marks[i])
            value, pos = values[i], args[i].pos
            values[i] = (
                steady(body, value, pos)
                if returns[i] and isinstance(value, Run)
                else saved(body, value, "saved", pos)
            )
            body.out.extend(later)
    return values


# --------------------------------------------------------------------------- names and literals


def _integer(body: Body, expr: ast.IntLiteral) -> Value:
    if expr.width is None:
        return Number(expr.value)
    what = f"a number of {expr.width} bits"
    if expr.signed and expr.width == 0:
        raise CompileError(what, expr.pos, "a positive width")
    check_width(expr.width, what, expr.pos, body.unit.refuse)
    type_ = ir.Bits(expr.width, expr.signed)
    return convert(Number(expr.value), type_, expr.pos)


def _name(body: Body, expr: ast.Name) -> Value:
    kinds = body.unit.match_kinds
    if expr.name in kinds.members and body.scope.find(expr.name) is None:
        return constant(kinds, kinds.members.index(expr.name), expr.pos)
    symbol = body.scope.lookup(expr.name, expr.pos, absolute=expr.absolute)
    if isinstance(symbol, Variable):
        return symbol.value
    what = "a type" if isinstance(symbol, TypeName) else "no value"
    raise CompileError(f"{expr.name!r} is {what}", expr.pos, "the name of a variable or constant")


def _this(body: Body, expr: ast.Word) -> Value:
    symbol = body.scope.find("this")
    if not isinstance(symbol, Variable):
        raise CompileError(
            "'this' outside the implementation of an abstract method", expr.pos, "the name of a variable"
        )
    return symbol.value


def _member(body: Body, expr: ast.MemberExpr) -> Value:
    owner = _type_before_dot(body, expr.base)
    if owner is not None:
        return error_or_enum_member(owner, expr)
    return member_of(body, evaluate(body, expr.base), expr)


def _type_before_dot(body: Body, expr: ast.Expr) -> t.Type | None:
    if isinstance(expr, ast.Name):
        symbol = body.scope.lookup(expr.name, expr.pos, absolute=expr.absolute)
        return symbol.type if isinstance(symbol, TypeName) else None
    return type_at(body, expr.type) if isinstance(expr, ast.TypeExpr) else None


def _index(body: Body, expr: ast.IndexExpr) -> Value:
    base = evaluate(body, expr.base)
    mark = len(body.out)
    index = evaluate(body, expr.index)
    if len(body.out) > mark and isinstance(base, Run):
        # The base's place is determined before the index's effects; its content is read after them.
        effects = body.take_since(mark)
        base = steady(body, base, expr.pos)
        body.out.extend(effects)
    return index_of(base, index, expr)


def _record(body: Body, expr: ast.StructExpr) -> Value:
    parts = evaluate_all(body, tuple(field.value for field in expr.fields))
    names: dict[str, t.Type] = {}
    for field, part in zip(expr.fields, parts, strict=True):
        assert field.name is not None
        if field.name in names:
            raise CompileError(f"two values for field {field.name!r}", field.pos, "one")
        names[field.name] = type_of(part)
    return GroupValue(
        t.RecordType(tuple(names.items())), parts, expr.dots, tuple(field.pos for field in expr.fields)
    )


# --------------------------------------------------------------------------- operators


def _binary(body: Body, expr: ast.BinaryExpr) -> Value:
    if expr.op in ("&&", "||"):
        return _short_circuit(body, expr)
    left, right = evaluate_all(body, (expr.left, expr.right))
    return binary(expr.op, Operand(left, expr.left.pos), Operand(right, expr.right.pos), expr.pos)


def _short_circuit(body: Body, expr: ast.BinaryExpr) -> Value:
    what = f"the operand of {expr.op}"
    left = condition(body, expr.left, what)
    mark = len(body.out)
    if isinstance(left, ir.Const) and left.value == (expr.op == "||"):
        with body.unit.scratch():
            condition(body, expr.right, what)
        body.take_since(mark)
        return Run(t.BOOL, left)
    right = condition(body, expr.right, what)
    effects = body.take_since(mark)
    if not effects:
        return Run(t.BOOL, joined(expr.op, left, right, expr.pos))
    outcome = body.held(left, "condition", expr.pos)
    branch = (*effects, ir.Assign(outcome, right, pos=expr.pos))
    then, otherwise = (branch, ()) if expr.op == "&&" else ((), branch)
    body.out.append(ir.If(outcome, then, otherwise, pos=expr.pos))
    return Run(t.BOOL, outcome)


def _mux(body: Body, expr: ast.MuxExpr) -> Value:
    choice = condition(body, expr.condition)
    mark = len(body.out)
    then = evaluate(body, expr.then)
    then_effects = body.take_since(mark)
    otherwise = evaluate(body, expr.otherwise)
    otherwise_effects = body.take_since(mark)
    if isinstance(choice, ir.Const):
        body.out.extend(then_effects if choice.value else otherwise_effects)
        return _known_choice(then, otherwise, choice.value, expr)
    type_ = _mux_type(then, otherwise, expr)
    then = convert(then, type_, expr.then.pos)
    otherwise = convert(otherwise, type_, expr.otherwise.pos)
    scalar = t.lowered(type_)
    plain = isinstance(scalar, ir.Bits | ir.Bool | ir.Enum) and not then_effects and not otherwise_effects
    if plain and isinstance(then, Run) and isinstance(otherwise, Run):
        assert isinstance(scalar, ir.Bits | ir.Bool | ir.Enum)
        return Run(type_, ir.Mux(scalar, choice, then.expr, otherwise.expr, pos=expr.pos))
    variable = Run(type_, body.temporary(type_, "choice", expr.pos), writable=True)
    branches: list[tuple[ir.Stmt, ...]] = []
    for effects, value in ((then_effects, then), (otherwise_effects, otherwise)):
        mark = len(body.out)
        body.out.extend(effects)
        store(body, variable, value, expr.pos)
        branches.append(body.take_since(mark))
    body.out.append(ir.If(choice, branches[0], branches[1], pos=expr.pos))
    return Run(type_, variable.expr)


def _known_choice(then: Value, otherwise: Value, choice: int, expr: ast.MuxExpr) -> Value:
    if isinstance(then, Number) and isinstance(otherwise, Number):
        return then if choice else otherwise
    type_ = _mux_type(then, otherwise, expr)
    chosen, place = (then, expr.then.pos) if choice else (otherwise, expr.otherwise.pos)
    value = convert(chosen, type_, place)
    return Run(type_, value.expr) if isinstance(value, Run) else value


def _mux_type(then: Value, otherwise: Value, expr: ast.MuxExpr) -> t.Type:
    """Return the type that both branches have, or can be converted to."""
    a, b = type_of(then), type_of(otherwise)
    if isinstance(a, t.Int) and isinstance(b, t.Int):
        raise CompileError(
            "the width of the result is not known",
            expr.pos,
            f"a width for one of {show(then)[4:]} and {show(otherwise)[4:]}, such as {show(then)[4:]} as 8w…",
        )
    for mine, other in ((a, b), (b, a)):
        open_ended = isinstance(other, t.Int | t.Rest | t.RecordType | t.Tuple)
        if t.same(mine, other) or (open_ended and not isinstance(mine, t.Int | t.Rest | t.RecordType)):
            return mine
        if isinstance(mine, ir.Bits) and isinstance(other, t.SerialEnum) and t.same(other.underlying, mine):
            return mine
    raise CompileError(
        f"the branches of ?: are {show(then)} and {show(otherwise)}", expr.pos, "two values of one type"
    )


def _slice(body: Body, expr: ast.SliceExpr) -> Value:
    high, low = whole_number(body, expr.high), whole_number(body, expr.low)
    return _cut(evaluate(body, expr.base), high, low, expr)


def _cut(value: Value, high: int, low: int, expr: ast.SliceExpr | ast.PlusSlice) -> Value:
    """Return bits `high` to `low` of a value."""
    if isinstance(value, Run) and isinstance(value.type, t.SerialEnum):
        value = Run(value.type.underlying, value.expr)
    if not (isinstance(value, Run) and isinstance(value.type, ir.Bits)):
        raise CompileError(f"there is no slice of {show(value)}", expr.pos, "bit<W> or int<W>")
    if not value.type.width > high >= low >= 0:
        raise CompileError(
            f"slice [{high}:{low}] does not fit in {t.describe(value.type)}",
            expr.pos,
            f"{value.type.width - 1} >= high >= low >= 0",
        )
    type_ = ir.Bits(high - low + 1)
    if isinstance(value.expr, ir.Const):
        return constant(type_, fold.wrap(type_, value.expr.value >> low), expr.pos)
    return Run(type_, ir.Slice(type_, value.expr, high, low, pos=expr.pos), value.writable, value.why)
