"""Compare the layout of memory and packets in Python with the compiled library's.

Both languages declare the shared structures, the header of a packet, and shared constants. The library
exports its declarations as tables (``ina_layout.c``), generated from the lists that declare the fields. A
library of another version, or a list that was changed in one language only, is refused before it is used.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hostlib.errors import NativeMissing

REMEDY = "run `python -m hostlib._native.build` (needs a C compiler)"


class Field(NamedTuple):
    """A field of a structure, or of a packet's header."""

    name: str
    offset: int
    bytes: int


class _CField(ctypes.Structure):
    """``struct ina_field``."""

    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class _Constant(ctypes.Structure):
    """``struct ina_constant``."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int64))


def fields_of(structure: type[ctypes.Structure]) -> list[Field]:
    """Return the fields of a structure as ctypes lays it out, and at the end a field "" with its size."""
    places = [(name, getattr(structure, name)) for name, *_ in structure._fields_]
    fields = [Field(name, place.offset, place.size) for name, place in places]
    return [*fields, Field("", ctypes.sizeof(structure), 0)]


def exported_fields(library: ctypes.CDLL, table: str) -> list[Field]:
    """Return the fields of a structure as the C library exports them in `table`.

    At the end is a field "" with the structure's size. Raises NativeMissing.
    """
    return [
        Field((row.name or b"").decode(), row.offset, row.bytes) for row in _rows(library, table, _CField)
    ]


@functools.cache
def exported_constants(library: ctypes.CDLL) -> Mapping[str, int]:
    """Return the library's exported constants by name. Raises NativeMissing."""
    return {row.name.decode(): row.value for row in _rows(library, "ina_constants", _Constant) if row.name}


def require_fields(library: ctypes.CDLL, table: str, wanted: Iterable[Field]) -> None:
    """Compare the names, offsets and widths of the fields `wanted` with the C library's exported fields.

    Raises NativeMissing with the first difference.
    """
    found = exported_fields(library, table)
    for number, want in enumerate(wanted):
        have = found[number] if number < len(found) else None
        if have != want:
            raise NativeMissing(f"{table}: {_text(have)} in C is {_text(want)} in Python; {REMEDY}")


def require_constants(library: ctypes.CDLL, wanted: Mapping[str, int], *prefixes: str) -> None:
    """Check that constants in C have the values `wanted`, by name.

    Every constant in C whose name begins with one of `prefixes` must be in `wanted`. Raises NativeMissing.
    """
    found = exported_constants(library)
    names = [*wanted, *(name for name in found if name.startswith(prefixes) and name not in wanted)]
    for name in names:
        have, want = found.get(name), wanted.get(name)
        if have != want:
            raise NativeMissing(f"{name} is {have} in C and {want} in Python; {REMEDY}")


def _rows(library: ctypes.CDLL, table: str, row: type[ctypes.Structure]) -> list[Any]:
    """Return the rows of an exported table, with the row without a name that ends it.

    Raises NativeMissing if the library does not export `table`.
    """
    try:
        first = row.in_dll(library, table)
    except ValueError as error:
        raise NativeMissing(
            f"the compiled library does not match this version of hostlib ({error}); {REMEDY}"
        ) from error
    at = ctypes.addressof(first)
    rows: list[Any] = []
    while not rows or rows[-1].name:
        rows.append(row.from_address(at + len(rows) * ctypes.sizeof(row)))
    return rows


def _text(field: Field | None) -> str:
    match field:
        case None:
            return "nothing"
        case Field("", size, _):
            return f"the end at byte {size}"
        case Field(name, offset, size):
            return f"{name} ({size} bytes from {offset} on)"
