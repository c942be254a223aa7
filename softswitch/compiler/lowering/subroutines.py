"""Lower actions and functions.

An action whose parameters all come from the control plane becomes one `ir.Action`, which tables and direct
calls share; a direct call assigns the action's parameters and runs the action. Any other action is lowered
again at each call, with arguments passed as in `passing`. For each table that binds directional parameters of
such an action, the action becomes a separate `ir.Action`.

Functions are lowered in place at each call, since P4 has no recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import StoragePath, path_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, evaluate_as, ir_annotations, type_at
from softswitch.compiler.lowering.convert import expression
from softswitch.compiler.lowering.passing import bind, check_arguments, pass_arguments, with_type_params
from softswitch.compiler.lowering.unit import (
    Body,
    CodePlace,
    DeclaredAction,
    FunctionResult,
    Unit,
    add_named,
    constant_body,
)
from softswitch.compiler.lowering.values import (
    Formal,
    Functions,
    Local,
    Nothing,
    PassedValues,
    Run,
    Scope,
    TypeName,
    Value,
    Variable,
    type_of,
)


def formals_of(unit: Unit, params: Sequence[ast.ParamDecl], scope: Scope) -> list[Formal]:
    """Return parameters with their types resolved in `scope`."""
    body = constant_body(unit, scope)
    return [Formal(p.direction, type_at(body, p.type), p.name, pos=p.pos, default=p.default) for p in params]


def call_action(body: Body, action: DeclaredAction, expr: ast.CallExpr) -> None:
    """Emit a direct call of an action."""
    if body.place not in (CodePlace.CONTROL, CodePlace.ACTION):
        raise CompileError(
            f"an action cannot be called in {body.place.value}", expr.pos, "a control or another action"
        )
    if expr.type_args:
        raise CompileError(
            f"type arguments for action {action.decl.name!r}",
            expr.type_args[0].pos,
            "none: an action has no type parameters",
        )
    if body.place is CodePlace.CONTROL:
        body.unit.called_actions[action.name] = ir.Action(
            action.name,
            (),
            (),
            pos=action.decl.pos,
            annotations=ir_annotations(body, action.decl.annotations),
        )
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
        variable = ir.Var(param.type, param.variable, pos=arg.pos)
        body.out.append(ir.Assign(variable, expression(body, value, arg.pos), pos=arg.pos))
    body.usage.exits |= action.exits
    body.out.append(ir.Call(shared.name, pos=expr.pos))


def _is_shareable(formals: Sequence[Formal]) -> bool:
    return all(not f.direction and isinstance(t.lowered(f.type), ir.Bits | ir.Bool) for f in formals)


def _exits_alike(body: Body, action: DeclaredAction, pos: ir.Position) -> bool:
    """Return True if a call in `body` may use the shared `ir.Action` of `action`.

    This is the case if the action has no ``exit``, or if an ``exit`` copies back the same values in `body` as
    in the control that declares the action.
    """
    shared_action(action, body, pos)
    home = action.owner.copy_outs if action.owner is not None else ()
    return not action.exits or home == body.copy_outs


def shared_action(action: DeclaredAction, user: Body, pos: ir.Position) -> ir.Action:
    """Return the IR's version of an action whose parameters all come from the control plane."""
    unit = user.unit
    action.used = True
    if action.lowered is None:
        with unit.entered(action, f"action {action.decl.name!r}", pos):
            formals = formals_of(unit, action.decl.params, action.scope)
            body = _own_body(action, user)
            params = tuple(_control_plane_param(body, action, i) for i in range(len(formals)))
            for formal, param in zip(formals, params, strict=True):
                variable = ir.Var(param.type, param.variable, pos=formal.pos)
                value = Run(formal.type, variable, why=f"{formal.name!r} is a parameter without direction")
                body.scope.declare(formal.name, Variable(value, pos=formal.pos))
            _lower_statements(body, action)
            action.lowered = _made(action, action.name, params, body)
            unit.on_forget(lambda: setattr(action, "lowered", None))
    add_named(unit.actions, action.lowered, "actions")
    return action.lowered


def _made(action: DeclaredAction, name: str, params: tuple[ir.Param, ...], body: Body) -> ir.Action:
    decl = action.decl
    action.exits = body.usage.exits
    return ir.Action(
        name, params, tuple(body.out), pos=decl.pos, annotations=ir_annotations(body, decl.annotations)
    )


def _own_body(action: DeclaredAction, user: Body) -> Body:
    """Return the `Body` in which an action is lowered: inside the control that declares it.

    A global action is lowered inside `user`.
    """
    home = action.owner if action.owner is not None else user
    body = home.inside(scope=Scope(action.scope), place=CodePlace.ACTION, prefix=action.name)
    if action.owner is None:
        body.copy_outs = ()
    body.repeats = True
    return body


