"""A small program for every row of "Constructs" in docs/reference/p4-constructs.md: accepted, or refused.

`ROWS` has them by the row's first cell. A program stands for a phrase of the row's last cell, the message
that it is refused with, in which ``…`` is anything; or for nothing, if it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from softswitch import compiler
from tests.softswitch.lowering import source

Case = tuple[str, str]
"""The phrase, empty if it is accepted, and the program."""


def ok(apply: str = "", **parts: str) -> Case:
    return "", source(apply, **parts)


def no(phrase: str, apply: str = "", **parts: str) -> Case:
    return phrase, source(apply, **parts)


def table(text: str, actions: str = "NoAction;") -> str:
    return f"table t {{ actions = {{ {actions} }} {text} }}"


def whole(old: str, new: str, case: Case) -> Case:
    """The same with another text in the skeleton."""
    assert old in case[1]
    return case[0], case[1].replace(old, new)


def computing(text: str, case: Case) -> Case:
    """The same with these statements where checksums are computed."""
    control = f"control Up(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {text} }} }}"
    return whole(PACKAGE, control + PACKAGE.replace("E(), None()", "E(), Up()"), case)


PACKAGE = "V1Switch(P(), None(), C(), E(), None(), D()) main;"
APPLY = "t.apply();"
UNION = "header u8 { bit<8> x; } header u16 { bit<16> x; } header_union u_t { u8 a; u16 b; }"
V1MODEL = (Path(compiler.__file__).parent / "include/v1model.p4").read_text()
PRIORITY = '@alias("intrinsic_metadata.priority")\n    bit<3>  priority;'

TYPES: Mapping[str, Sequence[Case]] = {
    "`bit<W>`, `int<W>`, `bool`": (
        ok("bit<128> a = 5; a = a + 1; bit<400> b = 0; bit<400> c = b; if (b == c) { hdr.h.a = 1; }"),
        ok("int<8> a = -3; bool b = a < 0; if (b && !false) { hdr.h.a = 7; }"),
        no("a width of … bits", "bit<65537> a;"),
        no("a number of … bits", "hdr.h.a = (bit<8>)65537w1;"),
        no("a computation with … bits", "bit<129> a = 1; a = a + 1;"),
    ),
    "`error`, `enum`, `enum bit<W>`, `typedef`, `type`": (
        ok(
            "c x = c.red; k y = k.one; v z = 5; w q = (w)z; if (x == c.red && q == (w)5) { hdr.h.a = z; }",
            declarations="enum c { red, green } enum bit<4> k { one = 1 } typedef bit<8> v; type bit<8> w;"
            " error { Mine }",
        ),
        ok("if (standard_metadata.parser_error == error.PacketTooShort) { hdr.h.a = 1; }"),
    ),
    "`varbit<W>`": (
        ok(
            "varbit<32> v = x.v; if (v == x.v) { hdr.h.a = 1; } x.v = v; s y; y.v = v;",
            locals="v_t x;",
            declarations="header v_t { bit<8> n; varbit<32> v; } struct s { varbit<32> v; }",
        ),
        no(
            "header … with more than one varbit",
            locals="v_t x;",
            declarations="header v_t { varbit<32> v; varbit<32> w; }",
        ),
        no("varbit … is no whole bytes", locals="v_t x;", declarations="header v_t { varbit<33> v; }"),
        no(
            "a varbit in a controller header",
            declarations='@controller_header("packet_in") header v_t { varbit<32> v; }',
        ),
        no(
            "…, which has a varbit, given by its fields",
            "x = { 1, y };",
            locals="v_t x; varbit<32> y;",
            declarations="header v_t { bit<8> n; varbit<32> v; }",
        ),
    ),
    "`header`, `struct`, `tuple`, generic structs and headers": (
        ok(
            "tuple<bit<8>, bool> a = { 1, true }; g<bit<8>> b; b.x = a[0]; hdr.h.a = b.x; l<bit<16>> c;"
            " c.setValid(); c.x = 1;",
            declarations="struct g<T> { T x; } header l<T> { T x; }",
        ),
        no("header … has … bits: no multiple of 8", locals="b_t x;", declarations="header b_t { bit<3> x; }"),
        no(
            "wide field … is no whole bytes",
            locals="b_t x;",
            declarations="header b_t { bit<4> n; bit<400> x; bit<4> m; }",
        ),
    ),
    "structs and arrays of numbers inside headers": (
        ok(
            "x.s.a = 1; x.n[2] = 5;",
            locals="b_t x;",
            declarations="struct i { bit<4> a; bit<4> b; } header b_t { i s; bit<8>[4] n; }",
        ),
    ),
    "`header_union`": (
        ok("u_t u; u.a.setValid(); u.b.setValid(); if (u.isValid()) { hdr.h.a = 1; }", declarations=UNION),
    ),
    "header stacks, stacks of unions": (
        ok(
            "hdr.s.push_front(1); hdr.s.pop_front(1); hdr.s[hdr.h.a & 1].a = 5; u_t[2] u; u[0].a.setValid();",
            declarations=UNION,
            parser="state start { packet.extract(hdr.s.next);"
            " hdr.h.a = hdr.s.last.a + (bit<8>)hdr.s.lastIndex; transition accept; }",
        ),
        no(
            "a run-time index into a constant stack",
            "hdr.h.a = k[hdr.h.b & 1].x;",
            declarations="header u8 { bit<8> x; } const u8[2] k = { { 1 }, { 2 } };",
        ),
        no(
            "stack.next or stack.last as an out argument",
            declarations="void set(out bit<8> x) { x = 1; }",
            parser="state start { packet.extract(hdr.s.next); set(hdr.s.last.a); transition accept; }",
        ),
    ),
    "arrays such as `bit<8>[4]`": (
        ok("bit<8>[4] n; n[1] = 5; hdr.h.a = n[1];"),
        no("a run-time index into an array", "bit<8>[4] n; n[1] = 5; hdr.h.a = n[hdr.h.b & 3];"),
        no("an array of …", "string[4] n;"),
    ),
    "`int`": (
        ok("hdr.h.a = K + 2;", declarations="const int K = 1 << 4;"),
        no("a cast to int of a value known only at run time", "hdr.h.a = (bit<8>)(int)hdr.h.b;"),
    ),
    "`string`, `match_kind`, `list<…>`": (
        ok('log_msg("seen {}", { hdr.h.a });'),
        ok("match_kind k = K; if (k != exact) { hdr.h.a = 1; }", declarations="const match_kind K = lpm;"),
        no(
            "a match_kind cannot be a key",
            "t.apply();",
            locals="match_kind k = exact; table t { key = { k: exact; } actions = { NoAction; } }",
        ),
        no("list<…> types", declarations="const list<bit<8>> K = { 1 };"),
    ),
    "numbers that do not fit their type": (ok("hdr.h.a = 300;"), ok("hdr.h.a = 8w300;")),
}

EXPRESSIONS: Mapping[str, Sequence[Case]] = {
    "all operators, slices, `[a +: w]`, `++`, `\\|+\\|`, casts, `?:`": (
        ok(
            "hdr.h.a = hdr.h.b |+| hdr.h.c |-| 1; hdr.h.a[3:0] = hdr.h.b[7:4];"
            " hdr.h.a = hdr.h.b[0 +: 4] ++ 4w3; hdr.h.a = hdr.h.b / hdr.h.c % 7;"
            " hdr.h.a = hdr.h.b > 3 ? ~hdr.h.b : hdr.h.c << 2;"
        ),
    ),
    "`==` of headers, unions, stacks, structs, tuples, varbits, `{#}`": (
        ok(
            "u_t u; u_t v; if (hdr.h == hdr.g && u == v && hdr.s == hdr.s && meta.n == meta.n)"
            " { hdr.h = {#}; }",
            declarations=UNION,
        ),
    ),
    "assignment operators such as `+=`": (ok("hdr.h.a += 1; hdr.h.b <<= 2; hdr.h.c |= 1;"),),
    "`if`, `switch`, `exit`, `return`, `break`, `continue`": (
        ok(
            "switch (t.apply().action_run) { f: { exit; } default: { return; } }"
            " switch (hdr.h.a) { 1: { hdr.h.b = 1; } default: { } }",
            locals="action f() { switch (hdr.h.a) { 1: { hdr.h.b = 2; } } }"
            + table("key = { hdr.h.a: exact; }", "f; NoAction;"),
        ),
    ),
    "`for` with three clauses, over `low .. high`, over stacks, tuples, arrays and lists": (
        ok(
            "for (bit<8> i = 0; i < 4; i += 1) { if (i == 2) { continue; } hdr.h.a += i; }"
            " for (bit<8> i in 1 .. 3) { if (i == 2) { break; } hdr.h.a += i; }"
            " for (h_t x in hdr.s) { hdr.h.a += x.a; } bit<8>[4] n = { 1, 2, 3, 4 };"
            " for (bit<8> y in n) { hdr.h.a += y; }"
            " for (bit<8> y in (list<bit<8>>) { 1, hdr.h.a }) { hdr.h.b += y; }"
        ),
    ),
    "functions": (
        ok("hdr.h.a = f(hdr.h.b);", declarations="bit<8> f(in bit<8> x) { return x + 1; }"),
        ok("hdr.h.a = f(hdr.h.b);", declarations="T f<T>(in T x) { return x; }"),
    ),
    "actions with directional parameters, bound in tables": (
        ok(
            APPLY,
            locals="action f(inout bit<8> x, bit<8> y) { x = y; }"
            + table("key = { hdr.h.a: exact; }", "f(hdr.h.b); NoAction;"),
        ),
        no(
            "arguments by name in an action list",
            APPLY,
            locals="action f(inout bit<8> x, bit<8> y) { x = y; }"
            + table("key = { hdr.h.a: exact; }", "f(x = hdr.h.b); NoAction;"),
        ),
        no(
            "… exits from a control whose parameters are copied back",
            "s.apply(hdr.h.a[3:0]);",
            locals="Sub() s;",
            declarations="action f() { exit; } control Sub(inout bit<4> x) { "
            + table("key = { x: exact; }", "f;")
            + " apply { t.apply(); } }",
        ),
    ),
}


def state(text: str) -> str:
    return f"state start {{ packet.extract(hdr.h); {text} }}"


SUB = "parser Sub(packet_in p, out h_t h) { state start { p.extract(h); transition accept; } }"
VALUES = "value_set<bit<8>>(4) vs; "
PARSERS: Mapping[str, Sequence[Case]] = {
    "`select` on several values, masks, ranges, sub-parsers, `verify`, `advance`, `lookahead`, `length`": (
        ok(
            parser=state(
                "transition select(hdr.h.a, hdr.h.b) { (1, 2): n; (1 &&& 3, _): n; (4 .. 7, default): n;"
                " default: accept; }"
            )
            + "state n { verify(hdr.h.c != 0, error.NoMatch); packet.advance(8);"
            " hdr.h.a = packet.lookahead<bit<8>>(); meta.w = packet.length(); transition accept; }"
        ),
        ok(
            parser="Sub() sub; " + state("sub.apply(packet, hdr.g); transition accept;"),
            declarations=SUB,
        ),
        no(
            "a parser applied inside another statement",
            parser="Sub() sub; "
            + state("if (hdr.h.a == 1) { sub.apply(packet, hdr.g); } transition accept;"),
            declarations=SUB,
        ),
        no(
            "lookahead of …, which has no bits",
            declarations="struct none_t { }",
            parser=state("none_t n = packet.lookahead<none_t>(); transition accept;"),
        ),
    ),
    "states that lead back": (
        ok(
            parser="state start { packet.extract(hdr.s.next);"
            " transition select(hdr.s.last.a) { 1: start; default: accept; } }"
        ),
        no("the parser never leaves …", parser=state("transition x;") + "state x { transition x; }"),
    ),
    "`value_set`": (
        ok(parser=VALUES + state("transition select(hdr.h.a) { vs: accept; default: reject; }")),
        ok(
            parser="value_set<k>(4) vs; "
            + state("transition select(hdr.h.a, hdr.h.b) { vs: accept; _: reject; }"),
            declarations="struct k { @match(ternary) bit<8> x; bit<8> y; }",
        ),
    ),
    "parsers as constructor arguments": (
        ok(
            parser="Outer(Sub()) sub; " + state("sub.apply(packet, hdr.g); transition accept;"),
            declarations=SUB + " parser One(packet_in p, out h_t h);"
            " parser Outer(packet_in p, out h_t h)(One one)"
            " { state start { one.apply(p, h); transition accept; } }",
        ),
    ),
}

F = "action f(bit<8> x) { hdr.h.b = x; } "
CONTROLS: Mapping[str, Sequence[Case]] = {
    "`exact`, `lpm`, `ternary`, `range`, `optional`": (
        ok(
            APPLY,
            locals=table("key = { hdr.h.a: exact; hdr.h.b: ternary; hdr.h.c: range; hdr.h.d: optional; }"),
        ),
        ok(APPLY, locals=table("key = { hdr.h.a: exact; hdr.h.b: lpm; }")),
        no(
            "a table with more than one lpm key",
            APPLY,
            locals=table("key = { hdr.h.a: lpm; hdr.h.b: lpm; }"),
        ),
    ),
    "keys of any type with a width, of enums and `error`, masked and indexed": (
        ok(
            APPLY,
            locals=table(
                "key = { standard_metadata.parser_error: exact; meta.t: exact; meta.i: exact;"
                ' hdr.h.a & 7: ternary; hdr.s[1].a: exact @name("x"); }'
            ),
        ),
        no(
            "error cannot be a … key",
            APPLY,
            locals=table("key = { standard_metadata.parser_error: ternary; }"),
        ),
    ),
    "`implementation`: action profiles and selectors, also shared, with `selector` keys": (
        ok(
            "t.apply(); u.apply();",
            locals="action_profile(16) p; "
            + table("key = { hdr.h.a: exact; } implementation = p;")
            + table("key = { hdr.h.b: exact; } implementation = p;").replace("table t", "table u"),
        ),
        ok(
            APPLY,
            locals="action_selector(HashAlgorithm.crc16, 16, 16) p; "
            + table("key = { hdr.h.a: exact; hdr.h.b: selector; } implementation = p;"),
        ),
    ),
    "`entries`, `const entries`, `priority =`, `@priority`, `largest_priority_wins`, `priority_delta`": (
        ok(
            APPLY,
            locals=F
            + table("key = { hdr.h.a: exact; } const entries = { 1: f(2); 3: f(4); }", "f; NoAction;"),
        ),
        ok(
            APPLY,
            locals=F
            + table(
                "key = { hdr.h.a: ternary; } largest_priority_wins = false; priority_delta = 10;"
                " entries = { priority = 5: 1 &&& 3: f(2); const priority = 9: _: f(4); }",
                "f; NoAction;",
            ),
        ),
    ),
    "`size`, `default_action`, `counters`": (
        ok(
            APPLY,
            locals="direct_counter(CounterType.packets) c; "
            + table("key = { hdr.h.a: exact; } size = 10; default_action = NoAction; counters = c;"),
        ),
    ),
    "`meters`, `support_timeout = true`": (
        ok(
            APPLY,
            locals="direct_meter<bit<8>>(MeterType.bytes) m; action g() { m.read(hdr.h.b); } "
            + table(
                "key = { hdr.h.a: exact; } meters = m; support_timeout = true;", "g; @defaultonly NoAction;"
            ),
        ),
    ),
    "controls with constructor arguments, also other controls; instances applied several times": (
        ok(
            "a.apply(hdr.h.a); a.apply(hdr.h.a); b.apply(hdr.h.a);",
            locals="Sub(3) a; Outer(Sub(4)) b;",
            declarations="control One(inout bit<8> x);"
            " control Sub(inout bit<8> x)(bit<8> k) { apply { x = x + k; } }"
            " control Outer(inout bit<8> x)(One one) { apply { one.apply(x); } }",
        ),
        no(
            "generic …",
            "a.apply(hdr.h.a);",
            locals="Sub() a;",
            declarations="control Sub<T>(inout T x) { apply { } }",
        ),
    ),
    "`@name`, `@id`, `@hidden`, `@tableonly`, `@defaultonly`, `@field_list`, `@match`": (
        ok(
            APPLY,
            locals='@name("n") @id(7) action f() { } @hidden action g() { } '
            + table("key = { hdr.h.a: exact; }", "@tableonly f; g; @defaultonly NoAction;"),
        ),
    ),
    "tables in the checksum blocks and the deparser": (
        whole(
            "control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }",
            "control D(packet_out packet, in headers_t hdr) {"
            " action NoAction2() { } table t { key = { hdr.h.a: exact; } actions = { NoAction2; } }"
            " apply { t.apply(); packet.emit(hdr); } }",
            no("a table in the … block"),
        ),
    ),
    "deparser: `emit` of headers, stacks, unions and structs of them": (
        ok(),
        whole("packet.emit(hdr)", "packet.emit(hdr.s); packet.emit(hdr.h)", ok()),
        whole(
            "packet.emit(hdr)", "packet.emit((h_t){1, 2, 3, 4})", no("emit of a header given by its fields")
        ),
    ),
}
META = "bit<8> x; bit<8> y;"
EXTERNS: Mapping[str, Sequence[Case]] = {
    "`register`": (
        ok(
            "r.read(hdr.h.a, 1); r.write(2, hdr.h.a); q.write(0, { 1, true });",
            locals="register<bit<8>>(4) r; register<s_t>(4) q;",
            declarations="struct s_t { bit<8> a; bool b; }",
        ),
        no("a register of …", locals="register<h_t>(4) r;"),
    ),
    "`counter`, `direct_counter`": (
        ok(
            "c.count(1); t.apply();",
            locals="counter(4, CounterType.packets_and_bytes) c; direct_counter(CounterType.bytes) d;"
            " action f() { d.count(); } "
            + table("key = { hdr.h.a: exact; } counters = d;", "f; @defaultonly NoAction;"),
        ),
    ),
    "`hash`, `update_checksum`, `verify_checksum`, with payload": (
        ok("hash(hdr.h.a, HashAlgorithm.crc32, 8w0, { hdr.h.b, hdr.h.c }, 8w255);"),
        whole(
            "control None(inout headers_t hdr, inout metadata_t meta) { apply { } }",
            "control None(inout headers_t hdr, inout metadata_t meta) { apply {"
            " update_checksum_with_payload(true, { hdr.h.b }, hdr.g.a, HashAlgorithm.xor16); } }",
            no("update_checksum… in the … block"),
        ),
        no("hash algorithm …", "hash(hdr.h.a, HashAlgorithm.crc32_custom, 8w0, { hdr.h.b }, 8w255);"),
        computing("update_checksum(true, { hdr.h.b }, hdr.g.a, HashAlgorithm.xor16);", ok()),
        computing(
            "update_checksum(true, { hdr.h.b }, hdr.s[hdr.h.a].a, HashAlgorithm.xor16);",
            no("a checksum in a slice or behind a run-time index"),
        ),
        no(
            "a hash over a value of more than 128 bits",
            "hash(hdr.h.a, HashAlgorithm.crc32, 8w0, { x }, 8w255);",
            locals="bit<200> x;",
        ),
        no("HashAlgorithm.random", "hash(hdr.h.a, HashAlgorithm.random, 8w0, { hdr.h.b }, 8w255);"),
    ),
    "`Checksum16`": (ok("hdr.h.a = ck.get({ hdr.h.b, hdr.h.c })[7:0];", locals="Checksum16() ck;"),),
    "`random`, `truncate`, `log_msg`, `assert`, `assume`, `mark_to_drop`": (
        ok(
            'random(hdr.h.a, 1, 5); truncate(32w10); log_msg("x"); assert(hdr.h.a > 0); assume(true);'
            " mark_to_drop(standard_metadata);"
        ),
        no("random of signed numbers", "random(meta.i, -1, 5);"),
    ),
    "`clone`, `resubmit`, `recirculate` with field lists, `clone3`": (
        whole(
            META,
            "@field_list(1) bit<8> x; bit<8> y;",
            ok(
                "clone(CloneType.I2E, 5); clone_preserving_field_list(CloneType.I2E, 5, 1);"
                " resubmit_preserving_field_list(1);",
                egress="recirculate_preserving_field_list(1);",
            ),
        ),
        no("CloneType.… in …", "clone(CloneType.E2E, 5);"),
        no("recirculate… in the … block", "recirculate_preserving_field_list(1);"),
        whole(
            "inner_t n;",
            "@field_list(1) h_t n;",
            no("… in a field list", "resubmit_preserving_field_list(1);"),
        ),
    ),
    "`meter`, `direct_meter`": (ok("m.execute_meter(1, hdr.h.a);", locals="meter(4, MeterType.packets) m;"),),
    "`digest`": (
        ok("digest<d_t>(1, { hdr.h.a });", declarations="struct d_t { bit<8> a; }"),
        no(
            "digest in the … block",
            declarations="struct d_t { bit<8> a; }",
            egress="digest<d_t>(1, { hdr.h.a });",
        ),
        no(
            "a digest of a value of more than 128 bits",
            "digest<d_t>(1, { x });",
            locals="bit<200> x;",
            declarations="struct d_t { bit<200> a; }",
        ),
    ),
    "`action_profile`, `action_selector`": (
        ok(
            APPLY,
            locals="action_selector(HashAlgorithm.crc32, 16, 16) p; "
            + table("key = { hdr.h.a: exact; hdr.h.b: selector; } implementation = p;"),
        ),
    ),
    "user-defined externs": (
        no(
            "extern …: v1model has none of that name",
            "m.f();",
            locals="Mine() m;",
            declarations="extern Mine { Mine(); void f(); }",
        ),
        no(
            "extern function …: v1model has none of that name",
            "mine(hdr.h.a);",
            declarations="extern void mine(in bit<8> x);",
        ),
        no(
            "extern function … of … parameters: v1model declares it differently",
            "hash(hdr.h.a);",
            declarations="extern void hash(in bit<8> x);",
        ),
    ),
}

FOR_P4INFO: Mapping[str, Sequence[Case]] = {
    "tables, actions (also in no table), counters, meters, registers, digests, action profiles, value sets,"
    " controller headers": (
        ok(declarations='@controller_header("packet_in") header in_t { bit<9> port; bit<7> pad; }'),
    ),
    "`type` and `@p4runtime_translation`": (
        ok(
            APPLY,
            locals="v_t v = (v_t)8w1; " + table("key = { v: exact; }"),
            declarations='@p4runtime_translation("x/y", 32) type bit<8> v_t;',
        ),
        no(
            "translation to strings",
            declarations='@p4runtime_translation("x/y", string) type bit<8> v_t; const v_t K = (v_t)8w1;',
        ),
    ),
    "structs, headers, enums and errors in `type_info`": (
        ok("r.write(0, { 1 });", locals="register<s_t>(4) r;", declarations="struct s_t { bit<8> a; }"),
    ),
}

PROGRAMS: Mapping[str, Sequence[Case]] = {
    "architecture v1model, one package `main`": (
        ok(),
        whole(PACKAGE, "", no("the program instantiates no package")),
        whole(
            PACKAGE,
            PACKAGE + " V1Switch(P(), None(), C(), E(), None(), D()) second;",
            no("a second package is instantiated"),
        ),
        whole(PACKAGE, PACKAGE.replace("main", "other"), no("the package is called …")),
        whole(
            PACKAGE,
            "control One(inout h_t h); control Mine(inout h_t h) { apply {} } "
            "package Other(One c); Other(Mine()) main;",
            no("architecture …"),
        ),
    ),
    "a user-defined `standard_metadata_t`": (
        whole("#include <v1model.p4>", V1MODEL.replace(PRIORITY, PRIORITY + " bit<7> mine;"), ok()),
        whole("#include <v1model.p4>", V1MODEL.replace(PRIORITY, ""), no("a standard_metadata_t without …")),
    ),
    "names in the control plane": (
        ok(locals='action f() { } @name("g") action g2() { }'),
        no(
            "two … have the control-plane name …",
            "t.apply(); u.apply();",
            locals=table("key = { hdr.h.a: exact; }")
            + '@name("t") '
            + table("key = { hdr.h.b: exact; }").replace("table t", "table u"),
        ),
    ),
}

ROWS: Mapping[str, Sequence[Case]] = {
    **PROGRAMS,
    **TYPES,
    **EXPRESSIONS,
    **PARSERS,
    **CONTROLS,
    **EXTERNS,
    **FOR_P4INFO,
}
