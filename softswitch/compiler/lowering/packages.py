"""Packages of other architectures: their arguments against their parameters ("Package types").

Nothing of them is lowered. What a `V1Switch` of v1model gets is checked where it is used (`architecture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import type_at
from softswitch.compiler.lowering.instances import make_block
from softswitch.compiler.lowering.passing import bind, is_optional
from softswitch.compiler.lowering.scope import BlockDef, Scope, Signature, TypeName
from softswitch.compiler.lowering.unit import Unit, constant_body

PACKAGE = "V1Switch"
BLOCKS = 6
_Types = dict[str, t.Type]
_BlockType = ast.ControlTypeDecl | ast.ParserTypeDecl


def package_of(unit: Unit, decl: ast.Instantiation) -> ast.PackageDecl:
    """Return the declaration of an instance's package."""
    assert isinstance(decl.type, ast.NamedType)
    symbol = unit.globals.lookup(decl.type.name, decl.type.pos, absolute=decl.type.absolute)
    assert isinstance(symbol, Signature)
    assert isinstance(symbol.decl, ast.PackageDecl)
    return symbol.decl


def is_v1model(unit: Unit, decl: ast.Instantiation) -> bool:
    """Return True if an instance is one of v1model's package, with as many blocks."""
    package = package_of(unit, decl)
    return package.name == PACKAGE and len(package.params) == BLOCKS


def check_package(unit: Unit, decl: ast.Instantiation) -> None:
    """Check the instantiation of a package. Raises CompileError, or Unsupported if it cannot be checked."""
    assert isinstance(decl.type, ast.NamedType)
    package = package_of(unit, decl)
    names = [param.name for param in package.type_params]
    body = constant_body(unit, unit.globals)
    given = [type_at(body, arg) for arg in decl.type.args]
    if len(given) not in (0, len(names)):
        raise CompileError(f"{len(given)} type arguments for {package.name}", decl.type.pos, f"{len(names)}")
    bound: _Types = {
        name: type_ for name, type_ in zip(names, given, strict=False) if not isinstance(type_, t.Infer)
    }
    by_name = {arg.name for arg in decl.args}
    params = [
        param
        for place, param in enumerate(package.params)
        if place < len(decl.args) or param.name in by_name or not is_optional(param)
    ]
    args = bind(f"package {package.name}", params, decl.args, decl.pos)
    for param, arg in zip(params, args, strict=True):
        if arg is not param.default:
            _check_argument(unit, names, bound, param, arg)


def _check_argument(unit: Unit, names: Sequence[str], bound: _Types, param: ast.Param, arg: ast.Expr) -> None:
    if not isinstance(arg, ast.Call) or not isinstance(arg.callee, ast.Name):
        return
    found = unit.globals.find(arg.callee.name)
    if not isinstance(found, BlockDef):
        return
    kind = "parser" if isinstance(found.decl, ast.ParserDecl) else "control"
    wanted = unit.globals.find(param.type.name) if isinstance(param.type, ast.NamedType) else None
    name = found.decl.name
    if not isinstance(wanted, Signature):
        if isinstance(param.type, ast.NamedType) and param.type.name in names:
            return
        message = f"{kind} {name!r} for parameter {param.name!r}"
        raise CompileError(message, arg.pos, "an argument of its type")
    _check_construction(unit, found, arg)
    block = wanted.decl
    if isinstance(block, ast.PackageDecl) or isinstance(block, ast.ParserTypeDecl) != (kind == "parser"):
        expected = {ast.PackageDecl: "package", ast.ParserTypeDecl: "parser"}.get(type(block), "control")
        message = f"{kind} {name!r} for parameter {param.name!r}"
        raise CompileError(message, arg.pos, f"a {expected} of type {block.name}")
    if not found.decl.type_params:
        assert isinstance(param.type, ast.NamedType)
        _check_shape(unit, names, bound, param.type, block, found, arg.pos)


def _check_construction(unit: Unit, found: BlockDef, arg: ast.Call) -> None:
    before = set(unit.instantiated)
    try:
        make_block(constant_body(unit, unit.globals), found, arg.args, arg.pos)
    finally:
        unit.instantiated = before  # its body is yet to be checked


def _check_shape(
    unit: Unit,
    names: Sequence[str],
    bound: _Types,
    ref: ast.NamedType,
    wanted: _BlockType,
    found: BlockDef,
    pos: ir.Position,
) -> None:
    """Compare the parameters of a block with those of its type, whose type parameters this may bind."""
    own = constant_body(unit, Scope(found.scope))
    have = [(param.direction, type_at(own, param.type)) for param in found.decl.params]
    if all(param.default is not None or is_optional(param) for param in wanted.params[len(have) :]):
        wanted = replace(wanted, params=wanted.params[: len(have)])
    patterns = _resolved(unit, names, bound, ref, wanted)
    message = f"{found.decl.name!r} does not fit the type {wanted.name}"
    if [direction for direction, _ in have] != [direction for direction, _ in patterns]:
        raise CompileError(message, pos, _shown(patterns))
    for (_, pattern), (_, type_) in zip(patterns, have, strict=True):
        t.infer(pattern, type_, bound)
    for (_, pattern), (_, type_) in zip(_resolved(unit, names, bound, ref, wanted), have, strict=True):
        if not t.is_open(pattern) and not t.same(pattern, type_):
            raise CompileError(message, pos, _shown(_resolved(unit, names, bound, ref, wanted)))


def _resolved(
    unit: Unit, names: Sequence[str], bound: _Types, ref: ast.NamedType, wanted: _BlockType
) -> list[tuple[str, t.Type]]:
    """Return directions and types of a block type's parameters, with what is `bound` of the package's."""
    outer = Scope(unit.globals)
    for name in names:
        outer.declare(name, TypeName(bound.get(name, t.TypeVar(name)), wanted.pos))
    args = [type_at(constant_body(unit, Scope(outer)), arg) for arg in ref.args]
    if len(args) not in (0, len(wanted.type_params)):
        raise Unsupported(f"{wanted.name} with {len(args)} type arguments", ref.pos)
    inner = Scope(unit.globals)
    for number, param in enumerate(wanted.type_params):
        open_type = t.TypeVar(f"{wanted.name}.{param.name}")
        type_ = open_type if not args or isinstance(args[number], t.Infer) else args[number]
        inner.declare(param.name, TypeName(type_, param.pos))
    body = constant_body(unit, Scope(inner))
    return [(param.direction, type_at(body, param.type)) for param in wanted.params]


def _shown(params: Sequence[tuple[str, t.Type]]) -> str:
    return f"({', '.join(f'{direction} {t.describe(type_)}'.strip() for direction, type_ in params)})"
