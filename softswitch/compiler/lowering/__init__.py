"""Lower the syntax tree to the IR: resolve names, types and constants, and inline all instances.

Lowering starts at ``main`` and continues with everything that ``main`` uses; a control is checked where it
is applied. The steps, each in a module of its own::

    declare_all    global names, in source order                  → scope
    architectures  the blocks of ``main`` and their storages; the externs of v1model and TNA
    blocks         parsers and controls  ┐ bodies, lowered where they are applied
    subroutines    actions and functions ┘
    tables         keys and properties; `entries`
    statements     ┐
    check          ┘ expressions → operators, convert; dispatch: calls → extern functions and methods
    flatten        header unions and structs in headers → types that the back ends support
    ir.verify      check that the result is consistent, and that no value is too wide for the back ends

Unused code is also checked (`check_uncalled`), but does not become part of the program. It is lowered
with placeholders for facts that only a use provides: variables for parameters, an unknown type for a
type parameter, an instance without a body for a block passed to a constructor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported, unescape
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.ir.verify import check_limits, verify_program
from softswitch.compiler.lowering import passing
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures import check_package, package_of
from softswitch.compiler.lowering.architectures.tna import TNA, is_for_tofino
from softswitch.compiler.lowering.architectures.v1model import V1MODEL
from softswitch.compiler.lowering.blocks import Application, check_action, check_parser, lower_control
from softswitch.compiler.lowering.check import ir_annotations, reader, type_at, whole_number
from softswitch.compiler.lowering.convert import fit, fits
from softswitch.compiler.lowering.dispatch import call
from softswitch.compiler.lowering.extern_calls import make_object
from softswitch.compiler.lowering.flatten import flattened
from softswitch.compiler.lowering.instances import declare_instance
from softswitch.compiler.lowering.passing import (
    ParamRole,
    passed_to_nothing,
    stand_in_object,
    with_type_params,
)
from softswitch.compiler.lowering.resolve import check_fields, make_fields, wire_fields
from softswitch.compiler.lowering.statements import declare_constant, lower_statements
from softswitch.compiler.lowering.subroutines import formals_of, lower_body
from softswitch.compiler.lowering.unit import (
    Body,
    CodePlace,
    DeclaredAction,
    Instance,
    Stage,
    Unit,
    collecting,
    constant_body,
    control_name,
)
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    ExternDef,
    ExternFunctions,
    Functions,
    GenericType,
    Local,
    Run,
    Scope,
    Signature,
    TypeName,
    Variable,
)

VERSIONS = (20180101, 20200408)
"""Valid values of ``V1MODEL_VERSION``."""

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
"""The errors of core.p4; they are numbered before a program's own errors, so that NoError is 0."""


def error_type(declarations: Sequence[ast.Decl]) -> ir.Enum:
    """Return the type ``error`` with the members of all ``error`` declarations."""
    members = _members(declarations, "error")
    core = [name for name in CORE_ERRORS if name in members]
    return ir.Enum("error", (*core, *(name for name in members if name not in core)))


def match_kind_type(declarations: Sequence[ast.Decl]) -> ir.Enum:
    """Return the type ``match_kind`` with the members of all its declarations."""
    return ir.Enum("match_kind", _members(declarations, "match_kind"))


def _members(declarations: Sequence[ast.Decl], what: str) -> tuple[str, ...]:
    """Return the members of all declarations of one kind. Raises CompileError if two members share a name."""
    members: dict[str, ir.Position] = {}
    for decl in declarations:
        if isinstance(decl, ast.MembersDecl) and decl.name == what:
            for member in decl.members:
                if member.name in members:
                    raise CompileError(
                        f"{what} {member.name!r} is already declared at {members[member.name]}",
                        member.pos,
                        f"each {what} once",
                    )
                members[member.name] = member.pos
    return tuple(members)


def declare_all(unit: Unit, declarations: Sequence[ast.Decl]) -> ast.Instantiation | None:
    """Declare all global names; return the instantiation of the package, ``main``, or None if there is none.

    Errors are reported to `unit`.
    """
    names = unit.globals
    names.declare("error", TypeName(unit.errors, pos=ir.Position("", 0, 0)))
    body = constant_body(unit, names)
    main: ast.Instantiation | None = None
    for decl in declarations:
        with unit.reporting():
            _check_annotations(body, decl)
        with unit.reporting():
            if getattr(decl, "name", "") == "main" and not isinstance(decl, ast.Instantiation):
                raise CompileError(
                    "'main' is the name of the package's instance",
                    decl.pos,
                    "another name for this declaration",
                )
            if not isinstance(decl, ast.Instantiation) or not _is_package(names, decl):
                _declare(body, decl)
            elif _is_part(unit, decl):
                unit.packages[decl.name] = decl
            elif main is None:
                main = decl
            else:
                unit.report(Unsupported("a second package is instantiated", decl.pos, "one package, main"))
                main = decl if decl.name == "main" else main
            if isinstance(decl, ast.Instantiation) and _is_package(names, decl):
                _check_package(unit, decl)
            continue
        name = decl.prototype.name if isinstance(decl, _FUNCTIONS) else getattr(decl, "name", "")
        names.break_name(name, decl.pos)
    return main


