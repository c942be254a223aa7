"""Passing arguments: what P4's copy-in and copy-out say, and no copies where nobody can tell.

Expressions: widths of literals, compile-time arithmetic, casts, structs and tuples.

Names of the control plane, as p4c gives them.

Parsers: states, select, stacks, and sub-parsers that become states.

Tables: defaults, entries and their order, actions with bound arguments, counters.
"""

from __future__ import annotations

import pytest

from softswitch.compiler import Unsupported, compile_source, ir, p4info
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
    assert (statement.target.base, statement.target.field) == (
        ir.Var(program.meta, "meta", pos=statement.target.base.pos),
        "x",
    )


_INNER = """
control Inner(in headers_t hs, inout metadata_t ms, in bit<8> v) { apply { ms.x = v; } }
"""


def test_one_instance_applied_twice_alike_needs_no_copies():
    declarations = "control K(inout headers_t hs) { apply { hs.h.a = hs.h.a + 1; } }"
    program = lowered("k.apply(hdr); k.apply(hdr);", declarations=declarations, locals="K() k;")
    assert copies(program) == []
    assert len(program.ingress) == 2


def test_direct_calls_share_the_body_of_an_action():
    program = lowered("f(1); f(meta.x);", locals="action f(bit<8> v) { hdr.h.a = v; }")
    calls = [s for s in program.ingress if isinstance(s, ir.Call)]
    assert [call.action for call in calls] == ["C.f", "C.f"]
    assert program.actions["C.f"].params[0].variable in program.variables


def test_parameters_that_cannot_be_copied_must_not_differ():
    declarations = "control K(register<bit<8>> r, inout bit<8> v) { apply { r.read(v, 1); } }"
    locals_ = "register<bit<8>>(4) r; register<bit<8>>(4) q; K() k;"
    text = source("k.apply(r, hdr.h.a); k.apply(q, hdr.h.a);", declarations=declarations, locals=locals_)
    with pytest.raises(Unsupported, match="parameter 'r' differs"):
        compile_source(text)


def assigned(value: str, target: str = "meta.x", declarations: str = "") -> ir.Expr:
    (statement,) = lowered(f"{target} = {value};", declarations=declarations).ingress
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
    assert (constant.type, constant.value) == (ir.Bits(8), expected)


def test_literals_take_the_width_beside_them():
    value = assigned("5 - hdr.h.a")
    assert value.left.type == value.right.type == value.type == ir.Bits(8)


def test_shifts_by_constants_have_no_sign_to_worry_about():
    value = assigned("hdr.h.a << 3")
    assert value.right.value == 3


def test_a_known_condition_leaves_one_branch():
    program = lowered("if (1 == 2) { hdr.h.a = 1; } else { hdr.h.a = 2; }")
    assert [type(s) for s in program.ingress] == [ir.Assign]


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
    widths = [expr.type.width if isinstance(expr.type, ir.Bits) else "bool" for expr in call.args[2]]
    assert widths == [8, 8, 8, 8, "bool", 4, 8]
    assert [expr.type for expr in call.args[3]] == [ir.Bits(32)]


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
    assert [*program.tables, *program.counters] == [
        *("C.one.t", "C.second.t", "C.Plain.t"),
        *("C.one.hits", "C.second.hits"),
    ]
    assert {"C.one.set", "C.second.set", "C.Plain.n", "NoAction"} == set(program.actions)


def test_constructor_arguments_are_constants():
    program = lowered("one.apply(hdr); two.apply(hdr);", declarations=SUB, locals="Sub(1) one; Sub(2) two;")
    assign = program.actions["C.two.set"].body[0]
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
    frames = {"0102030402030405": "01ff030202ff0405", "0502030402030405": "0502030202ff0405"}
    assert {each: sent(each, declarations=declarations, parser=parser) for each in frames} == frames


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
    frames = {"010b0304": "010b0301", "03000304": "03000302", "06000304": "06000304"}
    assert {frame: sent(frame, parser=parser) for frame in frames} == frames


