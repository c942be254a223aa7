"""Writing and reading RegisterEntry: cells of registers, as numbers or booleans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import indices
from softswitch.p4runtime.data import decode_data, encode_data
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.schema import Register
from softswitch.p4runtime.state import Bundle


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Set one cell or, without an index, all cells of a register."""
    register = indices.known(bundle.schema, "register", bundle.schema.registers, message.register_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"the cells of '{register.name}' always exist: they can only be modified")
    data = bundle.program.register_arrays[register.name].data
    values = decode_data(data, message.data, f"a cell of '{register.name}'")
    for index in indices.chosen(register, message):
        bundle.write_register(register.name, index, values)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one register, or (register id 0) all cells of all registers."""

    def cell(register: Register, index: int) -> Any:
        data = bundle.program.register_arrays[register.name].data
        values = iter(bundle.read_register(register.name, index))
        message = p4.RegisterEntry(register_id=register.id, index=p4.Index(index=index))
        message.data.CopyFrom(encode_data(data, values))
        return message

    return indices.cells(bundle.schema, "register", bundle.schema.registers, request, cell)
