"""The blocks of a Tofino pipeline: their parameters, and the parameters' storages.

This module also counts a packet's accesses to each register, because the chip allows only one. The count is
an upper bound: it ignores that conditions may exclude each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

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
from softswitch.compiler.lowering.blocks import retargeted
from softswitch.compiler.lowering.passing import bind, is_optional
from softswitch.compiler.lowering.unit import Fields, Stage, Unit, remark
from softswitch.compiler.lowering.values import Block, Formal, TypeName

SWITCH, PIPELINE = "Switch", "Pipeline"
_MARK = "ingress_intrinsic_metadata_for_tm_t"

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


_IN, _OUT = ("", "packet_in"), ("", "packet_out")
SLOTS = (
    BlockSlot(
        Stage.PARSER,
        "parser",
        (
            *(_IN, ("out", "hdr"), ("out", "meta"), ("out", "ingress")),
            *(("out", "ingress_for_tm"), ("out", "ingress_from_parser")),
        ),
        "ingress",
    ),
    BlockSlot(
        Stage.INGRESS,
        "control",
        (
            *(("inout", "hdr"), ("inout", "meta"), ("in", "ingress"), ("in", "ingress_from_parser")),
            *(("inout", "ingress_for_deparser"), ("inout", "ingress_for_tm")),
        ),
        "ingress",
    ),
    BlockSlot(
        Stage.INGRESS_DEPARSER,
        "control",
        (_OUT, ("inout", "hdr"), ("in", "meta"), ("in", "ingress_for_deparser"), ("in", "ingress")),
        "ingress",
    ),
    BlockSlot(
        Stage.EGRESS_PARSER,
        "parser",
        (
            *(_IN, ("out", "hdr"), ("out", "meta"), ("out", "egress")),
            *(("out", "egress_from_parser"), ("out", "egress_for_deparser")),
        ),
        "egress",
    ),
    BlockSlot(
        Stage.EGRESS,
        "control",
        (
            *(("inout", "hdr"), ("inout", "meta"), ("in", "egress"), ("in", "egress_from_parser")),
            *(("inout", "egress_for_deparser"), ("inout", "egress_for_port")),
        ),
        "egress",
    ),
    BlockSlot(
        Stage.DEPARSER,
        "control",
        (
            *(_OUT, ("inout", "hdr"), ("in", "meta"), ("in", "egress_for_deparser"), ("in", "egress")),
            ("in", "egress_from_parser"),
        ),
        "egress",
    ),
)


def is_for_tofino(declarations: tuple[ast.Decl, ...]) -> bool:
    """Return True if a program declares the packages and the intrinsic metadata of Tofino."""
    names = {decl.name for decl in declarations if isinstance(decl, ast.PackageDecl | ast.FieldsDecl)}
    return {SWITCH, PIPELINE, _MARK} <= names


def lower_switch(unit: Unit, main: ast.Instantiation) -> Callable[[bool], Fields]:
    """Lower the pipeline of a switch. Raises CompileError."""
    blocks = _blocks(unit, _pipeline(unit, main))
    formals = {slot.stage: formals_of_block(unit, block) for slot, block in zip(SLOTS, blocks, strict=True)}
    for slot, block in zip(SLOTS, blocks, strict=True):
        check_shape(slot, block, formals[slot.stage], least=3)
    types = _intrinsic(unit, main.pos)
    own = {
        "hdr": _own(formals, 1, "headers"),
        "meta": _own(formals, 2, "metadata"),
        "standard_metadata": t.StructType("intrinsic", types, _struct("intrinsic", types)),
    }

    def stored(slot: BlockSlot, what: str, pos: ir.Position) -> tuple[t.Type, ir.Expr]:
        root, field = (what, slot.gress) if what in ("hdr", "meta") else ("standard_metadata", what)
        type_ = own[root].fields[field]
        lowered = t.stored(type_)
        return type_, ir.Member(lowered, ir.Var(own[root].ir, root, pos=pos), field, pos=pos)

    unit.states, states = {}, unit.states
    bodies: dict[Stage, tuple[ir.Stmt, ...]] = {}
    for slot, block in zip(SLOTS, blocks, strict=True):
        if slot.stage is Stage.EGRESS_PARSER:
            unit.states, states = {}, unit.states
        with unit.reporting():
            lower_block(unit, slot, block, formals[slot.stage], stored, bodies)
    egress_states = unit.states
    unit.raise_errors()

    def fields(single_access: bool) -> Fields:
        check_accesses(bodies.values(), unit.actions, unit.tables, unit.register_arrays, refuse=single_access)
        return {
            "architecture": "tna" if unit.globals.find("ghost_intrinsic_metadata_t") is None else "t2na",
            **{name: struct.ir for name, struct in own.items()},
            "states": _closed(states),
            "egress_states": _closed(egress_states),
            "ingress_parser": blocks[0].decl.name,
            "verify": (),
            "compute": (),
            **{stage.name.lower(): body for stage, body in bodies.items()},
        }

    return fields


def _closed(states: Mapping[str, ir.ParserState]) -> dict[str, ir.ParserState]:
    """Return the states with ``reject`` replaced by ``accept``, as p4c's back end treats both alike.

    A select without a matching case remains an error, and so does a frame that ends too early.
    """
    return {name: retargeted(state, "reject", "accept") for name, state in states.items()}


def _pipeline(unit: Unit, main: ast.Instantiation) -> ast.Instantiation:
    """Return the pipeline that the switch runs; all pipes of the switch must run the same one."""
    assert isinstance(main.type, ast.NamedType)
    if main.type.name != SWITCH:
        raise Unsupported(f"package {main.type.name!r}", main.type.pos, f"{SWITCH} of {PIPELINE}s")
    if main.name != "main":
        raise CompileError(f"the package is called {main.name!r}", main.pos, "main")
    if not main.args:
        raise CompileError("the switch has no pipeline", main.pos, f"{SWITCH}(pipe) main;")
    pipelines = [_pipeline_of(unit, arg.value) for arg in main.args]
    for number, (arg, pipeline) in enumerate(zip(main.args, pipelines, strict=True)):
        if pipeline is not pipelines[0] and not _same_blocks(pipeline, pipelines[0]):
            raise Unsupported(
                f"pipeline {number} of the switch has other blocks than pipeline 0",
                arg.pos,
                "the same pipeline in all pipes; or a separate program for each pipe",
            )
    if len(pipelines) > 1:
        remark("the pipes of the switch share their tables and registers", main.args[1].pos)
    return pipelines[0]


def _same_blocks(one: ast.Instantiation, other: ast.Instantiation) -> bool:
    """Return True if two pipelines certainly have the same blocks.

    This is the case if the blocks have the same types and no arguments.
    """
    names = [[_block_name(arg.value) for arg in pipeline.args] for pipeline in (one, other)]
    return None not in names[0] and names[0] == names[1]


def _block_name(expr: ast.Expr) -> str | None:
    match expr:
        case ast.CallExpr(ast.Name(name), (), ()):
            return name
    return None


def _pipeline_of(unit: Unit, arg: ast.Expr) -> ast.Instantiation:
    match arg:
        case ast.Name(name) if name in unit.packages:
            return unit.packages[name]
        case ast.CallExpr(ast.Name("Pipeline", absolute, pos=pos), type_args, args):
            ref = ast.NamedType(PIPELINE, absolute, type_args, pos=pos)
            return ast.Instantiation(ref, args, "pipe", None, pos=arg.pos, annotations=())
        case _:
            raise CompileError("this is no pipeline", arg.pos, f"the name of a {PIPELINE}")


def _blocks(unit: Unit, pipeline: ast.Instantiation) -> list[Block]:
    package = package_of(unit, pipeline)
    params = [param for param in package.params if not is_optional(param)]
    if len(params) != len(SLOTS):
        raise Unsupported(f"a {PIPELINE} of {len(params)} blocks", pipeline.pos, "the published tna.p4")
    if len(pipeline.args) > len(params):
        remark("the ghost thread of the pipeline does not run", pipeline.args[len(params)].pos)
    args = bind(PIPELINE, params, pipeline.args[: len(params)], pipeline.pos)
    return [block_of(unit, slot, arg) for slot, arg in zip(SLOTS, args, strict=True)]


def _own(formals: Mapping[Stage, list[Formal]], place: int, name: str) -> t.StructType:
    """Return a struct with the fields ``ingress`` and ``egress``, of the types of two parsers' parameters.

    The parameter is number `place` of the ingress parser and of the egress parser: headers, or metadata.
    """
    fields: dict[str, t.Type] = {}
    for gress, stage in (("ingress", Stage.PARSER), ("egress", Stage.EGRESS_PARSER)):
        formal = formals[stage][place]
        lowered = t.lowered(formal.type)
        if lowered is None or isinstance(lowered, ir.VarBits):
            raise Unsupported(
                f"{t.describe(formal.type)} as a parameter of the pipeline",
                formal.pos,
                "a struct or a header",
            )
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
    """Return the field `field` of a struct of intrinsic metadata; `struct` is a key of `INTRINSIC`."""
    types = _intrinsic(unit, pos)
    outer = t.lowered(types[struct])
    assert isinstance(outer, ir.Struct)
    whole = ir.Var(_struct("intrinsic", types), "standard_metadata", pos=pos)
    return ir.Member(dict(outer.fields)[field], ir.Member(outer, whole, struct, pos=pos), field, pos=pos)


def check_accesses(
    blocks: Iterable[tuple[ir.Stmt, ...]],
    actions: Mapping[str, ir.Action],
    tables: Mapping[str, ir.Table],
    arrays: Mapping[str, ir.RegisterArray],
    *,
    refuse: bool,
) -> None:
    """Warn about registers that a packet may access more than once, or raise CompileError.

    Args:
        blocks: All blocks that a packet passes, in ingress and egress.
        actions: The program's actions.
        tables: The program's tables.
        arrays: The program's registers.
        refuse: Raise CompileError for the first such register; otherwise warn about each.
    """
    register_of = {part: name for name, array in arrays.items() for part in array.parts}
    counting = _Meetings(actions, tables, register_of)
    total: Counter[str] = Counter()
    for body in blocks:
        total += counting.of(body)
    for name, array in arrays.items():
        if total[name] > 1:
            message = f"a packet may access register {name!r} {total[name]} times"
            if refuse:
                raise CompileError(message, array.pos, "one access, as on a chip")
            remark(f"{message}: a chip allows one access", array.pos)


class _Meetings:
    def __init__(
        self, actions: Mapping[str, ir.Action], tables: Mapping[str, ir.Table], register_of: Mapping[str, str]
    ) -> None:
        self._actions = actions
        self._tables = tables
        self._register_of = register_of

    def of(self, body: Iterable[ir.Stmt]) -> Counter[str]:
        """Return, for each register, the maximum number of accesses on any path through `body`."""
        total: Counter[str] = Counter()
        calls: set[tuple[str, ir.Position]] = set()
        for s in body:
            match s:
                case ir.Extern(function="register.read" | "register.write", instance=part):
                    calls.add((self._register_of[part], s.pos))  # an action's read and write are one call
                case ir.If(_, then, otherwise):
                    total += self.of(then) | self.of(otherwise)
                case ir.Switch(_, cases):
                    total += self._most(inner for _, inner in cases)
                case ir.Inlined(inner) | ir.Loop(inner):
                    total += self.of(inner)
                case ir.Call(action=action):
                    total += self.of(self._actions[action].body)
                case ir.Apply(table=table):
                    found = self._tables[table]
                    names = {found.default.action, *(ref.action for ref in found.actions)}
                    total += self._most(self._actions[name].body for name in names)
        return total + Counter(name for name, _ in calls)

    def _most(self, bodies: Iterable[Iterable[ir.Stmt]]) -> Counter[str]:
        most: Counter[str] = Counter()
        for body in bodies:
            most |= self.of(body)
        return most