def test_a_state_without_transition_rejects():
    program = lowered(parser="state start { packet.extract(hdr.h); }")
    assert program.states["start"].transition.cases == (((), "reject"),)


ACTIONS = "action a(bit<8> v) { hdr.h.d = v; } action b() { } "


def table(body: str, actions: str = ACTIONS) -> ir.Table:
    program = lowered("t.apply();", locals=f"{actions} table t {{ {body} }}")
    return program.tables["C.t"]


def test_without_a_default_it_is_no_action():
    t = table("key = { hdr.h.a: exact; } actions = { a; b; }")
    assert t.default == ir.Invocation("NoAction", ())
    assert t.actions[-1] == ir.ActionRef("NoAction", "default_only", (ir.Annotation("defaultonly", ""),))
    assert (t.const_default, t.size) == (False, 1024)


def test_no_action_that_is_listed_is_not_listed_again():
    t = table("key = { hdr.h.a: exact; } actions = { a; NoAction; }")
    assert t.actions == (ir.ActionRef("C.a"), ir.ActionRef("NoAction"))


def test_a_default_with_arguments():
    t = table("key = { hdr.h.a: exact; } actions = { a; b; } const default_action = a(7); size = 4 * 16;")
    assert (t.default, t.const_default, t.size) == (ir.Invocation("C.a", (7,)), True, 64)


def test_scopes_of_actions():
    t = table("key = { hdr.h.a: exact; } actions = { @tableonly a; @defaultonly b; } default_action = b;")
    assert [(ref.action, ref.scope) for ref in t.actions] == [("C.a", "table_only"), ("C.b", "default_only")]


def test_ternary_entries_are_numbered_downwards():
    t = table(
        """
        key = { hdr.h.a: ternary; meta.i: exact; hdr.h.b: range; hdr.h.c: optional; }
        actions = { a; b; }
        const entries = {
            (0x10 &&& 0xf0, -1, 1 .. 5, 3): a(1);
            (7, 2, 9, _): a(2);
            (_, 3, _, default): b();
            default: b;
        }
        """.replace("default: b;", "")
    )
    any_ = ir.Pattern("any")
    exact, mask = "exact", "mask"
    assert [(entry.patterns, entry.invocation, entry.priority) for entry in t.entries] == [
        (
            (
                ir.Pattern(mask, 0x10, 0xF0),
                ir.Pattern(exact, -1),
                ir.Pattern("range", 1, 5),
                ir.Pattern(exact, 3),
            ),
            ir.Invocation("C.a", (1,)),
            3,
        ),
        (
            (ir.Pattern(mask, 7, 0xFF), ir.Pattern(exact, 2), ir.Pattern("range", 9, 9), any_),
            ir.Invocation("C.a", (2,)),
            2,
        ),
        ((any_, ir.Pattern(exact, 3), any_, any_), ir.Invocation("C.b", ()), 1),
    ]
    assert t.const_entries


def test_entries_may_have_priorities():
    t = table(
        """
        key = { hdr.h.a: ternary; }
        actions = { a; b; }
        entries = { priority = 30: 1: a(1); 2: a(2); priority = 50: 3: b(); }
        """
    )
    assert [entry.priority for entry in t.entries] == [30, 29, 50]
    assert not t.const_entries


def test_the_longest_prefix_has_the_highest_priority():
    t = table(
        """
        key = { meta.w: lpm; }
        actions = { a; b; }
        const entries = { 0x0a000000 &&& 0xff000000: a(1); 0x0a0a0000 &&& 0xffff0000: a(2); 5: a(3); _: b(); }
        """
    )
    assert [entry.priority for entry in t.entries] == [8, 16, 32, 0]
    assert t.entries[2].patterns == (ir.Pattern("mask", 5, 0xFFFFFFFF),)


