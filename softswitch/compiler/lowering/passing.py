"""Pass arguments by P4's copy-in and copy-out, without copies that make no difference.

Inside a callee a parameter stands for a `Value`. This is the argument itself (passed by name) if the argument
is a constant, or a path that overlaps no other storage that the callee uses: copying would give the same
result. Otherwise it is a variable, assigned before the call (``in``, ``inout``) and copied back after it
(``out``, ``inout``), in the order of the arguments.

This module also checks P4's requirements on declared parameters, even if there is no call. Titles such
as P4_16: "Actions" name sections of the P4_16 specification, version 1.2.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import pairwise

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import StoragePath, overlap, path_of, storage_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate_arguments, known, type_at
from softswitch.compiler.lowering.convert import (
    clear,
    convert,
    forget,
    mismatch,
    steady,
    store,
    undefine,
)
from softswitch.compiler.lowering.unit import Body, Unit, constant_body
from softswitch.compiler.lowering.values import (
    OBJECTS,
    Broken,
    Default,
    ExternDef,
    Formal,
    GroupValue,
    Invalid,
    Object,
    PacketValue,
    PassedValues,
    Run,
    Scope,
    TypeName,
    Value,
    is_constant,
    type_of,
    unknown,
)


def is_optional(param: ast.ParamDecl) -> bool:
    """Return True if the parameter is ``@optional``: calls may omit the argument, without a default value."""
    return any(annotation.name == "optional" for annotation in param.annotations)


def bind(
    what: str, params: Sequence[Formal | ast.ParamDecl], args: Sequence[ast.GivenArgument], pos: ir.Position
) -> list[ast.Expr]:
    """Return the argument (or default value) of each parameter, in their order. Raises CompileError.

    `what` names the callee in messages, for example "action drop".
    """
    given: dict[str, ast.Expr] = {}
    names = [param.name for param in params]
    if len(args) > len(params):
        raise CompileError(f"{len(args)} arguments for {what}", pos, _signature(what, params))
    for number, arg in enumerate(args):
        name = names[number] if arg.name is None else arg.name
        if name not in names:
            raise unknown(f"parameter of {what}", name, names, arg.pos)
        if name in given:
            raise CompileError(
                f"two arguments for parameter {name!r} of {what}", arg.pos, _signature(what, params)
            )
        given[name] = arg.value
    bound = []
    for param in params:
        expr = given.get(param.name, param.default)
        if expr is None:
            raise CompileError(
                f"no argument for parameter {param.name!r} of {what}", pos, _signature(what, params)
            )
        bound.append(expr)
    return bound


def _signature(what: str, params: Sequence[Formal | ast.ParamDecl]) -> str:
    names = ", ".join(f"{param.direction} {param.name}".strip() for param in params)
    return f"{what}({names})"


def check_argument(body: Body, formal: Formal, value: Value, pos: ir.Position) -> Value:
    """Return an argument's value converted to the parameter's type.

    For an ``out`` or ``inout`` parameter, the value is an l-value of this type. For ``_`` it is a new
    variable. Raises CompileError.
    """
    what = f"parameter {formal.name!r}"
    if formal.returns:
        if isinstance(value, Default):
            return Run(formal.type, body.temporary(formal.type, formal.name, pos), writable=True)
        if not t.same(type_of(value), formal.type):
            raise mismatch(value, formal.type, pos, f"the argument of {formal.direction} {what}")
        return value
    return convert(value, formal.type, pos, what)


def check_arguments(body: Body, formals: Sequence[Formal], args: Sequence[ast.Expr]) -> list[Value]:
    """Return the values of all arguments, converted to the types of the parameters. Raises CompileError."""
    values = evaluate_arguments(body, [formal.returns for formal in formals], args)
    return [
        check_argument(body, formal, value, arg.pos)
        for formal, value, arg in zip(formals, values, args, strict=True)
    ]


def pass_arguments(
    body: Body,
    formals: Sequence[Formal],
    args: Sequence[ast.Expr],
    *,
    prefix: str,
    reached: Collection[StoragePath] = (),
    variables: Mapping[str, ir.Var] | None = None,
    block: bool = False,
) -> PassedValues:
    """Emit the statements before a call, and return the values of the parameters.

    `reached` are the paths that the callee uses besides its parameters. A parameter in `variables` is passed
    in that variable, never by name. Names of new variables begin with `prefix`. The scalars of an ``out``
    parameter, which P4 leaves undefined, start at zero. If `block` is True (the callee is a control or
    parser) and the parameter is passed by name, these scalars start at the argument's value, as in p4c.
    """
    values = check_arguments(body, formals, args)
    bound: dict[str, Value] = {}
    copied: dict[str, ir.Var] = {}
    copy_outs: list[ir.Assign] = []
    forgotten: list[tuple[Run, ir.Position]] = []
    for i, (formal, arg, value) in enumerate(zip(formals, args, values, strict=True)):
        variable = (variables or {}).get(formal.name)
        if variable is None and _by_name(i, formals, values, reached):
            bound[formal.name] = named(formal, value)
            if formal.direction == "out" and isinstance(value, Run):
                forgotten.append((value, arg.pos))
            continue
        if variable is None:
            lowered = t.lowered(formal.type)
            if lowered is None:
                raise mismatch(value, formal.type, arg.pos, f"parameter {formal.name!r}")
            variable = ir.Var(lowered, body.unit.variable(f"{prefix}.{formal.name}", lowered), pos=arg.pos)
        copied[formal.name] = variable
        inside = Run(formal.type, variable, writable=True)
        if formal.returns:
            assert isinstance(value, Run)
            value = steady(body, value, arg.pos)
            copy_outs.append(ir.Assign(value.expr, variable, pos=arg.pos))
        if formal.direction == "out":
            clear(body, inside, arg.pos)
            undefine(body, inside, arg.pos)
        else:
            store(body, inside, value, arg.pos)
        bound[formal.name] = named(formal, inside)
    for target, pos in forgotten:
        forget(body, target, pos, scalars=not block)
        undefine(body, target, pos)
    return PassedValues(bound, tuple(copy_outs), copied)


def named(formal: Formal, value: Value) -> Value:
    """Return a parameter's value in the callee: `value`, read-only unless the parameter is out or inout."""
    if isinstance(value, Run) and not formal.returns:
        direction = "an `in` parameter" if formal.direction else "a parameter without direction"
        return Run(value.type, value.expr, why=f"{formal.name!r} is {direction}")
    return value


