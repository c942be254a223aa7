"""Controls: their declarations, and their bodies lowered in place where they are applied.

The first application of an instance decides what its parameters stand for. Further ones run the
same statements again: parameters that differ from site to site are variables then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import passing
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of, inline
from softswitch.compiler.lowering.blocks.tables import lowered_table
from softswitch.compiler.lowering.instances import declare_arguments, declare_instance, make_block
from softswitch.compiler.lowering.passing import bind, named, pass_arguments
from softswitch.compiler.lowering.statements import declare_constant
from softswitch.compiler.lowering.syntax import control_name, spelling
from softswitch.compiler.lowering.unit import Action, Body, Instance, Place, Table
from softswitch.compiler.lowering.values import Block, BlockDef, Formal, Local, Passed, Run, Scope, Value


def apply_type(body: Body, symbol: BlockDef, expr: ast.Call) -> None:
    """Emit ``Control.apply(…)``: an instance of its own that has the type's name."""
    block = make_block(body, symbol, (), expr.pos)
    # As p4c names it: a @name of the type is that of its other instances, not of this one.
    name = control_name(body.control, symbol.decl.name, ())
    apply_instance(body, Instance(block, name, Scope(symbol.scope)), expr)


def apply_instance(body: Body, instance: Instance, expr: ast.Call) -> None:
    """Emit the application of a control. Raises CompileError."""
    decl = instance.block.decl
    if isinstance(decl, ast.ParserDecl):
        if body.place is Place.PARSER:
            raise Unsupported(
                "a parser applied inside another statement", expr.pos, "a statement of the state itself"
            )
        raise CompileError(f"a parser cannot be applied in {body.place.value}", expr.pos, "a parser state")
    if body.place is not Place.CONTROL:
        raise CompileError(
            f"a control cannot be applied in {body.place.value}", expr.pos, "the apply block of a control"
        )
    formals = formals_of(body.unit, decl.params, instance.scope)
    args = bind(f"control {decl.name}", formals, expr.args, expr.pos)
    for formal in formals:
        lowered = t.lowered(formal.type)
        if formal.name in instance.copied and formal.name not in instance.variables:
            if lowered is None:
                message = f"parameter {formal.name!r} differs between applications of {instance.name!r}"
                raise Unsupported(message, expr.pos, "the same argument in all of them")
            name = body.unit.variable(f"{instance.name}.{formal.name}", lowered)
            instance.variables[formal.name] = ir.Var(lowered, name, formal.pos)
    passed = pass_arguments(
        body, formals, args, prefix=instance.name, variables=instance.variables, block=True
    )
    if instance.passed is None:
        with body.unit.entered(decl, f"control {decl.name!r}", expr.pos):
            inner = lower_control(
                body,
                instance.block,
                instance.scope,
                instance.name,
                formals,
                passed,
                repeats=instance.sites > 1,
            )
        body.unit.on_forget(lambda: setattr(instance, "passed", None))
        instance.passed = passed
        instance.variables.update(passed.variables)
        instance.body = inner.finished(expr.pos)
        instance.exits = inner.usage.exits
    else:
        _check_repetition(body, instance, passed, expr)
    body.usage.exits |= instance.exits
    body.out.extend(instance.body)
    body.out.extend(passed.copy_outs)


def _check_repetition(body: Body, instance: Instance, passed: Passed, expr: ast.Call) -> None:
    assert instance.passed is not None
    for name, value in passed.values.items():
        if spelling(value) != spelling(instance.passed.values[name]):
            message = f"parameter {name!r} differs between applications of {instance.name!r}"
            raise Unsupported(message, expr.pos, "the same argument in all of them")
    if instance.exits and (passed.copy_outs or body.copy_outs):
        raise Unsupported(
            f"{instance.name!r} exits and is applied more than once with copied parameters", expr.pos
        )


def lower_control(
    caller: Body,
    block: Block,
    scope: Scope,
    name: str,
    formals: Sequence[Formal],
    passed: Passed,
    *,
    repeats: bool,
) -> Body:
    """Return the place in which the body of a control has been lowered, with its parameters bound.

    `scope` is what the control sees.
    """
    decl = block.decl
    assert isinstance(decl, ast.ControlDecl)
    body = caller.inside(scope=Scope(scope), place=Place.CONTROL, prefix=name, copy_outs=passed.copy_outs)
    body.control = name
    body.repeats = caller.repeats or repeats
    declare_arguments(body.scope, block, name)
    passed.declare(body.scope, formals)
    body.scope = Scope(body.scope)
    items: list[Action | Table] = []
    for local in decl.locals:
        with body.unit.reporting():
            item = _declare_local(body, local, decl, name)
            items += [] if item is None else [item]
            continue
        body.scope.break_name(local.name, local.pos)
    with body.block() as out:
        body.unit.statements(body, decl.body.body)
    body.out.extend(out)
    check_unused(body, items)
    return body


def _declare_local(
    body: Body,
    local: ast.ConstDecl | ast.VarDecl | ast.Instantiation | ast.ActionDecl | ast.TableDecl,
    decl: ast.ControlDecl,
    prefix: str,
) -> Action | Table | None:
    match local:
        case ast.ConstDecl():
            declare_constant(body, body.scope, local)
        case ast.VarDecl():
            body.unit.statements(body, (local,))
        case ast.Instantiation():
            declare_instance(body, local, prefix, decl.body)
        case ast.ActionDecl():
            passing.check_action(body.unit, body.scope, local)
            action = Action(
                local, control_name(prefix, local.name, local.annotations), Scope(body.scope), body
            )
            body.scope.declare(local.name, Local(action, local.pos))
            return action
        case ast.TableDecl():
            table = Table(local, control_name(prefix, local.name, local.annotations), Scope(body.scope), body)
            body.scope.declare(local.name, Local(table, local.pos))
            return table
    return None


def check_unused(body: Body, items: Sequence[Action | Table]) -> None:
    """Check the declarations that the program never uses, and drop them: only their errors count."""
    for item in items:
        if item.used:
            continue
        with body.unit.scratch():
            try:
                if isinstance(item, Table):
                    lowered_table(item, item.decl.pos)
                else:
                    check_action(body, item)
            except Unsupported:
                pass  # it is not part of the program
            except CompileError as error:
                body.unit.report(error)


def check_action(body: Body, action: Action) -> None:
    """Lower the body of an action that is never called, with variables for its parameters."""
    formals = formals_of(body.unit, action.decl.params, action.scope)
    values: dict[str, Value] = {}
    for formal in formals:
        variable = body.temporary(formal.type, formal.name, formal.pos)
        values[formal.name] = named(formal, Run(formal.type, variable, writable=True))
    inline(replace(body, out=[]), action, formals, Passed(values, ()), action.decl.pos)
