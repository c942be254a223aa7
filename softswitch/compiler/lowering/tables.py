"""Lower tables: keys, actions, entries and properties."""

from __future__ import annotations

from functools import partial
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, evaluate_all, ir_annotations, known, whole_number
from softswitch.compiler.lowering.convert import flatten
from softswitch.compiler.lowering.entries import (
    ActionList,
    Order,
    action_list,
    lower_entries,
    lower_invocation,
)
from softswitch.compiler.lowering.instances import make_in_place
from softswitch.compiler.lowering.unit import (
    Body,
    DeclaredTable,
    Selector,
    add_named,
    remark,
    source_text,
)
from softswitch.compiler.lowering.values import Local, Object, Run, Scope, Value, show, type_of, unknown

MATCH_KINDS = ("exact", "lpm", "ternary", "range", "optional")
_EXACT_TOO = {"atcam_partition_index": "exact"}
"""Tofino's match kinds that only select a kind of memory, and the standard match kind that replaces each."""
MAX_MEMBERS = 1 << 20
"""Maximum number of members in all groups of one table."""
DEFAULT_SIZE = 1024
"""Maximum number of entries of a table without the property ``size``; the same as p4c's default."""

_PROPERTIES = (
    *("default_action", "size", "counters", "key", "actions", "entries", "const entries"),
    *("largest_priority_wins", "priority_delta", "implementation", "meters", "support_timeout"),
    *("idle_timeout", "registers", "filters"),
)
_DIRECT = {"counter": ("direct_counter", "DirectCounter"), "meter": ("direct_meter", "DirectMeter")}
_IDLE = ("support_timeout", "idle_timeout")
"""Table properties that enable idle timeouts: v1model's and Tofino's."""
_SELECTORS = ("action_selector", "ActionSelector")
_LAYOUTS = ("Alpm", "Atcam")
"""Values of `implementation` that only choose a table's layout on a chip."""
_REFUSED = {
    "psa_direct_counter": "PSA",
}


def lowered_table(table: DeclaredTable, pos: ir.Position) -> ir.Table:
    """Return the IR's version of a table and add it to the program. Raises CompileError."""
    unit = table.owner.unit
    table.used = True
    if table.lowered is None:
        with unit.entered(table, f"table {table.decl.name!r}", pos):
            table.lowered = _lower(table)
        unit.on_forget(lambda: setattr(table, "lowered", None))
    add_named(unit.tables, table.lowered, "tables")
    return table.lowered


def _lower(table: DeclaredTable) -> ir.Table:
    decl, unit = table.decl, table.owner.unit
    body = table.owner.inside(scope=Scope(table.scope), place=table.owner.place, prefix=table.name)
    body.scope.declare(
        decl.name, Local(table, pos=decl.pos)
    )  # inside the table, its name hides outer declarations of that name
    body.copy_outs = table.owner.copy_outs
    keys, types = _keys(body, decl)
    hashed = tuple(element.expr for element in decl.keys or () if element.match == "selector")
    data = tuple(expr for value in evaluate_all(body, hashed) for expr in flatten(body, value, decl.pos))
    table.prelude = tuple(body.out)
    body.out.clear()
    actions = action_list(body, decl)
    table.names = actions.names
    table.exits = actions.exits
    properties = {prop.name: prop for prop in decl.properties}
    for prop in decl.properties:
        _check_property(body, prop)
    default = _default(body, actions, properties.get("default_action"), decl)
    entries: tuple[ir.ConstEntry, ...] = ()
    if decl.entries is not None:
        if not keys:
            raise CompileError("a table without a key cannot have entries", decl.entries.pos, "a key")
        order = Order(
            "largest_priority_wins" not in properties
            or _is_true(body, properties["largest_priority_wins"].value),
            _size(body, properties["priority_delta"]) if "priority_delta" in properties else 1,
        )
        entries = lower_entries(body, decl.entries, keys, types, actions, order)
    size = _size(body, properties.get("size"))
    counter = _attach(body, table, properties.get("counters"), "counter", unit.counters, size)
    profile = _implementation(body, properties.get("implementation"), table.name)
    if hashed and (profile is None or profile.type.name not in _SELECTORS):
        remark(f"the selector keys of table {decl.name!r} have no effect without a selector", decl.pos)
    refs = actions.refs()
    if profile is not None and profile.type.name in _SELECTORS:
        refs = _add_selector(body, table, profile, data, refs)
    return ir.Table(
        table.name,
        keys,
        refs,
        default,
        "default_action" in properties and properties["default_action"].const,
        entries,
        decl.entries is not None and decl.entries.const,
        size,
        counter,
        pos=decl.pos,
        annotations=ir_annotations(body, decl.annotations),
        implementation="" if profile is None else profile.name,
        direct_meter=_attach(body, table, properties.get("meters"), "meter", unit.meters, size),
        cells=_cells(body, properties.get("registers"), decl),
        idle_timeout=any(_is_true(body, properties[name].value) for name in _IDLE if name in properties),
    )


