"""The types of the IR."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bits:
    """``bit<width>``, or ``int<width>`` when `signed`."""

    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Bool:
    """``bool``."""


@dataclass(frozen=True, slots=True)
class VarBits:
    """``varbit<max_width>``."""

    max_width: int


@dataclass(frozen=True, slots=True)
class Enum:
    """An ``enum`` without underlying type, or ``error``; values are indices into `members`."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """A header type: its fields in wire order, plus a validity bit."""

    name: str
    fields: tuple[tuple[str, Bits | Bool | VarBits], ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """A header stack: `size` headers and the index of the next one to extract."""

    element: Header
    size: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct type; a `union` has headers of which at most one is valid, or stacks of them."""

    name: str
    fields: tuple[tuple[str, Type], ...]
    union: bool = False


Scalar = Bits | Bool | Enum
Type = Bits | Bool | VarBits | Enum | Header | Stack | Struct