def _is_part(unit: Unit, decl: ast.Instantiation) -> bool:
    """Return True if `decl`, an instance of a package, may be an argument of the main package.

    Tofino's pipelines are such instances: they are arguments of the switch.
    """
    assert isinstance(decl.type, ast.NamedType)
    return decl.name != "main" and decl.type.name in unit.architecture.parts


def _check_package(unit: Unit, decl: ast.Instantiation) -> None:
    package = package_of(unit, decl)
    if unit.architecture.checks != (package.name, len(package.params)):
        with unit.only_checking(), suppress(Unsupported):
            check_package(unit, decl)


_FUNCTIONS = (ast.FunctionDecl, ast.ExternFunctionDecl)


def _check_annotations(body: Body, decl: ast.Decl) -> None:
    """Check the values in structured annotations of a declaration and of its fields."""
    own = decl.prototype if isinstance(decl, _FUNCTIONS) else decl
    for holder in (own, *getattr(own, "fields", ())):
        ir_annotations(body, getattr(holder, "annotations", ()))


def _declare(body: Body, decl: ast.Decl) -> None:
    names = body.scope
    match decl:
        case ast.ConstDecl():
            declare_constant(body, names, decl)
            _check_version(names, decl)
        case ast.Instantiation():
            declare_instance(body, decl, "")
            if isinstance(names.find(decl.name), Local):
                raise CompileError(
                    f"{decl.name!r} is an instance of a control or parser outside any control or parser",
                    decl.pos,
                    "a declaration inside the control or parser that applies it",
                )
        case ast.FieldsDecl():
            _declare_fields(body, decl)
        case ast.EnumDecl():
            names.declare(decl.name, TypeName(_enum(body, decl), pos=decl.pos))
        case ast.TypedefDecl():
            names.declare(decl.name, TypeName(_typedef(body, decl), pos=decl.pos))
        case ast.ExternFunctionDecl(prototype):
            passing.check_prototype(body.unit, names, prototype, ParamRole.METHOD)
            _declare_extern_function(names, prototype)
        case ast.ExternDecl():
            before = Scope(names)
            names.declare(decl.name, ExternDef(decl, Scope(names), pos=decl.pos))
            passing.check_extern(body.unit, before, decl)
        case ast.FunctionDecl():
            passing.check_prototype(body.unit, names, decl.prototype, ParamRole.FUNCTION)
            _declare_function(names, decl)
        case ast.ActionDecl():
            passing.check_action(body.unit, names, decl)
            action = DeclaredAction(decl, control_name("", decl.name, decl.annotations), Scope(names), None)
            names.declare(decl.name, Local(action, pos=decl.pos))
        case ast.ParserTypeDecl() | ast.ControlTypeDecl() | ast.PackageDecl():
            passing.check_block_type(body.unit, names, decl)
            names.declare(decl.name, Signature(decl, pos=decl.pos))
        case ast.ParserDecl() | ast.ControlDecl():
            passing.check_block(body.unit, names, decl)
            names.declare(decl.name, BlockDef(decl, Scope(names), pos=decl.pos))
        case ast.MembersDecl():
            pass  # `error_type` and `match_kind_type` have collected these


def _check_version(names: Scope, decl: ast.ConstDecl) -> None:
    symbol = names.find(decl.name) if decl.name == "__v1model_version" else None
    value = symbol.value if isinstance(symbol, Variable) else None
    if isinstance(value, Run) and isinstance(value.expr, ir.Const) and value.expr.value not in VERSIONS:
        raise CompileError(
            f"version {value.expr.value} of v1model is unknown", decl.pos, " or ".join(map(str, VERSIONS))
        )


def _is_package(names: Scope, decl: ast.Instantiation) -> bool:
    if not isinstance(decl.type, ast.NamedType):
        return False
    symbol = names.lookup(decl.type.name, decl.type.pos, absolute=decl.type.absolute)
    return isinstance(symbol, Signature) and isinstance(symbol.decl, ast.PackageDecl)


