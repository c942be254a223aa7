"""Small v1model programs around a few lines of interest, lowered and run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softswitch.compiler import CompileError, compile_source, ir
from softswitch.engine.interpreter import Interpreter
from softswitch.engine.pipeline import Copy

SKELETON = """\
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }
struct headers_t { h_t h; h_t g; h_t[3] s; }
struct inner_t { bit<8> x; bit<8> y; }
struct metadata_t { bit<8> x; bit<8> y; bit<32> w; int<8> i; bool t; inner_t n; }
%(declarations)s
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
%(parser)s
}
control None(inout headers_t hdr, inout metadata_t meta) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
%(locals)s
    apply {
%(apply)s
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
%(egress)s
    }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), None(), C(), E(), None(), D()) main;
"""

PARSER = "state start { packet.extract(hdr.h); transition accept; }"


def source(
    apply: str = "", *, locals: str = "", declarations: str = "", parser: str = PARSER, egress: str = ""
) -> str:
    """A whole program; ``@@`` in it marks a place, see `marked`."""
    parts = {
        "apply": apply,
        "locals": locals,
        "declarations": declarations,
        "parser": parser,
        "egress": egress,
    }
    return SKELETON % parts


def lowered(apply: str = "", **parts: str) -> ir.Program:
    return compile_source(source(apply, **parts), name="t.p4")


def sent(frame: str, apply: str = "", **parts: str) -> str:
    """What leaves (in hex) when `frame` (in hex) comes."""
    pipeline = Interpreter(lowered(apply, **parts))
    packet, _ = pipeline.ingress(bytes.fromhex(frame), 1)
    out, _ = pipeline.egress(packet, Copy(egress_port=1))
    return out.hex()


def marked(text: str) -> tuple[str, int, int]:
    """Return a source without its ``@@``, and the line and column where that was."""
    before, mark, after = text.partition("@@")
    assert mark
    assert "@@" not in after
    return before + after, before.count("\n") + 1, len(before) - before.rfind("\n")


def refusal(text: str) -> CompileError:
    """The error that a program raises, which must be at its ``@@``."""
    program, line, column = marked(text)
    with pytest.raises(CompileError) as caught:
        compile_source(program, name="t.p4")
    error = caught.value
    assert error.pos == ir.Position("t.p4", line, column), str(error)
    return error


def statements(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """All statements of a body, those inside others too."""
    for statement in body:
        yield statement
        match statement:
            case ir.If(_, then, otherwise):
                yield from statements(then)
                yield from statements(otherwise)
            case ir.Inlined(inner):
                yield from statements(inner)
            case ir.Switch(_, cases):
                for _, inner in cases:
                    yield from statements(inner)
