"""Types of values that the control plane sees whole: with the names that the IR's other types have lost."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.lowering import types as t


def data_type(type_: t.Type, pos: ir.Position) -> ir.DataType:
    """Return the type of a digest's data or of a register's cells. Raises CompileError."""
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
        case t.SerialEnum(name, underlying, members):
            return ir.DataType("serializable_enum", name, underlying, values=tuple(members.items()))
        case t.NewType(name, underlying):
            return ir.DataType("new_type", name, data_type(underlying, pos).scalar)
        case t.HeaderType(name) | t.StructType(name):
            kind = "header" if isinstance(type_, t.HeaderType) else "struct"
            return ir.DataType(kind, name, members=_members(type_, pos))
        case t.Tuple():
            return ir.DataType("tuple", members=_members(type_, pos))
        case _:
            expected = "structs, headers, tuples and scalars"
            raise CompileError(f"{t.describe(type_)} as data of the control plane", pos, expected)


def _members(
    type_: t.StructType | t.HeaderType | t.Tuple, pos: ir.Position
) -> tuple[tuple[str, ir.DataType], ...]:
    return tuple((name, data_type(part, pos)) for name, part in (t.fields_of(type_) or {}).items())
