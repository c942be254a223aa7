"""What Python and C both know is compared when the library is loaded, field by field and name by name."""

from __future__ import annotations

import ctypes
import enum
import re
from collections.abc import Sequence
from typing import Any

import pytest

from hostlib import _native
from hostlib._native import IoStruct
from hostlib._native.layout import exported_constants, fields_of, require_constants, require_fields
from hostlib.core.state import Chain, CoreStruct, Counter
from hostlib.errors import NativeMissing

Fields = Sequence[tuple[str, Any]]
CORE: Fields = CoreStruct._fields_
REMEDY = "run `python -m hostlib._native.build`"


def refusal(fields: Fields, table: str = "ina_core_fields") -> str:
    structure = type("Changed", (ctypes.Structure,), {"_fields_": fields})
    with pytest.raises(NativeMissing) as raised:
        require_fields(_native.load(), table, fields_of(structure))
    assert REMEDY in str(raised.value)
    return str(raised.value)


def changed(name: str, kind: Any) -> Fields:
    return [(field, kind if field == name else own) for field, own in CORE]


def swapped(first: str, second: str) -> Fields:
    other = {first: second, second: first}
    return [(other.get(field, field), kind) for field, kind in CORE]


def test_both_languages_agree() -> None:
    library = _native.load()
    require_fields(library, "ina_core_fields", fields_of(CoreStruct))
    require_fields(library, "ina_io_fields", fields_of(IoStruct))


@pytest.mark.parametrize(
    ("first", "second"),
    [("srtt", "rto"), ("waits", "waits_next"), ("input", "output"), ("backoff", "probes")],
)
def test_two_equal_fields_that_are_swapped_are_refused(first: str, second: str) -> None:
    fields = swapped(first, second)
    assert ctypes.sizeof(type("Same", (ctypes.Structure,), {"_fields_": fields})) == ctypes.sizeof(CoreStruct)
    assert re.match(rf"ina_core_fields: {first} \(.*\) in C is {second} \(.*\) in Python", refusal(fields))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("header", ctypes.c_uint8 * 68),
        ("tag", ctypes.c_uint64),
        ("total", ctypes.c_int32),
        ("probes", ctypes.c_uint16),
    ],
)
def test_a_field_of_another_width_is_refused(name: str, kind: Any) -> None:
    assert f" {name} (" in refusal(changed(name, kind))


def test_a_field_that_one_side_lacks_is_refused() -> None:
    shorter, longer = CORE[:-1], [*CORE, ("more", ctypes.c_int64)]
    assert re.search(r": counters \(\d+ bytes .*\) in C is the end at byte \d+ in Python", refusal(shorter))
    assert re.search(r": the end at byte \d+ in C is more \(8 bytes .*\) in Python", refusal(longer))


def test_a_longer_array_of_counters_is_refused() -> None:
    assert "counters" in refusal(changed("counters", ctypes.c_uint64 * (len(Counter) + 1)))


def test_the_socket_structure_is_compared_too() -> None:
    fields = list(IoStruct._fields_)
    fields[6], fields[7] = fields[7], fields[6]
    said = refusal(fields, "ina_io_fields")
    assert "fd (4 bytes from 48 on) in C is gso (4 bytes from 48 on) in Python" in said


def numbers(kinds: type[enum.IntEnum] | type[enum.IntFlag], prefix: str) -> dict[str, int]:
    return {f"{prefix}_{each.name}": each.value for each in kinds}


def test_numbers_that_differ_are_refused_by_name() -> None:
    library = _native.load()
    counters = numbers(Counter, "COUNT")
    require_constants(library, counters, "COUNT_")
    two = {"COUNT_SENT": counters["COUNT_RESENT"], "COUNT_RESENT": counters["COUNT_SENT"]}
    with pytest.raises(NativeMissing, match="COUNT_SENT is 0 in C and 1 in Python; run"):
        require_constants(library, counters | two, "COUNT_")
    with pytest.raises(NativeMissing, match="COUNT_LOST is None in C and 20 in Python"):
        require_constants(library, counters | {"COUNT_LOST": 20}, "COUNT_")


def test_a_number_that_python_does_not_know_is_refused() -> None:
    flags = numbers(Chain, "CHAIN")
    del flags["CHAIN_PROBED"]
    with pytest.raises(NativeMissing, match="CHAIN_PROBED is 1024 in C and None in Python"):
        require_constants(_native.load(), flags, "CHAIN_")


def test_every_number_that_c_exports_is_compared_by_somebody() -> None:
    compared = (*_native._PREFIXES, "PUMP_", "FB_", "FALLBACK_")
    assert [name for name in exported_constants(_native.load()) if not name.startswith(compared)] == []


def test_a_library_without_tables_is_of_another_version() -> None:
    with pytest.raises(
        NativeMissing, match=r"does not match this version of hostlib \(.*ina_core_fields.*\); run"
    ):
        require_fields(ctypes.CDLL(None), "ina_core_fields", fields_of(CoreStruct))
