"""Tables: defaults, entries and their order, actions with bound arguments, counters."""

from softswitch.compiler import ir, p4info
from tests.softswitch.lowering import lowered, sent

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


def test_hit_and_miss():
    locals_ = (
        ACTIONS + "table t { key = { hdr.h.a: exact; } actions = { a; b; } const entries = { 1: a(9); } }"
    )
    apply = "if (t.apply().miss) { hdr.h.b = 8; } else if (hdr.h.c == 3 && !t.apply().hit) { hdr.h.c = 0; }"
    assert sent("01020304", apply, locals=locals_) == "01020309"
    assert sent("02020304", apply, locals=locals_) == "02080304"


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
    assert sent("01020304", apply, locals=locals_) == "01010309"
    assert sent("02020304", apply, locals=locals_) == "02020304"
    assert sent("03020304", apply, locals=locals_) == "03020304"
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


def test_keys_are_looked_at_in_order():
    declarations = "bit<8> bump(inout bit<8> p) { p = p + 1; return p; }"
    locals_ = """
    action a() { hdr.h.d = 9; }
    table t {
        key = { hdr.h.a: exact; bump(hdr.h.a): exact @name("bumped"); }
        actions = { a; NoAction; }
        const entries = { (1, 2): a(); }
    }"""
    assert sent("01020304", "t.apply();", declarations=declarations, locals=locals_) == "02020309"


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
    assert isinstance(program.ingress[0], ir.Extern)
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