def _control_plane_param(body: Body, action: DeclaredAction, index: int) -> ir.Param:
    decl = action.decl.params[index]
    declared = type_at(constant_body(body.unit, action.scope), decl.type)
    type_ = t.lowered(declared)
    if not isinstance(type_, ir.Bits | ir.Bool):
        message = f"parameter {decl.name!r} of action {action.decl.name!r} cannot come from the control plane"
        body.unit.refuse(Unsupported(message, decl.pos, "bit<W>, int<W> or bool"))
        type_ = t.BOOL  # any type, so that the checks can continue
    variable = body.unit.variable(f"{action.name}.{decl.name}", type_)
    named = t.named(declared, decl.pos)
    return ir.Param(decl.name, variable, type_, ir_annotations(body, decl.annotations), named)


def _lower_statements(body: Body, action: DeclaredAction) -> None:
    with body.block() as out:
        body.unit.statements(body, action.decl.body.body)
    body.out.extend(out)


def inline(
    body: Body, action: DeclaredAction, formals: Sequence[Formal], passed: PassedValues, pos: ir.Position
) -> None:
    """Emit the body of an action with its parameters bound, and then the copy-out of its parameters."""
    action.used = True
    with body.unit.entered(action, f"action {action.decl.name!r}", pos):
        inner = body.inside(
            scope=Scope(action.scope), place=CodePlace.ACTION, prefix=action.name, copy_outs=passed.copy_outs
        )
        passed.declare(inner.scope, formals)
        _lower_statements(inner, action)
    body.usage.exits |= inner.usage.exits
    body.out.extend(inner.finished(pos))
    body.out.extend(passed.copy_outs)


