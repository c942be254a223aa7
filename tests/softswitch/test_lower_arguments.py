"""Passing arguments: what P4's copy-in and copy-out say, and no copies where nobody can tell."""

import pytest

from softswitch.compiler import Unsupported, compile_source, ir
from tests.softswitch.lowering import lowered, sent, source, statements

SWAP = "void swap(inout bit<8> p, inout bit<8> q) { bit<8> t = p; p = q; q = t; }"
BUMP = "bit<8> bump(inout bit<8> p) { p = p + 1; return p; }"


def copies(program: ir.Program) -> list[ir.Assign]:
    """Assignments of whole headers and structs."""
    return [
        s
        for s in statements(program.ingress)
        if isinstance(s, ir.Assign) and isinstance(s.target.type, ir.Header | ir.Struct | ir.Stack)
    ]


@pytest.mark.parametrize(("call", "a"), [("k.apply(hdr.h.a);", "01"), ("f(hdr.h.a);", "00")])
def test_an_out_scalar_that_nobody_writes_is_as_p4c_leaves_it(call: str, a: str):
    """It is undefined. p4c's inlining gives a control its caller's, a function a variable of its own."""
    declarations = "control K(out bit<8> p) { apply { } } void f(out bit<8> p) { }"
    assert sent("01020304", call, declarations=declarations, locals="K() k;") == f"{a}020304"


def test_plain_paths_are_passed_by_name():
    program = lowered("i.apply(hdr, meta, hdr.h.a);", declarations=_INNER, locals="Inner() i;")
    assert copies(program) == []
    assert len(program.ingress) == 1
    statement = program.ingress[0]
    assert isinstance(statement, ir.Assign)
    assert isinstance(statement.target, ir.Member)
    assert (statement.target.base, statement.target.field) == (
        ir.Var(program.meta, "meta", statement.target.base.pos),
        "x",
    )


_INNER = """
control Inner(in headers_t hs, inout metadata_t ms, in bit<8> v) { apply { ms.x = v; } }
"""


@pytest.mark.parametrize(
    ("apply", "out"),
    [
        ("swap(hdr.h.a, hdr.h.b);", "02010304"),
        # Both copies go back to the same place, the last one wins.
        ("swap(hdr.h.a, hdr.h.a);", "01020304"),
        ("swap(hdr.h.a[7:4], hdr.h.a[3:0]);", None),
    ],
)
def test_swap(apply: str, out: str | None):
    if out is None:
        nibbles = SWAP.replace("bit<8>", "bit<4>")
        assert sent("12020304", apply, declarations=nibbles) == "21020304"
    else:
        assert sent("01020304", apply, declarations=SWAP) == out


def test_an_in_argument_keeps_its_value_while_its_source_changes():
    declarations = "control K(in bit<8> v, inout h_t h) { apply { h.a = 9; h.b = v; } }"
    assert (
        sent("01020304", "k.apply(hdr.h.a, hdr.h);", declarations=declarations, locals="K() k;") == "09010304"
    )


def test_an_action_that_reaches_its_argument_by_another_way():
    action = "action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; }"
    # p is a copy until f ends: f sees the old hdr.h.a.
    assert sent("01020304", "f(hdr.h.a);", locals=action) == "07010304"


def test_an_action_that_reaches_its_argument_through_another_action():
    actions = "action g() { hdr.h.b = hdr.h.a; } action f(inout bit<8> p) { p = 7; g(); }"
    assert sent("01020304", "f(hdr.h.a);", locals=actions) == "07010304"


def test_the_index_of_an_argument_is_evaluated_once():
    declarations = "void f(inout bit<8> p, inout bit<8> i) { i = 2; p = 9; }"
    parser = (
        "state start { packet.extract(hdr.s.next); packet.extract(hdr.s.next); "
        "packet.extract(hdr.s.next); transition accept; }"
    )
    out = sent(
        "000000000000000000000000", "f(hdr.s[meta.x].a, meta.x);", declarations=declarations, parser=parser
    )
    assert out == "090000000000000000000000"


def test_an_out_argument_starts_at_zero():
    declarations = "void f(out bit<8> p) { if (p == 0) { p = 5; } }"
    assert sent("01020304", "f(hdr.h.a);", declarations=declarations) == "05020304"


def test_an_out_header_starts_invalid():
    declarations = "void f(out h_t p) { }"
    assert sent("01020304", "f(hdr.h);", declarations=declarations) == ""


@pytest.mark.parametrize(
    ("apply", "out"),
    [
        ("hdr.h.b = hdr.h.a + bump(hdr.h.a);", "02030304"),
        ("hdr.h.b = bump(hdr.h.a) + hdr.h.a;", "02040304"),
        ("hdr.h.b = bump(hdr.h.a) * 10 + bump(hdr.h.a);", "03170304"),
        ("if (hdr.h.a == 9 && bump(hdr.h.a) == 10) { hdr.h.d = 0; }", "01020304"),
        ("if (hdr.h.a == 1 && bump(hdr.h.a) == 2) { hdr.h.d = 0; }", "02020300"),
        ("if (hdr.h.a == 1 || bump(hdr.h.a) == 2) { hdr.h.d = 0; }", "01020300"),
        ("hdr.h.b = hdr.h.a == 1 ? hdr.h.c : bump(hdr.h.a);", "01030304"),
        ("hdr.h.b = hdr.h.a == 0 ? hdr.h.c : bump(hdr.h.a);", "02020304"),
        ("hdr.h = { hdr.h.b, hdr.h.a, hdr.h.d, hdr.h.c };", "02010403"),
        ("hdr.h = { b = hdr.h.a, a = hdr.h.b, c = bump(hdr.h.a), d = hdr.h.a };", "02010202"),
    ],
)
def test_effects_come_in_order(apply: str, out: str):
    assert sent("01020304", apply, declarations=BUMP) == out


