"""Names of the control plane, as p4c gives them."""

from softswitch.compiler import ir
from tests.softswitch.lowering import lowered

SUB = """
control Sub(inout headers_t x)(bit<8> k) {
    counter(4, CounterType.packets) hits;
    action set(bit<8> v) { x.h.a = v + k; hits.count(0); }
    table t {
        key = { x.h.a: exact; x.h.isValid(): exact; x.h.b[3:0]: ternary; x.s[1].a: exact;
            x.h.c: exact @name("see"); }
        actions = { set; NoAction; }
    }
    apply { t.apply(); }
}
"""


def test_instances_are_named_by_the_way_to_them():
    program = lowered(
        "one.apply(hdr); two.apply(hdr); Plain.apply();",
        declarations=SUB
        + "control Plain() { action n() { } table t { actions = { n; } } apply { t.apply(); } }",
        locals='Sub(1) one; @name("second") Sub(2) two;',
    )
    assert list(program.tables) == ["C.one.t", "C.second.t", "C.Plain.t"]
    assert list(program.counters) == ["C.one.hits", "C.second.hits"]
    assert {"C.one.set", "C.second.set", "C.Plain.n", "NoAction"} == set(program.actions)


def test_constructor_arguments_are_constants():
    program = lowered("one.apply(hdr); two.apply(hdr);", declarations=SUB, locals="Sub(1) one; Sub(2) two;")
    assign = program.actions["C.two.set"].body[0]
    assert isinstance(assign, ir.Assign)
    assert isinstance(assign.value, ir.Binary)
    assert isinstance(assign.value.right, ir.Const)
    assert assign.value.right.value == 2


def test_keys_are_named_as_the_source_has_them():
    program = lowered("one.apply(hdr);", declarations=SUB, locals="Sub(1) one;")
    names = [key.name for key in program.tables["C.one.t"].keys]
    assert names == ["x.h.a", "x.h.$valid$", "x.h.b[3:0]", "x.s[1].a", "see"]


def test_annotations_rename():
    program = lowered(
        "t.apply();",
        locals="""
        @name("renamed") action a() { }
        @name(".absolute") action b() { }
        @name(".top") @hidden table t { actions = { a; b; } }
        """,
    )
    assert set(program.actions) == {"C.renamed", "absolute", "NoAction"}
    assert program.tables["top"].annotations == (
        ir.Annotation("name", '".top"'),
        ir.Annotation("hidden", ""),
    )


def test_what_is_global_has_its_bare_name():
    program = lowered(
        "t.apply(); f();",
        declarations="register<bit<8>>(4) cells; action f() { cells.write(0, 1); } action g() { }",
        locals="table t { actions = { g; } }",
    )
    assert set(program.actions) == {"f", "g", "NoAction"}
    assert set(program.registers) == {"cells"}


def test_what_nothing_uses_is_left_out_but_registers_and_counters_stay():
    program = lowered(
        locals="action a() { } table t { actions = { a; } } "
        "register<bit<8>>(4) r; counter(2, CounterType.bytes) c;"
    )
    assert (program.tables, program.actions) == ({}, {})
    assert list(program.registers) == ["C.r"]
    assert program.counters["C.c"].unit == "bytes"


def test_variables_never_share_a_name():
    program = lowered("if (meta.t) { bit<8> v = 1; hdr.h.a = v; } else { bit<16> v = 2; hdr.h.b = v[7:0]; }")
    assert program.variables == {"C.v": ir.Bits(8), "C.v#2": ir.Bits(16)}


def test_the_package_keeps_its_annotations():
    text = '@pkginfo(name="x") '
    program = lowered(declarations=f"{text} control Unused() {{ apply {{ }} }}")
    assert program.annotations == ()
