"""The declarations of a program, in source order, as names in the global scope."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import passing
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.packages import check_package, package_of
from softswitch.compiler.lowering.expressions.check import known, reader, type_at, whole_number
from softswitch.compiler.lowering.expressions.convert import fit, fits
from softswitch.compiler.lowering.instances import declare_instance
from softswitch.compiler.lowering.passing import Role
from softswitch.compiler.lowering.resolve import Fields, check_fields, make_fields, wire_fields
from softswitch.compiler.lowering.statements import declare_constant
from softswitch.compiler.lowering.syntax import control_name, ir_annotations
from softswitch.compiler.lowering.unit import Action, Body, Unit, constant_body
from softswitch.compiler.lowering.values import (
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
    show,
    type_of,
)
from softswitch.compiler.source import unescape

VERSIONS = (20180101, 20200408)
"""What ``V1MODEL_VERSION`` may be."""

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
"""The errors of core.p4: numbered first, wherever a program includes it, so that NoError is 0."""


def error_type(declarations: Sequence[ast.Decl]) -> ir.Enum:
    """Return the type ``error`` with the members of all ``error`` declarations."""
    members = _members(declarations, ast.ErrorDecl, "error")
    core = [name for name in CORE_ERRORS if name in members]
    return ir.Enum("error", (*core, *(name for name in members if name not in core)))


def match_kind_type(declarations: Sequence[ast.Decl]) -> ir.Enum:
    """Return the type ``match_kind`` with the members of all its declarations."""
    return ir.Enum("match_kind", _members(declarations, ast.MatchKindDecl, "match_kind"))


def _members(
    declarations: Sequence[ast.Decl], kind: type[ast.ErrorDecl | ast.MatchKindDecl], what: str
) -> tuple[str, ...]:
    """Return the members of all declarations of one kind. Raises CompileError if two have one name."""
    members: dict[str, ir.Position] = {}
    for decl in declarations:
        if isinstance(decl, kind):
            for member in decl.members:
                if member.name in members:
                    message = f"{what} {member.name!r} is already declared at {members[member.name]}"
                    raise CompileError(message, member.pos, f"each {what} once")
                members[member.name] = member.pos
    return tuple(members)


def declare_all(unit: Unit, declarations: Sequence[ast.Decl]) -> ast.Instantiation | None:
    """Fill the global scope; return the instantiation of the package, ``main``. Raises CompileError."""
    names = unit.globals
    names.declare("error", TypeName(unit.errors, ir.Position("", 0, 0)))
    body = constant_body(unit, names)
    main: ast.Instantiation | None = None
    for decl in declarations:
        with unit.reporting():
            _check_annotations(body, decl)
        with unit.reporting():
            if getattr(decl, "name", "") == "main" and not isinstance(decl, ast.Instantiation):
                message = "'main' is the name of the package's instance"
                raise CompileError(message, decl.pos, "another name for this")
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
    """Return True if an instance of a package is what another package is made of."""
    assert isinstance(decl.type, ast.NamedType)
    return decl.name != "main" and decl.type.name in unit.architecture.parts


def _check_package(unit: Unit, decl: ast.Instantiation) -> None:
    package = package_of(unit, decl)
    if unit.architecture.checks != (package.name, len(package.params)):
        with unit.only_checking(), suppress(Unsupported):
            check_package(unit, decl)


_FUNCTIONS = (ast.FunctionDecl, ast.ExternFunctionDecl)


def _check_annotations(body: Body, decl: ast.Decl) -> None:
    """Check the values in brackets that a declaration and its fields have ("Structured annotations")."""
    own = decl.prototype if isinstance(decl, _FUNCTIONS) else decl
    for holder in (own, *getattr(own, "fields", ())):
        for annotation in getattr(holder, "annotations", ()):
            for element in annotation.elements or ():
                value = known(body, element.value, what="the value of an annotation")
                if type_of(value) not in (t.INT, t.STRING, t.BOOL):
                    message = f"{show(value)} as the value of an annotation"
                    raise CompileError(message, element.pos, "int, string or bool")


def _declare(body: Body, decl: ast.Decl) -> None:
    names = body.scope
    match decl:
        case ast.ConstDecl():
            declare_constant(body, names, decl)
            _check_version(names, decl)
        case ast.Instantiation():
            declare_instance(body, decl, "")
            if isinstance(names.find(decl.name), Local):
                message = f"{decl.name!r} is an instance of a control or parser outside of any"
                raise CompileError(message, decl.pos, "its declaration inside of the one that applies it")
        case ast.HeaderDecl() | ast.StructDecl() | ast.HeaderUnionDecl():
            _declare_fields(body, decl)
        case ast.EnumDecl():
            names.declare(decl.name, TypeName(_enum(body, decl), decl.pos))
        case ast.TypedefDecl():
            names.declare(decl.name, TypeName(_typedef(body, decl), decl.pos))
        case ast.ExternFunctionDecl(prototype):
            passing.check_prototype(body.unit, names, prototype, Role.METHOD)
            _declare_extern_function(names, prototype)
        case ast.ExternDecl():
            before = Scope(names)
            names.declare(decl.name, ExternDef(decl, Scope(names), decl.pos))
            passing.check_extern(body.unit, before, decl)
        case ast.FunctionDecl():
            passing.check_prototype(body.unit, names, decl.prototype, Role.FUNCTION)
            _declare_function(names, decl)
        case ast.ActionDecl():
            passing.check_action(body.unit, names, decl)
            action = Action(decl, control_name("", decl.name, decl.annotations), Scope(names), None)
            names.declare(decl.name, Local(action, decl.pos))
        case ast.ParserTypeDecl() | ast.ControlTypeDecl() | ast.PackageDecl():
            passing.check_block_type(body.unit, names, decl)
            names.declare(decl.name, Signature(decl, decl.pos))
        case ast.ParserDecl() | ast.ControlDecl():
            passing.check_block(body.unit, names, decl)
            names.declare(decl.name, BlockDef(decl, Scope(names), decl.pos))
        case ast.ErrorDecl() | ast.MatchKindDecl():
            pass  # these are known from the start


def _check_version(names: Scope, decl: ast.ConstDecl) -> None:
    symbol = names.find(decl.name) if decl.name == "__v1model_version" else None
    value = symbol.value if isinstance(symbol, Variable) else None
    if isinstance(value, Run) and isinstance(value.expr, ir.Const) and value.expr.value not in VERSIONS:
        message = f"version {value.expr.value} of v1model is unknown"
        raise CompileError(message, decl.pos, " or ".join(map(str, VERSIONS)))


def _is_package(names: Scope, decl: ast.Instantiation) -> bool:
    if not isinstance(decl.type, ast.NamedType):
        return False
    symbol = names.lookup(decl.type.name, decl.type.pos, absolute=decl.type.absolute)
    return isinstance(symbol, Signature) and isinstance(symbol.decl, ast.PackageDecl)


def _declare_fields(body: Body, decl: Fields) -> None:
    names = body.scope
    if decl.type_params:
        names.declare(decl.name, GenericType(decl, Scope(names), decl.pos))
        return
    type_ = make_fields(decl, decl.name, names, reader(body))
    names.declare(decl.name, TypeName(type_, decl.pos))
    _refuse(body.unit, decl, type_)
    for annotation in decl.annotations:
        if annotation.name == "controller_header" and isinstance(type_, t.HeaderType):
            assert isinstance(decl, ast.HeaderDecl)
            _add_controller_header(body.unit, decl, type_, unescape(annotation.body))


def _refuse(unit: Unit, decl: Fields, made: t.HeaderType | t.StructType | t.UnionType) -> None:
    try:
        check_fields(decl, made)
    except Unsupported as error:
        unit.refuse(error)


def _add_controller_header(unit: Unit, decl: ast.HeaderDecl, type_: t.HeaderType, name: str) -> None:
    params: list[ir.Param] = []
    for field in decl.fields:
        declared = type_.fields[field.name]
        new = declared.name if isinstance(declared, t.NewType) else ""
        for wire_name, scalar in wire_fields(field.name, declared, field.pos):
            if isinstance(scalar, ir.VarBits):
                raise Unsupported("a varbit in a controller header", field.pos, "fields of fixed width")
            params.append(ir.Param(wire_name, "", scalar, ir_annotations(field.annotations), new))
    unit.controller_headers[name] = ir.ControllerHeader(
        name, decl.name, tuple(params), decl.pos, ir_annotations(decl.annotations)
    )


def _enum(body: Body, decl: ast.EnumDecl) -> t.Type:
    members: dict[str, int] = {}
    underlying: ir.Bits | None = None
    if decl.underlying is not None:
        type_ = t.base(type_at(body, decl.underlying))
        if not isinstance(type_, ir.Bits):
            raise CompileError(f"an enum of {t.describe(type_)}", decl.underlying.pos, "bit<W> or int<W>")
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
        case ast.HeaderDecl() | ast.StructDecl() | ast.HeaderUnionDecl() as inner:
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
        raise CompileError(f"a new type of {t.describe(type_)}", decl.pos, "bit<W>, int<W> or bool")
    uri, width = _translation(decl)
    body.unit.new_types[decl.name] = ir.NewType(decl.name, scalar, uri, width)
    return t.NewType(decl.name, type_)


def _translation(decl: ast.TypedefDecl) -> tuple[str, int]:
    """Return the URI and the width at the controller of ``@p4runtime_translation``, if it is there."""
    for annotation in decl.annotations:
        if annotation.name != "p4runtime_translation":
            continue
        uri, _, kind = map(str.strip, annotation.body.rpartition(","))
        if kind == "string":
            raise Unsupported(
                "translation to strings", annotation.pos, "the number of bits at the controller"
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
        names.declare(prototype.name, ExternFunctions([prototype], Scope(names), prototype.pos))


def _declare_function(names: Scope, decl: ast.FunctionDecl) -> None:
    known = names.find(decl.prototype.name)
    if not isinstance(known, Functions):
        names.declare(decl.prototype.name, Functions([decl], Scope(names), decl.pos))
        return
    params = [param.name for param in decl.prototype.params]
    if any([param.name for param in other.prototype.params] == params for other in known.overloads):
        message = f"function {decl.prototype.name!r} is already declared with these parameters at {known.pos}"
        raise CompileError(message, decl.pos, "parameters that tell the overloads apart")
    known.overloads.append(decl)