def test_arguments_by_name_and_defaults():
    declarations = "void f(out bit<8> p, in bit<8> q, in bit<8> r = 5) { p = q - r; }"
    assert sent("01020304", "f(q = 9, p = hdr.h.a);", declarations=declarations) == "04020304"


def test_overloads_are_told_apart_by_their_number_of_parameters():
    declarations = "bit<8> f(in bit<8> p) { return p; } bit<8> f(in bit<8> p, in bit<8> q) { return p + q; }"
    assert sent("01020304", "hdr.h.c = f(9); hdr.h.d = f(3, 4);", declarations=declarations) == "01020907"


def test_return_leaves_only_the_function():
    declarations = "bit<8> f(in bit<8> p) { if (p > 1) { return 9; } bit<8> t = p + 1; return t; }"
    assert (
        sent("01020304", "hdr.h.c = f(hdr.h.a); hdr.h.d = f(hdr.h.b);", declarations=declarations)
        == "01020209"
    )


def test_return_leaves_only_the_control():
    declarations = "control K(inout h_t h) { apply { if (h.a == 1) { return; } h.b = 0; } }"
    assert (
        sent("01020304", "k.apply(hdr.h); hdr.h.c = 8;", declarations=declarations, locals="K() k;")
        == "01020804"
    )


def test_exit_copies_back():
    action = "action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; exit; }"
    assert sent("01020304", "f(hdr.h.a); hdr.h.c = 0;", locals=action) == "07010304"


def test_exit_in_a_shared_action_copies_back_for_every_caller():
    actions = """
    action stop() { exit; }
    action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; stop(); }
    """
    assert sent("01020304", "f(hdr.h.a); hdr.h.c = 0;", locals=actions) == "07010304"


def test_one_instance_applied_with_different_arguments():
    declarations = "control K(inout bit<8> p) { bit<8> n; apply { n = n + 1; p = p + n; } }"
    # n starts at zero in every application.
    out = sent(
        "01020304",
        "k.apply(hdr.h.a); k.apply(hdr.h.b); k.apply(hdr.h.b);",
        declarations=declarations,
        locals="K() k;",
    )
    assert out == "02040304"


def test_one_instance_applied_twice_alike_needs_no_copies():
    declarations = "control K(inout headers_t hs) { apply { hs.h.a = hs.h.a + 1; } }"
    program = lowered("k.apply(hdr); k.apply(hdr);", declarations=declarations, locals="K() k;")
    assert copies(program) == []
    assert len(program.ingress) == 2


def test_locals_of_an_action_start_at_zero_in_every_call():
    action = (
        "action f(bit<8> v) { bit<8> n; inner_t k; n = n + v; k.x = k.x + v; hdr.h.a = n; hdr.h.b = k.x; }"
    )
    assert sent("01020304", "f(1); f(2);", locals=action) == "02020304"


def test_a_local_header_is_invalid_and_zero_in_every_call():
    action = """action f() {
        h_t k;
        hdr.h.b = k.isValid() ? 8w1 : k.a;
        k.setValid();
        k.a = 9;
    }"""
    assert sent("01020304", "f(); f();", locals=action) == "01000304"


def test_direct_calls_share_the_body_of_an_action():
    program = lowered("f(1); f(meta.x);", locals="action f(bit<8> v) { hdr.h.a = v; }")
    calls = [s for s in program.ingress if isinstance(s, ir.Call)]
    assert [call.action for call in calls] == ["C.f", "C.f"]
    assert program.actions["C.f"].params[0].variable in program.variables


def test_an_extern_passed_to_a_control():
    declarations = """
    control K(register<bit<8>> r, inout bit<8> v) { apply { r.read(v, 1); } }
    control L(inout bit<8> v)(register<bit<8>> r, bit<8> n) { apply { r.write(1, n); v = n; } }
    """
    locals_ = "register<bit<8>>(4) r; K() k; L(r, 6) l;"
    apply = "l.apply(hdr.h.a); k.apply(r, hdr.h.b);"
    assert sent("01020304", apply, declarations=declarations, locals=locals_) == "06060304"


def test_parameters_that_cannot_be_copied_must_not_differ():
    declarations = "control K(register<bit<8>> r, inout bit<8> v) { apply { r.read(v, 1); } }"
    locals_ = "register<bit<8>>(4) r; register<bit<8>>(4) q; K() k;"
    text = source("k.apply(r, hdr.h.a); k.apply(q, hdr.h.a);", declarations=declarations, locals=locals_)
    with pytest.raises(Unsupported, match="parameter 'r' differs"):
        compile_source(text)


def test_one_instance_applied_twice_with_the_same_expression():
    declarations = "control K(in bit<8> v, inout h_t h) { apply { h.a = v; } }"
    apply = "k.apply(hdr.h.a + 1, hdr.h); k.apply(hdr.h.a + 1, hdr.h);"
    assert sent("01020304", apply, declarations=declarations, locals="K() k;") == "03020304"
