"""Parameters where they are declared: what P4 demands of them, whether anything is called or not.

The sections are those of the P4_16 specification 1.2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from itertools import pairwise

from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import known, type_at
from softswitch.compiler.lowering.passing import is_optional
from softswitch.compiler.lowering.scope import Broken, Scope, TypeName
from softswitch.compiler.lowering.unit import Body, Unit, constant_body

_Params = Sequence[ast.Param]


class Role(Enum):
    """Kinds of owners of parameters."""

    FUNCTION = "a function"
    METHOD = "an extern's method or function"
    ACTION = "an action"
    BLOCK = "a parser or control"
    BLOCK_CONSTRUCTOR = "a constructor"
    CONSTRUCTOR = "a constructor or package"


_CONSTRUCTORS = (Role.BLOCK_CONSTRUCTOR, Role.CONSTRUCTOR)
_ENDED = "no direction: the argument is known at compile time"
# Types whose values exist only at compile time, and what to write instead ("Calling convention").
_STATIC = {
    t.Int: "bit<W> or int<W>: an int exists only at compile time",
    t.String: _ENDED,
    t.ExternType: _ENDED,
    t.BlockType: _ENDED,
}


def with_type_params(scope: Scope, params: Sequence[ast.TypeParam]) -> Scope:
    """Return a scope with type parameters on top of `scope`. Raises CompileError if two have one name."""
    inner = Scope(scope)
    for param in params:
        inner.declare(param.name, TypeName(t.TypeVar(param.name), param.pos))
    return Scope(inner)


def check_block(unit: Unit, scope: Scope, decl: ast.ParserDecl | ast.ControlDecl) -> None:
    """Check the parameters of a parser or control: no two share a name. Raises CompileError."""
    own = with_type_params(scope, decl.type_params)
    names = _check_params(unit, own, decl.params, Role.BLOCK, decl.type_params)
    _check_params(unit, own, decl.constructor_params, Role.BLOCK_CONSTRUCTOR, names)


def check_block_type(
    unit: Unit, scope: Scope, decl: ast.ParserTypeDecl | ast.ControlTypeDecl | ast.PackageDecl
) -> None:
    """Check the parameters of a parser, control or package type. Raises CompileError."""
    role = Role.CONSTRUCTOR if isinstance(decl, ast.PackageDecl) else Role.BLOCK
    _check_params(unit, with_type_params(scope, decl.type_params), decl.params, role, decl.type_params)


def check_action(unit: Unit, scope: Scope, decl: ast.ActionDecl) -> None:
    """Check the parameters of an action ("Actions"). Raises CompileError."""
    _check_params(unit, scope, decl.params, Role.ACTION, ())
    for data, late in pairwise(decl.params):
        if late.direction and not data.direction:
            message = f"parameter {late.name!r} has a direction and is behind {data.name!r}, which has none"
            raise CompileError(message, late.pos, "parameters without direction last")


def check_prototype(unit: Unit, scope: Scope, prototype: ast.Prototype, role: Role) -> None:
    """Check the parameters and the result of a function, method or constructor. Raises CompileError."""
    own = with_type_params(scope, prototype.type_params)
    _check_params(unit, own, prototype.params, role, prototype.type_params)
    if prototype.result is not None:
        with unit.only_checking(), suppress(Unsupported):
            type_at(constant_body(unit, own), prototype.result)


def check_extern(unit: Unit, scope: Scope, decl: ast.ExternDecl) -> None:
    """Check the constructors and methods of an extern ("Extern objects"). Raises CompileError."""
    own = with_type_params(scope, decl.type_params)
    seen: dict[tuple[str, tuple[str, ...]], ast.Prototype] = {}
    for method in decl.methods:
        with unit.reporting():
            _check_method(unit, own, decl, method)
            signature = (method.name, tuple(param.name for param in method.params))
            other = seen.setdefault(signature, method)
            if other is not method:
                message = f"{method.name!r} is already declared with these parameters at {other.pos}"
                raise CompileError(message, method.pos, "parameters that tell the overloads apart")


def _check_method(unit: Unit, scope: Scope, decl: ast.ExternDecl, method: ast.Prototype) -> None:
    constructs = method.name == decl.name
    if constructs and method.result is not None:
        message = f"constructor {method.name!r} has a result type"
        raise CompileError(message, method.pos, f"{method.name}(…), or a method of another name")
    if not constructs and method.result is None:
        raise CompileError(f"method {method.name!r} has no result type", method.pos, f"void {method.name}(…)")
    if constructs and method.type_params:
        message = f"the constructor {method.name!r} has type parameters"
        raise CompileError(message, method.type_params[0].pos, f"extern {decl.name}<…>")
    check_prototype(unit, scope, method, Role.CONSTRUCTOR if constructs else Role.METHOD)
    if method.result is not None and isinstance(method.result, ast.IntegerType | ast.StringType):
        message = f"method {method.name!r} returns what exists only at compile time"
        raise CompileError(message, method.result.pos, "a type that exists at run time, or void")


def _check_params(
    unit: Unit, scope: Scope, params: _Params, role: Role, taken: Sequence[ast.TypeParam | ast.Param]
) -> tuple[ast.TypeParam | ast.Param, ...]:
    """Check parameters; return them and those whose names were `taken` already."""
    names = Scope()
    for other in taken:
        names.declare(other.name, Broken(other.pos))
    body = constant_body(unit, scope)
    for param in params:
        names.declare(param.name, Broken(param.pos))
        with unit.only_checking(), suppress(Unsupported):  # that is for those who use it
            _check_param(body, param, role)
    return (*taken, *params)


def _check_param(body: Body, param: ast.Param, role: Role) -> None:
    type_ = type_at(body, param.type)
    kind = f"parameter {param.name!r} of type {t.describe(type_)}"
    if param.direction and type(type_) in _STATIC:
        raise CompileError(f"{kind} is {param.direction!r}", param.pos, _STATIC[type(type_)])
    if param.direction and role in _CONSTRUCTORS:
        message = f"parameter {param.name!r} of {role.value} is {param.direction!r}"
        raise CompileError(message, param.pos, _ENDED)
    if isinstance(type_, t.BlockType) and role not in _CONSTRUCTORS:
        message = f"{role.value} has a parameter of type {t.describe(type_)}"
        raise CompileError(message, param.pos, "it as a parameter of a constructor")
    if isinstance(type_, t.ExternType | t.Int) and role is Role.ACTION:
        message = f"an action has a parameter of type {t.describe(type_)}"
        raise CompileError(message, param.pos, "bit<W>, int<W>, or another type of values")
    _check_default(body, param, type_, role)


def _check_default(body: Body, param: ast.Param, type_: t.Type, role: Role) -> None:
    """Check the default value and ``@optional`` ("Optional parameters")."""
    optional = is_optional(param)
    if optional and role in (Role.FUNCTION, Role.BLOCK_CONSTRUCTOR):
        expected = "@optional only where no body is declared"
        raise CompileError(f"parameter {param.name!r} of {role.value} is @optional", param.pos, expected)
    if param.default is None:
        return
    if optional:
        message = f"parameter {param.name!r} is @optional and has a default value"
        raise CompileError(message, param.default.pos, "one of both")
    if param.direction in ("out", "inout"):
        message = f"parameter {param.name!r} is {param.direction!r} and has a default value"
        raise CompileError(message, param.default.pos, "an argument in each call: something is stored there")
    if not isinstance(type_, t.ExternType | t.BlockType):
        known(body, param.default, type_, f"the default value of {param.name!r}")
    elif isinstance(param.default, ast.Call):
        for arg in param.default.args:
            if isinstance(arg.value, ast.Unary | ast.Binary):  # others may be, or contain, instances
                known(body, arg.value)
