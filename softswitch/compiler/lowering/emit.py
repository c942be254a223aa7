"""Emitting statements that store and save values of any type."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.paths import overlap, reads, storage_of
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import (
    Group,
    Invalid,
    Number,
    Run,
    Value,
    parts_of,
    show,
    stored_parts,
    zero,
)


def store(body: Body, target: Run, value: Value, pos: ir.Position) -> None:
    """Emit ``target = value``; `value` already has the type of `target`."""
    match value:
        case Run(_, expr):
            body.out.append(ir.Assign(target.expr, expr, pos))
        case Invalid():
            body.out.append(ir.SetValidity(target.expr, False, pos))
        case Group():
            if _reads_from(value, target):
                value = _save_group(body, value, pos)
            _store_parts(body, target, value, pos)
        case _:
            raise CompileError(f"{show(value)} cannot be stored", pos, "a value that exists at run time")


def _store_parts(body: Body, target: Run, value: Group, pos: ir.Position) -> None:
    if isinstance(t.base(target.type), t.HeaderType):
        body.out.append(ir.SetValidity(target.expr, True, pos))
    for part, given in zip(stored_parts(target, pos), value.parts, strict=True):
        if isinstance(given, Group):
            _store_parts(body, part, given, pos)
        else:
            store(body, part, given, pos)


def _reads_from(value: Value, target: Run) -> bool:
    """Return True if computing `value` reads storage that storing it part by part changes."""
    if isinstance(value, Group):
        return any(_reads_from(part, target) for part in value.parts)
    storage = storage_of(target.expr)
    if not isinstance(value, Run) or storage is None:
        return False
    return any(overlap(path, storage) for path in reads(value.expr))


def _save_group(body: Body, value: Group, pos: ir.Position) -> Group:
    parts = tuple(
        _save_group(body, part, pos) if isinstance(part, Group) else saved(body, part, "part", pos)
        for part in value.parts
    )
    return Group(value.type, parts, value.rest, value.places)


def saved(body: Body, value: Value, hint: str, pos: ir.Position) -> Value:
    """Return `value` as it is now: in a variable of its own unless it cannot change."""
    if isinstance(value, Group):
        return _save_group(body, value, pos)
    if not isinstance(value, Run) or isinstance(value.expr, ir.Const):
        return value
    variable = body.temporary(value.type, hint, pos)
    body.out.append(ir.Assign(variable, value.expr, pos))
    return Run(value.type, variable)


def steady(body: Body, value: Run, pos: ir.Position) -> Run:
    """Return an l-value with its run-time indices as they are now."""
    return Run(value.type, _steady(body, value.expr, pos), value.writable, value.why)


def _steady(body: Body, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    match expr:
        case ir.Member(type_, base, field, place):
            return ir.Member(type_, _steady(body, base, pos), field, place)
        case ir.Slice(type_, base, high, low, place):
            return ir.Slice(type_, _steady(body, base, pos), high, low, place)
        case ir.Index(type_, base, index, place):
            base = _steady(body, base, pos)
            if not isinstance(index, ir.Const):
                assert isinstance(index.type, ir.Bits)
                variable = body.temporary(index.type, "index", pos)
                body.out.append(ir.Assign(variable, index, pos))
                index = variable
            return ir.Index(type_, base, index, place)
        case ir.Next() | ir.Last():
            raise Unsupported(
                "stack.next or stack.last as an out argument", expr.pos, "a header with a name or index"
            )
        case _:
            return expr


def expression(body: Body, value: Value, pos: ir.Position) -> ir.Expr:
    """Return `value` as an expression of the IR, in a variable if it has no other form."""
    if isinstance(value, Run):
        return value.expr
    if isinstance(value, Group | Invalid) and value.type is not None:
        variable = body.temporary(value.type, "value", pos)
        store(body, Run(value.type, variable, writable=True), value, pos)
        return variable
    if isinstance(value, Number):
        raise CompileError(
            f"the width of {value.value} is not known here", pos, f"a width, such as 8w{value.value}"
        )
    raise CompileError(f"{show(value)} does not exist at run time", pos, "a value that does")


def flatten(body: Body, value: Value, pos: ir.Position, *, enums: bool = False) -> tuple[ir.Expr, ...]:
    """Return the scalars that a value consists of, in order: for a hash or, with `enums`, a digest."""
    if isinstance(value, Number):
        raise CompileError(
            f"the width of {value.value} is not known", pos, f"a width, such as 8w{value.value}"
        )
    if isinstance(value, Group):
        places = value.places or (pos,) * len(value.parts)
        flat = [
            flatten(body, part, place, enums=enums) for part, place in zip(value.parts, places, strict=True)
        ]
        return tuple(expr for exprs in flat for expr in exprs)
    if not isinstance(value, Run):
        raise CompileError(f"{show(value)} as data", pos, "values that exist at run time")
    lowered = t.lowered(value.type)
    if isinstance(lowered, ir.Header | ir.Struct | ir.Stack):
        return tuple(expr for part in parts_of(value, pos) for expr in flatten(body, part, pos, enums=enums))
    if isinstance(lowered, ir.Enum) and not enums:
        raise CompileError(f"{show(value)} as data: it has no width", pos, "bit<W>, int<W> or bool")
    return (expression(body, value, pos),)


def clear(body: Body, target: Run, pos: ir.Position) -> None:
    """Emit statements that reset a variable to its initial value: zero and invalid."""
    shape = t.base(target.type)
    if isinstance(shape, t.HeaderType | t.StackType | ir.VarBits):
        # Whole, by copying a variable of that type which is never written.
        lowered = t.lowered(shape)
        assert lowered is not None
        name = f"{t.describe(shape)}.zero"
        body.unit.variables[name] = lowered
        body.out.append(ir.Assign(target.expr, ir.Var(lowered, name, pos), pos))
    elif isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in stored_parts(target, pos):
            clear(body, part, pos)
    else:
        store(body, target, zero(target.type, pos), pos)


def forget(body: Body, target: Run, pos: ir.Position, *, scalars: bool) -> None:
    """Emit statements that initialise storage passed as ``out`` as P4 demands: headers are invalid.

    The fields of headers stay, but must not be read. So do scalars without `scalars`; else they become zero.
    """
    shape = t.base(target.type)
    if isinstance(shape, t.HeaderType):
        body.out.append(ir.SetValidity(target.expr, False, pos))
    elif isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in stored_parts(target, pos):
            forget(body, part, pos, scalars=scalars)
    elif scalars or isinstance(shape, t.StackType | ir.VarBits):
        clear(body, target, pos)


def undefine(body: Body, target: Run, pos: ir.Position) -> None:
    """Emit that the scalars of a variable are undefined from here on."""
    shape = t.base(target.type)
    if isinstance(shape, t.StructType | t.Tuple):
        for part in stored_parts(target, pos):
            undefine(body, part, pos)
    elif isinstance(target.expr.type, ir.Scalar):
        body.out.append(ir.Forget(target.expr, pos))