def bound_action(
    table_body: Body,
    action: DeclaredAction,
    args: tuple[ast.Expr, ...],
    texts: tuple[str, ...],
    pos: ir.Position,
) -> ir.Action:
    """Return an action of the IR that runs `action` with its directional parameters bound to `args`.

    The first IR action made for `action` has the name of `action`. IR actions for other arguments have a
    number appended to this name. `texts` are the source texts of `args`.
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
        # A name that no source can contain, for a parameter whose value a table entry provides.
        hidden = f"${param.name}"
        type_ = formals[len(exprs)].type
        value = Run(type_, ir.Var(param.type, param.variable, pos=pos))
        body.scope.declare(hidden, Variable(value, pos=pos))
        exprs.append(ast.Name(hidden, False, pos=pos))
    passed = pass_arguments(body, formals, exprs, prefix=action.name, reached=_reached_by(action))
    inline(body, action, formals, passed, pos)
    lowered = _made(action, name, params, body)
    action.specialised.append((texts, name))
    add_named(unit.actions, lowered, "actions")
    return lowered


def _reached_by(action: DeclaredAction) -> frozenset[StoragePath]:
    """Return all paths that the body of an action may use besides its parameters."""
    own = {param.name for param in action.decl.params}
    reached: set[StoragePath] = set()
    _collect(action.decl.body, action.scope, own, reached)
    return frozenset(reached)


def _collect(node: object, scope: Scope, own: set[str], reached: set[StoragePath]) -> None:
    match node:
        case tuple():
            for item in node:
                _collect(item, scope, own, reached)
        case ast.CallExpr(callee, _, args):
            _collect(args, scope, own, reached)
            if isinstance(callee, ast.MemberExpr):
                _collect(callee.base, scope, own, reached)
            elif isinstance(callee, ast.Name):
                symbol = scope.find(callee.name)
                if isinstance(symbol, Local) and isinstance(symbol.item, DeclaredAction):
                    reached |= _reached_by(symbol.item)
        case ast.Name() | ast.MemberExpr():
            _collect_path(node, scope, own, reached)
        case _ if hasattr(node, "__dataclass_fields__") and not isinstance(node, ir.Position):
            for name in node.__dataclass_fields__:
                _collect(getattr(node, name), scope, own, reached)


def _collect_path(
    node: ast.Name | ast.MemberExpr, scope: Scope, own: set[str], reached: set[StoragePath]
) -> None:
    fields: list[str] = []
    expr: ast.Expr = node
    while isinstance(expr, ast.MemberExpr):
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


def call_function(body: Body, symbol: Functions, expr: ast.CallExpr, name: str) -> Value:
    """Emit a call and return the result. Raises CompileError."""
    if body.place is CodePlace.CONSTANT:
        raise CompileError(
            f"the result of {name!r} is not known at compile time", expr.pos, "a compile-time constant"
        )
    decl = _overload(symbol, expr, name)
    scope = _specialised(body, decl.prototype, symbol.scope, expr)
    formals = formals_of(body.unit, decl.prototype.params, scope)
    args = bind(f"function {name}", formals, expr.args, expr.pos)
    passed = pass_arguments(body, formals, args, prefix=f"{body.prefix}.{name}")
    return lower_body(body, decl, scope, formals, passed, expr.pos)


def _specialised(body: Body, prototype: ast.Prototype, scope: Scope, expr: ast.CallExpr) -> Scope:
    """Return a scope that binds the type parameters to the call's type arguments or inferred types.

    Raises CompileError for a type that cannot be inferred.
    """
    names = [param.name for param in prototype.type_params]
    if len(expr.type_args) not in (0, len(names)):
        raise CompileError(
            f"{len(expr.type_args)} type arguments for function {prototype.name}", expr.pos, f"{len(names)}"
        )
    if not names:
        return scope
    given = zip(names, (type_at(body, ref) for ref in expr.type_args), strict=False)
    bound: dict[str, t.Type] = {name: type_ for name, type_ in given if not isinstance(type_, t.Infer)}
    if len(bound) < len(names):
        declaring = constant_body(body.unit, with_type_params(scope, prototype.type_params))
        args = bind(f"function {prototype.name}", prototype.params, expr.args, expr.pos)
        for param, arg in zip(prototype.params, args, strict=True):
            found = _type_of_argument(body, arg)
            if not isinstance(found, t.Int | t.Rest):
                t.infer(type_at(declaring, param.type), found, bound)
    own = Scope(scope)
    for wanted in prototype.type_params:
        if wanted.name not in bound:
            raise CompileError(
                f"type {wanted.name!r} of {prototype.name!r} is not known",
                expr.pos,
                f"{prototype.name}<…>(…)",
            )
        own.declare(wanted.name, TypeName(bound[wanted.name], pos=wanted.pos))
    return Scope(own)


def _type_of_argument(body: Body, arg: ast.Expr) -> t.Type:
    """Return the type of an expression, and discard the statements that evaluating it emits."""
    if ast.is_word(arg, "_", "..."):
        return t.Rest()
    mark = len(body.out)
    with body.unit.scratch():
        found = type_of(evaluate(body, arg))
    body.take_since(mark)
    return found


def lower_body(
    body: Body,
    decl: ast.FunctionDecl,
    scope: Scope,
    formals: list[Formal],
    passed: PassedValues,
    pos: ir.Position,
) -> Value:
    """Emit the body of a function with its parameters bound, and return its result. Raises CompileError."""
    name = decl.prototype.name
    assert decl.prototype.result is not None
    result_type = type_at(constant_body(body.unit, scope), decl.prototype.result)
    body.unit.instantiated.add(id(decl))
    inner = body.inside(
        scope=Scope(scope),
        place=CodePlace.FUNCTION,
        prefix=f"{body.prefix}.{name}",
        copy_outs=passed.copy_outs,
    )
    passed.declare(inner.scope, formals)
    with body.unit.entered(decl, f"function {name!r}", pos):
        return _lower_function(body, inner, decl, result_type, passed, pos)


def _lower_function(
    body: Body,
    inner: Body,
    decl: ast.FunctionDecl,
    result_type: t.Type,
    passed: PassedValues,
    pos: ir.Position,
) -> Value:
    statements = decl.body.body
    only = statements[0] if len(statements) == 1 else None
    if isinstance(only, ast.ReturnStatement) and only.value is not None and not passed.copy_outs:
        # The body is one return: its expression replaces the call.
        value = evaluate_as(inner, only.value, result_type, "the result")
        body.out.extend(inner.out)
        return Run(value.type, value.expr) if isinstance(value, Run) else value
    variable = None
    if not isinstance(result_type, t.Void):
        variable = body.temporary(result_type, f"{decl.prototype.name}.result", pos)
        if not _always_returns(statements):
            raise CompileError(
                f"function {decl.prototype.name!r} may end without a value",
                decl.pos,
                "a return on every path",
            )
    inner.result = FunctionResult(result_type, variable)
    with inner.block() as out:
        body.unit.statements(inner, statements)
    inner.out.extend(out)
    body.out.extend(inner.finished(pos))
    body.out.extend(passed.copy_outs)
    return Nothing() if variable is None else Run(result_type, variable)


def _always_returns(statements: tuple[ast.Stmt, ...]) -> bool:
    return any(_returns(statement) for statement in statements)


def _returns(statement: ast.Stmt | None) -> bool:
    match statement:
        case ast.ReturnStatement():
            return True
        case ast.BlockStatement(body):
            return _always_returns(body)
        case ast.IfStatement(_, then, otherwise):
            return _returns(then) and _returns(otherwise)
        case ast.SwitchStatement(_, cases):
            bodies = [case.body for case in cases if case.body is not None]
            has_default = any(ast.is_word(case.label, "default") for case in cases)
            return has_default and cases[-1].body is not None and all(_returns(body) for body in bodies)
        case _:
            return False


def _overload(symbol: Functions, expr: ast.CallExpr, name: str) -> ast.FunctionDecl:
    """Return the overload that fits the arguments by number and names. Raises CompileError."""
    if len(symbol.overloads) == 1:
        return symbol.overloads[0]
    fitting = []
    for decl in symbol.overloads:
        with suppress(CompileError):
            bind(name, decl.prototype.params, expr.args, expr.pos)
            fitting.append(decl)
    if len(fitting) > 1:
        places = " and ".join(str(decl.pos) for decl in fitting)
        raise CompileError(
            f"these arguments fit {len(fitting)} functions {name!r}, at {places}",
            expr.pos,
            "arguments by name that fit one of them",
        )
    if fitting:
        return fitting[0]
    counts = " or ".join(str(len(decl.prototype.params)) for decl in symbol.overloads)
    raise CompileError(
        f"no overload of {name!r} takes these {len(expr.args)} arguments", expr.pos, f"{counts} arguments"
    )
