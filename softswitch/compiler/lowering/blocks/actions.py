"""Actions: bodies that tables and direct calls share, and bodies lowered in place.

An action whose parameters all come from the control plane becomes one `ir.Action`; a direct call
assigns its parameters and runs it. Any other is lowered anew wherever it is called, with its
arguments passed as `passing` says, or, for a table that binds them, as an action of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.emit import expression
from softswitch.compiler.lowering.expressions.check import type_at
from softswitch.compiler.lowering.passing import bind, check_arguments, pass_arguments
from softswitch.compiler.lowering.paths import Path, path_of
from softswitch.compiler.lowering.syntax import ir_annotations
from softswitch.compiler.lowering.unit import Action, Body, Place, Unit, constant_body
from softswitch.compiler.lowering.values import Formal, Local, Passed, Run, Scope, Variable


def formals_of(unit: Unit, params: Sequence[ast.Param], scope: Scope) -> list[Formal]:
    """Return parameters with their types looked up."""
    body = constant_body(unit, scope)
    return [Formal(p.direction, type_at(body, p.type), p.name, p.pos, p.default) for p in params]


def call_action(body: Body, action: Action, expr: ast.Call) -> None:
    """Emit a direct call of an action."""
    if body.place not in (Place.CONTROL, Place.ACTION):
        raise CompileError(
            f"an action cannot be called in {body.place.value}", expr.pos, "a control or another action"
        )
    if expr.type_args:
        message = f"type arguments for action {action.decl.name!r}"
        raise CompileError(message, expr.type_args[0].pos, "none: an action has no type parameters")
    action.used = True
    formals = formals_of(body.unit, action.decl.params, action.scope)
    args = bind(f"action {action.decl.name}", formals, expr.args, expr.pos)
    if not _is_shareable(formals) or not _exits_alike(body, action, expr.pos):
        passed = pass_arguments(body, formals, args, prefix=action.name, reached=_reached_by(action))
        inline(body, action, formals, passed, expr.pos)
        return
    values = check_arguments(body, formals, args)
    shared = shared_action(action, body, expr.pos)
    for param, value, arg in zip(shared.params, values, args, strict=True):
        variable = ir.Var(param.type, param.variable, arg.pos)
        body.out.append(ir.Assign(variable, expression(body, value, arg.pos), arg.pos))
    body.usage.exits |= action.exits
    body.out.append(ir.Call(shared.name, expr.pos))


def _is_shareable(formals: Sequence[Formal]) -> bool:
    return all(not f.direction and isinstance(t.lowered(f.type), ir.Bits | ir.Bool) for f in formals)


def _exits_alike(body: Body, action: Action, pos: ir.Position) -> bool:
    """Return True if ``exit`` in the action's own body copies back what it must when called from `body`."""
    shared_action(action, body, pos)
    home = action.owner.copy_outs if action.owner is not None else ()
    return not action.exits or home == body.copy_outs


def shared_action(action: Action, user: Body, pos: ir.Position) -> ir.Action:
    """Return the IR's version of an action whose parameters all come from the control plane."""
    unit = user.unit
    action.used = True
    if action.lowered is None:
        with unit.entered(action, f"action {action.decl.name!r}", pos):
            formals = formals_of(unit, action.decl.params, action.scope)
            body = _own_body(action, user)
            params = tuple(_control_plane_param(body, action, i) for i in range(len(formals)))
            for formal, param in zip(formals, params, strict=True):
                variable = ir.Var(param.type, param.variable, formal.pos)
                value = Run(formal.type, variable, why=f"{formal.name!r} is a parameter without direction")
                body.scope.declare(formal.name, Variable(value, formal.pos))
            _lower_statements(body, action)
            action.lowered = _made(action, action.name, params, body)
            unit.on_forget(lambda: setattr(action, "lowered", None))
    register(unit, action.lowered, action)
    return action.lowered


def _made(action: Action, name: str, params: tuple[ir.Param, ...], body: Body) -> ir.Action:
    decl = action.decl
    action.exits = body.usage.exits
    return ir.Action(name, params, tuple(body.out), decl.pos, ir_annotations(decl.annotations))


def register(unit: Unit, lowered: ir.Action, action: Action) -> None:
    """Add an action to the program. Raises CompileError if another has its name."""
    other = unit.actions.setdefault(lowered.name, lowered)
    if other is not lowered:
        message = f"two actions have the control-plane name {lowered.name!r}; the other is at {other.pos}"
        raise CompileError(message, action.decl.pos, "another @name for one of them")


def _own_body(action: Action, user: Body) -> Body:
    """Return the place where the one body of an action is lowered."""
    home = action.owner if action.owner is not None else user
    body = home.inside(scope=Scope(action.scope), place=Place.ACTION, prefix=action.name)
    if action.owner is None:
        body.copy_outs = ()
    body.repeats = True
    return body


