"""The blocks of a pipeline of Tofino: their parameters, and the storages that these stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architecture import block_of, block_scope, describe_slot, package_of
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.blocks.controls import lower_control
from softswitch.compiler.lowering.blocks.parsers import lower_main_parser
from softswitch.compiler.lowering.limits import check_stored
from softswitch.compiler.lowering.passing import Formal, Passed, bind, is_optional
from softswitch.compiler.lowering.unit import Body, Place, Stage, Unit, remark
from softswitch.compiler.lowering.values import Block, ExternDef, Packet, Run, TypeName, Value

SWITCH, PIPELINE = "Switch", "Pipeline"
_MARK = "ingress_intrinsic_metadata_for_tm_t"
PARTS = (PIPELINE,)
"""Packages that a switch is made of."""

INTRINSIC = {
    "ingress": "ingress_intrinsic_metadata_t",
    "ingress_from_parser": "ingress_intrinsic_metadata_from_parser_t",
    "ingress_for_deparser": "ingress_intrinsic_metadata_for_deparser_t",
    "ingress_for_tm": _MARK,
    "egress": "egress_intrinsic_metadata_t",
    "egress_from_parser": "egress_intrinsic_metadata_from_parser_t",
    "egress_for_deparser": "egress_intrinsic_metadata_for_deparser_t",
    "egress_for_port": "egress_intrinsic_metadata_for_output_port_t",
}
"""The fields of ``standard_metadata``, and their types."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One block of a pipeline: its gress, and each parameter as (direction, storage)."""

    stage: Stage
    kind: str
    gress: str
    params: tuple[tuple[str, str], ...]