def test_bound_arguments_make_an_action_of_their_own():
    actions = "action f(in bit<8> p, inout bit<8> q, bit<8> v) { q = p + v; }"
    locals_ = (
        actions
        + """
    table t { key = { hdr.h.a: exact; } actions = { f(hdr.h.b, hdr.h.c); }
        const entries = { 1: f(hdr.h.b, hdr.h.c, 9); } }
    """
    )
    program = lowered("t.apply();", locals=locals_)
    assert [param.name for param in program.actions["C.f"].params] == ["v"]
    assert sent("01020304", "t.apply();", locals=locals_) == "01020b04"


def test_an_action_bound_in_two_ways_becomes_two():
    program = lowered(
        "t.apply(); u.apply(); w.apply();",
        locals="""
        action f(in bit<8> p) { hdr.h.d = p; }
        table t { actions = { f(hdr.h.a); } default_action = f(hdr.h.a); }
        table u { actions = { f(hdr.h.b); } default_action = f(hdr.h.b); }
        table w { actions = { f(hdr.h.a); } default_action = f(hdr.h.a); }
        """,
    )
    assert [t.default.action for t in program.tables.values()] == ["C.f", "C.f#2", "C.f"]


def test_a_direct_counter_belongs_to_its_table():
    program = lowered(
        "t.apply();",
        locals=ACTIONS
        + """
        direct_counter(CounterType.packets_and_bytes) hits;
        table t { key = { hdr.h.a: exact; } actions = { a; b; } counters = hits; size = 12; }
        """,
    )
    counter = program.counters["C.hits"]
    assert (counter.table, counter.unit, counter.size) == ("C.t", "packets_and_bytes", 12)
    assert program.tables["C.t"].direct_counter == "C.hits"


def test_the_action_that_ran():
    locals_ = (
        ACTIONS
        + """
    action c() { }
    table t {
        key = { hdr.h.a: exact; }
        actions = { a; b; c; }
        default_action = c();
        const entries = { 1: a(9); 2: b(); }
    }"""
    )
    apply = (
        "switch (t.apply().action_run) { a: { hdr.h.b = 1; } "
        "b: c: { hdr.h.b = 2; } default: { hdr.h.b = 3; } }"
    )
    frames = {"01020304": "01010309", "02020304": "02020304", "03020304": "03020304"}
    assert {frame: sent(frame, apply, locals=locals_) for frame in frames} == frames
    program = lowered(apply, locals=locals_)
    apply_, switch = program.ingress
    assert isinstance(apply_, ir.Apply)
    assert isinstance(switch, ir.Switch)
    assert apply_.action == switch.subject
    assert [tuple(constant.value for constant in constants) for constants, _ in switch.cases] == [
        (0,),
        (1, 2),
        (),
    ]


def test_field_lists():
    program = lowered(
        "clone_preserving_field_list(CloneType.I2E, 5, KEEP);",
        declarations="""
        const bit<8> KEEP = 3;
        """,
    )
    assert program.field_lists == {3: ()}
    program = lowered("clone3(CloneType.I2E, 5, { meta.x, meta.n });")
    assert program.field_lists == {256: (("meta", "x"), ("meta", "n", "x"), ("meta", "n", "y"))}
    assert program.ingress[0].function == "clone_preserving_field_list"


def test_a_table_that_is_only_applied_in_dead_code_is_left_out():
    locals_ = ACTIONS + "table t { key = { hdr.h.a: exact; } actions = { a; b; } }"
    apply = "if (FEATURE) { t.apply(); } if (FEATURE && t.apply().hit) { hdr.h.a = 1; }"
    program = lowered(apply, declarations="const bool FEATURE = false;", locals=locals_)
    assert (program.tables, program.actions, program.ingress) == ({}, {}, ())
    program = lowered(apply + "t.apply();", declarations="const bool FEATURE = false;", locals=locals_)
    assert list(program.tables) == ["C.t"]


