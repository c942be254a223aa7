"""Member accesses and indices: fields, enum members, stack elements."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.scope import unknown
from softswitch.compiler.lowering.unit import Body, Place
from softswitch.compiler.lowering.values import Group, Number, Outcome, Run, Value, constant, show


def error_or_enum_member(owner: t.Type, expr: ast.Member) -> Value:
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
            message = f"{t.describe(owner)} is a type: it has no member {expr.name!r}"
            raise CompileError(message, expr.pos, "a variable, an enum or error before the dot")


def member_of(body: Body, base: Value, expr: ast.Member) -> Value:
    """Return ``base.name`` of a value. Raises CompileError."""
    match base:
        case Run():
            shape = t.base(base.type)
            if isinstance(shape, t.StackType):
                return _stack_member(body, base, shape, expr)
            fields = t.fields_of(shape)
            if isinstance(shape, t.HeaderType | t.StructType | t.UnionType) and fields is not None:
                return _field(base, shape, expr)
        case Group(type_, parts):
            named = dict(type_.fields) if isinstance(type_, t.Record) else t.fields_of(t.base(type_))
            if named is not None and not isinstance(type_, t.Tuple):
                if expr.name not in named:
                    raise unknown(f"field of {t.describe(type_)}", expr.name, named, expr.pos)
                return parts[list(named).index(expr.name)]
        case Outcome():
            return _outcome(body, base, expr)
    raise CompileError(
        f"{show(base)} has no member {expr.name!r}", expr.pos, "a struct, header or stack before the dot"
    )


def _field(base: Run, shape: t.HeaderType | t.StructType | t.UnionType, expr: ast.Member) -> Value:
    type_ = shape.fields.get(expr.name)
    if type_ is None:
        raise unknown(f"field of {t.describe(shape)}", expr.name, shape.fields, expr.pos)
    lowered = t.lowered(type_)
    assert lowered is not None
    return Run(type_, ir.Member(lowered, base.expr, expr.name, expr.pos), base.writable, base.why)


def _stack_member(body: Body, base: Run, stack: t.StackType, expr: ast.Member) -> Value:
    match expr.name:
        case "size":
            return constant(t.BIT32, stack.size, expr.pos)
        case "lastIndex":
            _in_parser(body, expr)
            return Run(t.BIT32, ir.LastIndex(t.BIT32, base.expr, expr.pos))
        case "next":
            _in_parser(body, expr)
            return Run(stack.element, ir.Next(stack.element.ir, base.expr, expr.pos), base.writable, base.why)
        case "last":
            _in_parser(body, expr)
            return Run(stack.element, ir.Last(stack.element.ir, base.expr, expr.pos), base.writable, base.why)
    raise unknown("member of a header stack", expr.name, ("next", "last", "lastIndex", "size"), expr.pos)


def _in_parser(body: Body, expr: ast.Member) -> None:
    if body.place is not Place.PARSER:
        raise CompileError(
            f"stack.{expr.name} in {body.place.value}", expr.pos, "an index; it exists only in parsers"
        )


def _outcome(body: Body, outcome: Outcome, expr: ast.Member) -> Value:
    """Make the `Apply` that was just emitted report its hit or miss."""
    apply = outcome.apply
    if expr.name not in ("hit", "miss"):
        if expr.name == "action_run":
            raise CompileError(
                "action_run outside the subject of a switch", expr.pos, "switch (….action_run)"
            )
        raise unknown("result of apply()", expr.name, ("hit", "miss", "action_run"), expr.pos)
    assert body.out[-1] is apply
    hit = body.temporary(t.BOOL, "hit", expr.pos)
    body.out[-1] = ir.Apply(apply.table, hit, None, apply.pos)
    if expr.name == "hit":
        return Run(t.BOOL, hit)
    return Run(t.BOOL, ir.Unary(t.BOOL, "!", hit, expr.pos))


def index_of(base: Value, index: Value, expr: ast.Index) -> Value:
    """Return ``base[index]`` of a header stack or tuple. Raises CompileError."""
    shape = t.base(base.type) if isinstance(base, Run | Group) else None
    number = _constant_index(index)
    if isinstance(shape, t.StackType):
        return _element(base, shape, index, number, expr)
    if isinstance(shape, t.Tuple):
        if number is None and shape.array:
            raise Unsupported("a run-time index into an array", expr.index.pos, "a constant")
        if number is None:
            raise CompileError("a tuple's element by a run-time index", expr.index.pos, "a constant")
        _check_range(number, len(shape.elements), t.describe(shape), expr)
        if isinstance(base, Group):
            return base.parts[number]
        assert isinstance(base, Run)
        lowered = t.lowered(shape.elements[number])
        assert lowered is not None
        member = ir.Member(lowered, base.expr, f"f{number}", expr.pos)
        return Run(shape.elements[number], member, base.writable, base.why)
    raise CompileError(f"an index into {show(base)}", expr.pos, "a header stack or tuple")


def _constant_index(index: Value) -> int | None:
    match index:
        case Number(value) | Run(_, ir.Const(_, value)):
            return value
        case _:
            return None


def _check_range(number: int, size: int, what: str, expr: ast.Index) -> None:
    if not 0 <= number < size:
        raise CompileError(f"index {number} into {what}", expr.index.pos, f"0 to {size - 1}")


def _element(base: Value, stack: t.StackType, index: Value, number: int | None, expr: ast.Index) -> Value:
    if number is not None:
        _check_range(number, stack.size, t.describe(stack), expr)
        if isinstance(base, Group):
            return base.parts[number]
        position: ir.Expr = ir.Const(t.BIT32, number, expr.index.pos)
    elif isinstance(index, Run) and isinstance(t.lowered(index.type), ir.Bits):
        position = index.expr
    else:
        raise CompileError(f"{show(index)} as an index", expr.index.pos, "bit<W> or int")
    if not isinstance(base, Run):
        raise Unsupported("a run-time index into a constant stack", expr.pos)
    return Run(
        stack.element, ir.Index(stack.element.ir, base.expr, position, expr.pos), base.writable, base.why
    )
