"""Packet layout and constants of the host library, in Python and C, and of the controller: the programs'."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from controller.switches import model
from hostlib import _native, wire
from hostlib._native.layout import exported_constants, exported_fields
from softswitch.compiler import ir
from tests.programs import P4SRC, p4src_program

ROOT = Path(__file__).parents[2]
NAMES = (
    *("INA_UDP_PORT", "INA_VERSION", "ROOT_NODE", "VALID_INT32", "INA_BYTES"),
    *("KIND_GRADIENT", "KIND_RESULT", "KIND_STATUS", "KIND_PARTIAL", "KIND_REMINDER"),
    *("FLAG_RESEND", "FLAG_QUERY", "FLAG_OVERFLOW", "FLAG_DISAGREE"),
    *("FLAG_COLLISION", "FLAG_ECN", "FLAG_BYPASS", "FLAG_RAW"),
)
ONLY_PYTHON = ("ETHERNET_BYTES", "IPV4_BYTES", "UDP_BYTES", "TYPE_IPV4", "PROTO_UDP")


def constants() -> dict[str, int]:
    """Every plain ``const bit<n> NAME = number;`` of the sources."""
    text = "".join(path.read_text() for path in (P4SRC / "include").glob("*.p4"))
    found = re.findall(r"const\s+bit<\d+>\s+(\w+)\s*=\s*(\w+);", text)
    return {name: int(value, 0) for name, value in found if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", value)}


@pytest.fixture(scope="module", params=wire.LANE_COUNTS)
def headers(request: pytest.FixtureRequest) -> tuple[int, dict[str, ir.Header]]:
    """All programs include the same headers."""
    program = p4src_program("exclusive", LANES=request.param)
    return request.param, {name: t for name, t in program.hdr.fields if isinstance(t, ir.Header)}


def field_bits(header: ir.Header) -> list[tuple[str, int]]:
    return [(name, t.width) for name, t in header.fields if isinstance(t, ir.Bits)]


@pytest.mark.parametrize("name", [*NAMES, *ONLY_PYTHON])
def test_a_constant_has_the_value_that_the_program_has(name: str) -> None:
    assert getattr(wire, name) == constants()[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_in_c_has_the_value_that_the_program_has(name: str) -> None:
    assert exported_constants(_native.load())[name] == constants()[name]


def test_every_kind_and_flag_of_the_program_is_known_to_the_host() -> None:
    kinds_and_flags = {name for name in constants() if name.startswith(("KIND_", "FLAG_"))}
    assert kinds_and_flags == {name for name in NAMES if name.startswith(("KIND_", "FLAG_"))}


def test_the_controllers_constants_are_the_programs() -> None:
    assert constants()["INA_UDP_PORT"] == model.INA_UDP_PORT
    assert constants()["TARGET_BUT"] == len(model.ALL_RANKS)


def test_the_port_stands_once_for_each_who_may_not_import_the_other() -> None:
    suffixes = {".py", ".c", ".h", ".p4"}
    port = re.compile(rf"\b({wire.INA_UDP_PORT}|{wire.INA_UDP_PORT:#x})\b", re.I)
    found = {
        str(path.relative_to(ROOT))
        for folder in ("bmv2_topos", "controller", "hostlib", "p4src", "softswitch")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and port.search(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "p4src/include/config.p4",
        "controller/switches/model.py",
        "hostlib/wire/__init__.py",
        "hostlib/_native/ina_wire.h",
    }


def test_the_bit_of_a_target_that_means_all_others_is_the_programs() -> None:
    assert constants()["TARGET_BUT"] == wire.TARGET_BUT
    assert wire.TARGET_ALL & wire.TARGET_BUT, "all is all but a rank that does not exist"


def test_a_sum_keeps_the_flags_that_the_program_keeps() -> None:
    (expression,) = re.findall(r"FLAGS_OF_SUM += ([^;]+);", (P4SRC / "include" / "headers.p4").read_text())
    kept = sum(constants()[name] for name in re.split(r"\s*\|\s*", expression))
    assert kept == wire.STICKY_FLAGS


def test_the_ina_header_has_the_same_fields_in_the_same_order(
    headers: tuple[int, dict[str, ir.Header]],
) -> None:
    fields = field_bits(headers[1]["ina"])
    assert fields[:2] == [("version", 4), ("kind", 4)], "one byte, version first"
    host = [(name, 8 * wire.HEADER_DTYPE[name].itemsize) for name in wire.HEADER_DTYPE.names or ()]
    assert host == [("version_kind", 8), *fields[2:]]
    assert wire.version_kind(5) == wire.INA_VERSION << 4 | 5
    assert all(wire.HEADER_DTYPE[name].byteorder in ">|" for name, _ in host)


def test_the_header_in_c_has_the_same_fields_in_the_same_order(
    headers: tuple[int, dict[str, ir.Header]],
) -> None:
    version, kind, *others = field_bits(headers[1]["ina"])
    assert (version, kind) == (("version", 4), ("kind", 4))
    *fields, end = exported_fields(_native.load(), "ina_header_fields")
    assert [(each.name, 8 * each.bytes) for each in fields] == [("version_kind", 8), *others]
    assert [each.offset for each in (*fields, end)] == list(
        accumulate((each.bytes for each in fields), initial=0)
    )


def test_a_frame_has_the_same_length_and_its_lanes_the_same_place(
    headers: tuple[int, dict[str, ir.Header]],
) -> None:
    lanes, types = headers
    dtype = wire.packet_dtype(lanes, framed=True)
    offset = 0
    for name in ("ethernet", "ipv4", "udp", "ina", "lanes"):
        if name == "lanes":
            assert dtype.fields is not None
            assert offset == 8 * dtype.fields["values"][1]
        offset += sum(width for _, width in field_bits(types[name]))
    assert offset == 8 * dtype.itemsize
    assert field_bits(types["lanes"]) == [(f"v{i}", 32) for i in range(lanes)]


def test_the_bitmap_is_as_wide_as_the_largest_fan_in() -> None:
    text = (P4SRC / "include" / "config.p4").read_text()
    match = re.search(r"#define MAX_FAN_IN (\d+)", text)
    assert match
    assert int(match[1]) == exported_constants(_native.load())["MAX_FAN_IN"]
    assert int(match[1]) == wire.MAX_FAN_IN == 8 * np.dtype(wire.HEADER_DTYPE["bitmap"]).itemsize
