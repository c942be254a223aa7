"""Expressions of the IR."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.ir.types import Bits, Bool, Header, Scalar, Struct, Type
from softswitch.compiler.position import Position


@dataclass(frozen=True, slots=True)
class Const:
    """A literal.

    `value` is canonical: 0 <= value < 2**width (two's complement range if signed), 0/1 for Bool,
    the member's index for Enum.
    """

    type: Scalar
    value: int
    pos: Position


@dataclass(frozen=True, slots=True)
class Var:
    """A variable or one of the storages ``hdr``, ``meta``, ``standard_metadata``."""

    type: Type
    name: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct or header."""

    type: Type
    base: Expr
    field: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Index:
    """A header of a stack, by an expression of any Bits type.

    Here and in the next two: until `flatten` has run, a Struct is an element of a stack of unions.
    """

    type: Header | Struct
    base: Expr
    index: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Next:
    """``stack.next`` (in parsers; past the end it is error StackOutOfBounds)."""

    type: Header | Struct
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Last:
    """``stack.last`` (in parsers; of an empty stack it is error StackOutOfBounds)."""

    type: Header | Struct
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class LastIndex:
    """``stack.lastIndex``, bit<32>."""

    type: Bits
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Slice:
    """``base[high:low]``, also assignable."""

    type: Bits
    base: Expr
    high: int
    low: int
    pos: Position


@dataclass(frozen=True, slots=True)
class Unary:
    """``-``, ``~`` on Bits; ``!`` on Bool."""

    type: Scalar
    op: str
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Binary:
    """``+ - * / % & | ^ |+| |-| ++ << >>`` on Bits, ``== != < <= > >=``, ``&& ||`` (short-circuit).

    Both operands of all but shifts and ``++`` have the same type. ``==``/``!=`` also compare
    Bool, Enum, Header (validity, then fields) and Struct values.
    """

    type: Scalar
    op: str
    left: Expr
    right: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Cast:
    """Between Bits types (truncate, zero- or sign-extend by the operand's signedness), bit<1> and Bool."""

    type: Bits | Bool
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Mux:
    """``condition ? then : otherwise``."""

    type: Scalar
    condition: Expr
    then: Expr
    otherwise: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class IsValid:
    """``header.isValid()``."""

    type: Bool
    header: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Lookahead:
    """``packet.lookahead<bit<W>>()``: Bits only (headers are lowered field by field)."""

    type: Bits
    pos: Position


@dataclass(frozen=True, slots=True)
class PacketLength:
    """``packet.length()`` in bytes, bit<32>."""

    type: Bits
    pos: Position


Expr = (
    Const
    | Var
    | Member
    | Index
    | Next
    | Last
    | LastIndex
    | Slice
    | Unary
    | Binary
    | Cast
    | Mux
    | IsValid
    | Lookahead
    | PacketLength
)
