"""Resolve type expressions and type declarations to types.

Widths and sizes are constant expressions; the caller passes a `TypeReader`, which evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.verify import check_stored
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.values import (
    BlockDef,
    ExternDef,
    GenericType,
    Number,
    Run,
    Scope,
    Signature,
    TypeName,
    Variable,
)

MAX_WIDTH = 1 << 16
MAX_STACK = 1 << 10

_BASIC: dict[str, t.Type] = {"bool": t.BOOL, "int": t.INT, "string": t.STRING, "void": t.VOID, "_": t.Infer()}


@dataclass(frozen=True, slots=True)
class TypeReader:
    """The functions and types that `resolve` needs besides the scope.

    Attributes:
        number: Evaluates a constant expression.
        refuse: Reports valid but unsupported code.
        match_kinds: The type ``match_kind``.
    """

    number: Callable[[ast.Expr], int]
    refuse: Callable[[Unsupported], object]
    match_kinds: ir.Enum


def resolve(scope: Scope, ref: ast.TypeRef, reader: TypeReader) -> t.Type:
    """Return the type that `ref` means in `scope`. Raises CompileError."""
    match ref:
        case ast.BitsType(width, signed):
            return ir.Bits(_width(width, reader, least=int(signed)), signed)
        case ast.NamedType():
            return _named(scope, ref, reader)
        case ast.VarbitType(width):
            return ir.VarBits(_width(width, reader))
        case ast.BasicType("error"):
            symbol = scope.lookup("error", ref.pos, absolute=True)
            assert isinstance(symbol, TypeName)
            return symbol.type
        case ast.BasicType("match_kind"):
            return reader.match_kinds
        case ast.BasicType(name):
            return _BASIC[name]
        case ast.TupleType(elements):
            return t.Tuple(tuple(_element(scope, element, reader) for element in elements))
        case ast.StackTypeRef(element, size):
            return _stack(resolve(scope, element, reader), reader.number(size), ref, size.pos)
        case ast.ListTypeRef(element):
            reader.refuse(Unsupported("list<…> types", ref.pos))
            return t.ListType(_element(scope, element, reader))


def _element(scope: Scope, ref: ast.TypeRef, reader: TypeReader) -> t.Type:
    """Return the type of an element of a tuple or list (P4_16: "Type nesting rules"). Raises CompileError."""
    type_ = resolve(scope, ref, reader)
    if isinstance(type_, t.ExternType | t.BlockType | t.Void):
        raise CompileError(f"{t.describe(type_)} cannot be in a tuple or list", ref.pos, "a data type")
    return type_


def _width(expr: ast.Expr, reader: TypeReader, *, least: int = 0) -> int:
    width = reader.number(expr)
    if width < least:
        raise CompileError(f"a width of {width} bits", expr.pos, "a positive width")
    check_width(width, f"a width of {width} bits", expr.pos, reader.refuse)
    return width


def check_width(width: int, what: str, pos: ir.Position, refuse: Callable[[Unsupported], object]) -> None:
    """Report a width of 0 bits as unsupported, and continue. Raises Unsupported if the width is too large."""
    unsupported = Unsupported(what, pos, f"1 to {MAX_WIDTH} bits")
    if width > MAX_WIDTH:
        raise unsupported
    if width == 0:
        refuse(unsupported)


def _stack(element: t.Type, size: int, ref: ast.StackTypeRef, size_pos: ir.Position) -> t.Type:
    if not 0 < size <= MAX_STACK:
        raise CompileError(f"a header stack of size {size}", size_pos, f"1 to {MAX_STACK}")
    if isinstance(element, t.HeaderType | t.UnionType):
        return t.StackType(element, size)
    if t.lowered(element) is None:
        raise Unsupported(f"an array of {t.describe(element)}", ref.pos, "a stack of headers")
    return t.Tuple((element,) * size, array=True)


def _named(scope: Scope, ref: ast.NamedType, reader: TypeReader) -> t.Type:
    symbol = scope.lookup(ref.name, ref.pos, absolute=ref.absolute)
    args = tuple(resolve(scope, arg, reader) for arg in ref.args)
    match symbol:
        case TypeName(type_):
            if args:
                raise CompileError(f"{ref.name} takes no type arguments", ref.pos, ref.name)
            return type_
        case GenericType():
            return specialise(symbol, args, ref.pos, reader)
        case ExternDef(decl):
            _check_arity(ref.name, len(decl.type_params), len(args), ref.pos)
            return t.ExternType(ref.name, args)
        case BlockDef(decl):
            kind = "parser" if isinstance(decl, ast.ParserDecl) else "control"
            raise CompileError(
                f"{ref.name!r} is a {kind}, not a type",
                ref.pos,
                f"the type of such {kind}s, declared by {kind} Name(…);",
            )
        case Signature(decl):
            kinds = {
                ast.ParserTypeDecl: "parser",
                ast.PackageDecl: "package",
            }
            return t.BlockType(kinds.get(type(decl), "control"), decl.name)
        case _:
            raise CompileError(f"{ref.name!r} is not a type", ref.pos, "the name of a type")


def _check_arity(name: str, wanted: int, given: int, pos: ir.Position) -> None:
    if wanted != given:
        raise CompileError(
            f"{name} has {given} type arguments", pos, f"{wanted} type argument{'s' * (wanted != 1)}"
        )


def specialise(
    generic: GenericType, args: tuple[t.Type, ...], pos: ir.Position, reader: TypeReader
) -> t.Type:
    """Return a generic struct or header with its type parameters bound."""
    decl = generic.decl
    _check_arity(decl.name, len(decl.type_params), len(args), pos)
    if args not in generic.made:
        refused: list[Unsupported] = []
        scope = Scope(generic.scope)
        for param, arg in zip(decl.type_params, args, strict=True):
            scope.declare(param.name, TypeName(arg, pos=param.pos))
        name = f"{decl.name}<{', '.join(map(t.describe, args))}>"
        made = make_fields(decl, name, scope, replace(reader, refuse=refused.append))
        check_fields(decl, made)
        generic.made[args] = replace(made, generic=generic, args=args), refused
    type_, refused = generic.made[args]
    for error in refused:  # report at each use: the first use may be in unused code
        reader.refuse(error)
    return type_


def make_fields(
    decl: ast.FieldsDecl, name: str, scope: Scope, reader: TypeReader
) -> t.HeaderType | t.StructType | t.UnionType:
    """Return the type of a struct, header or header union declaration."""
    fields: dict[str, t.Type] = {}
    for field in decl.fields:
        if field.name in fields:
            raise CompileError(
                f"{name} has two fields {field.name!r}", field.pos, "a name of its own for each field"
            )
        fields[field.name] = resolve(scope, field.type, reader)
    if decl.kind == "header":
        on_wire = _header_fields(decl, fields)
        if _is_flexible(decl) or any(isinstance(f, t.StructType) and f.flexible for f in fields.values()):
            on_wire = (*on_wire, *_padding(on_wire))
        return t.HeaderType(name, fields, ir.Header(name, on_wire))
    if decl.kind == "header_union":
        return t.UnionType(name, *_members(decl, name, fields))
    lists = {f.name: numbers for f in decl.fields if (numbers := _field_lists(f, scope))}
    matches = {
        f.name: _match_kind(a, reader.match_kinds)
        for f in decl.fields
        for a in f.annotations
        if a.name == "match"
    }
    return t.StructType(
        name,
        fields,
        ir.Struct(name, _struct_fields(decl, fields)),
        lists,
        matches,
        flexible=_is_flexible(decl),
    )


def _is_flexible(decl: ast.FieldsDecl) -> bool:
    """Return True if a declaration or a field in it is ``@flexible``: the compiler may choose the layout."""
    everywhere = (*decl.annotations, *(each for field in decl.fields for each in field.annotations))
    return any(annotation.name == "flexible" for annotation in everywhere)


def _padding(on_wire: tuple[tuple[str, Wire], ...]) -> tuple[tuple[str, Wire], ...]:
    """Return a padding field that fills a header to whole bytes; () if it is whole bytes already."""
    bits = sum(type_.width if isinstance(type_, ir.Bits) else 1 for _, type_ in on_wire)
    return (("(padding)", ir.Bits(-bits % 8)),) if bits % 8 else ()


def check_fields(decl: ast.FieldsDecl, made: t.HeaderType | t.StructType | t.UnionType) -> None:
    """Raise Unsupported if a struct has headers that the back ends do not support."""
    if isinstance(made, t.StructType):
        for field, (_, type_) in zip(decl.fields, made.ir.fields, strict=True):
            check_stored(type_, field.pos)


def _members(
    decl: ast.FieldsDecl, name: str, fields: dict[str, t.Type]
) -> tuple[dict[str, t.HeaderType], ir.Struct]:
    members: dict[str, t.HeaderType] = {}
    for field in decl.fields:
        type_ = fields[field.name]
        if isinstance(type_, t.TypeVar):
            continue
        if not isinstance(type_, t.HeaderType):
            raise CompileError(
                f"a member of type {t.describe(type_)} cannot be in a header union", field.pos, "a header"
            )
        members[field.name] = type_
    return members, ir.Struct(name, tuple((key, header.ir) for key, header in members.items()), union=True)


Wire = ir.Bits | ir.Bool | ir.VarBits


def wire_fields(name: str, type_: t.Type, pos: ir.Position) -> list[tuple[str, Wire]]:
    """Return (name, type) of each scalar of a header field; a nested struct's are ``field.member``."""
    inner = t.base(type_)
    if isinstance(inner, t.TypeVar):
        return []
    if isinstance(inner, t.StructType) or (isinstance(inner, t.Tuple) and inner.array):
        members = t.fields_of(inner) or {}
        parts = [wire_fields(f"{name}.{member}", part, pos) for member, part in members.items()]
        return [field for part in parts for field in part]
    scalar = t.lowered(type_)
    if not isinstance(scalar, ir.Bits | ir.Bool | ir.VarBits):
        raise CompileError(
            f"a header field cannot have type {t.describe(type_)}",
            pos,
            "bit<W>, int<W>, varbit<W>, bool, an enum with an underlying type, or a struct of those",
        )
    return [(name, scalar)]


