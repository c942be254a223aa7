from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import compile_source, p4info
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.schema import ParamInfo, packet_headers
from softswitch.p4runtime.translate import from_packet_out, to_packet_in
from tests.softswitch.lowering import source

FIELDS = (ParamInfo(1, "port", 9), ParamInfo(2, "queue", 5), ParamInfo(3, "padding", 2))


def packet_out(*metadata: tuple[int, bytes]) -> Any:
    return p4.PacketOut(
        payload=b"frame", metadata=[p4.PacketMetadata(metadata_id=i, value=v) for i, v in metadata]
    )


def test_metadata_become_the_header_before_the_frame() -> None:
    message = packet_out((2, b"\3"), (1, b"\1\1"), (3, b"\0"))
    assert from_packet_out(FIELDS, message) == (257 << 7 | 3 << 2).to_bytes(2, "big") + b"frame"


@given(st.integers(0, 511), st.integers(0, 31), st.integers(0, 3), st.binary())
def test_what_goes_in_comes_out(port: int, queue: int, padding: int, payload: bytes) -> None:
    header = (port << 7 | queue << 2 | padding).to_bytes(2, "big")
    message = to_packet_in(FIELDS, header + payload)
    assert message.payload == payload
    assert from_packet_out(FIELDS, message) == header + payload


def test_fields_of_translated_types_are_as_wide_as_in_the_program() -> None:
    declarations = """
    @p4runtime_translation("example.org/port", 32) type bit<9> port_t;
    @controller_header("packet_out") header out_t { port_t port; bit<7> pad; }
    """
    program = compile_source(source(declarations=declarations), name="t.p4")
    info = p4info(program)
    assert [field.bitwidth for field in info.controller_packet_metadata[0].metadata] == [32, 7]
    (fields,) = packet_headers(info, program).values()
    assert from_packet_out(fields, packet_out((1, b"\1\1"), (2, b"\0"))) == b"\x80\x80frame"


def test_programs_without_headers_exchange_bare_frames() -> None:
    assert from_packet_out((), packet_out()) == b"frame"
    assert to_packet_in((), b"frame") == p4.PacketIn(payload=b"frame")
    assert to_packet_in(FIELDS, b"x") == p4.PacketIn(payload=b"x"), "too short for the header"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([(1, b"\1"), (2, b"\1")], "lacks metadata padding"),
        ([(9, b"\1")], r"no metadata field 9; the metadata fields are 'port' \(1\)"),
        ([(1, b"\1"), (1, b"\1")], "metadata field 'port' of packet_out is given twice"),
        ([(1, b"\2\0"), (2, b"\1"), (3, b"\0")], "metadata 'port' is 0x0200, 10 bits"),
    ],
)
def test_metadata_that_do_not_fit_are_refused(metadata: list[tuple[int, bytes]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        from_packet_out(FIELDS, packet_out(*metadata))