def _by_name(
    i: int, formals: Sequence[Formal], values: Sequence[Value], reached: Collection[StoragePath]
) -> bool:
    """Return True if passing parameter number `i` by name does not change the program's meaning."""
    value = values[i]
    if is_constant(value) and not isinstance(value, GroupValue | Invalid):
        return True
    path = path_of(value.expr) if isinstance(value, Run) else None
    if path is None or any(overlap(path, other) for other in reached):
        return False
    return not any(overlap(path, other) for other in _changed(i, formals, values))


def _changed(i: int, formals: Sequence[Formal], values: Sequence[Value]) -> Iterator[StoragePath]:
    for j, (formal, value) in enumerate(zip(formals, values, strict=True)):
        if j != i and formal.returns and isinstance(value, Run):
            storage = storage_of(value.expr)
            if storage is not None:
                yield storage


def passed_to_nothing(body: Body, formals: Sequence[Formal]) -> PassedValues:
    """Return new variables and objects as values of the parameters of unused code."""
    return PassedValues({formal.name: _stand_in(body, formal) for formal in formals}, ())


def _stand_in(body: Body, formal: Formal) -> Value:
    if isinstance(formal.type, t.ExternType):
        return stand_in_object(body, formal.type, formal.name, formal.pos)
    lowered = t.lowered(formal.type)
    if lowered is None:
        raise Unsupported("a compile-time parameter of unused code", formal.pos)
    name = body.unit.variable(f"{body.prefix}.{formal.name}", lowered)
    return named(formal, Run(formal.type, ir.Var(lowered, name, pos=formal.pos), writable=True))


