"""``P4Data``: values of any type, of registers and digests, from and to the scalars that they consist of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4data_pb2
from softswitch.compiler import ir
from softswitch.p4runtime import translate
from softswitch.p4runtime.errors import InvalidArgument


def encode_data(data: ir.DataType, values: Iterator[int]) -> Any:
    """Encode the next scalars of `values`, which are those of type `data`."""
    message = p4data_pb2.P4Data()
    match data.kind:
        case "struct":
            message.struct.SetInParent()
            for _, member in data.members:
                message.struct.members.append(encode_data(member, values))
        case "tuple":
            message.tuple.SetInParent()
            for _, member in data.members:
                message.tuple.members.append(encode_data(member, values))
        case "header":
            message.header.is_valid = True
            for member in _scalars(data):
                message.header.bitstrings.append(_bitstring(member, next(values)))
        case "enum":
            message.enum = data.values[next(values)][0]
        case "error":
            assert isinstance(data.scalar, ir.Enum)
            message.error = data.scalar.members[next(values)]
        case "serializable_enum":
            message.enum_value = _bitstring(data, next(values))
        case _ if isinstance(data.scalar, ir.Bool):
            message.bool = bool(next(values))
        case _:
            message.bitstring = _bitstring(data, next(values))
    return message


def decode_data(data: ir.DataType, message: Any, what: str) -> list[int]:
    """Decode a value of type `data` into scalars. Raises InvalidArgument."""
    given = message.WhichOneof("data")
    if data.kind in ("struct", "tuple"):
        members = getattr(message, data.kind).members
        if given != data.kind or len(members) != len(data.members):
            raise InvalidArgument(f"{what} is a {data.kind} of {len(data.members)} members, not {given}")
        pairs = zip(data.members, members, strict=True)
        return [value for (name, part), sent in pairs for value in decode_data(part, sent, f"{what}.{name}")]
    wanted = {"serializable_enum": "enum_value", "header": "header", "enum": "enum", "error": "error"}.get(
        data.kind, "bool" if isinstance(data.scalar, ir.Bool) else "bitstring"
    )
    if given != wanted or wanted in ("header", "enum", "error"):
        raise InvalidArgument(f"{what} takes a {wanted}, not {given or 'nothing'}")
    if wanted == "bool":
        return [int(message.bool)]
    assert isinstance(data.scalar, ir.Bits)
    return [_signed(translate.decode(getattr(message, wanted), data.scalar.width, what), data.scalar)]


def _signed(value: int, type_: ir.Bits) -> int:
    negative = type_.signed and value >> (type_.width - 1)
    return value - (1 << type_.width) if negative else value


def _scalars(data: ir.DataType) -> Iterator[ir.DataType]:
    if data.scalar is not None:
        yield data
    for _, member in data.members:
        yield from _scalars(member)


def _bitstring(data: ir.DataType, value: int) -> bytes:
    width = data.scalar.width if isinstance(data.scalar, ir.Bits) else 1
    return translate.encode(value & ((1 << width) - 1))
