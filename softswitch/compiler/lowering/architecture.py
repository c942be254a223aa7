"""The v1model architecture: the parameters of its six blocks, and the storages that they stand for.

The fields of ``standard_metadata_t`` that the target sets and reads.

A copy of v1model.p4 may have them in another order, and more of them; the target knows them by name.

Packages of other architectures: their arguments against their parameters ("Package types").

Nothing of them is lowered. What a `V1Switch` of v1model gets is checked where it is used (below).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.blocks.controls import lower_control
from softswitch.compiler.lowering.blocks.parsers import lower_main_parser
from softswitch.compiler.lowering.expressions.check import type_at
from softswitch.compiler.lowering.instances import make_block
from softswitch.compiler.lowering.limits import check_stored
from softswitch.compiler.lowering.passing import Formal, Passed, bind, is_optional
from softswitch.compiler.lowering.unit import Body, Instance, Place, Stage, Unit, constant_body
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    ExternDef,
    Local,
    Packet,
    Run,
    Scope,
    Signature,
    TypeName,
    Value,
)

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
        _check_package_shape(unit, names, bound, param.type, block, found, arg.pos)


def _check_construction(unit: Unit, found: BlockDef, arg: ast.Call) -> None:
    before = set(unit.instantiated)
    try:
        make_block(constant_body(unit, unit.globals), found, arg.args, arg.pos)
    finally:
        unit.instantiated = before  # its body is yet to be checked


def _check_package_shape(
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


NAME = "standard_metadata_t"
_WIDTHS = {
    "ingress_port": 9,
    "egress_spec": 9,
    "egress_port": 9,
    "instance_type": 32,
    "packet_length": 32,
    "enq_timestamp": 32,
    "enq_qdepth": 19,
    "deq_timedelta": 32,
    "deq_qdepth": 19,
    "ingress_global_timestamp": 48,
    "egress_global_timestamp": 48,
    "mcast_grp": 16,
    "egress_rid": 16,
    "checksum_error": 1,
    "priority": 3,
}


def standard_metadata(unit: Unit, pos: ir.Position) -> t.StructType:
    """Return the program's ``standard_metadata_t``. Raises CompileError, Unsupported if it does not serve."""
    found = unit.globals.lookup(NAME, pos)
    if not isinstance(found, TypeName) or not isinstance(found.type, t.StructType):
        raise Unsupported(f"a {NAME} that is no struct", found.pos, "v1model.p4 as it comes")
    has = dict(found.type.ir.fields)
    needed: dict[str, ir.Bits | ir.Enum] = {name: ir.Bits(width) for name, width in _WIDTHS.items()}
    for name, wanted in {**needed, "parser_error": unit.errors}.items():
        if name not in has:
            what = f"a {NAME} without {name!r}"
        elif has[name] != wanted:
            what = f"a {NAME} whose {name!r} is {t.describe(found.type.fields[name])}"
        else:
            continue
        raise Unsupported(what, found.pos, f"{t.describe(wanted)} {name}, as in v1model.p4")
    return found.type


WHOLE = "(whole)"
"""The field of the struct around a header that is a parameter of the pipeline: no source can name it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One block of the pipeline: each parameter as (direction, storage)."""

    stage: Stage
    kind: str
    params: tuple[tuple[str, str], ...]


_STANDARD = ("inout", "standard_metadata")
_CHECKSUM = (("inout", "hdr"), ("inout", "meta"))
_PIPELINE = (("inout", "hdr"), ("inout", "meta"), _STANDARD)

SLOTS = (
    Slot(Stage.PARSER, "parser", (("", "packet_in"), ("out", "hdr"), ("inout", "meta"), _STANDARD)),
    Slot(Stage.VERIFY, "control", _CHECKSUM),
    Slot(Stage.INGRESS, "control", _PIPELINE),
    Slot(Stage.EGRESS, "control", _PIPELINE),
    Slot(Stage.COMPUTE, "control", _CHECKSUM),
    Slot(Stage.DEPARSER, "control", (("", "packet_out"), ("in", "hdr"))),
)