_IN, _OUT = ("", "packet_in"), ("", "packet_out")
SLOTS = (
    Slot(
        Stage.PARSER,
        "parser",
        "ingress",
        (
            *(_IN, ("out", "hdr"), ("out", "meta"), ("out", "ingress")),
            *(("out", "ingress_for_tm"), ("out", "ingress_from_parser")),
        ),
    ),
    Slot(
        Stage.INGRESS,
        "control",
        "ingress",
        (
            *(("inout", "hdr"), ("inout", "meta"), ("in", "ingress"), ("in", "ingress_from_parser")),
            *(("inout", "ingress_for_deparser"), ("inout", "ingress_for_tm")),
        ),
    ),
    Slot(
        Stage.INGRESS_DEPARSER,
        "control",
        "ingress",
        (_OUT, ("inout", "hdr"), ("in", "meta"), ("in", "ingress_for_deparser"), ("in", "ingress")),
    ),
    Slot(
        Stage.EGRESS_PARSER,
        "parser",
        "egress",
        (
            *(_IN, ("out", "hdr"), ("out", "meta"), ("out", "egress")),
            *(("out", "egress_from_parser"), ("out", "egress_for_deparser")),
        ),
    ),
    Slot(
        Stage.EGRESS,
        "control",
        "egress",
        (
            *(("inout", "hdr"), ("inout", "meta"), ("in", "egress"), ("in", "egress_from_parser")),
            *(("inout", "egress_for_deparser"), ("inout", "egress_for_port")),
        ),
    ),
    Slot(
        Stage.DEPARSER,
        "control",
        "egress",
        (
            *(_OUT, ("inout", "hdr"), ("in", "meta"), ("in", "egress_for_deparser"), ("in", "egress")),
            ("in", "egress_from_parser"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a pipeline was lowered to: storages, parsers and blocks."""

    hdr: ir.Struct
    meta: ir.Struct
    standard_metadata: ir.Struct
    states: Mapping[str, ir.State]
    egress_states: Mapping[str, ir.State]
    bodies: Mapping[Stage, tuple[ir.Stmt, ...]]
    ingress_parser: str


def is_for_tofino(declarations: tuple[ast.Decl, ...]) -> bool:
    """Return True if a program declares the packages and the intrinsic metadata of Tofino."""
    names = {decl.name for decl in declarations if isinstance(decl, ast.PackageDecl | ast.StructDecl)}
    return {SWITCH, PIPELINE, _MARK} <= names


def architecture_of(unit: Unit) -> str:
    """Return ``tna`` or ``t2na``: the latter has ghost threads."""
    return "tna" if unit.globals.find("ghost_intrinsic_metadata_t") is None else "t2na"


def lower_switch(unit: Unit, main: ast.Instantiation) -> Pipeline:
    """Lower the pipeline of a switch. Raises CompileError."""
    blocks = _blocks(unit, _pipeline(unit, main))
    formals = {slot.stage: _formals(unit, block) for slot, block in zip(SLOTS, blocks, strict=True)}
    for slot, block in zip(SLOTS, blocks, strict=True):
        _check_shape(slot, block, formals[slot.stage])
    types = _intrinsic(unit, main.pos)
    own = {
        "hdr": _own(formals, 1, "headers"),
        "meta": _own(formals, 2, "metadata"),
        "standard_metadata": t.StructType("intrinsic", types, _struct("intrinsic", types)),
    }
    unit.states, states = {}, unit.states
    bodies: dict[Stage, tuple[ir.Stmt, ...]] = {}
    for slot, block in zip(SLOTS, blocks, strict=True):
        if slot.stage is Stage.EGRESS_PARSER:
            unit.states, states = {}, unit.states
        with unit.reporting():
            _lower_block(unit, slot, block, formals[slot.stage], own, bodies)
    egress_states = unit.states
    unit.raise_errors()
    return Pipeline(
        own["hdr"].ir,
        own["meta"].ir,
        own["standard_metadata"].ir,
        _closed(states),
        _closed(egress_states),
        bodies,
        blocks[0].decl.name,
    )


def _closed(states: Mapping[str, ir.State]) -> dict[str, ir.State]:
    """Return the states with ``accept`` for ``reject``, as p4c's back end has it: both end a parser.

    A select without a case that fits is an error, and so is a frame that ends too early.
    """
    changed = {}
    for state in states.values():
        cases = tuple(
            (key, "accept" if target == "reject" else target) for key, target in state.transition.cases
        )
        transition = ir.Transition(state.transition.subjects, cases, state.transition.pos)
        changed[state.name] = ir.State(state.name, state.body, transition, state.pos)
    return changed


def _pipeline(unit: Unit, main: ast.Instantiation) -> ast.Instantiation:
    """Return the pipeline that a switch has in all of its pipes."""
    assert isinstance(main.type, ast.NamedType)
    if main.type.name != SWITCH:
        raise Unsupported(f"package {main.type.name!r}", main.type.pos, f"{SWITCH} of {PIPELINE}s")
    if main.name != "main":
        raise CompileError(f"the package is called {main.name!r}", main.pos, "main")
    if not main.args:
        raise CompileError("a switch without a pipeline", main.pos, f"{SWITCH}(pipe) main;")
    pipelines = [_pipeline_of(unit, arg.value) for arg in main.args]
    for number, (arg, pipeline) in enumerate(zip(main.args, pipelines, strict=True)):
        if pipeline is not pipelines[0] and not _same_blocks(pipeline, pipelines[0]):
            message = f"pipeline {number} of the switch has other blocks than pipeline 0"
            raise Unsupported(message, arg.pos, "the same pipeline in all pipes; or a program for each")
    if len(pipelines) > 1:
        remark("the pipes of the switch share their tables and registers", main.args[1].pos)
    return pipelines[0]


def _same_blocks(one: ast.Instantiation, other: ast.Instantiation) -> bool:
    """Return True if two pipelines surely have the same blocks: each made of one type, without arguments."""
    names = [[_block_name(arg.value) for arg in pipeline.args] for pipeline in (one, other)]
    return None not in names[0] and names[0] == names[1]


def _block_name(expr: ast.Expr) -> str | None:
    match expr:
        case ast.Call(ast.Name(name), (), ()):
            return name
    return None


def _pipeline_of(unit: Unit, arg: ast.Expr) -> ast.Instantiation:
    match arg:
        case ast.Name(name) if name in unit.packages:
            return unit.packages[name]
        case ast.Call(ast.Name("Pipeline", absolute, pos=pos), type_args, args):
            ref = ast.NamedType(PIPELINE, absolute, type_args, pos=pos)
            return ast.Instantiation(ref, args, "pipe", None, pos=arg.pos, annotations=())
        case _:
            raise CompileError("this is no pipeline", arg.pos, f"the name of a {PIPELINE}")


def _blocks(unit: Unit, pipeline: ast.Instantiation) -> list[Block]:
    package = package_of(unit, pipeline)
    params = [param for param in package.params if not is_optional(param)]
    if len(params) != len(SLOTS):
        raise Unsupported(f"a {PIPELINE} of {len(params)} blocks", pipeline.pos, "tna.p4 as it comes")
    if len(pipeline.args) > len(params):
        remark("the ghost thread of the pipeline does not run", pipeline.args[len(params)].pos)
    args = bind(PIPELINE, params, pipeline.args[: len(params)], pipeline.pos)
    return [block_of(unit, slot.kind, slot.stage, arg) for slot, arg in zip(SLOTS, args, strict=True)]


def _formals(unit: Unit, block: Block) -> list[Formal]:
    return formals_of(unit, block.decl.params, block_scope(unit, block))


def _check_shape(slot: Slot, block: Block, formals: list[Formal]) -> None:
    """Compare the directions of a block's parameters with the architecture's; the last ones may be absent."""
    decl, wanted = block.decl, describe_slot(slot.params)
    if not 3 <= len(formals) <= len(slot.params):
        where = slot.stage.name.lower().replace("_", " ")
        raise CompileError(
            f"{slot.kind} {decl.name!r} has {len(formals)} parameters as {where}", decl.pos, wanted
        )
    for formal, (direction, what) in zip(formals, slot.params, strict=False):
        if formal.direction != direction and not (what == "hdr" and formal.direction == "in"):
            message = (
                f"parameter {formal.name!r} of {decl.name!r} is {formal.direction or 'without direction'}"
            )
            raise CompileError(message, formal.pos, wanted)


def _own(formals: Mapping[Stage, list[Formal]], place: int, name: str) -> t.StructType:
    """Return a struct of what both gresses have as their headers or metadata."""
    fields: dict[str, t.Type] = {}
    for gress, stage in (("ingress", Stage.PARSER), ("egress", Stage.EGRESS_PARSER)):
        formal = formals[stage][place]
        lowered = t.lowered(formal.type)
        if lowered is None or isinstance(lowered, ir.VarBits):
            message = f"{t.describe(formal.type)} as a parameter of the pipeline"
            raise Unsupported(message, formal.pos, "a struct or a header")
        check_stored(lowered, formal.pos)
        fields[gress] = formal.type
    return t.StructType(name, fields, _struct(name, fields))


def _struct(name: str, fields: Mapping[str, t.Type]) -> ir.Struct:
    return ir.Struct(
        name, tuple((field, low) for field, type_ in fields.items() if (low := t.lowered(type_)))
    )


def _intrinsic(unit: Unit, pos: ir.Position) -> dict[str, t.Type]:
    types: dict[str, t.Type] = {}
    for field, name in INTRINSIC.items():
        symbol = unit.globals.lookup(name, pos)
        assert isinstance(symbol, TypeName)
        types[field] = symbol.type
    return types


def intrinsic_place(unit: Unit, struct: str, field: str, pos: ir.Position) -> ir.Member:
    """Return a field of ``standard_metadata``, of the struct of that name in `INTRINSIC`."""
    types = _intrinsic(unit, pos)
    outer = t.lowered(types[struct])
    assert isinstance(outer, ir.Struct)
    whole = ir.Var(_struct("intrinsic", types), "standard_metadata", pos)
    return ir.Member(dict(outer.fields)[field], ir.Member(outer, whole, struct, pos), field, pos)


def _lower_block(
    unit: Unit,
    slot: Slot,
    block: Block,
    formals: list[Formal],
    own: Mapping[str, t.StructType],
    bodies: dict[Stage, tuple[ir.Stmt, ...]],
) -> None:
    values = {
        formal.name: _value(unit, slot, block, formal, what, own)
        for formal, (_, what) in zip(formals, slot.params, strict=False)
    }
    caller = Body(unit, unit.globals, Place.CONSTANT, slot.stage, block.decl.name)
    scope, passed = block_scope(unit, block), Passed(values, ())
    with unit.entered(block.decl, f"{slot.kind} {block.decl.name!r}", block.pos):
        if slot.kind == "parser":
            lower_main_parser(caller, block, scope, block.decl.name, formals, passed)
        else:
            body = lower_control(caller, block, scope, block.decl.name, formals, passed, repeats=False)
            bodies[slot.stage] = body.finished(block.pos)


def _value(
    unit: Unit, slot: Slot, block: Block, formal: Formal, what: str, own: Mapping[str, t.StructType]
) -> Value:
    symbol = unit.globals.find(what)
    if what.startswith("packet_"):
        wanted: t.Type = t.ExternType(what)
    else:
        root, field = (what, slot.gress) if what in ("hdr", "meta") else ("standard_metadata", what)
        wanted = own[root].fields[field]
    if not t.same(formal.type, wanted):
        message = f"parameter {formal.name!r} of {block.decl.name!r} is {t.describe(formal.type)}"
        raise CompileError(message, formal.pos, t.describe(wanted))
    if isinstance(wanted, t.ExternType):
        assert isinstance(symbol, ExternDef)
        return Packet(wanted, symbol.decl)
    lowered = t.lowered(wanted)
    assert lowered is not None
    place = ir.Member(lowered, ir.Var(own[root].ir, root, formal.pos), field, formal.pos)
    why = f"{formal.name!r} is an `in` parameter" if formal.direction == "in" else ""
    return Run(wanted, place, formal.direction != "in", why)
