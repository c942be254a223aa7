"""Parsers: states, select, stacks, and sub-parsers that become states."""

from softswitch.compiler import ir
from tests.softswitch.lowering import lowered, sent


def test_a_sub_parser_becomes_states():
    declarations = """
    parser Sub(packet_in p, out h_t h, inout metadata_t m)(bit<8> stop) {
        bit<8> n = 1;
        state start {
            p.extract(h);
            m.x = m.x + n;
            transition select(h.a) { stop: last; _: accept; }
        }
        state last { h.b = 0xff; transition accept; }
    }
    """
    parser = """
    Sub(1) one;
    Sub(2) two;
    state start { one.apply(packet, hdr.h, meta); two.apply(packet, hdr.g, meta); hdr.h.d = meta.x;
        transition accept; }
    """
    program = lowered(declarations=declarations, parser=parser)
    assert list(program.states) == [
        "start",
        "start#2",
        "one.start",
        "one.last",
        "start#3",
        "two.start",
        "two.last",
    ]
    assert sent("0102030402030405", declarations=declarations, parser=parser) == "01ff030202ff0405"
    assert sent("0502030402030405", declarations=declarations, parser=parser) == "0502030202ff0405"


def test_one_sub_parser_twice():
    declarations = """
    parser Sub(packet_in p, out h_t h) {
        bit<8> n;
        state start { n = n + 1; p.extract(h); h.d = n; transition accept; }
    }
    """
    parser = (
        "Sub() sub; state start { sub.apply(packet, hdr.h); Sub.apply(packet, "
        "hdr.g); sub.apply(packet, hdr.s[0]); transition accept; }"
    )
    frame = "01020300" * 3
    assert sent(frame, declarations=declarations, parser=parser) == "01020301" * 3


def test_what_a_sub_parser_gets_is_copied_where_it_must_be():
    declarations = """
    parser Sub(packet_in p, in bit<8> v, inout h_t h) {
        state start { h.a = 9; h.b = v; transition accept; }
    }
    """
    parser = (
        "Sub() sub; state start { packet.extract(hdr.h); "
        "sub.apply(packet, hdr.h.a, hdr.h); transition accept; }"
    )
    assert sent("01020304", declarations=declarations, parser=parser) == "09010304"


def test_locals_of_a_state_start_at_zero_in_every_round():
    parser = """
    bit<8> rounds = 3;
    state start { bit<8> n; n = n + 1; hdr.h.a = n; rounds = rounds - 1;
        transition select(rounds) { 0: last; _: start; } }
    state last { hdr.h.setValid(); transition accept; }
    """
    program = lowered(parser=parser)
    # What the parser does once is not in the loop.
    assert list(program.states) == ["start", "last", "start#1"]
    assert sent("", parser=parser) == "01000000"


def test_select_on_several_values():
    parser = """
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.a, hdr.h.b[3:0], hdr.h.isValid()) {
            (1, 0x8 &&& 0xc, true): one;
            (2 .. 4, _, _): two;
            (5, 1, false): reject;
            default: accept;
        }
    }
    state one { hdr.h.d = 1; transition accept; }
    state two { hdr.h.d = 2; transition accept; }
    """
    program = lowered(parser=parser)
    transition = program.states["start"].transition
    any_ = ir.Pattern("any")
    assert transition.cases == (
        ((ir.Pattern("exact", 1), ir.Pattern("mask", 8, 12), ir.Pattern("exact", 1)), "one"),
        ((ir.Pattern("range", 2, 4), any_, any_), "two"),
        ((ir.Pattern("exact", 5), ir.Pattern("exact", 1), ir.Pattern("exact", 0)), "reject"),
        ((any_, any_, any_), "accept"),
    )
    assert sent("010b0304", parser=parser) == "010b0301"
    assert sent("03000304", parser=parser) == "03000302"
    assert sent("06000304", parser=parser) == "06000304"


def test_a_state_without_transition_rejects():
    program = lowered(parser="state start { packet.extract(hdr.h); }")
    assert program.states["start"].transition.cases == (((), "reject"),)


def test_lookahead_of_a_header():
    parser = (
        "state start { h_t ahead = packet.lookahead<h_t>(); "
        "packet.extract(hdr.h); hdr.h.a = ahead.d; transition accept; }"
    )
    assert sent("01020304", parser=parser) == "04020304"


def test_lookahead_of_scalars():
    parser = """
    state start {
        bit<4> high = packet.lookahead<bit<4>>();
        int<8> whole = packet.lookahead<int<8>>();
        bool first = packet.lookahead<bool>();
        packet.extract(hdr.h);
        hdr.h.b = (bit<8>)high;
        hdr.h.c = first ? 8w1 : 0;
        hdr.h.d = (bit<8>)(whole >> 1);
        transition accept;
    }"""
    assert sent("f0000000", parser=parser) == "f00f01f8"


def test_a_header_may_be_skipped():
    parser = (
        "state start { packet.extract<h_t>(_); packet.extract(hdr.h); "
        "packet.advance(8 * 1); transition accept; }"
    )
    assert sent("0000000001020304ffaa", parser=parser) == "01020304aa"


def test_an_error_leaves_the_parser():
    parser = (
        "state start { packet.extract(hdr.h); verify(hdr.h.a == 1, "
        "error.Mine); hdr.h.b = 9; transition accept; }"
    )
    apply = "if (standard_metadata.parser_error == error.Mine) { hdr.h.c = 8; }"
    parts = {"parser": parser, "declarations": "error { Mine }"}
    assert sent("01020304", apply, **parts) == "01090304"
    assert sent("02020304", apply, **parts) == "02020804"


def test_a_lookahead_for_nothing_still_needs_the_bits():
    parser = "state start { packet.lookahead<bit<16>>(); packet.extract(hdr.h); transition accept; }"
    apply = "if (standard_metadata.parser_error == error.PacketTooShort) { hdr.g.setValid(); }"
    assert sent("01", apply, parser=parser) == "0000000001"
    assert sent("01020304", apply, parser=parser) == "01020304"
