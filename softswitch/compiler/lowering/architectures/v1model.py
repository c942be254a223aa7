"""The v1model architecture: the parameters of its six blocks, and the parameters' storages.

The target sets and reads some fields of ``standard_metadata_t`` by name, so a program's copy of v1model.p4
may list the fields in another order and add fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.verify import check_stored
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures import (
    BlockSlot,
    block_of,
    check_shape,
    formals_of_block,
    lower_block,
    package_of,
)
from softswitch.compiler.lowering.check import type_at
from softswitch.compiler.lowering.extern_calls import (
    Making,
    make_counter,
    make_direct_counter,
    make_direct_meter,
    make_meter,
    make_profile,
    plain_object,
)
from softswitch.compiler.lowering.instances import make_register
from softswitch.compiler.lowering.known_externs import METHODS, annotated_lists
from softswitch.compiler.lowering.passing import bind
from softswitch.compiler.lowering.unit import Architecture, Fields, Stage, Unit, constant_body
from softswitch.compiler.lowering.values import (
    Formal,
    Object,
    Scope,
    TypeName,
)

PACKAGE = "V1Switch"
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
    """Return the program's ``standard_metadata_t``.

    Raises CompileError if there is none, Unsupported if it lacks a field that the target needs.
    """
    found = unit.globals.lookup(NAME, pos)
    if not isinstance(found, TypeName) or not isinstance(found.type, t.StructType):
        raise Unsupported(f"a {NAME} that is no struct", found.pos, "the published v1model.p4")
    fields = dict(found.type.ir.fields)
    needed: dict[str, ir.Bits | ir.Enum] = {name: ir.Bits(width) for name, width in _WIDTHS.items()}
    for name, wanted in {**needed, "parser_error": unit.errors}.items():
        if name not in fields:
            what = f"a {NAME} without {name!r}"
        elif fields[name] != wanted:
            what = f"a {NAME} whose {name!r} is {t.describe(found.type.fields[name])}"
        else:
            continue
        raise Unsupported(what, found.pos, f"{t.describe(wanted)} {name}, as in v1model.p4")
    return found.type


WHOLE = "(whole)"
"""The name of the only field of a struct made for a single header; no source can contain this name."""


_STANDARD = ("inout", "standard_metadata")
_CHECKSUM = (("inout", "hdr"), ("inout", "meta"))
_PIPELINE = (("inout", "hdr"), ("inout", "meta"), _STANDARD)

SLOTS = (
    BlockSlot(Stage.PARSER, "parser", (("", "packet_in"), ("out", "hdr"), ("inout", "meta"), _STANDARD)),
    BlockSlot(Stage.VERIFY, "control", _CHECKSUM),
    BlockSlot(Stage.INGRESS, "control", _PIPELINE),
    BlockSlot(Stage.EGRESS, "control", _PIPELINE),
    BlockSlot(Stage.COMPUTE, "control", _CHECKSUM),
    BlockSlot(Stage.DEPARSER, "control", (("", "packet_out"), ("in", "hdr"))),
)


@dataclass(frozen=True, slots=True)
class Storages:
    """The types of the storages that live as long as the packet.

    If a program's headers or metadata are a single header, the storage is a struct whose only field is
    that header.
    """

    hdr: t.StructType
    meta: t.StructType
    standard_metadata: t.StructType

    def type(self, name: str) -> t.StructType | t.HeaderType:
        """Return the type of a storage, as the program declares its parameter."""
        struct = self._struct(name)
        only = struct.fields.get(WHOLE)
        return only if isinstance(only, t.HeaderType) else struct

    def stored(self, slot: BlockSlot, name: str, pos: ir.Position) -> tuple[t.Type, ir.Expr]:
        """Return the type of a storage, and the storage as an expression."""
        struct, type_ = self._struct(name), self.type(name)
        whole = ir.Var(struct.ir, name, pos=pos)
        return type_, whole if type_ is struct else ir.Member(type_.ir, whole, WHOLE, pos=pos)

    def _struct(self, name: str) -> t.StructType:
        return {"hdr": self.hdr, "meta": self.meta, "standard_metadata": self.standard_metadata}[name]


def _lower(unit: Unit, main: ast.Instantiation) -> Callable[[bool], Fields]:
    """Lower the six blocks of `main`. Raises CompileError."""
    args = bind(PACKAGE, package_of(unit, main).params, main.args, main.pos)
    blocks = [block_of(unit, slot, arg) for slot, arg in zip(SLOTS, args, strict=True)]
    formals = {slot.stage: formals_of_block(unit, block) for slot, block in zip(SLOTS, blocks, strict=True)}
    for slot, block in zip(SLOTS, blocks, strict=True):
        check_shape(slot, block, formals[slot.stage], least=len(slot.params), of=f" of {PACKAGE}")
    _, headers, meta, _ = formals[Stage.PARSER]
    standard = standard_metadata(unit, blocks[0].decl.pos)
    storages = Storages(_storage(headers), _storage(meta), standard)
    bodies: dict[Stage, tuple[ir.Stmt, ...]] = {}
    for slot, block in zip(SLOTS, blocks, strict=True):
        with unit.reporting():
            lower_block(unit, slot, block, formals[slot.stage], storages.stored, bodies)
    unit.raise_errors()
    _check_type_arguments(unit, main, storages)
    return lambda single_access: {
        "hdr": storages.hdr.ir,
        "meta": storages.meta.ir,
        "standard_metadata": storages.standard_metadata.ir,
        "states": unit.states,
        "field_lists": {**unit.field_lists, **annotated_lists(storages.meta)},
        **{stage.name.lower(): body for stage, body in bodies.items()},
    }


def _check(unit: Unit, main: ast.Instantiation) -> None:
    """Raise Unsupported if the package is not v1model's, CompileError if its instance is not called main."""
    assert isinstance(main.type, ast.NamedType)
    if main.type.name != PACKAGE:
        raise Unsupported(f"architecture {main.type.name!r}", main.type.pos, f"{PACKAGE} of v1model.p4")
    blocks = len(package_of(unit, main).params)
    if blocks != len(SLOTS):
        raise Unsupported(f"a {PACKAGE} of {blocks} blocks", main.pos, "the published v1model.p4")
    if main.name != "main":
        raise CompileError(f"the package is called {main.name!r}", main.pos, "main")