def _header_fields(decl: ast.FieldsDecl, fields: dict[str, t.Type]) -> tuple[tuple[str, Wire], ...]:
    lowered: list[tuple[str, Wire]] = []
    for field in decl.fields:
        lowered += wire_fields(field.name, fields[field.name], field.pos)
    if sum(isinstance(scalar, ir.VarBits) for _, scalar in lowered) > 1:
        raise Unsupported(f"header {decl.name} with more than one varbit", decl.pos)
    return tuple(lowered)


def _struct_fields(decl: ast.FieldsDecl, fields: dict[str, t.Type]) -> tuple[tuple[str, ir.Type], ...]:
    lowered = []
    for field in decl.fields:
        type_ = t.lowered(fields[field.name])
        if type_ is None:
            description = t.describe(fields[field.name])
            raise CompileError(
                f"a struct field cannot have type {description}", field.pos, "a type that exists at run time"
            )
        lowered.append((field.name, type_))
    return tuple(lowered)


def _field_lists(field: ast.FieldDecl, scope: Scope) -> tuple[int, ...]:
    """Return the numbers in a field's annotations ``@field_list(1, NAME)``. Raises CompileError."""
    return tuple(
        _list_number(part.strip(), annotation, scope)
        for annotation in field.annotations
        if annotation.name == "field_list"
        for part in annotation.body.split(",")
    )


def _match_kind(annotation: ast.SourceAnnotation, kinds: ir.Enum) -> str:
    """Return the name in ``@match(ternary)``. Raises CompileError."""
    name = annotation.body.strip()
    if name not in kinds.members:
        expected = ", ".join(kinds.members) or "a declared match_kind"
        raise CompileError(f"@match({name}) names no match kind", annotation.pos, expected)
    return name


def _list_number(text: str, annotation: ast.SourceAnnotation, scope: Scope) -> int:
    owner, dot, member = text.partition(".")
    symbol = scope.find(owner)
    if (
        dot
        and isinstance(symbol, TypeName)
        and isinstance(symbol.type, t.SerialEnum)
        and member in symbol.type.members
    ):
        return symbol.type.members[member]
    match symbol:
        case Variable(Number(value)) | Variable(Run(_, ir.Const(_, value))):
            return value
    try:
        return int(text, 0)
    except ValueError:
        raise CompileError(f"{text!r} is no field list", annotation.pos, "numbers or constants") from None
