"""Calls: which of the many things that look alike a call is."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import call_action
from softswitch.compiler.lowering.blocks.controls import apply_instance, apply_type
from softswitch.compiler.lowering.blocks.tables import lowered_table
from softswitch.compiler.lowering.calls.extern_calls import hash_into
from softswitch.compiler.lowering.calls.extern_functions import call_extern_function
from softswitch.compiler.lowering.calls.functions import call_function
from softswitch.compiler.lowering.calls.methods import call_method, header_size
from softswitch.compiler.lowering.expressions.check import evaluate
from softswitch.compiler.lowering.items import Action, Instance, Selector, Table
from softswitch.compiler.lowering.scope import (
    BlockDef,
    ExternDef,
    ExternFunctions,
    Functions,
    Local,
    Symbol,
    TypeName,
    unknown,
)
from softswitch.compiler.lowering.unit import Body, Place, Stage
from softswitch.compiler.lowering.values import Nothing, Outcome, Value


def call(body: Body, expr: ast.Call) -> Value:
    """Emit a call and return its result. Raises CompileError."""
    match expr.callee:
        case ast.Name(name, absolute, pos):
            return _call_name(body, expr, name, body.scope.lookup(name, pos, absolute=absolute))
        case ast.Member(base, method):
            symbol = symbol_before_dot(body, base)
            if method == "apply" and isinstance(symbol, BlockDef | Local):
                return _apply(body, symbol, expr)
            if isinstance(symbol, Local) and isinstance(symbol.item, Table | Instance):
                what = "table" if isinstance(symbol.item, Table) else "parser or control"
                raise unknown(f"method of a {what}", method, ("apply",), expr.callee.pos)
            if isinstance(symbol, TypeName):
                return header_size(symbol.type, expr, method)
            return call_method(body, evaluate(body, base), expr, method)
    raise CompileError("this cannot be called", expr.pos, "a function, action or method")


def symbol_before_dot(body: Body, base: ast.Expr) -> Symbol | None:
    """Return the meaning of a name or type before a dot; None of other expressions."""
    match base:
        case ast.Name(name, absolute, pos) | ast.TypeExpr(ast.NamedType(name, absolute, _, pos)):
            return body.scope.lookup(name, pos, absolute=absolute)
        case _:
            return None


def _call_name(body: Body, expr: ast.Call, name: str, symbol: Symbol) -> Value:
    match symbol:
        case Local(Action() as action):
            call_action(body, action, expr)
            return Nothing()
        case Functions():
            return call_function(body, symbol, expr, name)
        case ExternFunctions():
            return call_extern_function(body, symbol, expr, name)
        case Local():
            raise CompileError(f"{name!r} is not called by its name alone", expr.pos, f"{name}.apply(…)")
        case ExternDef() | BlockDef():
            raise CompileError(
                f"{name!r} is instantiated inside an expression", expr.pos, "a declaration of an instance"
            )
        case _:
            raise CompileError(f"{name!r} cannot be called", expr.pos, "a function, action or method")


def _apply(body: Body, symbol: BlockDef | Local, expr: ast.Call) -> Value:
    match symbol:
        case Local(Table() as table):
            return apply_table(body, table, expr)
        case Local(Instance() as instance):
            apply_instance(body, instance, expr)
            return Nothing()
        case BlockDef():
            apply_type(body, symbol, expr)
            return Nothing()
        case _:
            raise CompileError("only tables, controls and parsers have apply()", expr.pos)


def apply_table(body: Body, table: Table, expr: ast.Call) -> Outcome:
    """Emit the application of a table."""
    if expr.args:
        raise CompileError(
            "apply() of a table has no parameters", expr.args[0].pos, f"{table.decl.name}.apply()"
        )
    if body.place is not Place.CONTROL:
        raise CompileError(
            f"a table cannot be applied in {body.place.value}", expr.pos, "the apply block of a control"
        )
    if body.stage in (Stage.VERIFY, Stage.COMPUTE, Stage.DEPARSER, Stage.INGRESS_DEPARSER):
        raise Unsupported(f"a table in the {body.stage.name.lower()} block", expr.pos, "ingress or egress")
    lowered = lowered_table(table, expr.pos)
    body.usage.exits |= table.exits
    body.out.extend(table.prelude)
    if table.selector is not None:
        return _apply_with_selector(body, lowered.name, table.selector, expr.pos)
    apply = ir.Apply(lowered.name, None, None, expr.pos)
    body.out.append(apply)
    return Outcome(apply)


def _apply_with_selector(body: Body, name: str, selector: Selector, pos: ir.Position) -> Outcome:
    """Emit a table's application and, if its entry names a group, that of the member that a hash chooses."""
    hit, action = body.temporary(t.BOOL, "hit", pos), body.temporary(t.BIT32, "action_run", pos)
    apply = ir.Apply(name, hit, action, pos)
    body.out.append(apply)
    chosen = (
        hash_into(body, selector.slot, selector.algorithm, selector.data, selector.count, pos),
        ir.Apply(ir.members_table(name), None, action, pos),
    )
    is_group = ir.Binary(t.BOOL, "==", action, ir.Const(t.BIT32, selector.index, pos), pos)
    body.out.append(ir.If(is_group, chosen, (), pos))
    return Outcome(apply, hit, action)
