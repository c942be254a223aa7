"""Tables: keys, actions, entries and properties."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.entries import Order, lower_entries, lower_invocation
from softswitch.compiler.lowering.blocks.table_actions import ActionList, action_list
from softswitch.compiler.lowering.expressions.check import evaluate, evaluate_all, known, whole_number
from softswitch.compiler.lowering.items import Table
from softswitch.compiler.lowering.remarks import remark
from softswitch.compiler.lowering.scope import Scope, unknown
from softswitch.compiler.lowering.syntax import ir_annotations, source_text
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Object, Run, Value, show, type_of

MATCH_KINDS = ("exact", "lpm", "ternary", "range", "optional")
DEFAULT_SIZE = 1024
"""Entries of a table that does not say; the same as p4c's."""

_PROPERTIES = (
    *("default_action", "size", "counters", "key", "actions", "entries", "const entries"),
    *("largest_priority_wins", "priority_delta"),
)
_REFUSED = {
    "implementation": "action profiles and selectors",
    "meters": "meters",
    "support_timeout": "idle timeouts",
    "idle_timeout": "idle timeouts",
    "psa_direct_counter": "PSA",
    "action_selector": "action selectors",
}


def lowered_table(table: Table, pos: ir.Position) -> ir.Table:
    """Return the IR's version of a table and add it to the program. Raises CompileError."""
    unit = table.owner.unit
    table.used = True
    if table.lowered is None:
        with unit.entered(table, f"table {table.decl.name!r}", pos):
            table.lowered = _lower(table)
        unit.on_forget(lambda: setattr(table, "lowered", None))
    other = unit.tables.setdefault(table.name, table.lowered)
    if other is not table.lowered:
        message = f"two tables have the control-plane name {table.name!r}; the other is at {other.pos}"
        raise CompileError(message, table.decl.pos, "another @name for one of them")
    return table.lowered


def _lower(table: Table) -> ir.Table:
    decl = table.decl
    body = table.owner.inside(scope=Scope(table.scope), place=table.owner.place, prefix=table.name)
    body.copy_outs = table.owner.copy_outs
    keys, types = _keys(body, decl)
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
            raise CompileError("entries of a table without a key", decl.entries.pos, "a key")
        order = Order(
            "largest_priority_wins" not in properties
            or _is_true(body, properties["largest_priority_wins"].value),
            _size(body, properties["priority_delta"]) if "priority_delta" in properties else 1,
        )
        entries = lower_entries(body, decl.entries, keys, types, actions, order)
    size = _size(body, properties.get("size"))
    counter = _counter(body, table, properties.get("counters"), size)
    return ir.Table(
        table.name,
        keys,
        actions.refs(),
        default,
        "default_action" in properties and properties["default_action"].const,
        entries,
        decl.entries is not None and decl.entries.const,
        size,
        counter,
        decl.pos,
        ir_annotations(decl.annotations),
    )


def _keys(body: Body, decl: ast.TableDecl) -> tuple[tuple[ir.Key, ...], tuple[t.Type, ...]]:
    elements = decl.keys or ()
    keys: list[ir.Key] = []
    types: list[t.Type] = []
    for element in elements:
        if element.match == "selector":
            raise Unsupported("selector keys: action selectors", element.pos)
        if element.match not in MATCH_KINDS:
            raise unknown("match kind", element.match, MATCH_KINDS, element.pos)
    values = evaluate_all(body, tuple(element.expr for element in elements))
    for element, value in zip(elements, values, strict=True):
        keys.append(_key(element, value))
        types.append(type_of(value))
    if sum(key.match == "lpm" for key in keys) > 1:
        raise Unsupported("a table with more than one lpm key", decl.pos, "one lpm key, the others ternary")
    return tuple(keys), tuple(types)


def _key(element: ast.KeyElement, value: Value) -> ir.Key:
    pos = element.expr.pos
    scalar = t.lowered(value.type) if isinstance(value, Run) else None
    if not isinstance(value, Run) or not isinstance(scalar, ir.Bits | ir.Bool | ir.Enum):
        raise CompileError(f"{show(value)} as a key", pos, "bit<W>, int<W>, bool, an enum or error")
    if isinstance(scalar, ir.Enum) and element.match not in ("exact", "optional"):
        raise CompileError(f"{show(value)} as {element.match} key", pos, "exact or optional")
    if isinstance(scalar, ir.Bool) and element.match in ("lpm", "range"):
        raise CompileError(f"a bool as {element.match} key", pos, "exact, ternary or optional")
    type_name = value.type.name if isinstance(value.type, t.NewType) else ""
    return ir.Key(
        _key_name(element), value.expr, element.match, ir_annotations(element.annotations), type_name
    )


def _key_name(element: ast.KeyElement) -> str:
    for annotation in element.annotations:
        if annotation.name == "name":
            return annotation.body.strip('"')
    text = source_text(element.expr)
    if text is None:
        expected = '@name("…") behind the match kind'
        raise CompileError("this key has no name for the control plane", element.expr.pos, expected)
    return text


def _check_property(body: Body, prop: ast.Property) -> None:
    if prop.name in _REFUSED:
        if prop.name == "support_timeout" and not _is_true(body, prop.value):
            return
        raise Unsupported(_REFUSED[prop.name], prop.pos)
    if prop.name not in _PROPERTIES:
        near = unknown("table property", prop.name, _PROPERTIES, prop.pos)
        hint = f"; there is {near.expected}" if near.expected else ""
        remark(f"{near.message} means nothing{hint}", prop.pos)


def _is_true(body: Body, expr: ast.Expr) -> bool:
    value = known(body, expr, t.BOOL)
    return isinstance(value, Run) and isinstance(value.expr, ir.Const) and bool(value.expr.value)


def _default(
    body: Body, actions: ActionList, prop: ast.Property | None, decl: ast.TableDecl
) -> ir.Invocation:
    if prop is None:
        return ir.Invocation(actions.add_no_action(body, decl.pos), ())
    match prop.value:
        case ast.Name(name, absolute, pos):
            ref = ast.ActionRef(name, absolute, None, pos)
        case ast.Call(ast.Name(name, absolute, pos), (), args):
            ref = ast.ActionRef(name, absolute, args, pos)
        case other:
            raise CompileError(
                "this is no action", other.pos, "the name of an action, perhaps with arguments"
            )
    return lower_invocation(body, ref, actions, default=True)


def _size(body: Body, prop: ast.Property | None) -> int:
    if prop is None:
        return DEFAULT_SIZE
    size = whole_number(body, prop.value)
    if size <= 0:
        raise CompileError(f"a table of size {size}", prop.value.pos, "at least 1")
    return size


def _counter(body: Body, table: Table, prop: ast.Property | None, size: int) -> str | None:
    """Return the name of the direct counter of a table, and make it that table's."""
    if prop is None:
        return None
    if isinstance(prop.value, ast.Call):
        raise Unsupported("a direct counter without a name", prop.value.pos, "a declaration of the counter")
    value = evaluate(body, prop.value)
    if not isinstance(value, Object) or value.type.name != "direct_counter":
        raise CompileError(f"{show(value)} as the counter of a table", prop.value.pos, "a direct_counter")
    unit = body.unit
    other = unit.counters.get(value.name)
    if other is not None:
        message = f"direct counter {value.name!r} already belongs to table {other.table!r}"
        raise CompileError(message, prop.value.pos, "a direct counter for each table")
    unit.counters[value.name] = ir.Counter(
        value.name, value.unit, size, table.name, value.pos, value.annotations
    )
    return value.name