def test_counters_and_profiles_that_a_table_constructs_are_named_as_p4c_names_them():
    kinds = """
        @name("hits") counters = direct_counter(CounterType.packets);
        @name("rates") meters = direct_meter<bit<2>>(MeterType.bytes);
        @name("members") implementation = action_profile(4);
    """
    body = "key = { hdr.h.a: exact; } actions = { a; b; } "
    parts = f"{ACTIONS} table t {{ {body} {kinds} }} table u {{ {body} {kinds.replace('@name', '@note')} }}"
    info = p4info(lowered("t.apply(); u.apply();", locals=parts))
    found = [info.direct_counters, info.direct_meters, info.action_profiles]
    assert [[each.preamble.name for each in kind] for kind in found] == [
        ["hits", "C.u.counters"],
        ["rates", "C.u.meters"],
        ["members", "C.u.implementation"],
    ]
    assert [table.preamble.name for table in info.tables] == ["C.t", "C.u"]


def test_controller_headers_are_numbered_after_their_types():
    header = '@controller_header("packet_out") header packet_out_t { bit<8> port; }'
    (found,) = p4info(lowered(declarations=header)).controller_packet_metadata
    assert (found.preamble.name, found.preamble.id) == ("packet_out", 75327753)  # p4c's number


SENT = [
    ("01020304", {"apply": "swap(hdr.h.a, hdr.h.b);", "declarations": SWAP}, "02010304"),
    # Both copies go back to the same place, the last one wins.
    ("01020304", {"apply": "swap(hdr.h.a, hdr.h.a);", "declarations": SWAP}, "01020304"),
    (
        "12020304",
        {
            "apply": "swap(hdr.h.a[7:4], hdr.h.a[3:0]);",
            "declarations": SWAP.replace("bit<8>", "bit<4>"),
        },
        "21020304",
    ),
    # An error leaves the parser.
    *(
        (
            frame,
            {
                "apply": "if (standard_metadata.parser_error == error.Mine) { hdr.h.c = 8; }",
                "parser": "state start { packet.extract(hdr.h); verify(hdr.h.a == 1, "
                "error.Mine); hdr.h.b = 9; transition accept; }",
                "declarations": "error { Mine }",
            },
            out,
        )
        for frame, out in (("01020304", "01090304"), ("02020304", "02020804"))
    ),
    # A lookahead for nothing still needs the bits.
    *(
        (
            frame,
            {
                "apply": "if (standard_metadata.parser_error == error.PacketTooShort) { hdr.g.setValid(); }",
                "parser": "state start { packet.lookahead<bit<16>>(); packet.extract(hdr.h);"
                " transition accept; }",
            },
            out,
        )
        for frame, out in (("01", "0000000001"), ("01020304", "01020304"))
    ),
    # Hit and miss.
    *(
        (
            frame,
            {
                "apply": "if (t.apply().miss) { hdr.h.b = 8; }"
                " else if (hdr.h.c == 3 && !t.apply().hit) { hdr.h.c = 0; }",
                "locals": ACTIONS
                + "table t { key = { hdr.h.a: exact; } actions = { a; b; } const entries = { 1: a(9); } }",
            },
            out,
        )
        for frame, out in (("01020304", "01020309"), ("02020304", "02080304"))
    ),
    # Effects come in order.
    *(
        ("01020304", {"apply": apply, "declarations": BUMP}, out)
        for apply, out in (
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
        )
    ),
    # Values at run time.
    *(
        ("ffc20304", {"apply": apply}, out)
        for apply, out in (
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
        )
    ),
    pytest.param(
        "01020304",
        {
            "apply": "k.apply(hdr.h.a, hdr.h);",
            "declarations": "control K(in bit<8> v, inout h_t h) { apply { h.a = 9; h.b = v; } }",
            "locals": "K() k;",
        },
        "09010304",
        id="an_in_argument_keeps_its_value_while_its_source_changes",
    ),
    # p is a copy until f ends: f sees the old hdr.h.a.
    pytest.param(
        "01020304",
        {"apply": "f(hdr.h.a);", "locals": "action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; }"},
        "07010304",
        id="an_action_that_reaches_its_argument_by_another_way",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(hdr.h.a);",
            "locals": "action g() { hdr.h.b = hdr.h.a; } action f(inout bit<8> p) { p = 7; g(); }",
        },
        "07010304",
        id="an_action_that_reaches_its_argument_through_another_action",
    ),
    pytest.param(
        "000000000000000000000000",
        {
            "apply": "f(hdr.s[meta.x].a, meta.x);",
            "declarations": "void f(inout bit<8> p, inout bit<8> i) { i = 2; p = 9; }",
            "parser": (
                "state start { packet.extract(hdr.s.next); packet.extract(hdr.s.next); "
                "packet.extract(hdr.s.next); transition accept; }"
            ),
        },
        "090000000000000000000000",
        id="the_index_of_an_argument_is_evaluated_once",
    ),
    pytest.param(
        "01020304",
        {"apply": "f(hdr.h.a);", "declarations": "void f(out bit<8> p) { if (p == 0) { p = 5; } }"},
        "05020304",
        id="an_out_argument_starts_at_zero",
    ),
    pytest.param(
        "01020304",
        {"apply": "f(hdr.h);", "declarations": "void f(out h_t p) { }"},
        "",
        id="an_out_header_starts_invalid",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(q = 9, p = hdr.h.a);",
            "declarations": "void f(out bit<8> p, in bit<8> q, in bit<8> r = 5) { p = q - r; }",
        },
        "04020304",
        id="arguments_by_name_and_defaults",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "hdr.h.c = f(9); hdr.h.d = f(3, 4);",
            "declarations": (
                "bit<8> f(in bit<8> p) { return p; } bit<8> f(in bit<8> p, in bit<8> q) { return p + q; }"
            ),
        },
        "01020907",
        id="overloads_are_told_apart_by_their_number_of_parameters",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "hdr.h.c = f(hdr.h.a); hdr.h.d = f(hdr.h.b);",
            "declarations": "bit<8> f(in bit<8> p) { if (p > 1) { return 9; } bit<8> t = p + 1; return t; }",
        },
        "01020209",
        id="return_leaves_only_the_function",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "k.apply(hdr.h); hdr.h.c = 8;",
            "declarations": "control K(inout h_t h) { apply { if (h.a == 1) { return; } h.b = 0; } }",
            "locals": "K() k;",
        },
        "01020804",
        id="return_leaves_only_the_control",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(hdr.h.a); hdr.h.c = 0;",
            "locals": "action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; exit; }",
        },
        "07010304",
        id="exit_copies_back",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(hdr.h.a); hdr.h.c = 0;",
            "locals": """
    action stop() { exit; }
    action f(inout bit<8> p) { p = 7; hdr.h.b = hdr.h.a; stop(); }
    """,
        },
        "07010304",
        id="exit_in_a_shared_action_copies_back_for_every_caller",
    ),
    # n starts at zero in every application.
    pytest.param(
        "01020304",
        {
            "apply": "k.apply(hdr.h.a); k.apply(hdr.h.b); k.apply(hdr.h.b);",
            "declarations": "control K(inout bit<8> p) { bit<8> n; apply { n = n + 1; p = p + n; } }",
            "locals": "K() k;",
        },
        "02040304",
        id="one_instance_applied_with_different_arguments",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(1); f(2);",
            "locals": (
                "action f(bit<8> v) { bit<8> n; inner_t k; n = n + v; k.x = k.x + v; hdr.h.a = n; "
                "hdr.h.b = k.x; }"
            ),
        },
        "02020304",
        id="locals_of_an_action_start_at_zero_in_every_call",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "f(); f();",
            "locals": """action f() {
        h_t k;
        hdr.h.b = k.isValid() ? 8w1 : k.a;
        k.setValid();
        k.a = 9;
    }""",
        },
        "01000304",
        id="a_local_header_is_invalid_and_zero_in_every_call",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "l.apply(hdr.h.a); k.apply(r, hdr.h.b);",
            "declarations": """
    control K(register<bit<8>> r, inout bit<8> v) { apply { r.read(v, 1); } }
    control L(inout bit<8> v)(register<bit<8>> r, bit<8> n) { apply { r.write(1, n); v = n; } }
    """,
            "locals": "register<bit<8>>(4) r; K() k; L(r, 6) l;",
        },
        "06060304",
        id="an_extern_passed_to_a_control",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "k.apply(hdr.h.a + 1, hdr.h); k.apply(hdr.h.a + 1, hdr.h);",
            "declarations": "control K(in bit<8> v, inout h_t h) { apply { h.a = v; } }",
            "locals": "K() k;",
        },
        "03020304",
        id="one_instance_applied_twice_with_the_same_expression",
    ),
    pytest.param(
        "00000000",
        {
            "apply": (
                "Color c = Color.blue; switch (c) { Color.red: { hdr.h.a = 1; "
                "} Color.blue: { hdr.h.a = 2; } }"
            ),
            "declarations": "enum Color { red, green, blue }",
        },
        "02000000",
        id="an_enum_is_compared_and_switched_on",
    ),
    pytest.param(
        "00000000",
        {"apply": "r.write(1, 0xa); r.read(hdr.h.a[7:4], 1);", "locals": "register<bit<4>>(4) r;"},
        "a0000000",
        id="externs_write_to_slices_by_way_of_a_variable",
    ),
    pytest.param(
        "01020300" * 3,
        {
            "declarations": """
    parser Sub(packet_in p, out h_t h) {
        bit<8> n;
        state start { n = n + 1; p.extract(h); h.d = n; transition accept; }
    }
    """,
            "parser": (
                "Sub() sub; state start { sub.apply(packet, hdr.h); Sub.apply(packet, hdr.g); "
                "sub.apply(packet, hdr.s[0]); transition accept; }"
            ),
        },
        "01020301" * 3,
        id="one_sub_parser_twice",
    ),
    pytest.param(
        "01020304",
        {
            "declarations": """
    parser Sub(packet_in p, in bit<8> v, inout h_t h) {
        state start { h.a = 9; h.b = v; transition accept; }
    }
    """,
            "parser": (
                "Sub() sub; state start { packet.extract(hdr.h); sub.apply(packet, hdr.h.a, hdr.h); "
                "transition accept; }"
            ),
        },
        "09010304",
        id="what_a_sub_parser_gets_is_copied_where_it_must_be",
    ),
    pytest.param(
        "01020304",
        {
            "parser": (
                "state start { h_t ahead = packet.lookahead<h_t>(); packet.extract(hdr.h); "
                "hdr.h.a = ahead.d; transition accept; }"
            )
        },
        "04020304",
        id="lookahead_of_a_header",
    ),
    pytest.param(
        "f0000000",
        {
            "parser": """
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
        },
        "f00f01f8",
        id="lookahead_of_scalars",
    ),
    pytest.param(
        "0000000001020304ffaa",
        {
            "parser": (
                "state start { packet.extract<h_t>(_); packet.extract(hdr.h); "
                "packet.advance(8 * 1); transition accept; }"
            )
        },
        "01020304aa",
        id="a_header_may_be_skipped",
    ),
    pytest.param(
        "01020304",
        {
            "apply": "t.apply();",
            "declarations": "bit<8> bump(inout bit<8> p) { p = p + 1; return p; }",
            "locals": """
    action a() { hdr.h.d = 9; }
    table t {
        key = { hdr.h.a: exact; bump(hdr.h.a): exact @name("bumped"); }
        actions = { a; NoAction; }
        const entries = { (1, 2): a(); }
    }""",
        },
        "02020309",
        id="keys_are_looked_at_in_order",
    ),
]


@pytest.mark.parametrize(("frame", "parts", "out"), SENT)
def test_what_leaves_is_what_the_program_says(frame: str, parts: dict[str, str], out: str) -> None:
    assert sent(frame, **parts) == out
