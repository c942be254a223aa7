"""Expressions: widths of literals, compile-time arithmetic, casts, structs and tuples."""

import pytest

from softswitch.compiler import Unsupported, compile_source, ir
from tests.softswitch.lowering import lowered, sent, source, statements


def assigned(value: str, target: str = "meta.x", declarations: str = "") -> ir.Expr:
    (statement,) = lowered(f"{target} = {value};", declarations=declarations).ingress
    assert isinstance(statement, ir.Assign)
    return statement.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3 + 4 * 5", 23),
        ("-1", 255),
        ("(bit<8>)(1 << 8 | 7)", 7),
        ("8w200 + 100", 44),
        ("8w200 |+| 100", 255),
        ("8w20 |-| 100", 0),
        ("(bit<8>)(8s100 |+| 100)", 127),
        ("8w1 << 9", 0),
        ("8w0x81 >> 1", 0x40),
        ("(bit<8>)(-8s4 >> 1)", 0xFE),
        ("(bit<8>)(-8s4 >> 20)", 0xFF),
        ("4w0xa ++ 4w5", 0xA5),
        ("~8w0", 255),
        ("-8w1", 255),
        ("16w0xabcd[15:8]", 0xAB),
        ("16w0xabcd[4+:8]", 0xBC),
        ("7 / 2", 3),
        ("8w7 % 4", 3),
        ("(bit<8>)(int<8>)-3", 0xFD),
        ("(bit<8>)(bit<16>)(int<16>)-8s1", 255),
        ("true ? 8w1 : 2", 1),
        ("1 > 2 ? 1 : 2", 2),
        ("(bit<8>)(bit<1>)true", 1),
        ("(bit<8>)K", 6),
        ("Kind.two", 2),
        ("Kind.two + 1", 3),
        ("(bit<8>)(N)9", 9),
        ("(bit<8>)h_t.minSizeInBytes()", 4),
        ("h_t.minSizeInBits()", 32),
        ("hdr.s.size[7:0]", 3),
        ("S.b + T[1]", 11),
        ("GENERIC.v", 4),
    ],
)
def test_what_is_known_is_computed(value: str, expected: int):
    declarations = """
    const int K = 2 * 3;
    enum bit<8> Kind { one = 1, two = 2 }
    type bit<8> N;
    struct pair_t { bit<8> a; bit<8> b; }
    struct generic_t<A> { A v; }
    const pair_t S = { 1, 2 };
    const tuple<bit<8>, bit<8>> T = { 8, 9 };
    const generic_t<bit<8>> GENERIC = { v = 4 };
    """
    constant = assigned(value, declarations=declarations)
    assert isinstance(constant, ir.Const)
    assert (constant.type, constant.value) == (ir.Bits(8), expected)


def test_literals_take_the_width_beside_them():
    value = assigned("5 - hdr.h.a")
    assert isinstance(value, ir.Binary)
    assert value.left.type == value.right.type == value.type == ir.Bits(8)


def test_shifts_by_constants_have_no_sign_to_worry_about():
    value = assigned("hdr.h.a << 3")
    assert isinstance(value, ir.Binary)
    assert isinstance(value.right, ir.Const)
    assert value.right.value == 3


def test_a_known_condition_leaves_one_branch():
    program = lowered("if (1 == 2) { hdr.h.a = 1; } else { hdr.h.a = 2; }")
    assert [type(s) for s in program.ingress] == [ir.Assign]


