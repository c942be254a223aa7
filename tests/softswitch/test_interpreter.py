"""The interpreter's expressions, stores and hashes by themselves: the oracle of the compiled programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.compiler import ir
from softswitch.engine.interpreter.expressions import (
    PacketState,
    ParserError,
    blank,
    compile_expression,
    compile_store,
)
from softswitch.engine.interpreter.externs import ALGORITHMS

POS = ir.Position("test.p4", 1, 1)
BOOL = ir.Bool()
U8, U16, U32 = ir.Bits(8), ir.Bits(16), ir.Bits(32)
S8 = ir.Bits(8, signed=True)
PAIR = ir.Header("pair_t", (("a", U8), ("b", U16)))
STACK = ir.Stack(PAIR, 2)


def const(value: int, type_: ir.Scalar = U8) -> ir.Const:
    return ir.Const(type_, value, pos=POS)


def packet(frame: bytes = b"", **types: ir.Type) -> PacketState:
    return PacketState(frame, {name: blank(type_) for name, type_ in types.items()})


def evaluate(expr: ir.Expr, state: PacketState | None = None) -> int:
    return compile_expression(expr)(state or packet())


@pytest.mark.parametrize(
    ("type_", "left", "op", "right", "expected"),
    [
        (U8, 200, "+", 100, 44),
        (U8, 1, "-", 2, 255),
        (U8, 16, "*", 17, 16),
        (U8, 200, "/", 7, 28),
        (U8, 200, "%", 7, 4),
        (U8, 200, "/", 0, 0),
        (U8, 200, "%", 0, 0),
        (S8, -7, "/", 2, -3),
        (S8, -7, "%", 2, -1),
        (S8, 7, "%", -2, 1),
        (S8, -128, "/", -1, -128),
        (S8, 100, "+", 100, -56),
        (S8, -128, "-", 1, 127),
        (U8, 200, "|+|", 100, 255),
        (U8, 1, "|-|", 2, 0),
        (S8, 100, "|+|", 100, 127),
        (S8, -100, "|-|", 100, -128),
        (U8, 0x81, "<<", 1, 2),
        (U8, 0x81, "<<", 8, 0),
        (U8, 0x81, ">>", 7, 1),
        (U8, 0x81, ">>", 8, 0),
        (S8, -128, ">>", 3, -16),
        (S8, -1, ">>", 200, -1),
        (S8, 127, ">>", 200, 0),
        (S8, 65, "<<", 1, -126),
        (S8, -1, "&", 0x0F, 0x0F),
        (S8, -128, "|", 1, -127),
        (S8, -1, "^", 1, -2),
    ],
)
def test_arithmetic(type_: ir.Bits, left: int, op: str, right: int, expected: int) -> None:
    amount = U8 if op in ("<<", ">>") else type_
    expr = ir.Binary(type_, op, const(left, type_), const(right, amount), pos=POS)
    assert evaluate(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (ir.Cast(U16, const(-1, S8), pos=POS), 0xFFFF),
        (ir.Cast(ir.Bits(16, signed=True), const(0xFF), pos=POS), 0xFF),
        (ir.Cast(S8, const(0x1FF, U16), pos=POS), -1),
        (ir.Cast(ir.Bits(1), const(1, BOOL), pos=POS), 1),
        (ir.Cast(BOOL, const(1, ir.Bits(1)), pos=POS), 1),
        (ir.Slice(ir.Bits(4), const(-2, S8), 4, 1, pos=POS), 0xF),
        (ir.Binary(U16, "++", const(-1, S8), const(2), pos=POS), 0xFF02),
        (ir.Unary(S8, "-", const(-128, S8), pos=POS), -128),
        (ir.Unary(U8, "~", const(0x0F), pos=POS), 0xF0),
        (ir.Unary(BOOL, "!", const(0, BOOL), pos=POS), 1),
        (ir.Binary(BOOL, "<", const(0xFF), const(1), pos=POS), 0),
        (ir.Binary(BOOL, "<", const(-1, S8), const(1, S8), pos=POS), 1),
        (ir.Binary(BOOL, ">=", const(-1, S8), const(-1, S8), pos=POS), 1),
        (ir.Binary(BOOL, "!=", const(3), const(2), pos=POS), 1),
    ],
)
def test_conversions_and_comparisons(expr: ir.Expr, expected: int) -> None:
    assert evaluate(expr) == expected


def test_an_operand_that_is_not_needed_is_not_evaluated() -> None:
    fails = ir.Binary(BOOL, "==", ir.Lookahead(U8, pos=POS), const(0), pos=POS)
    assert evaluate(ir.Binary(BOOL, "&&", const(0, BOOL), fails, pos=POS)) == 0
    assert evaluate(ir.Binary(BOOL, "||", const(1, BOOL), fails, pos=POS)) == 1
    assert evaluate(ir.Mux(BOOL, const(1, BOOL), const(1, BOOL), fails, pos=POS)) == 1
    with pytest.raises(ParserError, match="PacketTooShort"):
        evaluate(fails)


def test_assignment_to_a_slice_keeps_the_other_bits_and_the_sign() -> None:
    state = packet(x=S8)
    target = ir.Slice(ir.Bits(4), ir.Var(S8, "x", pos=POS), 7, 4, pos=POS)
    compile_store(target)(state, 0xA)
    assert state.variables["x"] == -0x60


def test_the_last_element_of_an_empty_stack_is_a_parser_error() -> None:
    state = packet(s=STACK)
    stack = ir.Var(STACK, "s", pos=POS)
    assert evaluate(ir.LastIndex(U32, stack, pos=POS), state) == 2**32 - 1
    with pytest.raises(ParserError, match="StackOutOfBounds"):
        compile_expression(ir.Last(PAIR, stack, pos=POS))(state)


def test_headers_are_equal_if_both_are_invalid_or_all_fields_agree() -> None:
    state = packet(x=PAIR, y=PAIR)
    same = ir.Binary(BOOL, "==", ir.Var(PAIR, "x", pos=POS), ir.Var(PAIR, "y", pos=POS), pos=POS)
    x, y = state.variables["x"], state.variables["y"]
    x.fields["a"] = 1
    assert evaluate(same, state) == 1
    x.valid = True
    assert evaluate(same, state) == 0
    y.valid = True
    assert evaluate(same, state) == 0
    y.fields["a"] = 1
    assert evaluate(same, state) == 1


CHECK = b"123456789"  # the customary check string of CRC catalogues


@pytest.mark.parametrize(
    ("algorithm", "data", "expected"),
    [
        ("crc32", CHECK, 0xCBF43926),
        ("crc32", b"", 0),
        ("crc32_custom", CHECK, 0xCBF43926),
        ("crc16", CHECK, 0xBB3D),
        ("crc16", b"", 0),
        ("crc16_custom", CHECK, 0xBB3D),
        # the example of RFC 1071, section 3
        ("csum16", bytes.fromhex("0001f203f4f5f6f7"), 0x220D),
        ("csum16", b"", 0xFFFF),
        ("csum16", b"\xff\xff", 0),
        ("csum16", b"\x12", 0xEDFF),
        ("xor16", bytes.fromhex("1234ff00"), 0xED34),
        ("xor16", bytes.fromhex("1234ff"), 0xED34),
        ("identity", bytes.fromhex("0102030405060708"), 0x0102030405060708),
        ("identity", bytes.fromhex("01020304050607080910"), 0x0102030405060708),
        ("identity", bytes.fromhex("0102"), 0x0102),
        ("identity", b"", 0),
    ],
)
def test_known_values(algorithm: str, data: bytes, expected: int) -> None:
    assert ALGORITHMS[algorithm](data) == expected


@given(st.binary(max_size=60).filter(lambda data: len(data) % 2 == 0))
def test_internet_checksum_of_data_and_its_checksum_is_zero(data: bytes) -> None:
    checksum = ALGORITHMS["csum16"](data)
    assert ALGORITHMS["csum16"](data + checksum.to_bytes(2, "big")) == 0