def _declare_fields(body: Body, decl: ast.FieldsDecl) -> None:
    names = body.scope
    if decl.type_params:
        names.declare(decl.name, GenericType(decl, Scope(names), pos=decl.pos))
        return
    type_ = make_fields(decl, decl.name, names, reader(body))
    names.declare(decl.name, TypeName(type_, pos=decl.pos))
    _refuse(body.unit, decl, type_)
    for annotation in decl.annotations:
        if annotation.name == "controller_header" and isinstance(type_, t.HeaderType):
            _add_controller_header(body, decl, type_, unescape(annotation.body))


def _refuse(unit: Unit, decl: ast.FieldsDecl, made: t.HeaderType | t.StructType | t.UnionType) -> None:
    try:
        check_fields(decl, made)
    except Unsupported as error:
        unit.refuse(error)


def _add_controller_header(body: Body, decl: ast.FieldsDecl, type_: t.HeaderType, name: str) -> None:
    params: list[ir.Param] = []
    for field in decl.fields:
        declared = type_.fields[field.name]
        for wire_name, scalar in wire_fields(field.name, declared, field.pos):
            if isinstance(scalar, ir.VarBits):
                raise Unsupported("a varbit in a controller header", field.pos, "fields of fixed width")
            named = t.named(declared, field.pos)
            params.append(ir.Param(wire_name, "", scalar, ir_annotations(body, field.annotations), named))
    body.unit.controller_headers[name] = ir.ControllerHeader(
        name, decl.name, tuple(params), pos=decl.pos, annotations=ir_annotations(body, decl.annotations)
    )


def _enum(body: Body, decl: ast.EnumDecl) -> t.Type:
    members: dict[str, int] = {}
    underlying: ir.Bits | None = None
    if decl.underlying is not None:
        type_ = t.base(type_at(body, decl.underlying))
        if not isinstance(type_, ir.Bits):
            raise CompileError(
                f"an enum cannot have the underlying type {t.describe(type_)}",
                decl.underlying.pos,
                "bit<W> or int<W>",
            )
        underlying = type_
    for number, member in enumerate(decl.members):
        if member.name in members:
            raise CompileError(f"{decl.name} has two members {member.name!r}", member.pos, "each member once")
        members[member.name] = number
        if underlying is not None and member.value is not None:
            members[member.name] = _member_value(body, member.value, underlying)
    if underlying is None:
        return ir.Enum(decl.name, tuple(members))
    return t.SerialEnum(decl.name, underlying, members)


def _member_value(body: Body, expr: ast.Expr, underlying: ir.Bits) -> int:
    number = whole_number(body, expr)
    if not fits(number, underlying):
        low, high = fold.limits(underlying)
        raise CompileError(f"{number} does not fit in {t.describe(underlying)}", expr.pos, f"{low} to {high}")
    return fit(number, underlying, expr.pos).value


def _typedef(body: Body, decl: ast.TypedefDecl) -> t.Type:
    match decl.type:
        case ast.FieldsDecl() as inner:
            made = make_fields(inner, decl.name, body.scope, reader(body))
            _refuse(body.unit, inner, made)
            type_: t.Type = made
        case ast.EnumDecl() as inner:
            type_ = _enum(body, inner)
        case ref:
            type_ = type_at(body, ref)
    if not decl.distinct:
        return type_
    scalar = t.lowered(type_)
    if not isinstance(scalar, ir.Bits | ir.Bool):
        raise CompileError(
            f"a new type cannot be made of {t.describe(type_)}", decl.pos, "bit<W>, int<W> or bool"
        )
    uri, width = _translation(decl)
    body.unit.new_types[decl.name] = ir.NewType(
        decl.name, scalar, uri, width, ir_annotations(body, decl.annotations)
    )
    return t.DistinctType(decl.name, type_)


def _translation(decl: ast.TypedefDecl) -> tuple[str, int]:
    """Return the URI and the controller's width in bits of ``@p4runtime_translation``; ("", 0) without it."""
    for annotation in decl.annotations:
        if annotation.name != "p4runtime_translation":
            continue
        uri, _, kind = map(str.strip, annotation.body.rpartition(","))
        if kind == "string":
            raise Unsupported(
                "translation to strings", annotation.pos, "the number of bits of the value at the controller"
            )
        try:
            return unescape(uri), int(kind.removeprefix("bit<").removesuffix(">"), 0)
        except ValueError:
            raise CompileError(
                f"@p4runtime_translation({annotation.body})", annotation.pos, '("URI", width)'
            ) from None
    return "", 0


def _declare_extern_function(names: Scope, prototype: ast.Prototype) -> None:
    known = names.find(prototype.name)
    if isinstance(known, ExternFunctions):
        known.overloads.append(prototype)
    else:
        names.declare(prototype.name, ExternFunctions([prototype], Scope(names), pos=prototype.pos))