def _control_plane_param(body: Body, action: Action, index: int) -> ir.Param:
    decl = action.decl.params[index]
    declared = type_at(constant_body(body.unit, action.scope), decl.type)
    type_ = t.lowered(declared)
    if not isinstance(type_, ir.Bits | ir.Bool):
        message = f"parameter {decl.name!r} of action {action.decl.name!r} cannot come from the control plane"
        body.unit.refuse(Unsupported(message, decl.pos, "bit<W>, int<W> or bool"))
        type_ = t.BOOL  # stands for it, so that the rest can be checked
    variable = body.unit.variable(f"{action.name}.{decl.name}", type_)
    name = declared.name if isinstance(declared, t.NewType) else ""
    return ir.Param(decl.name, variable, type_, ir_annotations(decl.annotations), name)


def _lower_statements(body: Body, action: Action) -> None:
    with body.block() as out:
        body.unit.statements(body, action.decl.body.body)
    body.out.extend(out)


def inline(body: Body, action: Action, formals: Sequence[Formal], passed: Passed, pos: ir.Position) -> None:
    """Emit the body of an action with its parameters bound, and the copying back."""
    action.used = True
    known = ir.Action(action.name, (), (), action.decl.pos, ir_annotations(action.decl.annotations))
    body.unit.called_actions.setdefault(action.name, known)
    with body.unit.entered(action, f"action {action.decl.name!r}", pos):
        inner = body.inside(
            scope=Scope(action.scope), place=Place.ACTION, prefix=action.name, copy_outs=passed.copy_outs
        )
        passed.declare(inner.scope, formals)
        _lower_statements(inner, action)
    body.usage.exits |= inner.usage.exits
    body.out.extend(inner.finished(pos))
    body.out.extend(passed.copy_outs)


def bound_action(
    table_body: Body, action: Action, args: tuple[ast.Expr, ...], texts: tuple[str, ...], pos: ir.Position
) -> ir.Action:
    """Return the action that runs `action` with its directional parameters bound to `args`.

    It has the name of `action`; a second one that binds other arguments (`texts`) gets a number.
    """
    unit = table_body.unit
    for bound_texts, name in action.specialised:
        if bound_texts == texts and name in unit.actions:
            return unit.actions[name]
    formals = formals_of(unit, action.decl.params, action.scope)
    name = action.name if not action.specialised else f"{action.name}#{len(action.specialised) + 1}"
    body = _own_body(action, table_body)
    body.scope = Scope(table_body.scope)
    params = tuple(_control_plane_param(body, action, i) for i in range(len(args), len(formals)))
    exprs: list[ast.Expr] = list(args)
    for param in params:
        # A name that no source can have stands for the table entry's value.
        hidden = f"${param.name}"
        type_ = formals[len(exprs)].type
        value = Run(type_, ir.Var(param.type, param.variable, pos))
        body.scope.declare(hidden, Variable(value, pos))
        exprs.append(ast.Name(hidden, False, pos=pos))
    passed = pass_arguments(body, formals, exprs, prefix=action.name, reached=_reached_by(action))
    inline(body, action, formals, passed, pos)
    lowered = _made(action, name, params, body)
    action.specialised.append((texts, name))
    register(unit, lowered, action)
    return lowered


def _reached_by(action: Action) -> frozenset[Path]:
    """Return the paths that the body of an action uses beside its parameters, or more."""
    own = {param.name for param in action.decl.params}
    reached: set[Path] = set()
    _collect(action.decl.body, action.scope, own, reached)
    return frozenset(reached)


def _collect(node: object, scope: Scope, own: set[str], reached: set[Path]) -> None:
    match node:
        case tuple():
            for item in node:
                _collect(item, scope, own, reached)
        case ast.Call(callee, _, args):
            _collect(args, scope, own, reached)
            if isinstance(callee, ast.Member):
                _collect(callee.base, scope, own, reached)
            elif isinstance(callee, ast.Name):
                symbol = scope.find(callee.name)
                if isinstance(symbol, Local) and isinstance(symbol.item, Action):
                    reached |= _reached_by(symbol.item)
        case ast.Name() | ast.Member():
            _collect_path(node, scope, own, reached)
        case _ if hasattr(node, "__dataclass_fields__") and not isinstance(node, ir.Position):
            for name in node.__dataclass_fields__:
                _collect(getattr(node, name), scope, own, reached)


def _collect_path(node: ast.Name | ast.Member, scope: Scope, own: set[str], reached: set[Path]) -> None:
    fields: list[str] = []
    expr: ast.Expr = node
    while isinstance(expr, ast.Member):
        fields.append(expr.name)
        expr = expr.base
    if not isinstance(expr, ast.Name):
        _collect(expr, scope, own, reached)
        return
    symbol = scope.find(expr.name) if expr.name not in own else None
    if isinstance(symbol, Variable) and isinstance(symbol.value, Run):
        path = path_of(symbol.value.expr)
        if path is not None:
            reached.add((*path, *reversed(fields)))
