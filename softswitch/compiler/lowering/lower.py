"""From the syntax tree to the IR: names, types, constants, and everything instantiated in place.

Lowering starts at ``main`` and follows what is used; each control is checked where it is applied.
The steps, each in a module of its own::

    declare        global names, in source order                  → scope
    architectures  the blocks of ``main`` and their storages; what externs there are, of v1model and TNA
    controls       ┐
    parsers        │ bodies, lowered where they are applied
    actions        │
    functions      ┘
    tables         keys, actions, entries
    statements     ┐
    expressions    ┘ → operators, members, convert, calls → extern functions and methods
    flatten        header unions and structs in headers become what the back ends know
    ir.verify      what came out is consistent
    limits         what is right but too wide for the back ends

Code that nothing uses is checked too (`unused`), but leaves no trace in the program.

Checking what the program declares but never uses.

It is lowered with stand-ins for what only a use would give: variables for parameters, a type that nothing is
known of for a type parameter, an instance without a body for a block that a constructor gets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.verify import verify_program
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna import TNA, is_for_tofino
from softswitch.compiler.lowering.architectures.v1model import V1MODEL
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.blocks.controls import check_action, lower_control
from softswitch.compiler.lowering.blocks.parsers import check_parser
from softswitch.compiler.lowering.calls.dispatch import call
from softswitch.compiler.lowering.calls.functions import check_function
from softswitch.compiler.lowering.declare import declare_all, error_type, match_kind_type
from softswitch.compiler.lowering.expressions.check import reader, type_at
from softswitch.compiler.lowering.flatten import flattened
from softswitch.compiler.lowering.limits import check_limits
from softswitch.compiler.lowering.passing import passed_to_nothing, stand_in_object, with_type_params
from softswitch.compiler.lowering.resolve import make_fields
from softswitch.compiler.lowering.statements import lower_statements
from softswitch.compiler.lowering.syntax import ir_annotations
from softswitch.compiler.lowering.unit import (
    Action,
    Body,
    Instance,
    Place,
    Stage,
    Unit,
    collecting,
    constant_body,
)
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    Functions,
    GenericType,
    Local,
    Scope,
    Signature,
)


def check_uncalled(unit: Unit) -> None:
    """Lower unused declarations and drop the result; errors are reported.

    What is `Unsupported` in it does no harm. Blocks that are constructed with values are not looked at:
    widths and sizes may depend on them.
    """
    with unit.only_checking():
        for _, symbol in list(unit.globals.names.values()):
            with unit.scratch(), unit.reporting(), suppress(Unsupported):
                _check(unit, symbol)


def _check(unit: Unit, symbol: object) -> None:
    match symbol:
        case BlockDef(decl) if id(decl) not in unit.instantiated:
            _check_block(unit, decl, symbol.scope)
        case Functions(overloads, scope):
            for function in overloads:
                if id(function) not in unit.instantiated:
                    own = with_type_params(scope, function.prototype.type_params)
                    body = Body(unit, own, Place.CONTROL, Stage.NONE, "unused")
                    formals = formals_of(unit, function.prototype.params, own)
                    check_function(body, function, formals, passed_to_nothing(body, formals), own)
        case Local(Action(used=False) as action):
            check_action(Body(unit, action.scope, Place.CONTROL, Stage.NONE, "unused"), action)
        case GenericType(decl, scope, _, made) if not made:
            own = with_type_params(scope, decl.type_params)
            body = constant_body(unit, own)
            make_fields(decl, decl.name, own, reader(body))


def _check_block(unit: Unit, decl: ast.ParserDecl | ast.ControlDecl, scope: Scope) -> None:
    parses = isinstance(decl, ast.ParserDecl)
    own = with_type_params(scope, decl.type_params)
    body = Body(unit, unit.globals, Place.CONSTANT, Stage.PARSER if parses else Stage.NONE, decl.name)
    formals = formals_of(unit, decl.params, own)
    passed = passed_to_nothing(body, formals)
    block = Block(decl, _constructed(body, decl, own), decl.pos)
    if parses:
        check_parser(body, block, own, formals, passed)
    else:
        lower_control(body, block, own, decl.name, formals, passed, repeats=False)


def _constructed(
    body: Body, decl: ast.ParserDecl | ast.ControlDecl, scope: Scope
) -> tuple[tuple[str, object], ...]:
    """Return placeholders for constructor arguments."""
    declaring = constant_body(body.unit, scope)
    args: list[tuple[str, object]] = []
    for param in decl.constructor_params:
        type_ = type_at(declaring, param.type)
        if isinstance(type_, t.BlockType):
            args.append((param.name, _bodiless(body, param, type_)))
        elif isinstance(type_, t.ExternType):
            args.append((param.name, stand_in_object(body, type_, param.name, param.pos)))
        else:
            raise Unsupported("a value as a constructor parameter of an unused block", param.pos)
    return tuple(args)


def _bodiless(body: Body, param: ast.Param, type_: t.BlockType) -> Instance:
    """Return an instance of a parser or control of which only the type is known."""
    symbol = body.unit.globals.find(type_.name)
    if not isinstance(symbol, Signature) or not isinstance(symbol.decl, ast.ControlTypeDecl):
        raise Unsupported(f"a {type_.kind} as a constructor parameter of an unused block", param.pos)
    if symbol.decl.type_params:
        raise Unsupported("a generic constructor parameter of an unused block", param.pos)
    nothing = ast.Block((), pos=symbol.pos)
    decl = ast.ControlDecl(symbol.decl.name, (), symbol.decl.params, (), (), nothing, pos=symbol.pos)
    return Instance(Block(decl, (), symbol.pos), param.name, Scope(body.unit.globals), sites=2)


def lower(program: ast.Program, name: str, *, single_access: bool = False) -> ir.Program:
    """Return the program as IR; for `single_access` see `softswitch.compiler.compile_source`.

    Raises CompileError, or Unsupported, at the first thing that is wrong.
    """
    try:
        return _lower(program, name, single_access)
    except RecursionError:
        raise Unsupported("the program is nested too deeply", program.pos) from None


def _lower(program: ast.Program, name: str, single_access: bool) -> ir.Program:
    with collecting() as remarks:
        lowered = _gather(program, name, single_access)
    verify_program(lowered)
    check_limits(lowered)
    return replace(lowered, remarks=tuple(remarks))


def _gather(program: ast.Program, name: str, single_access: bool) -> ir.Program:
    unit = Unit(name, error_type(program.declarations), match_kind_type(program.declarations))
    try:
        lowered = _lowered(unit, program, name, single_access)
    except CompileError as error:
        unit.report(error)
    except Exception:
        unit.raise_errors()  # what follows an error may be its consequence
        raise
    unit.raise_errors()
    return lowered


def _lowered(unit: Unit, program: ast.Program, name: str, single_access: bool) -> ir.Program:
    unit.call, unit.statements = call, lower_statements
    unit.architecture = architecture = TNA if is_for_tofino(program.declarations) else V1MODEL
    main = declare_all(unit, program.declarations)
    if main is None:
        check_uncalled(unit)
        unit.raise_errors()
        raise CompileError("the program instantiates no package", program.pos, "V1Switch(…) main;")
    try:
        architecture.check(unit, main)
    except Unsupported:
        check_uncalled(unit)
        raise
    pipeline = architecture.lower(unit, main)
    check_uncalled(unit)
    unit.raise_errors()
    return flattened(
        ir.Program(
            name=name,
            errors=unit.errors,
            variables=unit.variables,
            actions=unit.actions,
            tables=unit.tables,
            registers=unit.registers,
            counters=unit.counters,
            annotations=ir_annotations(main.annotations),
            new_types=unit.new_types,
            action_profiles=unit.action_profiles,
            called_actions=unit.called_actions,
            register_arrays=unit.register_arrays,
            meters=unit.meters,
            digests=unit.digests,
            controller_headers=unit.controller_headers,
            **pipeline(single_access),
        )
    )