def _declare_function(names: Scope, decl: ast.FunctionDecl) -> None:
    known = names.find(decl.prototype.name)
    if not isinstance(known, Functions):
        names.declare(decl.prototype.name, Functions([decl], Scope(names), pos=decl.pos))
        return
    params = [param.name for param in decl.prototype.params]
    if any([param.name for param in other.prototype.params] == params for other in known.overloads):
        raise CompileError(
            f"function {decl.prototype.name!r} is already declared with these parameters at {known.pos}",
            decl.pos,
            "parameters that tell the overloads apart",
        )
    known.overloads.append(decl)


def check_uncalled(unit: Unit) -> None:
    """Lower unused declarations to check them, report their errors, and discard the result.

    `Unsupported` errors are ignored. Blocks with values as constructor parameters are not checked, as widths
    and sizes may depend on these values.
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
                    body = Body(unit, own, CodePlace.CONTROL, Stage.NONE, "unused")
                    formals = formals_of(unit, function.prototype.params, own)
                    lower_body(body, function, own, formals, passed_to_nothing(body, formals), function.pos)
        case Local(DeclaredAction(used=False) as action):
            check_action(Body(unit, action.scope, CodePlace.CONTROL, Stage.NONE, "unused"), action)
        case GenericType(decl, scope, pos=_, made=made) if not made:
            own = with_type_params(scope, decl.type_params)
            body = constant_body(unit, own)
            make_fields(decl, decl.name, own, reader(body))


def _check_block(unit: Unit, decl: ast.ParserDecl | ast.ControlDecl, scope: Scope) -> None:
    parses = isinstance(decl, ast.ParserDecl)
    own = with_type_params(scope, decl.type_params)
    body = Body(unit, unit.globals, CodePlace.CONSTANT, Stage.PARSER if parses else Stage.NONE, decl.name)
    formals = formals_of(unit, decl.params, own)
    passed = passed_to_nothing(body, formals)
    block = Block(decl, _constructed(body, decl, own), pos=decl.pos)
    applied = Application(block, own, decl.name, formals, passed)
    if parses:
        check_parser(body, applied)
    else:
        lower_control(body, applied, repeats=False)


def _constructed(
    body: Body, decl: ast.ParserDecl | ast.ControlDecl, scope: Scope
) -> tuple[tuple[str, object], ...]:
    """Return placeholders for the constructor arguments of an unused block."""
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


def _bodiless(body: Body, param: ast.ParamDecl, type_: t.BlockType) -> Instance:
    """Return an instance, with an empty body, of a control that is known only by its type `type_`."""
    symbol = body.unit.globals.find(type_.name)
    if not isinstance(symbol, Signature) or not isinstance(symbol.decl, ast.ControlTypeDecl):
        raise Unsupported(f"a {type_.kind} as a constructor parameter of an unused block", param.pos)
    if symbol.decl.type_params:
        raise Unsupported("a generic constructor parameter of an unused block", param.pos)
    nothing = ast.BlockStatement((), pos=symbol.pos)
    decl = ast.ControlDecl(symbol.decl.name, (), symbol.decl.params, (), (), nothing, pos=symbol.pos)
    return Instance(Block(decl, (), pos=symbol.pos), param.name, Scope(body.unit.globals), sites=2)


def lower(program: ast.SourceProgram, name: str, *, single_access: bool = False) -> ir.Program:
    """Return the program as IR; for `single_access` see `softswitch.compiler.compile_source`.

    Raises CompileError or Unsupported: the first error, with all errors found after it in `others`.
    """
    try:
        with collecting() as remarks:
            lowered = _gather(program, name, single_access)
        verify_program(lowered)
        check_limits(lowered)
    except RecursionError:
        raise Unsupported("the program is nested too deeply", program.pos) from None
    return replace(lowered, remarks=tuple(remarks))


def _gather(program: ast.SourceProgram, name: str, single_access: bool) -> ir.Program:
    unit = Unit(name, error_type(program.declarations), match_kind_type(program.declarations))
    try:
        lowered = _lowered(unit, program, name, single_access)
    except CompileError as error:
        unit.report(error)
    except Exception:
        unit.raise_errors()  # an exception here may be a consequence of a reported error
        raise
    unit.raise_errors()
    return lowered


def _lowered(unit: Unit, program: ast.SourceProgram, name: str, single_access: bool) -> ir.Program:
    unit.call, unit.statements, unit.make_object = call, lower_statements, make_object
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
            annotations=ir_annotations(constant_body(unit, unit.globals), main.annotations),
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