def _cells(body: Body, prop: ast.Property | None, decl: ast.TableDecl) -> tuple[ir.DirectCell, ...]:
    """Return the cells that a direct register of Tofino adds to each entry of a table; () without one.

    Raises CompileError.
    """
    if prop is None:
        return ()
    value = evaluate(body, prop.value)
    if not isinstance(value, Object) or value.type.name != "DirectRegister":
        raise CompileError(
            f"{show(value)} cannot be the registers of a table", prop.value.pos, "a DirectRegister"
        )
    if decl.entries is not None:
        raise Unsupported("a direct register of a table with entries of its own", prop.pos, "no entries")
    assert isinstance(value.details, tuple)
    return value.details


def _implementation(body: Body, prop: ast.Property | None, table: str) -> Object | None:
    """Return the action profile or selector of a table; None without one. Raises CompileError."""
    if prop is None:
        return None
    expected = "an action_profile or action_selector"
    if isinstance(prop.value, ast.CallExpr):
        made = _in_place(body, prop, table, expected)
        return None if made.type.name in _LAYOUTS else made
    value = evaluate(body, prop.value)
    if isinstance(value, Object) and value.type.name in _LAYOUTS:
        return None
    if not isinstance(value, Object) or value.name not in body.unit.action_profiles:
        raise CompileError(f"{show(value)} cannot be the implementation of a table", prop.value.pos, expected)
    return value


def _add_selector(
    body: Body,
    table: DeclaredTable,
    profile: Object,
    data: tuple[ir.Expr, ...],
    refs: tuple[ir.ActionRef, ...],
) -> tuple[ir.ActionRef, ...]:
    """Add the members table and the group action (see `ir.Table`); return `refs` and the group action."""
    unit, name, pos = body.unit, table.name, table.decl.pos
    group, count, slot = (
        ir.Var(t.BIT32, unit.variable(f"{name}.{part}", t.BIT32), pos=pos)
        for part in ("group", "count", "slot")
    )
    params = tuple(ir.Param(var.name.rpartition(".")[2], var.name, t.BIT32) for var in (group, count))
    chooses, none = ir.group_action(name), f"{name}#none"
    unit.actions[chooses] = ir.Action(chooses, params, (), pos=pos)
    unit.actions[none] = ir.Action(none, (), (), pos=pos)
    rows = ir.members_table(name)
    unit.tables[rows] = ir.Table(
        rows,
        (ir.Key("group", group, "exact"), ir.Key("slot", slot, "exact")),
        (*refs, ir.ActionRef(none)),
        ir.Invocation(none, ()),
        True,
        (),
        False,
        MAX_MEMBERS,
        None,
        pos=pos,
    )
    table.selector = Selector(profile.unit, data, count, slot, len(refs))
    return (*refs, ir.ActionRef(chooses))


def _keys(body: Body, decl: ast.TableDecl) -> tuple[tuple[ir.Key, ...], tuple[t.Type, ...]]:
    elements = tuple(element for element in decl.keys or () if element.match != "selector")
    keys: list[ir.Key] = []
    types: list[t.Type] = []
    for element in elements:
        if element.match not in MATCH_KINDS and element.match not in _EXACT_TOO:
            raise unknown("match kind", element.match, MATCH_KINDS, element.pos)
    values = evaluate_all(body, tuple(element.expr for element in elements))
    for element, value in zip(elements, values, strict=True):
        keys.append(_key(body, element, value))
        types.append(type_of(value))
    if sum(key.match == "lpm" for key in keys) > 1:
        raise Unsupported("a table with more than one lpm key", decl.pos, "one lpm key, the others ternary")
    return tuple(keys), tuple(types)


