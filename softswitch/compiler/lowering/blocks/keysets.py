"""Keysets of entries and of ``select``, and the value sets that such keysets name."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import known, type_at, whole_number
from softswitch.compiler.lowering.syntax import control_name, ir_annotations
from softswitch.compiler.lowering.unit import Body, ValueSet
from softswitch.compiler.lowering.values import Local, Run, show

ANY = ir.Pattern("any")


def pattern(body: Body, expr: ast.Expr, type_: t.Type) -> ir.Pattern:
    """Return one component of a keyset for values of `type_`. Raises CompileError."""
    match expr:
        case ast.DontCare() | ast.Default():
            return ANY
        case ast.Mask(value_expr, mask_expr):
            bits = _bits(type_, expr.pos)
            mask = _constant(body, mask_expr, bits) & _all_ones(bits)
            value = _constant(body, value_expr, bits) & mask
            if mask == 0:
                return ANY
            if mask == _all_ones(bits):
                return ir.Pattern("exact", fold.wrap(bits, value))
            return ir.Pattern("mask", value, mask)
        case ast.Range(low_expr, high_expr):
            bits = _bits(type_, expr.pos)
            low, high = _constant(body, low_expr, bits), _constant(body, high_expr, bits)
            if low > high:
                raise CompileError(f"the range {low} .. {high} is empty", expr.pos, "the smaller value first")
            return ir.Pattern("range", low, high)
        case _:
            return ir.Pattern("exact", _constant(body, expr, type_))


def _bits(type_: t.Type, pos: ir.Position) -> ir.Bits:
    bits = t.lowered(type_)
    if isinstance(bits, ir.Bits):
        return bits
    raise CompileError(f"a mask or range for {t.describe(type_)}", pos, "a value of bit<W> or int<W>")


def _constant(body: Body, expr: ast.Expr, type_: t.Type) -> int:
    if isinstance(expr, ast.Call) and isinstance(expr.callee, ast.Name):
        raise CompileError("a call in a keyset", expr.pos, "a compile-time constant")
    value = known(body, expr, type_, "the keyset")
    if isinstance(value, Run) and isinstance(value.expr, ir.Const):
        return value.expr.value
    raise Unsupported(f"a keyset of {show(value)}", expr.pos, "a scalar")


def _all_ones(type_: ir.Bits) -> int:
    return (1 << type_.width) - 1


def entry_pattern(body: Body, expr: ast.Expr, key: ir.Key, type_: t.Type) -> ir.Pattern:
    """Return one component of a table entry, in the form that the key's match kind has."""
    found = pattern(body, expr, type_)
    allowed = {
        "exact": ("exact",),
        "optional": ("exact", "any"),
        "lpm": ("exact", "mask", "any"),
        "ternary": ("exact", "mask", "any"),
        "range": ("exact", "range", "any"),
    }[key.match]
    if found.kind not in allowed:
        what = {"any": "don't care", "mask": "a mask", "range": "a range"}[found.kind]
        raise CompileError(
            f"{what} for {key.match} key {key.name!r}", expr.pos, " or ".join(_WRITTEN[k] for k in allowed)
        )
    scalar = key.expr.type
    full = _all_ones(scalar) if isinstance(scalar, ir.Bits) else 1
    if found.kind == "exact" and key.match in ("lpm", "ternary"):
        return ir.Pattern("mask", found.value & full, full)
    if found.kind == "exact" and key.match == "range":
        return ir.Pattern("range", found.value, found.value)
    if key.match == "lpm" and found.kind == "mask" and not _is_prefix(found.mask, full):
        raise CompileError(f"{found.mask:#x} is no prefix mask", expr.pos, "ones from the left, then zeros")
    return found


_WRITTEN = {"exact": "a value", "mask": "value &&& mask", "range": "low .. high", "any": "_"}


def _is_prefix(mask: int, full: int) -> bool:
    zeros = full ^ mask
    return zeros & (zeros + 1) == 0


def declare_value_set(body: Body, decl: ast.ValueSetDecl, prefix: str) -> None:
    """Declare a value set, and add its table to the program."""
    name = control_name(prefix, decl.name, decl.annotations)
    element = type_at(body, decl.element)
    keys: list[ir.Key] = []
    for field, type_, match in _fields(decl, element):
        scalar = t.lowered(type_)
        if not isinstance(scalar, ir.Bits | ir.Bool | ir.Enum):
            raise CompileError(f"a value set of {t.describe(type_)}", decl.pos, "bit<W>, or a struct of it")
        variable = ir.Var(scalar, body.unit.variable(f"{name}.{field or 'value'}", scalar), decl.pos)
        keys.append(ir.Key(field, variable, match))
    # The number sign keeps the action of the members from the control plane: see `ir.plain_name`.
    member = f"{name}#member"
    body.unit.actions[member] = ir.Action(member, (), (), decl.pos)
    body.unit.tables[name] = ir.Table(
        name,
        tuple(keys),
        (ir.ActionRef(member),),
        ir.Invocation(member, ()),
        True,
        (),
        False,
        whole_number(body, decl.size),
        None,
        decl.pos,
        ir_annotations(decl.annotations),
        value_set=True,
    )
    body.scope.declare(decl.name, Local(ValueSet(name, tuple(keys)), decl.pos))


def _fields(decl: ast.ValueSetDecl, element: t.Type) -> list[tuple[str, t.Type, str]]:
    """Return name, type and match kind of each component: exact unless ``@match`` says otherwise."""
    shape = t.base(element)
    if isinstance(shape, t.StructType):
        found = []
        for name, type_ in shape.fields.items():
            inner = [(f"{name}.{key}", part, kind) for key, part, kind in _fields(decl, type_)]
            found += inner if isinstance(t.base(type_), t.StructType) else [(name, type_, shape.match(name))]
        return found
    if isinstance(shape, t.Tuple):
        return [(f"f{i}", type_, "exact") for i, type_ in enumerate(shape.elements)]
    return [("", element, "exact")]  # the only one has no name in P4Info, as p4c has it


def look_up(body: Body, values: ValueSet, subjects: Sequence[ir.Expr], pos: ir.Position) -> ir.Var:
    """Emit the look-up of `subjects`; return the variable that tells whether they are a member."""
    if len(subjects) != len(values.keys):
        message = f"a value set of {len(values.keys)} values for {len(subjects)} in select"
        raise CompileError(message, pos, "as many as the select has")
    for key, subject in zip(values.keys, subjects, strict=True):
        if key.expr.type != subject.type:
            raise CompileError(f"value set {values.name!r} has other types than the select", pos)
        body.out.append(ir.Assign(key.expr, subject, pos))
    hit = body.temporary(t.BOOL, "member", pos)
    body.out.append(ir.Apply(values.name, hit, None, pos))
    return hit
