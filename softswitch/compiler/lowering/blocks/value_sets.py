"""Value sets of parsers: tables whose entries are the members, looked up before the transition."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import type_at, whole_number
from softswitch.compiler.lowering.items import ValueSet
from softswitch.compiler.lowering.scope import Local
from softswitch.compiler.lowering.syntax import control_name, ir_annotations
from softswitch.compiler.lowering.unit import Body


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
