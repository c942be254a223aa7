"""Functions: lowered in place at each call, since P4 has no recursion."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.expressions.check import evaluate_as, type_at
from softswitch.compiler.lowering.passing import Formal, Passed, bind, pass_arguments
from softswitch.compiler.lowering.scope import Functions, Scope
from softswitch.compiler.lowering.unit import Body, Place, Result, constant_body
from softswitch.compiler.lowering.values import Nothing, Run, Value


def call_function(body: Body, symbol: Functions, expr: ast.Call, name: str) -> Value:
    """Emit a call and return the result. Raises CompileError."""
    if body.place is Place.CONSTANT:
        raise CompileError(
            f"the result of {name!r} is not known at compile time", expr.pos, "a compile-time constant"
        )
    decl = _overload(symbol, expr, name)
    prototype = decl.prototype
    if prototype.type_params or expr.type_args:
        raise Unsupported(f"generic function {name!r}", expr.pos)
    formals = formals_of(body.unit, prototype.params, symbol.scope)
    args = bind(f"function {name}", formals, expr.args, expr.pos)
    passed = pass_arguments(body, formals, args, prefix=f"{body.prefix}.{name}")
    return _lower_body(body, decl, symbol.scope, formals, passed, expr.pos)


def check_function(
    body: Body, decl: ast.FunctionDecl, formals: list[Formal], passed: Passed, scope: Scope
) -> None:
    """Lower a function that is never called, with variables for its parameters."""
    _lower_body(body, decl, scope, formals, passed, decl.pos)


def _lower_body(
    body: Body, decl: ast.FunctionDecl, scope: Scope, formals: list[Formal], passed: Passed, pos: ir.Position
) -> Value:
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
    for decl in symbol.overloads:
        try:
            bind(name, decl.prototype.params, expr.args, expr.pos)
        except CompileError:
            continue
        return decl
    counts = " or ".join(str(len(decl.prototype.params)) for decl in symbol.overloads)
    raise CompileError(
        f"no overload of {name!r} takes these {len(expr.args)} arguments", expr.pos, f"{counts} arguments"
    )