@dataclass(frozen=True, slots=True)
class Storages:
    """The types of the storages that live as long as the packet.

    A program whose headers or metadata are one header has them in a struct of that alone.
    """

    hdr: t.StructType
    meta: t.StructType
    standard_metadata: t.StructType

    def type(self, name: str) -> t.StructType | t.HeaderType:
        """Return the type of a storage, as the program declares its parameter."""
        struct = self._struct(name)
        only = struct.fields.get(WHOLE)
        return only if isinstance(only, t.HeaderType) else struct

    def place(self, name: str, pos: ir.Position) -> ir.Expr:
        """Return the storage as an expression of that type."""
        struct, type_ = self._struct(name), self.type(name)
        whole = ir.Var(struct.ir, name, pos)
        return whole if type_ is struct else ir.Member(type_.ir, whole, WHOLE, pos)

    def _struct(self, name: str) -> t.StructType:
        return {"hdr": self.hdr, "meta": self.meta, "standard_metadata": self.standard_metadata}[name]


def lower_package(unit: Unit, main: ast.Instantiation) -> tuple[Storages, dict[Stage, tuple[ir.Stmt, ...]]]:
    """Lower the six blocks of `main`; return their storages and statements. Raises CompileError."""
    blocks = _blocks(unit, main)
    formals = {slot.stage: _formals(unit, block) for slot, block in zip(SLOTS, blocks, strict=True)}
    for slot, block in zip(SLOTS, blocks, strict=True):
        _check_shape(slot, block, formals[slot.stage])
    storages = _storages(unit, blocks[0], formals[Stage.PARSER])
    bodies: dict[Stage, tuple[ir.Stmt, ...]] = {}
    for slot, block in zip(SLOTS, blocks, strict=True):
        with unit.reporting():
            _lower_block(unit, slot, block, formals[slot.stage], storages, bodies)
    unit.raise_errors()
    return storages, bodies


def _lower_block(
    unit: Unit,
    slot: Slot,
    block: Block,
    formals: list[Formal],
    storages: Storages,
    bodies: dict[Stage, tuple[ir.Stmt, ...]],
) -> None:
    _check_types(slot, block, formals, storages)
    passed = Passed(_values(unit, slot, formals, storages), ())
    caller = Body(unit, unit.globals, Place.CONSTANT, slot.stage, block.decl.name)
    scope = block_scope(unit, block)
    with unit.entered(block.decl, f"{slot.kind} {block.decl.name!r}", block.pos):
        if slot.stage is Stage.PARSER:
            lower_main_parser(caller, block, scope, block.decl.name, formals, passed)
        else:
            body = lower_control(caller, block, scope, block.decl.name, formals, passed, repeats=False)
            bodies[slot.stage] = body.finished(block.pos)


def check_architecture(unit: Unit, main: ast.Instantiation) -> None:
    """Raise Unsupported if the package is none of v1model's, CompileError if it is not called main."""
    assert isinstance(main.type, ast.NamedType)
    if main.type.name != PACKAGE:
        raise Unsupported(f"architecture {main.type.name!r}", main.type.pos, f"{PACKAGE} of v1model.p4")
    if not is_v1model(unit, main):
        blocks = len(package_of(unit, main).params)
        raise Unsupported(f"a {PACKAGE} of {blocks} blocks", main.pos, "v1model.p4 as it comes")
    if main.name != "main":
        raise CompileError(f"the package is called {main.name!r}", main.pos, "main")


def _blocks(unit: Unit, main: ast.Instantiation) -> list[Block]:
    """Return the arguments of the package, in the order of `SLOTS`."""
    args = bind(PACKAGE, package_of(unit, main).params, main.args, main.pos)
    return [block_of(unit, slot.kind, slot.stage, arg) for slot, arg in zip(SLOTS, args, strict=True)]


def block_of(unit: Unit, kind: str, stage: Stage, arg: ast.Expr) -> Block:
    """Return the parser or control that an argument of a package is.

    Args:
        unit: The compilation.
        kind: ``parser`` or ``control``.
        stage: What it is for.
        arg: The argument.

    Raises CompileError.
    """
    body = constant_body(unit, unit.globals)
    match arg:
        case ast.Call(ast.Name(name, absolute, pos=pos), (), args):
            symbol = unit.globals.lookup(name, pos, absolute=absolute)
            block = make_block(body, symbol, args, pos) if isinstance(symbol, BlockDef) else None
        case ast.Name(name, absolute, pos=pos):
            symbol = unit.globals.lookup(name, pos, absolute=absolute)
            item = symbol.item if isinstance(symbol, Local) else None
            block = item.block if isinstance(item, Instance) else None
        case _:
            block = None
    found = "parser" if block is not None and isinstance(block.decl, ast.ParserDecl) else "control"
    if block is None or found != kind:
        where = stage.name.lower().replace("_", " ")
        raise CompileError(f"this is no {kind} for {where}", arg.pos, f"a {kind}, such as Name()")
    return block


