"""Functions: lowered in place at each call, since P4 has no recursion."""

from __future__ import annotations

from contextlib import suppress

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.expressions.check import evaluate, evaluate_as, type_at
from softswitch.compiler.lowering.passing import bind, pass_arguments, with_type_params
from softswitch.compiler.lowering.unit import Body, Place, Result, constant_body
from softswitch.compiler.lowering.values import (
    Formal,
    Functions,
    Nothing,
    Passed,
    Run,
    Scope,
    TypeName,
    Value,
    type_of,
)


def call_function(body: Body, symbol: Functions, expr: ast.Call, name: str) -> Value:
    """Emit a call and return the result. Raises CompileError."""
    if body.place is Place.CONSTANT:
        raise CompileError(
            f"the result of {name!r} is not known at compile time", expr.pos, "a compile-time constant"
        )
    decl = _overload(symbol, expr, name)
    scope = _specialised(body, decl.prototype, symbol.scope, expr)
    formals = formals_of(body.unit, decl.prototype.params, scope)
    args = bind(f"function {name}", formals, expr.args, expr.pos)
    passed = pass_arguments(body, formals, args, prefix=f"{body.prefix}.{name}")
    return lower_body(body, decl, scope, formals, passed, expr.pos)


def _specialised(body: Body, prototype: ast.Prototype, scope: Scope, expr: ast.Call) -> Scope:
    """Return a scope in which type parameters are what a call gives, or what its arguments need."""
    names = [param.name for param in prototype.type_params]
    if len(expr.type_args) not in (0, len(names)):
        message = f"{len(expr.type_args)} type arguments for function {prototype.name}"
        raise CompileError(message, expr.pos, f"{len(names)}")
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
            expected = f"{prototype.name}<…>(…)"
            raise CompileError(f"type {wanted.name!r} of {prototype.name!r} is not known", expr.pos, expected)
        own.declare(wanted.name, TypeName(bound[wanted.name], wanted.pos))
    return Scope(own)


def _type_of_argument(body: Body, arg: ast.Expr) -> t.Type:
    """Return the type of an expression, of which nothing is kept."""
    if isinstance(arg, ast.DontCare | ast.Dots):
        return t.Rest()
    mark = len(body.out)
    with body.unit.scratch():
        found = type_of(evaluate(body, arg))
    body.take_since(mark)
    return found


def check_function(
    body: Body, decl: ast.FunctionDecl, formals: list[Formal], passed: Passed, scope: Scope
) -> None:
    """Lower a function that is never called, with variables for its parameters."""
    lower_body(body, decl, scope, formals, passed, decl.pos)


def lower_body(
    body: Body, decl: ast.FunctionDecl, scope: Scope, formals: list[Formal], passed: Passed, pos: ir.Position
) -> Value:
    """Emit the body of a function with its parameters bound, and return its result. Raises CompileError."""
    name = decl.prototype.name
    assert decl.prototype.result is not None
    result_type = type_at(constant_body(body.unit, scope), decl.prototype.result)
    body.unit.instantiated.add(id(decl))
    inner = body.inside(
        scope=Scope(scope), place=Place.FUNCTION, prefix=f"{body.prefix}.{name}", copy_outs=passed.copy_outs
    )
    passed.declare(inner.scope, formals)
    with body.unit.entered(decl, f"function {name!r}", pos):
        return _lower_statements(body, inner, decl, result_type, passed, pos)


def _lower_statements(
    body: Body, inner: Body, decl: ast.FunctionDecl, result_type: t.Type, passed: Passed, pos: ir.Position
) -> Value:
    statements = decl.body.body
    only = statements[0] if len(statements) == 1 else None
    if isinstance(only, ast.Return) and only.value is not None and not passed.copy_outs:
        # One expression: the call is that expression.
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
    inner.result = Result(result_type, variable)
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
        case ast.Return():
            return True
        case ast.Block(body):
            return _always_returns(body)
        case ast.If(_, then, otherwise):
            return _returns(then) and _returns(otherwise)
        case ast.Switch(_, cases):
            bodies = [case.body for case in cases if case.body is not None]
            has_default = any(isinstance(case.label, ast.Default) for case in cases)
            return has_default and cases[-1].body is not None and all(_returns(body) for body in bodies)
        case _:
            return False


def _overload(symbol: Functions, expr: ast.Call, name: str) -> ast.FunctionDecl:
    """Return the overload that the arguments fit by number and names."""
    if len(symbol.overloads) == 1:
        return symbol.overloads[0]
    fitting = []
    for decl in symbol.overloads:
        with suppress(CompileError):
            bind(name, decl.prototype.params, expr.args, expr.pos)
            fitting.append(decl)
    if len(fitting) > 1:
        places = " and ".join(str(decl.pos) for decl in fitting)
        message = f"these arguments fit {len(fitting)} functions {name!r}, at {places}"
        raise CompileError(message, expr.pos, "arguments by name that fit one of them")
    if fitting:
        return fitting[0]
    counts = " or ".join(str(len(decl.prototype.params)) for decl in symbol.overloads)
    raise CompileError(
        f"no overload of {name!r} takes these {len(expr.args)} arguments", expr.pos, f"{counts} arguments"
    )
