"""Arguments of extern functions and methods: checked against their declarations.

Type parameters are inferred from the arguments: one that a literal without width is passed for
stays open unless another argument, or the object's type, fixes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import type_at
from softswitch.compiler.lowering.passing import Formal, bind, check_argument, evaluate_arguments
from softswitch.compiler.lowering.paths import path_of
from softswitch.compiler.lowering.scope import Scope, TypeName
from softswitch.compiler.lowering.unit import Body, constant_body
from softswitch.compiler.lowering.values import Default, Number, Run, Value, show, type_of


def choose(overloads: Sequence[ast.Prototype], expr: ast.Call, what: str) -> ast.Prototype:
    """Return the overload with as many parameters as the call has arguments. Raises CompileError."""
    for prototype in overloads:
        if len(prototype.params) == len(expr.args):
            return prototype
    if len(overloads) == 1:
        bind(what, overloads[0].params, expr.args, expr.pos)  # says what is wrong
    counts = " or ".join(str(len(prototype.params)) for prototype in overloads)
    raise CompileError(f"{len(expr.args)} arguments for {what}", expr.pos, counts)


def extern_arguments(
    body: Body,
    prototype: ast.Prototype,
    expr: ast.Call,
    what: str,
    known: Mapping[str, t.Type] | None = None,
) -> list[Value]:
    """Return the arguments of a call in the order of the parameters; `known` binds type parameters."""
    bound = dict(known or {})
    scope = Scope(body.scope.root())
    own = [param.name for param in prototype.type_params]
    for name in (*bound, *own):
        scope.declare(name, TypeName(t.TypeVar(name), prototype.pos))
    for name, ref in zip(own, expr.type_args, strict=False):
        given = type_at(body, ref)
        if not isinstance(given, t.Infer):
            bound[name] = given
    if len(expr.type_args) not in (0, len(prototype.type_params)):
        expected = f"{len(prototype.type_params)}"
        raise CompileError(f"{len(expr.type_args)} type arguments for {what}", expr.pos, expected)
    declaring = constant_body(body.unit, scope)
    args = bind(what, prototype.params, expr.args, expr.pos)
    types = [type_at(declaring, param.type) for param in prototype.params]
    returns = [param.direction in ("out", "inout") for param in prototype.params]
    values = evaluate_arguments(body, returns, args)
    for type_, value in zip(types, values, strict=True):
        if isinstance(type_, t.TypeVar) and not isinstance(value, Number | Default):
            bound.setdefault(type_.name, type_of(value))
    result = []
    for param, type_, value, arg in zip(prototype.params, types, values, args, strict=True):
        if isinstance(type_, t.TypeVar):
            if type_.name not in bound:
                result.append(value)
                continue
            type_ = bound[type_.name]
        formal = Formal(param.direction, type_, param.name, param.pos)
        result.append(check_argument(body, formal, value, arg.pos))
    return result


def scalar(body: Body, value: Value, pos: ir.Position, what: str, width: int = 32) -> ir.Expr:
    """Return an argument as an expression of type Bits; an ``int`` gets `width` bits."""
    if isinstance(value, Number):
        if not 0 <= value.value < 1 << width:
            raise CompileError(f"{what} is {value.value}", pos, f"0 to {(1 << width) - 1}")
        return ir.Const(ir.Bits(width), value.value, pos)
    if isinstance(value, Run) and isinstance(t.lowered(value.type), ir.Bits):
        return value.expr
    raise CompileError(f"{what} is {show(value)}", pos, "bit<W>")


def plain_target(body: Body, value: Value, pos: ir.Position) -> tuple[ir.Expr, tuple[ir.Stmt, ...]]:
    """Return a variable for an extern to write to, and the statements that must follow the call.

    A slice, or storage at a run-time index, is written by way of a variable.
    """
    if not isinstance(value, Run):
        raise CompileError(f"{show(value)} as a variable to write to", pos, "a variable, or a part of one")
    if path_of(value.expr) is not None:
        return value.expr, ()
    variable = body.temporary(value.type, "result", pos)
    return variable, (ir.Assign(value.expr, variable, pos),)


def hash_into(
    body: Body, target: ir.Var, algorithm: str, data: tuple[ir.Expr, ...], limit: ir.Expr, pos: ir.Position
) -> ir.Extern:
    """Return the statement ``target = H(data) % limit``, by the name of one of v1model's algorithms."""
    algorithms = body.unit.globals.find("HashAlgorithm")
    assert isinstance(algorithms, TypeName)
    assert isinstance(algorithms.type, ir.Enum)
    kind = ir.Const(algorithms.type, algorithms.type.members.index(algorithm), pos)
    base = ir.Const(t.BIT32, 0, pos)
    return ir.Extern("hash", "", ((target,), (kind,), (base,), data, (limit,)), pos)


def enum_constant(value: Value, pos: ir.Position, what: str) -> ir.Const:
    """Return an argument that must be a constant of an enum."""
    if isinstance(value, Run) and isinstance(value.expr, ir.Const) and isinstance(value.expr.type, ir.Enum):
        return value.expr
    raise CompileError(f"{what} is {show(value)}, known only at run time", pos, "a member of the enum")
