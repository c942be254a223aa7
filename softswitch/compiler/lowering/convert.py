"""Conversions of checked values: P4's implicit conversions, and casts.

Also functions that emit statements to store and save values of any type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.ir import fold
from softswitch.compiler.ir.walk import overlap, reads, storage_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.unit import Body, remark
from softswitch.compiler.lowering.values import (
    Default,
    GroupValue,
    Invalid,
    Number,
    Run,
    Value,
    constant,
    parts_of,
    show,
    stored_parts,
    type_of,
    unknown,
    zero,
)


def negation(expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``!expr``."""
    if isinstance(expr, ir.Const):
        return ir.Const(t.BOOL, 1 - expr.value, pos=pos)
    return ir.Unary(t.BOOL, "!", expr, pos=pos)


def joined(op: str, left: ir.Expr, right: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``left op right`` of ``&&`` or ``||``."""
    neutral = op == "&&"
    if isinstance(left, ir.Const):
        return right if bool(left.value) is neutral else left
    if isinstance(right, ir.Const) and bool(right.value) is neutral:
        return left
    return ir.Binary(t.BOOL, op, left, right, pos=pos)


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and its position in the source."""

    value: Value
    pos: ir.Position


def underlying(value: Value) -> Value:
    """Return the value of a serialisable enum as its underlying type, other values unchanged."""
    if isinstance(value, Run) and isinstance(value.type, t.SerialEnum):
        return Run(value.type.underlying, value.expr)
    return value


def balance(op: str, left: Operand, right: Operand, pos: ir.Position) -> tuple[ir.Expr, ir.Expr, ir.Bits]:
    """Return both operands, converted to a common type, and that type. Raises CompileError."""
    a, b = left.value, right.value
    if isinstance(a, Number) and isinstance(b, Run) and isinstance(b.type, ir.Bits):
        return fit(a.value, b.type, left.pos), b.expr, b.type
    if isinstance(b, Number) and isinstance(a, Run) and isinstance(a.type, ir.Bits):
        return a.expr, fit(b.value, a.type, right.pos), a.type
    if isinstance(a, Run) and isinstance(b, Run) and isinstance(a.type, ir.Bits) and a.type == b.type:
        return a.expr, b.expr, a.type
    raise CompileError(
        f"{op} does not apply to {show(a)} and {show(b)}",
        pos,
        "two operands of the same type bit<W> or int<W>",
    )


def fit(number: int, type_: ir.Bits, pos: ir.Position) -> ir.Const:
    """Return an ``int`` as a constant of `type_`; if it does not fit, warn and return its low bits.

    A negative number fits an unsigned type if it fits the signed type of the same width: ``-1`` is
    all ones, as in p4c.
    """
    value = fold.wrap(type_, number)
    if not fits(number, type_):
        low, high = fold.limits(type_)
        name = t.describe(type_)
        remark(f"{number} does not fit in {name} ({low} to {high}) and becomes {value}", pos)
    return ir.Const(type_, value, pos=pos)


def fits(number: int, type_: ir.Bits) -> bool:
    """Return True if `fit` converts `number` to a constant without a warning."""
    low, high = fold.limits(type_)
    return min(low, -(1 << type_.width >> 1)) <= number <= high


def convert(value: Value, type_: t.Type, pos: ir.Position, what: str = "the value") -> Value:
    """Return `value` as `type_`, implicitly converted if necessary. Raises CompileError."""
    if isinstance(value, Run):
        if t.same(value.type, type_):
            return value
        if isinstance(value.type, t.SerialEnum) and t.same(value.type.underlying, type_):
            return Run(type_, value.expr)
        if isinstance(type_, t.Int) and isinstance(value.type, ir.Bits) and isinstance(value.expr, ir.Const):
            return Number(value.expr.value)
    elif isinstance(value, Number):
        if isinstance(type_, ir.Bits):
            return Run(type_, fit(value.value, type_, pos))
        if isinstance(type_, t.DistinctType) and isinstance(t.base(type_), ir.Bits):
            inner = convert(value, t.base(type_), pos, what)
            assert isinstance(inner, Run)
            return Run(type_, inner.expr)
        if isinstance(type_, t.Int):
            return value
    elif isinstance(value, GroupValue):
        return _convert_group(value, type_, pos, what)
    elif isinstance(value, Default):
        if isinstance(type_, t.ListType):
            raise CompileError(f"{t.describe(type_)} has no default value", pos, "the elements in braces")
        if isinstance(type_, t.Int) or t.lowered(type_) is not None:
            return zero(type_, pos)
    elif isinstance(value, Invalid):
        if isinstance(type_, t.HeaderType) and value.type in (None, type_):
            return Invalid(type_)
        if isinstance(type_, t.UnionType) and value.type is None:
            return zero(type_, pos)
    elif t.same(type_of(value), type_):
        return value
    raise mismatch(value, type_, pos, what)


def mismatch(value: Value, type_: t.Type, pos: ir.Position, what: str = "the value") -> CompileError:
    """Return the error for a value that does not have the type `type_`; `what` names the value."""
    name = t.describe(type_)
    hint = name
    found = type_of(value)
    if isinstance(t.base(found), ir.Bits | t.SerialEnum | t.Int) and isinstance(
        type_, ir.Bits | t.DistinctType | t.SerialEnum
    ):
        hint = f"{name}; a cast ({name}) converts"
    elif isinstance(type_, ir.Bool) and isinstance(found, ir.Bits):
        hint = (
            "bool; a comparison makes one"
            if found.width != 1
            else "bool; a comparison or a cast (bool) makes one"
        )
    return CompileError(f"{what} is {show(value)}, not {name}", pos, hint)


def _convert_group(value: GroupValue, type_: t.Type, pos: ir.Position, what: str) -> Value:
    if t.same(value.type, type_):
        return value
    target = t.base(type_)
    if isinstance(target, t.ListType) and isinstance(value.type, t.Tuple):
        for number, part in enumerate(value.parts):
            place = value.places[number] if value.places else pos
            convert(part, target.element, place, f"element {number}")
        return GroupValue(type_, ())
    if isinstance(target, t.StackType) and isinstance(value.type, t.Tuple):
        fields: dict[str, t.Type] = {str(i): target.element for i in range(target.size)}
    elif isinstance(target, t.HeaderType | t.StructType | t.Tuple) and isinstance(
        value.type, t.Tuple | t.RecordType
    ):
        fields = dict(t.fields_of(target) or {})
    else:
        raise mismatch(value, type_, pos, what)
    places = value.places or (pos,) * len(value.parts)
    given = dict(_named_parts(value, fields, places, type_, pos))
    parts: list[Value] = []
    for name, part_type in fields.items():
        if name in given:
            part, place = given[name]
            parts.append(convert(part, part_type, place, f"field {name!r}"))
        elif value.rest:
            parts.append(zero(part_type, pos))
        else:
            raise CompileError(
                f"field {name!r} of {t.describe(type_)} has no value", pos, "a value for every field"
            )
    if t.contains_varbits(target):
        raise Unsupported(f"{t.describe(type_)}, which has a varbit, given by its fields", pos)
    return GroupValue(type_, tuple(parts), places=places if len(places) == len(parts) else ())


def _named_parts(
    value: GroupValue,
    fields: dict[str, t.Type],
    places: tuple[ir.Position, ...],
    type_: t.Type,
    pos: ir.Position,
) -> list[tuple[str, tuple[Value, ir.Position]]]:
    if isinstance(value.type, t.RecordType):
        names = [name for name, _ in value.type.fields]
        for name, place in zip(names, places, strict=True):
            if name not in fields:
                raise unknown(f"field of {t.describe(type_)}", name, fields, place)
    else:
        names = list(fields)[: len(value.parts)]
        if len(value.parts) > len(fields) or (len(value.parts) < len(fields) and not value.rest):
            raise CompileError(
                f"{len(value.parts)} values for {t.describe(type_)}",
                pos,
                f"{len(fields)}, one for each field",
            )
    return list(zip(names, zip(value.parts, places, strict=True), strict=True))


def cast(type_: t.Type, value: Value, pos: ir.Position) -> Value:
    """Return ``(type_) value``. Raises CompileError if there is no such cast."""
    if isinstance(value, GroupValue | Default | Invalid):
        return convert(value, type_, pos)
    found = type_of(value)
    if t.same(found, type_):
        return Run(type_, value.expr) if isinstance(value, Run) else value
    match type_:
        case t.DistinctType(_, underlying) | t.SerialEnum(_, underlying):
            distinct = isinstance(type_, t.DistinctType) and isinstance(value, Run)
            if distinct and not t.same(found, underlying):
                raise CompileError(
                    f"{show(value)} cannot be cast to {t.describe(type_)}",
                    pos,
                    f"{t.describe(underlying)}; cast to that type first",
                )
            inner = cast(underlying, value, pos)
            assert isinstance(inner, Run)
            return Run(type_, inner.expr)
    if isinstance(value, Number):
        if isinstance(type_, ir.Bits):
            return constant(type_, fold.wrap(type_, value.value), pos)
        if isinstance(type_, ir.Bool) and value.value in (0, 1):
            return constant(type_, value.value, pos)
    if isinstance(value, Run):
        match value.type:
            case t.DistinctType(_, inner_type) | t.SerialEnum(_, inner_type):
                return cast(type_, Run(inner_type, value.expr), pos)
            case ir.Bits() | ir.Bool():
                return _cast_scalar(type_, value, value.type, pos)
    raise CompileError(f"{show(value)} cannot be cast to {t.describe(type_)}", pos)


def _cast_scalar(type_: t.Type, value: Run, found: ir.Bits | ir.Bool, pos: ir.Position) -> Value:
    """Return a bit, int or bool value cast to `type_`. Raises CompileError if there is no such cast."""
    if isinstance(type_, t.Int) and isinstance(value.expr, ir.Const) and isinstance(found, ir.Bits):
        return Number(value.expr.value)
    if isinstance(type_, t.Int) and isinstance(found, ir.Bits):
        raise Unsupported(
            "a cast to int of a value known only at run time", pos, "a cast to bit<W> or int<W>"
        )
    hint = None
    if isinstance(found, ir.Bits) and isinstance(type_, ir.Bits):
        if found.signed == type_.signed or found.width == type_.width:
            return Run(type_, bits_cast(type_, value.expr, pos))
        if found.width:
            through = t.describe(ir.Bits(found.width, type_.signed))
            hint = f"first a cast to {through}: a cast changes either width or sign"
    elif isinstance(type_, ir.Bool) and found == t.BIT1:
        return Run(type_, _retype(type_, value.expr, pos))
    elif type_ == t.BIT1 and isinstance(found, ir.Bool):
        return Run(type_, _retype(t.BIT1, value.expr, pos))
    elif isinstance(type_, ir.Bool):
        hint = "a comparison, such as x != 0; only bit<1> can be cast to bool"
    elif isinstance(found, ir.Bool):
        hint = "bit<1>, the only type that bool can be cast to"
    raise CompileError(f"{show(value)} cannot be cast to {t.describe(type_)}", pos, hint)


def bits_cast(type_: ir.Bits, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return an expression of any Bits type converted to `type_`: truncated or extended."""
    if expr.type == type_:
        return expr
    if isinstance(expr, ir.Const):
        return ir.Const(type_, fold.wrap(type_, expr.value), pos=pos)
    return ir.Cast(type_, expr, pos=pos)


def _retype(type_: ir.Bits | ir.Bool, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    if isinstance(expr, ir.Const):
        return ir.Const(type_, expr.value, pos=pos)
    return ir.Cast(type_, expr, pos=pos)


def store(body: Body, target: Run, value: Value, pos: ir.Position) -> None:
    """Emit ``target = value``; `value` already has the type of `target`."""
    match value:
        case Run(_, expr):
            body.out.append(ir.Assign(target.expr, expr, pos=pos))
        case Invalid():
            body.out.append(ir.SetValidity(target.expr, False, pos=pos))
        case GroupValue():
            if _reads_from(value, target):
                value = _save_group(body, value, pos)
            _store_parts(body, target, value, pos)
        case _:
            raise CompileError(f"{show(value)} cannot be stored", pos, "a value that exists at run time")


def _store_parts(body: Body, target: Run, value: GroupValue, pos: ir.Position) -> None:
    if isinstance(t.base(target.type), t.HeaderType):
        body.out.append(ir.SetValidity(target.expr, True, pos=pos))
    for part, given in zip(stored_parts(target, pos), value.parts, strict=True):
        if isinstance(given, GroupValue):
            _store_parts(body, part, given, pos)
        else:
            store(body, part, given, pos)


def _reads_from(value: Value, target: Run) -> bool:
    """Return True if storing one part of `value` in `target` could change the other parts of `value`."""
    if isinstance(value, GroupValue):
        return any(_reads_from(part, target) for part in value.parts)
    storage = storage_of(target.expr)
    if not isinstance(value, Run) or storage is None:
        return False
    return any(overlap(path, storage) for path in reads(value.expr))


def _save_group(body: Body, value: GroupValue, pos: ir.Position) -> GroupValue:
    parts = tuple(
        _save_group(body, part, pos) if isinstance(part, GroupValue) else saved(body, part, "part", pos)
        for part in value.parts
    )
    return GroupValue(value.type, parts, value.rest, value.places)


def saved(body: Body, value: Value, hint: str, pos: ir.Position) -> Value:
    """Emit the copy of `value` to a new variable, and return the variable; return a constant unchanged."""
    if isinstance(value, GroupValue):
        return _save_group(body, value, pos)
    if not isinstance(value, Run) or isinstance(value.expr, ir.Const):
        return value
    return Run(value.type, body.held(value.expr, hint, pos))


def steady(body: Body, value: Run, pos: ir.Position) -> Run:
    """Return the l-value `value` with its run-time indices saved in variables.

    Later changes of the indices do not change which element the result denotes.
    """
    return Run(value.type, _steady(body, value.expr, pos), value.writable, value.why)


def _steady(body: Body, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    match expr:
        case ir.Member(base=base) | ir.Slice(base=base):
            return replace(expr, base=_steady(body, base, pos))
        case ir.Index(type_, base, index, pos=place):
            base = _steady(body, base, pos)
            if not isinstance(index, ir.Const):
                index = body.held(index, "index", pos)
            return ir.Index(type_, base, index, pos=place)
        case ir.Next() | ir.Last():
            raise Unsupported(
                "stack.next or stack.last as an out argument", expr.pos, "a header with a name or index"
            )
        case _:
            return expr


def expression(body: Body, value: Value, pos: ir.Position) -> ir.Expr:
    """Return `value` as an expression of the IR; ``{a, b}`` and ``{#}`` are stored in a new variable.

    Raises CompileError for values that do not exist at run time.
    """
    if isinstance(value, Run):
        return value.expr
    if isinstance(value, GroupValue | Invalid) and value.type is not None:
        variable = body.temporary(value.type, "value", pos)
        store(body, Run(value.type, variable, writable=True), value, pos)
        return variable
    if isinstance(value, Number):
        raise CompileError(
            f"the width of {value.value} is not known here", pos, f"a width, such as 8w{value.value}"
        )
    raise CompileError(f"{show(value)} does not exist at run time", pos, "a run-time value")


def flatten(body: Body, value: Value, pos: ir.Position, *, enums: bool = False) -> tuple[ir.Expr, ...]:
    """Return the scalars that a value consists of, in order. Raises CompileError for values without a width.

    With `enums`, for digests, enums are allowed; hashes cannot contain them.
    """
    if isinstance(value, Number):
        raise CompileError(
            f"the width of {value.value} is not known", pos, f"a width, such as 8w{value.value}"
        )
    if isinstance(value, GroupValue):
        places = value.places or (pos,) * len(value.parts)
        flat = [
            flatten(body, part, place, enums=enums) for part, place in zip(value.parts, places, strict=True)
        ]
        return tuple(expr for exprs in flat for expr in exprs)
    if not isinstance(value, Run):
        raise CompileError(
            f"{show(value)} cannot be hashed or sent as data", pos, "values that exist at run time"
        )
    lowered = t.lowered(value.type)
    if isinstance(lowered, ir.Header | ir.Struct | ir.Stack):
        return tuple(expr for part in parts_of(value, pos) for expr in flatten(body, part, pos, enums=enums))
    if isinstance(lowered, ir.Enum) and not enums:
        raise CompileError(f"{show(value)} cannot be hashed: it has no width", pos, "bit<W>, int<W> or bool")
    return (expression(body, value, pos),)


def clear(body: Body, target: Run, pos: ir.Position) -> None:
    """Emit statements that reset a variable to its initial value: scalars zero, headers invalid."""
    shape = t.base(target.type)
    if isinstance(shape, t.HeaderType | t.StackType | ir.VarBits):
        # Reset by one copy, from a variable of that type that is never written.
        lowered = t.stored(shape)
        name = f"{t.describe(shape)}.zero"
        body.unit.variables[name] = lowered
        body.out.append(ir.Assign(target.expr, ir.Var(lowered, name, pos=pos), pos=pos))
    elif isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in stored_parts(target, pos):
            clear(body, part, pos)
    else:
        store(body, target, zero(target.type, pos), pos)


def forget(body: Body, target: Run, pos: ir.Position, *, scalars: bool) -> None:
    """Emit statements that initialise storage passed as ``out``, as P4 demands: headers become invalid.

    Header fields keep their values, but must not be read. With `scalars`, scalars become zero; otherwise they
    keep their values.
    """
    shape = t.base(target.type)
    if isinstance(shape, t.HeaderType):
        body.out.append(ir.SetValidity(target.expr, False, pos=pos))
    elif isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in stored_parts(target, pos):
            forget(body, part, pos, scalars=scalars)
    elif scalars or isinstance(shape, t.StackType | ir.VarBits):
        clear(body, target, pos)


def undefine(body: Body, target: Run, pos: ir.Position) -> None:
    """Emit `ir.Forget` for the scalars of a variable: from here on, they are undefined."""
    shape = t.base(target.type)
    if isinstance(shape, t.StructType | t.Tuple):
        for part in stored_parts(target, pos):
            undefine(body, part, pos)
    elif isinstance(target.expr.type, ir.Scalar):
        body.out.append(ir.Forget(target.expr, pos=pos))