def stand_in_object(body: Body, type_: t.ExternType, name: str, pos: ir.Position) -> Value:
    """Return an object for a parameter of unused code: a packet, or an extern that v1model lacks.

    Raises Unsupported for v1model's externs that programs instantiate, such as registers.
    """
    symbol = body.unit.globals.find(type_.name)
    assert isinstance(symbol, ExternDef)
    if type_.name in ("packet_in", "packet_out"):
        return PacketValue(type_, symbol.decl)
    if type_.name in OBJECTS:
        raise Unsupported("an extern as a parameter of unused code", pos)
    return Object(type_, symbol.decl, name, pos=pos)


_Params = Sequence[ast.ParamDecl]


class ParamRole(Enum):
    """Kinds of declarations that have parameters."""

    FUNCTION = "a function"
    METHOD = "an extern's method or function"
    ACTION = "an action"
    BLOCK = "a parser or control"
    BLOCK_CONSTRUCTOR = "a constructor"
    CONSTRUCTOR = "a constructor or package"


_CONSTRUCTORS = (ParamRole.BLOCK_CONSTRUCTOR, ParamRole.CONSTRUCTOR)
_ENDED = "no direction: the argument is known at compile time"
# Types whose values exist only at compile time, and what to write instead (P4_16: "Calling convention").
_STATIC = {
    t.Int: "bit<W> or int<W>: an int exists only at compile time",
    t.String: _ENDED,
    t.ExternType: _ENDED,
    t.BlockType: _ENDED,
}


def with_type_params(scope: Scope, params: Sequence[ast.TypeParam]) -> Scope:
    """Return a scope with type parameters on top of `scope`. Raises CompileError if two share a name."""
    inner = Scope(scope)
    for param in params:
        inner.declare(param.name, TypeName(t.TypeVar(param.name), pos=param.pos))
    return Scope(inner)


def check_block(unit: Unit, scope: Scope, decl: ast.ParserDecl | ast.ControlDecl) -> None:
    """Check the parameters of a parser or control: no two share a name. Raises CompileError."""
    own = with_type_params(scope, decl.type_params)
    names = _check_params(unit, own, decl.params, ParamRole.BLOCK, decl.type_params)
    _check_params(unit, own, decl.constructor_params, ParamRole.BLOCK_CONSTRUCTOR, names)


def check_block_type(
    unit: Unit, scope: Scope, decl: ast.ParserTypeDecl | ast.ControlTypeDecl | ast.PackageDecl
) -> None:
    """Check the parameters of a parser, control or package type. Raises CompileError."""
    role = ParamRole.CONSTRUCTOR if isinstance(decl, ast.PackageDecl) else ParamRole.BLOCK
    _check_params(unit, with_type_params(scope, decl.type_params), decl.params, role, decl.type_params)


def check_action(unit: Unit, scope: Scope, decl: ast.ActionDecl) -> None:
    """Check the parameters of an action (P4_16: "Actions"). Raises CompileError."""
    _check_params(unit, scope, decl.params, ParamRole.ACTION, ())
    for data, late in pairwise(decl.params):
        if late.direction and not data.direction:
            raise CompileError(
                f"parameter {late.name!r} has a direction but follows {data.name!r}, which has none",
                late.pos,
                "parameters without direction last",
            )


def check_prototype(unit: Unit, scope: Scope, prototype: ast.Prototype, role: ParamRole) -> None:
    """Check the parameters and the result of a function, method or constructor. Raises CompileError."""
    own = with_type_params(scope, prototype.type_params)
    _check_params(unit, own, prototype.params, role, prototype.type_params)
    if prototype.result is not None:
        with unit.only_checking(), suppress(Unsupported):
            type_at(constant_body(unit, own), prototype.result)


def check_extern(unit: Unit, scope: Scope, decl: ast.ExternDecl) -> None:
    """Check the constructors and methods of an extern (P4_16: "Extern objects"). Raises CompileError."""
    own = with_type_params(scope, decl.type_params)
    seen: dict[tuple[str, tuple[str, ...]], ast.Prototype] = {}
    for method in decl.methods:
        with unit.reporting():
            _check_method(unit, own, decl, method)
            signature = (method.name, tuple(param.name for param in method.params))
            other = seen.setdefault(signature, method)
            if other is not method:
                raise CompileError(
                    f"{method.name!r} is already declared with these parameters at {other.pos}",
                    method.pos,
                    "parameters that tell the overloads apart",
                )