@pytest.mark.parametrize(
    ("apply", "out"),
    [
        ("hdr.h.a[3:0] = hdr.h.b[7:4];", "fcc20304"),
        ("hdr.h.a = (bit<8>)(hdr.h.b == 0xc3 ? -8s1 : 1);", "01c20304"),
        ("bool b = hdr.h.c > 2; hdr.h.a = (bit<8>)(bit<1>)b;", "01c20304"),
        ("int<8> v = (int<8>)hdr.h.b; hdr.h.a = (bit<8>)(v >> 2);", "f0c20304"),
        ("bit<16> v = hdr.h.a ++ hdr.h.b; hdr.h.c = v[11:4];", "ffc2fc04"),
        ("hdr.h.c = hdr.h.c << hdr.h.d;", "ffc23004"),
        ("meta.n = { 5, 6 }; hdr.h.a = meta.n.x; hdr.h.b = meta.n.y;", "05060304"),
        ("meta.n = { y = 5, x = 6 }; meta.n = { meta.n.y, meta.n.x }; hdr.h.a = meta.n.x;", "05c20304"),
        ("inner_t k = { 7, ... }; hdr.h.a = k.x; hdr.h.b = k.y;", "07000304"),
        ("tuple<bit<8>, bit<8>> k = { hdr.h.b, 1 }; hdr.h.a = k[0] + k[1];", "c3c20304"),
        ("if (meta.n == (inner_t){ 0, 0 }) { hdr.h.a = 0; }", "00c20304"),
        ("if (meta.n != { 0, 0 }) { hdr.h.a = 0; }", "ffc20304"),
        ("hdr.g = hdr.h; if (hdr.g == hdr.h) { hdr.g.setInvalid(); hdr.h.a = 0; }", "00c20304"),
        ("hdr.g = { 1, 2, 3, 4 }; hdr.h = {#};", "01020304"),
        ("if (hdr.g == {#}) { hdr.h.a = 0; }", "00c20304"),
        ("if (hdr.h == { 0xff, 0xc2, 3, 4 }) { hdr.h.a = 0; }", "00c20304"),
        (
            "hdr.s[1] = hdr.h; hdr.s.pop_front(1); hdr.h.a = hdr.s[0].isValid() ? 8w1 : 2;",
            "01c20304" + "ffc20304",
        ),
        ("hdr.h.a += 2; hdr.h.b |= 1; hdr.h.c <<= 1; hdr.h.d |-|= 9;", "01c30600"),
        ("inner_t k = meta.t ? meta.n : (inner_t){ 3, 4 }; hdr.h.a = k.y;", "04c20304"),
        ("const bit<8> K = 1; { const bit<8> K = 2; hdr.h.a = K; } hdr.h.b = K;", "02010304"),
        (
            "switch (hdr.h.c) { 1: { hdr.h.a = 1; } 2: 3: { hdr.h.a = 2; } default: { hdr.h.a = 4; } }",
            "02c20304",
        ),
    ],
)
def test_values_at_run_time(apply: str, out: str):
    assert sent("ffc20304", apply) == out


def test_an_enum_is_compared_and_switched_on():
    declarations = "enum Color { red, green, blue }"
    apply = "Color c = Color.blue; switch (c) { Color.red: { hdr.h.a = 1; } Color.blue: { hdr.h.a = 2; } }"
    assert sent("00000000", apply, declarations=declarations) == "02000000"


def test_serialisable_enums_and_new_types_are_their_underlying_type():
    declarations = (
        "enum bit<8> Kind { a = 1, b = 0x20 } type bit<8> port_t; header k_t { Kind kind; port_t port; }"
    )
    apply = (
        "k_t k; k.setValid(); k.kind = Kind.b; k.port = (port_t)7; "
        "hdr.h.a = k.kind; hdr.h.b = (bit<8>)k.port;"
    )
    assert sent("00000000", apply, declarations=declarations) == "20070000"
    program = lowered(apply, declarations=declarations)
    assert program.variables["C.k"] == ir.Header("k_t", (("kind", ir.Bits(8)), ("port", ir.Bits(8))))


def test_a_hash_of_mixed_data():
    program = lowered("hash(meta.w, HashAlgorithm.crc32, 16w0, { hdr.h, meta.t, 4w3, { meta.x } }, 32w64);")
    (call,) = program.ingress
    assert isinstance(call, ir.Extern)
    widths = [expr.type.width if isinstance(expr.type, ir.Bits) else "bool" for expr in call.args[3]]
    assert widths == [8, 8, 8, 8, "bool", 4, 8]
    assert [expr.type for expr in call.args[4]] == [ir.Bits(32)]


def test_externs_write_to_slices_by_way_of_a_variable():
    apply = "r.write(1, 0xa); r.read(hdr.h.a[7:4], 1);"
    assert sent("00000000", apply, locals="register<bit<4>>(4) r;") == "a0000000"


def test_the_new_version_of_v1model_has_typed_indices():
    locals_ = "register<bit<8>, bit<4>>(4) r; counter<bit<16>>(4, CounterType.packets) c;"
    apply = "r.write(2, 5); r.read(hdr.h.a, 2); c.count(hdr.h.a ++ hdr.h.b);"
    text = "#define V1MODEL_VERSION 20200408\n"
    program = compile_source(text + source(apply, locals=locals_))
    externs = [s for s in statements(program.ingress) if isinstance(s, ir.Extern)]
    assert [call.args[0][0].type for call in externs] == [ir.Bits(4), ir.Bits(8), ir.Bits(16)]


def test_an_endless_expression_is_refused():
    with pytest.raises(Unsupported, match="nested too deeply"):
        lowered(f"hdr.h.a = {' + '.join(['hdr.h.b'] * 5000)};")
