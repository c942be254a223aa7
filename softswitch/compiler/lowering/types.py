"""The types of P4 source, before they become types of the IR.

The IR has only run-time types. Lowering also needs arbitrary-precision ``int``, strings and tuples, and
distinguishes serialisable enums and ``type`` declarations from their underlying types. Scalar types that the
source and the IR share are the IR's classes.

Structs, headers, serialisable enums and new types are nominal: they compare by identity, and each
declaration (or specialisation of a generic one) makes exactly one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError


@dataclass(frozen=True, slots=True)
class Int:
    """``int``: integers of any size, at compile time only."""


@dataclass(frozen=True, slots=True)
class String:
    """``string``, at compile time only."""


@dataclass(frozen=True, slots=True)
class Void:
    """``void``: the type of a call without a result."""


@dataclass(frozen=True, slots=True)
class Infer:
    """``_`` as a type argument."""


@dataclass(frozen=True, slots=True)
class TypeVar:
    """A type parameter inside its declaration."""

    name: str


@dataclass(frozen=True, slots=True)
class Tuple:
    """``tuple<…>``, which is also the type of ``{a, b}``; with `array`, an array such as ``bit<8>[4]``."""

    elements: tuple[Type, ...]
    array: bool = False


@dataclass(frozen=True, slots=True)
class ListType:
    """``list<…>``, which exists only at compile time: code with lists is checked, but not supported."""

    element: Type


@dataclass(frozen=True, slots=True)
class RecordType:
    """The type of ``{x = a, y = b}`` until a context determines the struct."""

    fields: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """The type of ``...`` and of ``{#}`` until a context determines it."""


@dataclass(frozen=True, slots=True, eq=False)
class SerialEnum:
    """An ``enum`` with an underlying type."""

    name: str
    underlying: ir.Bits
    members: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class DistinctType:
    """``type underlying name``."""

    name: str
    underlying: Type


@dataclass(frozen=True, slots=True, eq=False)
class FieldsType:
    """A type with fields; for a specialised generic type, `generic` is that type and `args` the arguments."""

    name: str
    generic: object = field(default=None, kw_only=True)
    args: tuple[Type, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class HeaderType(FieldsType):
    """A header type; `ir` is the IR's node for it."""

    fields: Mapping[str, Type]
    ir: ir.Header


@dataclass(frozen=True, slots=True, eq=False)
class StructType(FieldsType):
    """A struct type.

    By field name, `lists` has the numbers of ``@field_list`` and `matches` the match kind of ``@match``.
    """

    fields: Mapping[str, Type]
    ir: ir.Struct
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    matches: Mapping[str, str] = field(default_factory=dict)
    flexible: bool = False

    def match(self, name: str) -> str:
        """Return the match kind of a field in a value set: "exact" without ``@match``."""
        return self.matches.get(name, "exact")


@dataclass(frozen=True, slots=True, eq=False)
class UnionType(FieldsType):
    """A header union; in the IR, a struct of the union's headers (`flatten` keeps at most one valid)."""

    fields: Mapping[str, HeaderType]
    ir: ir.Struct


@dataclass(frozen=True, slots=True)
class StackType:
    """A stack of headers or header unions."""

    element: HeaderType | UnionType
    size: int


@dataclass(frozen=True, slots=True)
class ExternType:
    """An extern object's type; `args` are its type arguments."""

    name: str
    args: tuple[Type, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockType:
    """The type of a constructor parameter that takes a block; `kind` is parser, control or package."""

    kind: str
    name: str


Type = (
    ir.Bits
    | ir.Bool
    | ir.VarBits
    | ir.Enum
    | Int
    | String
    | Void
    | Infer
    | TypeVar
    | Tuple
    | ListType
    | RecordType
    | Rest
    | SerialEnum
    | DistinctType
    | HeaderType
    | StructType
    | UnionType
    | StackType
    | ExternType
    | BlockType
)

BIT1 = ir.Bits(1)
BIT32 = ir.Bits(32)
BOOL = ir.Bool()
INT = Int()
STRING = String()
VOID = Void()


def same(a: Type, b: Type) -> bool:
    """Return True if two types are the same, without conversions."""
    return a is b or a == b


def describe(type_: Type) -> str:
    """Return the type in P4 notation, for messages."""
    match type_:
        case ir.Bits(width, signed):
            return f"{'int' if signed else 'bit'}<{width}>"
        case ir.Bool():
            return "bool"
        case ir.VarBits(width):
            return f"varbit<{width}>"
        case Int():
            return "int"
        case String():
            return "string"
        case Void():
            return "void"
        case Infer():
            return "_"
        case Rest():
            return "a default value"
        case Tuple(elements, array=True):
            return f"{describe(elements[0])}[{len(elements)}]"
        case Tuple(elements):
            return f"tuple<{', '.join(map(describe, elements))}>"
        case ListType(element):
            return f"list<{describe(element)}>"
        case RecordType(fields):
            return "{" + ", ".join(f"{name} = {describe(t)}" for name, t in fields) + "}"
        case StackType(element, size):
            return f"{element.name}[{size}]"
        case ExternType(name, args) if args:
            return f"{name}<{', '.join(map(describe, args))}>"
        case _:
            return type_.name


def infer(pattern: Type, found: Type, bound: dict[str, Type]) -> None:
    """Add to `bound` types for the type variables of `pattern` that make `pattern` equal to `found`."""
    match pattern, found:
        case TypeVar(name), _:
            bound.setdefault(name, found)
        case StackType(StructType() | HeaderType() | UnionType() as a), StackType(b):
            infer(a, b, bound)
        case (Tuple(), Tuple()) | (ListType(), ListType()) | (ExternType(), ExternType()):
            for mine, other in zip(_parts(pattern), _parts(found), strict=False):
                infer(mine, other, bound)
        case (StructType() | HeaderType() | UnionType(), StructType() | HeaderType() | UnionType()):
            if pattern.generic is found.generic:
                for mine, other in zip(pattern.args, found.args, strict=True):
                    infer(mine, other, bound)


def is_open(type_: Type) -> bool:
    """Return True if the type is or contains a type variable or ``_``."""
    match type_:
        case TypeVar() | Infer():
            return True
        case StackType(element, _):
            return is_open(element)
        case _:
            return any(map(is_open, _parts(type_)))


def _parts(type_: Type) -> tuple[Type, ...]:
    match type_:
        case Tuple(elements):
            return elements
        case ListType(element):
            return (element,)
        case ExternType() | StructType() | HeaderType() | UnionType():
            return type_.args
        case _:
            return ()


def lowered(type_: Type) -> ir.Type | None:
    """Return the IR's type for values of `type_`; None if such values do not exist at run time."""
    match type_:
        case ir.Bits() | ir.Bool() | ir.VarBits() | ir.Enum():
            return type_
        case SerialEnum() | DistinctType():
            return lowered(type_.underlying)
        case TypeVar() | ListType():
            return ir.Struct(describe(type_), ())  # a dummy, for unused code
        case HeaderType() | StructType() | UnionType():
            return type_.ir
        case StackType(HeaderType() as element, size):
            return ir.Stack(element.ir, size)
        case StackType(UnionType() as element, size):
            # One stack for each member; `flatten` keeps them in step.
            stacks = ((name, ir.Stack(header.ir, size)) for name, header in element.fields.items())
            return ir.Struct(describe(type_), tuple(stacks), union=True)
        case Tuple(elements):
            fields = [(f"f{i}", lowered(element)) for i, element in enumerate(elements)]
            known = tuple((name, t) for name, t in fields if t is not None)
            return ir.Struct(describe(type_), known) if len(known) == len(fields) else None
        case _:
            return None


def stored(type_: Type) -> ir.Type:
    """Return the IR's type for values of `type_`, which must exist at run time."""
    found = lowered(type_)
    assert found is not None, describe(type_)
    return found


def base(type_: Type) -> Type:
    """Return the type without any ``type`` declarations around it."""
    while isinstance(type_, DistinctType):
        type_ = type_.underlying
    return type_


def fields_of(type_: Type) -> Mapping[str, Type] | None:
    """Return the named parts of a struct, header or tuple (``f0``, ``f1``, …); None for other types."""
    match type_:
        case HeaderType() | StructType() | UnionType():
            return type_.fields
        case Tuple(elements):
            return {f"f{i}": element for i, element in enumerate(elements)}
        case _:
            return None


def width(type_: Type, *, varbits: str = "max") -> int | None:
    """Return the width in bits that a value has in a packet; None for types without such a width.

    With `varbits` ``"max"``, a varbit counts with its maximum width, with ``"min"`` as zero bits.
    """
    match type_:
        case ir.Bits():
            return type_.width
        case ir.Bool():
            return 1
        case ir.VarBits():
            return type_.max_width if varbits == "max" else 0
        case SerialEnum() | DistinctType():
            return width(type_.underlying, varbits=varbits)
        case StackType():
            element = width(type_.element, varbits=varbits)
            return None if element is None else element * type_.size
        case UnionType():
            sizes = [width(member, varbits=varbits) or 0 for member in type_.fields.values()]
            return max(sizes, default=0) if varbits == "max" else min(sizes, default=0)
        case HeaderType() | StructType() | Tuple():
            total = 0
            for part in (fields_of(type_) or {}).values():
                bits = width(part, varbits=varbits)
                if bits is None:
                    return None
                total += bits
            return total
        case _:
            return None


def contains_varbits(type_: Type) -> bool:
    """Return True if the type is or contains a varbit."""
    match type_:
        case ir.VarBits():
            return True
        case StackType():
            return contains_varbits(type_.element)
        case _:
            return any(contains_varbits(part) for part in (fields_of(type_) or {}).values())


def data_type(type_: Type, pos: ir.Position) -> ir.DataType:
    """Return the type of a digest's data or of a register's cells, for P4Info.

    Raises CompileError if values of the type cannot be sent to the control plane.
    """
    match type_:
        case ir.Bits():
            return ir.DataType("bits", scalar=type_)
        case ir.Bool():
            return ir.DataType("bool", scalar=type_)
        case ir.Enum("error"):
            return ir.DataType("error", scalar=type_)
        case ir.Enum(name, members):
            values = tuple((member, number) for number, member in enumerate(members))
            return ir.DataType("enum", name, type_, values=values)
        case SerialEnum(name, underlying, members):
            return ir.DataType("serializable_enum", name, underlying, values=tuple(members.items()))
        case DistinctType(name, underlying):
            return ir.DataType("new_type", name, data_type(underlying, pos).scalar)
        case HeaderType(name) | StructType(name):
            kind = "header" if isinstance(type_, HeaderType) else "struct"
            return ir.DataType(kind, name, members=_members(type_, pos))
        case Tuple():
            return ir.DataType("tuple", members=_members(type_, pos))
        case _:
            raise CompileError(
                f"{describe(type_)} cannot be data for the control plane",
                pos,
                "structs, headers, tuples and scalars",
            )


def named(type_: Type, pos: ir.Position) -> ir.DataType | None:
    """Return the type of a key, parameter or field if P4Info has its name; raises CompileError as above."""
    return data_type(type_, pos) if isinstance(type_, DistinctType | SerialEnum) else None


def _members(type_: StructType | HeaderType | Tuple, pos: ir.Position) -> tuple[tuple[str, ir.DataType], ...]:
    return tuple((name, data_type(part, pos)) for name, part in (fields_of(type_) or {}).items())