def block_scope(unit: Unit, block: Block) -> Scope:
    """Return the scope in which a block is declared."""
    definition = unit.globals.find(block.decl.name)
    assert isinstance(definition, BlockDef)
    return definition.scope


def _formals(unit: Unit, block: Block) -> list[Formal]:
    return formals_of(unit, block.decl.params, block_scope(unit, block))


def _check_shape(slot: Slot, block: Block, formals: list[Formal]) -> None:
    """Compare the number and directions of a block's parameters with the architecture's."""
    decl = block.decl
    wanted = describe_slot(slot.params)
    if len(formals) != len(slot.params):
        where = f"{slot.stage.name.lower()} of {PACKAGE}"
        message = f"{slot.kind} {decl.name!r} has {len(formals)} parameters as {where}"
        raise CompileError(message, decl.pos, wanted)
    for formal, (direction, _) in zip(formals, slot.params, strict=True):
        if formal.direction != direction:
            message = (
                f"parameter {formal.name!r} of {decl.name!r} is {formal.direction or 'without direction'}"
            )
            raise CompileError(message, formal.pos, wanted)


def describe_slot(params: Sequence[tuple[str, str]]) -> str:
    """Return the parameters of a block for a message."""
    return f"({', '.join(f'{direction} {what}'.strip() for direction, what in params)})"


def _storages(unit: Unit, parser: Block, formals: list[Formal]) -> Storages:
    _, headers, meta, _ = formals
    return Storages(_storage(headers), _storage(meta), standard_metadata(unit, parser.decl.pos))


def _storage(formal: Formal) -> t.StructType:
    match formal.type:
        case t.StructType() as struct:
            return struct
        case t.HeaderType(name) as header:
            check_stored(header.ir, formal.pos)
            name = f"struct of {name}"
            return t.StructType(name, {WHOLE: header}, ir.Struct(name, ((WHOLE, header.ir),)))
        case other:
            message = f"{t.describe(other)} as a parameter of the pipeline"
            raise Unsupported(message, formal.pos, "a struct or a header")


def _check_types(slot: Slot, block: Block, formals: list[Formal], storages: Storages) -> None:
    for formal, (_, what) in zip(formals, slot.params, strict=True):
        if what.startswith("packet_"):
            wanted: t.Type = t.ExternType(what)
        else:
            wanted = storages.type(what)
        if not t.same(formal.type, wanted):
            message = f"parameter {formal.name!r} of {block.decl.name!r} is {t.describe(formal.type)}"
            raise CompileError(message, formal.pos, t.describe(wanted))


def _values(unit: Unit, slot: Slot, formals: list[Formal], storages: Storages) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for formal, (direction, what) in zip(formals, slot.params, strict=True):
        if what.startswith("packet_"):
            symbol = unit.globals.lookup(what, formal.pos)
            assert isinstance(symbol, ExternDef)
            assert isinstance(formal.type, t.ExternType)
            values[formal.name] = Packet(formal.type, symbol.decl)
            continue
        type_ = storages.type(what)
        why = f"{formal.name!r} is an `in` parameter" if direction == "in" else ""
        values[formal.name] = Run(type_, storages.place(what, formal.pos), direction != "in", why)
    return values


def check_type_arguments(unit: Unit, main: ast.Instantiation, storages: Storages) -> None:
    """Compare the type arguments of the package, if there are any, with its blocks."""
    assert isinstance(main.type, ast.NamedType)
    body = constant_body(unit, Scope(unit.globals))
    for ref, wanted in zip(main.type.args, (storages.type("hdr"), storages.type("meta")), strict=False):
        given = type_at(body, ref)
        if not isinstance(given, t.Infer) and not t.same(given, wanted):
            raise CompileError(f"{PACKAGE} of {t.describe(given)}", ref.pos, t.describe(wanted))