def _check_method(unit: Unit, scope: Scope, decl: ast.ExternDecl, method: ast.Prototype) -> None:
    constructs = method.name == decl.name
    if constructs and method.result is not None:
        raise CompileError(
            f"constructor {method.name!r} has a result type",
            method.pos,
            f"{method.name}(…), or a method of another name",
        )
    if not constructs and method.result is None:
        raise CompileError(f"method {method.name!r} has no result type", method.pos, f"void {method.name}(…)")
    if constructs and method.type_params:
        raise CompileError(
            f"the constructor {method.name!r} has type parameters",
            method.type_params[0].pos,
            f"extern {decl.name}<…>",
        )
    check_prototype(unit, scope, method, ParamRole.CONSTRUCTOR if constructs else ParamRole.METHOD)
    if isinstance(method.result, ast.BasicType) and method.result.name in ("int", "string"):
        raise CompileError(
            f"method {method.name!r} returns a value that exists only at compile time",
            method.result.pos,
            "a type that exists at run time, or void",
        )


def _check_params(
    unit: Unit, scope: Scope, params: _Params, role: ParamRole, taken: Sequence[ast.TypeParam | ast.ParamDecl]
) -> tuple[ast.TypeParam | ast.ParamDecl, ...]:
    """Check parameters, whose names must differ from those in `taken`. Return ``(*taken, *params)``."""
    names = Scope()
    for other in taken:
        names.declare(other.name, Broken(pos=other.pos))
    body = constant_body(unit, scope)
    for param in params:
        names.declare(param.name, Broken(pos=param.pos))
        with unit.only_checking(), suppress(Unsupported):  # reported at each use
            _check_param(body, param, role)
    return (*taken, *params)


def _check_param(body: Body, param: ast.ParamDecl, role: ParamRole) -> None:
    type_ = type_at(body, param.type)
    kind = f"parameter {param.name!r} of type {t.describe(type_)}"
    if param.direction and type(type_) in _STATIC:
        raise CompileError(f"{kind} is {param.direction!r}", param.pos, _STATIC[type(type_)])
    if param.direction and role in _CONSTRUCTORS:
        raise CompileError(
            f"parameter {param.name!r} of {role.value} is {param.direction!r}", param.pos, _ENDED
        )
    if isinstance(type_, t.BlockType) and role not in _CONSTRUCTORS:
        raise CompileError(
            f"{role.value} has a parameter of type {t.describe(type_)}",
            param.pos,
            "the parameter in a constructor",
        )
    if isinstance(type_, t.ExternType | t.Int) and role is ParamRole.ACTION:
        raise CompileError(
            f"an action has a parameter of type {t.describe(type_)}",
            param.pos,
            "bit<W>, int<W>, or another data type",
        )
    _check_default(body, param, type_, role)


def _check_default(body: Body, param: ast.ParamDecl, type_: t.Type, role: ParamRole) -> None:
    """Check the default value and ``@optional`` of a parameter (P4_16: "Optional parameters")."""
    optional = is_optional(param)
    if optional and role in (ParamRole.FUNCTION, ParamRole.BLOCK_CONSTRUCTOR):
        raise CompileError(
            f"parameter {param.name!r} of {role.value} is @optional",
            param.pos,
            "@optional only in declarations without a body",
        )
    if param.default is None:
        return
    if optional:
        raise CompileError(
            f"parameter {param.name!r} is @optional and has a default value",
            param.default.pos,
            "either @optional or a default value",
        )
    if param.direction in ("out", "inout"):
        raise CompileError(
            f"parameter {param.name!r} is {param.direction!r} and has a default value",
            param.default.pos,
            "an argument in each call, which receives the value",
        )
    if not isinstance(type_, t.ExternType | t.BlockType):
        known(body, param.default, type_, f"the default value of {param.name!r}")
    elif isinstance(param.default, ast.CallExpr):
        for arg in param.default.args:
            if isinstance(arg.value, ast.UnaryExpr | ast.BinaryExpr):  # others may be, or contain, instances
                known(body, arg.value)
