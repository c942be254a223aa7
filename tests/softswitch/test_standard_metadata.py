"""``standard_metadata_t``: a user's own that is not quite ours, and the priority that a program gives."""

from pathlib import Path
from typing import Literal

import pytest

from softswitch import compiler
from softswitch.compiler import Unsupported, compile_source
from softswitch.engine.build import load
from softswitch.engine.pipeline import Copy
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from tests.softswitch.lowering import source

V1MODEL = (Path(compiler.__file__).parent / "include/v1model.p4").read_text()
LENGTH = "    bit<32> packet_length;"
PRIORITY = '    @alias("intrinsic_metadata.priority")\n    bit<3>  priority;\n'


def program(old: str, new: str, apply: str = "") -> str:
    """A program with v1model.p4 in it, where `new` stands for `old`."""
    before, found, after = V1MODEL.partition(old)
    assert found
    return source(apply).replace("#include <v1model.p4>", before + new + after)


@pytest.mark.parametrize(
    ("old", "new", "message", "expected"),
    [
        (LENGTH, "", "without 'packet_length'", "bit<32> packet_length"),
        (LENGTH, "    bit<16> packet_length;", "whose 'packet_length' is bit<16>", "bit<32> packet_length"),
        (PRIORITY, "", "without 'priority'", "bit<3> priority"),
        ("    error   parser_error;", "", "without 'parser_error'", "error parser_error"),
        ("    bit<1>  checksum_error;", "    bool checksum_error;", "'checksum_error' is bool", "bit<1>"),
    ],
)
def test_a_field_that_the_target_needs_is_asked_for(old: str, new: str, message: str, expected: str):
    text = program(old, new)
    with pytest.raises(Unsupported, match=message) as caught:
        compile_source(text, name="t.p4")
    assert caught.value.expected.startswith(expected)
    assert text.splitlines()[caught.value.pos.line - 1].startswith("struct standard_metadata_t")


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_order_and_further_fields_are_the_programs_own(backend: Literal["compiled", "interpreter"]):
    moved = "    bit<3> priority; bit<7> mine; varbit<32> v; int<8>[4] n;" + LENGTH
    apply = """\
        standard_metadata.mine = 5;
        hdr.h.a = (bit<8>)standard_metadata.packet_length;
        hdr.h.b = (bit<8>)standard_metadata.mine;
    """
    text = program(LENGTH, moved, apply).replace(PRIORITY, "")
    pipeline = load(compile_source(text, name="t.p4"), backend=backend)
    packet, _ = pipeline.ingress(bytes(6), 1)
    frame, _ = pipeline.egress(packet, Copy(egress_port=1))
    assert frame == bytes([6, 5, 0, 0, 0, 0])


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_packets_leave_a_slow_port_by_the_priority_of_the_program(
    backend: Literal["compiled", "interpreter"],
):
    text = source("standard_metadata.priority = (bit<3>)hdr.h.a; standard_metadata.egress_spec = 1;")
    slow = PortImpairments(tx=Impairments(rate_bps=8e6))
    with Switch({0: MemoryPort(), 1: MemoryPort()}, impairments={1: slow}) as switch:
        switch.load(load(compile_source(text, name="t.p4"), backend=backend))
        switch.inject(0, [bytes([each, 0, 0, 0]) for each in (0, 1, 0, 7, 8, 2)], now_us=0)
        switch.advance(1000)
        # the first is on the link when the others come; of 8 three bits are left
        assert [frame[0] for frame in switch.drain(1)] == [0, 7, 2, 1, 0, 8]