def _storage(formal: Formal) -> t.StructType:
    match formal.type:
        case t.StructType() as struct:
            return struct
        case t.HeaderType(name) as header:
            check_stored(header.ir, formal.pos)
            name = f"struct of {name}"
            return t.StructType(name, {WHOLE: header}, ir.Struct(name, ((WHOLE, header.ir),)))
        case other:
            raise Unsupported(
                f"{t.describe(other)} as a parameter of the pipeline", formal.pos, "a struct or a header"
            )


def _check_type_arguments(unit: Unit, main: ast.Instantiation, storages: Storages) -> None:
    """Raise CompileError if type arguments of the package differ from its blocks' parameter types."""
    assert isinstance(main.type, ast.NamedType)
    body = constant_body(unit, Scope(unit.globals))
    for ref, wanted in zip(main.type.args, (storages.type("hdr"), storages.type("meta")), strict=False):
        given = type_at(body, ref)
        if not isinstance(given, t.Infer) and not t.same(given, wanted):
            raise CompileError(
                f"{PACKAGE} has the type argument {t.describe(given)}", ref.pos, t.describe(wanted)
            )


def _register(making: Making) -> Object:
    made = making.object
    make_register(making.body, made.type.args[0], making.size(), made.name, making.decl, making.annotations)
    return made


def _selector(making: Making) -> Object:
    return replace(make_profile(making, selector=True), unit=making.member("algorithm", "the algorithm"))


_MAKERS: Mapping[str, Callable[[Making], Object]] = {
    "register": _register,
    "counter": make_counter,
    "meter": make_meter,
    "direct_counter": make_direct_counter,
    "direct_meter": make_direct_meter,
    "action_profile": make_profile,
    "action_selector": _selector,
    "Checksum16": plain_object,
}

V1MODEL = Architecture(
    checks=(PACKAGE, len(SLOTS)),
    parts=(),
    makers=_MAKERS,
    methods=METHODS,
    functions={},
    lacks=": v1model has none of that name",
    check=_check,
    lower=_lower,
)
