"""Headers whose bytes are put in order many at a time (`emit_c/wire.py`) are what the interpreter says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from softswitch.compiler import compile_source
from softswitch.engine.build import FLAGS
from softswitch.engine.emit_c.unit import make_unit
from softswitch.engine.emit_c.wire import Window, stretches, windows

from .differential.compare import Pair
from .differential.trial import QUICK

IPV4 = (4, 4, 6, 2, 16, 16, 3, 13, 8, 8, 16, 32, 32)
SHAPES: dict[str, tuple[int, ...]] = {
    "ipv4": IPV4,
    "ethernet": (48, 48, 16),
    "only-a-mac-address": (48,),
    "arp": (16, 16, 8, 8, 16, 48, 32, 48, 32),
    "twenty-eight-bytes": (4, 4, 8, 16, 32, 32, 8, 8, 8, 8, 16, 16, 32, 16, 16),
    "bytes-in-pairs-and-alone": (8, 8, 8, 16, 8, 8, 8, 32, 8, 8, 64, 8),
    "a-window-that-ends-inside-a-field": (8, 8, 16, 32, 16, 64, 16, 32, 16, 64),
    "a-header-that-ends-inside-a-window": (16, 32, 16, 32, 16, 16, 16, 16),
    "fields-that-are-no-cells": (24, 8, 40, 16, 56, 8, 8, 128, 16, 16, 3, 21, 8, 20, 12),
    "integers-between-bytes": (3, 8, 16, 5, 32, 4, 64, 12, 1, 8, 7, 16, 16, 48, 16),
    "small-fields": (1, 15, 7, 1, 5, 11, 1, 1, 1, 5, 2, 6, 4, 12, 9, 7),
}
PIECES = ((8,), (8, 8), (16,), (16, 16), (32,), (32,), (48,), (64,), (4, 4), (3, 13), (24,), (4, 8, 4))


def random_shape(seed: int) -> tuple[int, ...]:
    random = Random(seed)
    widths: list[int] = []
    for _ in range(random.randint(3, 12)):
        widths += random.choice(
            ((8,), (8, 8), (16,), (16, 16), (32,), (32,), (48,), (64,), (4, 4), (3, 13), (24,))
        )
    return tuple(widths)


def program(widths: Sequence[int]) -> str:
    """A header of such fields and a checksum; the first byte says which field is changed, and how."""
    fields = [f"f{n}" for n in range(len(widths))]
    declared = "".join(f"    bit<{width}> {name};\n" for name, width in zip(fields, widths, strict=True))
    changes = "".join(
        f"        if (hdr.op.field == {n}) {{ hdr.a.{name} = hdr.a.{name} + (bit<{width}>)hdr.op.more; }}\n"
        for n, (name, width) in enumerate(zip(fields, widths, strict=True))
    )
    data = ", ".join(f"hdr.a.{name}" for name in fields)
    return f"""
#include <core.p4>
#include <v1model.p4>
header op_t {{ bit<8> field; bit<8> more; }}
header a_t {{
{declared}    bit<16> sum;
}}
struct headers_t {{ op_t op; a_t a; a_t b; }}
struct metadata_t {{ }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    state start {{ packet.extract(hdr.op); packet.extract(hdr.a); transition accept; }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{
    apply {{ verify_checksum(hdr.a.isValid(), {{ {data} }}, hdr.a.sum, HashAlgorithm.csum16); }}
}}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    apply {{
        s.egress_spec = s.checksum_error == 1 ? 9w2 : 9w3;
        hdr.b = hdr.a;
{changes}    }}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    apply {{ if (hdr.a == hdr.b) {{ hdr.op.more = 0; }} }}
}}
control C(inout headers_t hdr, inout metadata_t meta) {{
    apply {{ update_checksum(hdr.a.isValid(), {{ {data} }}, hdr.a.sum, HashAlgorithm.csum16); }}
}}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def internet_checksum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def frames(widths: Sequence[int], random: Random) -> Iterator[bytes]:
    size = sum(widths) // 8
    for field in range(len(widths)):
        for data in (random.randbytes(size), bytes(size), b"\xff" * size):
            op = bytes((field, random.choice((0, 1, 255))))
            right = internet_checksum(data).to_bytes(2)
            for checksum in (right, random.randbytes(2), bytes(2), b"\xff\xff"):
                yield op + data + checksum + random.randbytes(random.randint(0, 3))
    yield b"\x00\x00" + random.randbytes(size + 1)  # too short


def compare(widths: Sequence[int], flags: tuple[str, ...]) -> None:
    pair = Pair(compile_source(program(widths), name="cells.p4"), flags=flags)
    sent = [pair.send(frame, 1) for frame in frames(widths, Random(1))]
    assert {packet.port for packets in sent for packet in packets} == {2, 3}


@pytest.mark.parametrize("shape", SHAPES)
def test_fields_and_checksums_of_headers_of_many_shapes(shape: str) -> None:
    compare(SHAPES[shape], FLAGS)


@pytest.mark.parametrize("seed", range(6))
def test_fields_and_checksums_of_random_headers(seed: int) -> None:
    compare(random_shape(seed), QUICK)


def test_an_ipv4_header_is_one_window_and_a_field() -> None:
    unit = make_unit(compile_source(program(IPV4), name="cells.p4"))
    (layout,) = (layout for layout in unit.headers.values() if layout.type.name == "a_t")
    (stretch,) = stretches(layout)
    first, second = windows(stretch[:-1])  # without the checksum of this test
    assert isinstance(first, Window)
    assert first.order == (1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 15, 14, 13, 12)
    assert second == stretch[-2]