def _key(body: Body, element: ast.KeyElement, value: Value) -> ir.Key:
    pos = element.expr.pos
    scalar = t.lowered(value.type) if isinstance(value, Run) else None
    if not isinstance(value, Run) or not isinstance(scalar, ir.Bits | ir.Bool | ir.Enum):
        raise CompileError(f"{show(value)} cannot be a key", pos, "bit<W>, int<W>, bool, an enum or error")
    if isinstance(scalar, ir.Enum) and scalar.name == "match_kind":
        raise CompileError("a match_kind cannot be a key", pos, "bit<W>, int<W>, bool, an enum or error")
    if isinstance(scalar, ir.Enum) and element.match not in ("exact", "optional"):
        raise CompileError(f"{show(value)} cannot be a {element.match} key", pos, "exact or optional")
    if isinstance(scalar, ir.Bool) and element.match in ("lpm", "range"):
        raise CompileError(f"a bool cannot be a {element.match} key", pos, "exact, ternary or optional")
    return ir.Key(
        _key_name(element),
        value.expr,
        _EXACT_TOO.get(element.match, element.match),
        ir_annotations(body, element.annotations),
        t.named(value.type, pos),
    )


def _key_name(element: ast.KeyElement) -> str:
    for annotation in element.annotations:
        if annotation.name == "name":
            return annotation.body.strip('"')
    text = source_text(element.expr)
    if text is None:
        raise CompileError(
            "this key has no name for the control plane", element.expr.pos, '@name("…") after the match kind'
        )
    return text


def _check_property(body: Body, prop: ast.Property) -> None:
    if prop.name in _REFUSED:
        raise Unsupported(_REFUSED[prop.name], prop.pos)
    if prop.name not in _PROPERTIES:
        near = unknown("table property", prop.name, _PROPERTIES, prop.pos)
        hint = f"; there is {near.expected}" if near.expected else ""
        remark(f"{near.message} has no effect{hint}", prop.pos)


def _is_true(body: Body, expr: ast.Expr) -> bool:
    value = known(body, expr, t.BOOL)
    return isinstance(value, Run) and isinstance(value.expr, ir.Const) and bool(value.expr.value)


def _in_place(body: Body, prop: ast.Property, table: str, expected: str) -> Object:
    """Return the object that the table property `prop` constructs.

    As in p4c, the object's name comes from ``@name`` or, without it, begins with the name of `table`.
    """
    named = any(annotation.name == "name" for annotation in prop.annotations)
    return make_in_place(body, prop, "" if named else table, expected)


def _default(
    body: Body, actions: ActionList, prop: ast.Property | None, decl: ast.TableDecl
) -> ir.Invocation:
    if prop is None:
        return ir.Invocation(actions.add_no_action(body, decl.pos), ())
    match prop.value:
        case ast.Name(name, absolute, pos=pos):
            ref = ast.ActionUse(name, absolute, None, pos=pos)
        case ast.CallExpr(ast.Name(name, absolute, pos=pos), (), args):
            ref = ast.ActionUse(name, absolute, args, pos=pos)
        case other:
            raise CompileError(
                "the default action is not an action",
                other.pos,
                "the name of an action, with or without arguments",
            )
    return lower_invocation(body, ref, actions, default=True)


def _size(body: Body, prop: ast.Property | None) -> int:
    if prop is None:
        return DEFAULT_SIZE
    size = whole_number(body, prop.value)
    if size < 0:
        raise CompileError(
            f"a table of size {size}", prop.value.pos, f"0, which stands for {DEFAULT_SIZE}, or more"
        )
    return size or DEFAULT_SIZE  # as p4c for BMv2


def _attach(
    body: Body,
    table: DeclaredTable,
    prop: ast.Property | None,
    kind: str,
    owned: dict[str, Any],
    size: int,
) -> str | None:
    """Attach the direct counter or meter of a table property to the table; return its name, None without one.

    `kind` is "counter" or "meter"; `owned` has the counters or meters that already belong to a table, by
    name. Raises CompileError.
    """
    if prop is None:
        return None
    if isinstance(prop.value, ast.CallExpr):
        value: Value = _in_place(body, prop, table.name, f"a direct_{kind}")
    else:
        value = evaluate(body, prop.value)
    if not isinstance(value, Object) or value.type.name not in _DIRECT[kind]:
        raise CompileError(
            f"{show(value)} cannot be the {kind} of a table", prop.value.pos, f"a direct_{kind}"
        )
    other = owned.get(value.name)
    if other is not None:
        raise CompileError(
            f"direct {kind} {value.name!r} already belongs to table {other.table!r}",
            prop.value.pos,
            f"a direct {kind} for each table",
        )
    make = ir.Counter if kind == "counter" else partial(ir.Meter, colour=value.colour)
    owned[value.name] = make(
        value.name, value.unit, size, table.name, pos=value.pos, annotations=value.annotations
    )
    return value.name
