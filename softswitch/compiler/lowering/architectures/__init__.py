"""Architectures: each is a module or folder here; a program's declarations determine its architecture.

Each module provides an `Architecture` (see `unit`). This module has the common parts: packages, their blocks,
and the blocks' parameters. For packages of unknown architectures, arguments are checked against parameters
("Package types" in the P4_16 specification), but not lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks import Application, lower_control, lower_main_parser
from softswitch.compiler.lowering.check import type_at
from softswitch.compiler.lowering.instances import make_block
from softswitch.compiler.lowering.passing import bind, is_optional
from softswitch.compiler.lowering.subroutines import formals_of
from softswitch.compiler.lowering.unit import Body, CodePlace, Instance, Stage, Unit, constant_body
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    ExternDef,
    Formal,
    Local,
    PacketValue,
    PassedValues,
    Run,
    Scope,
    Signature,
    TypeName,
    Value,
)

Stored = Callable[["BlockSlot", str, ir.Position], tuple[t.Type, ir.Expr]]
"""A function that returns the type of a storage and the storage as an expression.

Its arguments are the block, the name of the storage, and the position for errors."""
_Types = dict[str, t.Type]
_BlockType = ast.ControlTypeDecl | ast.ParserTypeDecl


def package_of(unit: Unit, decl: ast.Instantiation) -> ast.PackageDecl:
    """Return the declaration of the package that `decl` instantiates."""
    assert isinstance(decl.type, ast.NamedType)
    symbol = unit.globals.lookup(decl.type.name, decl.type.pos, absolute=decl.type.absolute)
    assert isinstance(symbol, Signature)
    assert isinstance(symbol.decl, ast.PackageDecl)
    return symbol.decl


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


def _check_argument(
    unit: Unit, names: Sequence[str], bound: _Types, param: ast.ParamDecl, arg: ast.Expr
) -> None:
    if not isinstance(arg, ast.CallExpr) or not isinstance(arg.callee, ast.Name):
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
        raise CompileError(
            f"{kind} {name!r} does not fit parameter {param.name!r}",
            arg.pos,
            "an argument of the parameter's type",
        )
    _check_construction(unit, found, arg)
    block = wanted.decl
    if isinstance(block, ast.PackageDecl) or isinstance(block, ast.ParserTypeDecl) != (kind == "parser"):
        expected = {ast.PackageDecl: "package", ast.ParserTypeDecl: "parser"}.get(type(block), "control")
        raise CompileError(
            f"{kind} {name!r} does not fit parameter {param.name!r}",
            arg.pos,
            f"a {expected} of type {block.name}",
        )
    if not found.decl.type_params:
        assert isinstance(param.type, ast.NamedType)
        _check_package_shape(unit, names, bound, param.type, block, found, arg.pos)


def _check_construction(unit: Unit, found: BlockDef, arg: ast.CallExpr) -> None:
    before = set(unit.instantiated)
    try:
        make_block(constant_body(unit, unit.globals), found, arg.args, arg.pos)
    finally:
        unit.instantiated = before  # its body is checked later


def _check_package_shape(
    unit: Unit,
    names: Sequence[str],
    bound: _Types,
    ref: ast.NamedType,
    wanted: _BlockType,
    found: BlockDef,
    pos: ir.Position,
) -> None:
    """Raise CompileError if the parameters of the block `found` do not fit the type `wanted`.

    Add to `bound` the types of the package's type parameters that follow from the block's parameters.
    """
    own = constant_body(unit, Scope(found.scope))
    params = [(param.direction, type_at(own, param.type)) for param in found.decl.params]
    if all(param.default is not None or is_optional(param) for param in wanted.params[len(params) :]):
        wanted = replace(wanted, params=wanted.params[: len(params)])
    patterns = _resolved(unit, names, bound, ref, wanted)
    message = f"{found.decl.name!r} does not fit the type {wanted.name}"
    if [direction for direction, _ in params] != [direction for direction, _ in patterns]:
        raise CompileError(message, pos, _shown(patterns))
    for (_, pattern), (_, type_) in zip(patterns, params, strict=True):
        t.infer(pattern, type_, bound)
    for (_, pattern), (_, type_) in zip(_resolved(unit, names, bound, ref, wanted), params, strict=True):
        if not t.is_open(pattern) and not t.same(pattern, type_):
            raise CompileError(message, pos, _shown(_resolved(unit, names, bound, ref, wanted)))


def _resolved(
    unit: Unit, names: Sequence[str], bound: _Types, ref: ast.NamedType, wanted: _BlockType
) -> list[tuple[str, t.Type]]:
    """Return (direction, type) of each parameter of `wanted`, with type parameters replaced by `bound`."""
    outer = Scope(unit.globals)
    for name in names:
        outer.declare(name, TypeName(bound.get(name, t.TypeVar(name)), pos=wanted.pos))
    args = [type_at(constant_body(unit, Scope(outer)), arg) for arg in ref.args]
    if len(args) not in (0, len(wanted.type_params)):
        raise Unsupported(f"{wanted.name} with {len(args)} type arguments", ref.pos)
    inner = Scope(unit.globals)
    for number, param in enumerate(wanted.type_params):
        open_type = t.TypeVar(f"{wanted.name}.{param.name}")
        type_ = open_type if not args or isinstance(args[number], t.Infer) else args[number]
        inner.declare(param.name, TypeName(type_, pos=param.pos))
    body = constant_body(unit, Scope(inner))
    return [(param.direction, type_at(body, param.type)) for param in wanted.params]


def _shown(params: Sequence[tuple[str, t.Type]]) -> str:
    return f"({', '.join(f'{direction} {t.describe(type_)}'.strip() for direction, type_ in params)})"


@dataclass(frozen=True, slots=True)
class BlockSlot:
    """One block of an architecture's pipeline.

    `params` are the parameters as (direction, name of the storage). `gress` is "ingress" or "egress", or ""
    if ingress and egress have no parsers and deparsers of their own.
    """

    stage: Stage
    kind: str
    params: tuple[tuple[str, str], ...]
    gress: str = ""

    def __str__(self) -> str:
        return self.stage.name.lower().replace("_", " ")


def block_of(unit: Unit, slot: BlockSlot, arg: ast.Expr) -> Block:
    """Return the program's parser or control that the package's argument `arg` gives for the block `slot`.

    Args:
        unit: The compilation.
        slot: The block in the architecture.
        arg: The argument.

    Raises CompileError.
    """
    body = constant_body(unit, unit.globals)
    match arg:
        case ast.CallExpr(ast.Name(name, absolute, pos=pos), (), args):
            symbol = unit.globals.lookup(name, pos, absolute=absolute)
            block = make_block(body, symbol, args, pos) if isinstance(symbol, BlockDef) else None
        case ast.Name(name, absolute, pos=pos):
            symbol = unit.globals.lookup(name, pos, absolute=absolute)
            item = symbol.item if isinstance(symbol, Local) else None
            block = item.block if isinstance(item, Instance) else None
        case _:
            block = None
    found = "parser" if block is not None and isinstance(block.decl, ast.ParserDecl) else "control"
    if block is None or found != slot.kind:
        raise CompileError(f"this is no {slot.kind} for {slot}", arg.pos, f"a {slot.kind}, such as Name()")
    return block


def block_scope(unit: Unit, block: Block) -> Scope:
    """Return the scope in which a block is declared."""
    definition = unit.globals.find(block.decl.name)
    assert isinstance(definition, BlockDef)
    return definition.scope


def formals_of_block(unit: Unit, block: Block) -> list[Formal]:
    """Return the parameters of a block."""
    return formals_of(unit, block.decl.params, block_scope(unit, block))


def check_shape(slot: BlockSlot, block: Block, formals: list[Formal], *, least: int, of: str = "") -> None:
    """Raise CompileError if the number or directions of a block's parameters differ from the architecture's.

    Args:
        slot: The block in the architecture.
        block: The program's block.
        formals: The parameters of the program's block.
        least: Minimum number of parameters.
        of: Text after the name of `slot` in the message, such as " of V1Switch".

    In an architecture with separate ingress and egress parsers, a block may declare its headers ``in``.
    """
    decl = block.decl
    wanted = f"({', '.join(f'{direction} {what}'.strip() for direction, what in slot.params)})"
    if not least <= len(formals) <= len(slot.params):
        raise CompileError(
            f"{slot.kind} {decl.name!r} has {len(formals)} parameters as {slot}{of}", decl.pos, wanted
        )
    for formal, (direction, what) in zip(formals, slot.params, strict=False):
        reads = slot.gress and what == "hdr" and formal.direction == "in"
        if formal.direction != direction and not reads:
            how = formal.direction or "without direction"
            raise CompileError(f"parameter {formal.name!r} of {decl.name!r} is {how}", formal.pos, wanted)


def lower_block(
    unit: Unit,
    slot: BlockSlot,
    block: Block,
    formals: list[Formal],
    stored: Stored,
    bodies: dict[Stage, tuple[ir.Stmt, ...]],
) -> None:
    """Lower a block of the pipeline: a parser adds states to `unit`, a control adds an entry to `bodies`."""
    values = {
        formal.name: _value(unit, slot, block, formal, what, stored)
        for formal, (_, what) in zip(formals, slot.params, strict=False)
    }
    caller = Body(unit, unit.globals, CodePlace.CONSTANT, slot.stage, block.decl.name)
    passed = PassedValues(values, ())
    applied = Application(block, block_scope(unit, block), block.decl.name, formals, passed)
    with unit.entered(block.decl, f"{slot.kind} {block.decl.name!r}", block.pos):
        if slot.kind == "parser":
            lower_main_parser(caller, applied)
        else:
            body = lower_control(caller, applied, repeats=False)
            bodies[slot.stage] = body.finished(block.pos)


def _value(unit: Unit, slot: BlockSlot, block: Block, formal: Formal, what: str, stored: Stored) -> Value:
    """Return the value that a parameter stands for: a packet, or a storage."""
    wanted: t.Type = t.ExternType(what)
    if not what.startswith("packet_"):
        wanted, place = stored(slot, what, formal.pos)
    if not t.same(formal.type, wanted):
        raise CompileError(
            f"parameter {formal.name!r} of {block.decl.name!r} is {t.describe(formal.type)}",
            formal.pos,
            t.describe(wanted),
        )
    if isinstance(wanted, t.ExternType):
        symbol = unit.globals.lookup(what, formal.pos)
        assert isinstance(symbol, ExternDef)
        return PacketValue(wanted, symbol.decl)
    why = f"{formal.name!r} is an `in` parameter" if formal.direction == "in" else ""
    return Run(wanted, place, formal.direction != "in", why)
