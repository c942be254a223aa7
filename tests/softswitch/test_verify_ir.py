"""The verifier finds what a defect of the compiler would leave behind."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import InconsistentProgram, verify_program
from tests.softswitch.lowering import lowered

POS = ir.Position("t.p4", 1, 1)
B8 = ir.Bits(8)
LOCALS = """
action a(bit<8> v) { hdr.h.b = v; }
register<bit<8>>(4) r;
table t { key = { hdr.h.a: exact; } actions = { a; } const entries = { 1: a(2); } }
"""


def program() -> ir.Program:
    return lowered("t.apply(); r.write(0, hdr.h.a);", locals=LOCALS)


def number(value: int, type_: ir.Scalar = B8) -> ir.Const:
    return ir.Const(type_, value, POS)


def added(*statements: ir.Stmt) -> Callable[[ir.Program], ir.Program]:
    return lambda p: replace(p, ingress=(*p.ingress, *statements))


def with_table(**changes: object) -> Callable[[ir.Program], ir.Program]:
    return lambda p: replace(p, tables={"C.t": replace(p.tables["C.t"], **changes)})  # type: ignore[arg-type]


X = ir.Var(B8, "x", POS)
AWAY = ir.Transition((), (((), "away"),), POS)
META_X = ir.Member(B8, ir.Var(program().meta, "meta", POS), "x", POS)


def test_a_lowered_program_is_consistent():
    verify_program(program())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (added(ir.Assign(X, number(1), POS)), "no variable x"),
        (added(ir.Assign(META_X, number(256), POS)), "constant 256"),
        (added(ir.Assign(META_X, number(1, ir.Bits(9)), POS)), "where Bits(width=9"),
        (added(ir.Assign(number(1), number(1), POS)), "Const is no place"),
        (added(ir.If(META_X, (), (), POS)), "where Bool() is expected"),
        (added(ir.Assign(META_X, ir.Binary(B8, "+", META_X, number(1, ir.Bits(9)), POS), POS)), "where"),
        (added(ir.Assign(META_X, ir.Binary(B8, "**", META_X, META_X, POS), POS)), "no operator **"),
        (added(ir.Assign(META_X, ir.Slice(B8, META_X, 8, 1, POS), POS)), "slice [8:1]"),
        (added(ir.Call("C.none", POS)), "no action C.none"),
        (added(ir.Apply("C.none", None, None, POS)), "no table C.none"),
        (added(ir.SetValidity(META_X, True, POS)), "in the wrong place"),
        (added(ir.Extern("register.write", "C.none", ((number(0),), (number(0),)), POS)), "no object C.none"),
        (added(ir.Extern("register.write", "C.r", ((number(0),), (number(0, ir.Bits(9)),)), POS)), "where"),
        (lambda p: replace(p, states={}), "no state start"),
        (
            lambda p: replace(
                p,
                states={
                    "start": replace(p.states["start"], transition=ir.Transition((), (((), "away"),), POS))
                },
            ),
            "no state away",
        ),
        (with_table(default=ir.Invocation("C.b", ())), "C.b is no action of C.t"),
        (with_table(default=ir.Invocation("C.a", ())), "0 arguments for C.a"),
        (with_table(size=0), "C.t has size 0"),
        (with_table(direct_counter="C.c"), "no counter C.c of table C.t"),
        (
            with_table(entries=(ir.ConstEntry((ir.Pattern("exact", 256),), ir.Invocation("C.a", (1,)), 1),)),
            "does not fit",
        ),
        (with_table(entries=(ir.ConstEntry((), ir.Invocation("C.a", (1,)), 1),)), "an entry of 0 patterns"),
        (lambda p: replace(p, field_lists={1: (("meta", "none"),)}), "field list 1 has no field meta.none"),
    ],
)
def test_what_is_inconsistent_is_found(change: Callable[[ir.Program], ir.Program], message: str):
    with pytest.raises(InconsistentProgram) as caught:
        verify_program(change(program()))
    assert message in str(caught.value)
