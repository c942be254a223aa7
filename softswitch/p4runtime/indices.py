"""Cells of arrays that requests name by index: of counters, meters and registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from softswitch.p4runtime.errors import InvalidArgument, OutOfRange
from softswitch.p4runtime.schema import Counter, Meter, Register, Schema

Array = TypeVar("Array", Counter, Meter, Register)


def known(schema: Schema, kind: str, objects: Mapping[int, Array], id_: int) -> Array:
    """Return the array of a request.

    Args:
        schema: The program's names and ids.
        kind: Kind of array, for the error message.
        objects: The arrays by id.
        id_: The id of the request.

    Raises InvalidArgument.
    """
    if id_ not in objects:
        raise InvalidArgument(schema.describe_unknown(kind, id_))
    return objects[id_]


def chosen(array: Counter | Meter | Register, message: Any) -> list[int] | range:
    """Return the cell that a message names or, without an index, all of them."""
    return [_index(array, message)] if message.HasField("index") else range(array.size)


def cells(
    schema: Schema,
    kind: str,
    objects: Mapping[int, Array],
    request: Any,
    read: Callable[[Array, int], Any],
) -> Iterator[Any]:
    """Yield the results of reading cells.

    Args:
        schema: The program's names and ids.
        kind: Kind of array, such as "counter".
        objects: The arrays by id.
        request: Asks for one cell, all cells of one array or (id 0) of all arrays.
        read: Reads one cell.
    """
    id_ = getattr(request, f"{kind}_id")
    arrays = list(objects.values()) if id_ == 0 else [known(schema, kind, objects, id_)]
    for array in arrays:
        for index in range(array.size) if id_ == 0 else chosen(array, request):
            yield read(array, index)


def _index(array: Counter | Meter | Register, message: Any) -> int:
    index: int = message.index.index
    if index < 0:
        raise InvalidArgument(f"index {index} of '{array.name}' is negative")
    if index >= array.size:
        raise OutOfRange(f"index {index} of '{array.name}' is beyond its last, {array.size - 1}")
    return index
