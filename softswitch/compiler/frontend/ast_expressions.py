"""The half of the syntax tree that occurs inside the other: annotations, types, expressions.

Use it through `softswitch.compiler.frontend.ast`.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.ir import Position

# --------------------------------------------------------------------------- annotations


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name``, ``@name(body)`` or ``@name[elements]``.

    `body` is the source text between the parentheses (brackets), stripped, "" without any.
    `elements` is None except in the structured form with brackets.
    """

    name: str
    body: str
    elements: tuple[Argument, ...] | None
    pos: Position


# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class BoolType:
    """``bool``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class ErrorType:
    """``error``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class MatchKindType:
    """``match_kind``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class StringType:
    """``string``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class VoidType:
    """``void``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class DontCareType:
    """``_`` as a type argument: to be inferred."""

    pos: Position


@dataclass(frozen=True, slots=True)
class IntegerType:
    """``int`` without width: compile-time integers."""

    pos: Position


@dataclass(frozen=True, slots=True)
class BitsType:
    """``bit<width>`` or ``int<width>``; plain ``bit`` has the literal width 1."""

    width: Expr
    signed: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class VarbitType:
    """``varbit<width>``."""

    width: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class TupleType:
    """``tuple<A, B>``."""

    elements: tuple[TypeRef, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class ListType:
    """``list<A>``."""

    element: TypeRef
    pos: Position


@dataclass(frozen=True, slots=True)
class NamedType:
    """A type by name; `absolute` with a leading dot, `args` of ``Name<A, B>``."""

    name: str
    absolute: bool
    args: tuple[TypeRef, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class StackType:
    """``Element[size]``: a header stack, or an array in newer specifications."""

    element: TypeRef
    size: Expr
    pos: Position


TypeRef = (
    BoolType
    | ErrorType
    | MatchKindType
    | StringType
    | VoidType
    | DontCareType
    | IntegerType
    | BitsType
    | VarbitType
    | TupleType
    | ListType
    | NamedType
    | StackType
)

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class IntLiteral:
    """A number; `width` is None without ``w`` or ``s`` in the literal."""

    value: int
    width: int | None
    signed: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class BoolLiteral:
    """``true`` or ``false``."""

    value: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class StringLiteral:
    """A string; escaped quotes and backslashes are resolved in `value`."""

    value: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Name:
    """A name of anything, types included; `absolute` with a leading dot."""

    name: str
    absolute: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class This:
    """``this``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """A type where only its members can follow: ``error.X``, ``Foo<T>.apply()``."""

    type: TypeRef
    pos: Position


@dataclass(frozen=True, slots=True)
class Member:
    """``base.name``."""

    base: Expr
    name: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Index:
    """``base[index]``."""

    base: Expr
    index: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Slice:
    """``base[high:low]``."""

    base: Expr
    high: Expr
    low: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class PlusSlice:
    """``base[low+:width]``."""

    base: Expr
    low: Expr
    width: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class ListExpr:
    """``{a, b}``; `dots` if it ends in ``...`` (defaults for the rest)."""

    elements: tuple[Expr, ...]
    dots: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class StructExpr:
    """``{a = x, b = y}``; every field has a name; `dots` if it ends in ``...``."""

    fields: tuple[Argument, ...]
    dots: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class InvalidHeader:
    """``{#}``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Unary:
    """``+ - ~ !``."""

    op: str
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Binary:
    """``* / % + - |+| |-| ++ << >> < <= > >= == != & ^ | && ||``."""

    op: str
    left: Expr
    right: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Mux:
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Cast:
    """``(type) operand``."""

    type: TypeRef
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Call:
    """``callee<type_args>(args)``: function, method, action, ``apply`` or constructor."""

    callee: Expr
    type_args: tuple[TypeRef, ...]
    args: tuple[Argument, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class DontCare:
    """``_`` as an argument or in a keyset."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Default:
    """``default`` in a keyset or as a switch label."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Dots:
    """``...``: the default value of the context's type."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Mask:
    """``value &&& mask`` in a keyset."""

    value: Expr
    mask: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Range:
    """``low .. high`` in a keyset or a ``for``."""

    low: Expr
    high: Expr
    pos: Position


Expr = (
    IntLiteral
    | BoolLiteral
    | StringLiteral
    | Name
    | This
    | TypeExpr
    | Member
    | Index
    | Slice
    | PlusSlice
    | ListExpr
    | StructExpr
    | InvalidHeader
    | Unary
    | Binary
    | Mux
    | Cast
    | Call
    | DontCare
    | Default
    | Dots
    | Mask
    | Range
)


@dataclass(frozen=True, slots=True)
class Argument:
    """``value`` or ``name = value`` in a call, struct or annotation."""

    name: str | None
    value: Expr
    pos: Position
