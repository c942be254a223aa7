"""Wrong programs: where the error is (``@@``), what it says, and what would be right."""

import pytest

from softswitch.compiler import CompileError, Unsupported, compile_source
from tests.softswitch.lowering import lowered, refusal, source

F = "bit<8> f(in bit<8> p, out bit<8> q) { q = p; return p; }"
T = "action a(bit<8> v) { } table t { key = { hdr.h.a: exact; } actions = { a; NoAction; } "

EXPRESSIONS = [
    # names
    ("hdr.h.a = @@haedr;", "unknown name 'haedr'", None),
    ("hdr.h.a = @@mata.x;", "unknown name 'mata'", "'meta'"),
    ("hdr.@@hh.a = 1;", "unknown field of headers_t 'hh'", "'h'"),
    ("hdr.h.@@z = 1;", "unknown field of h_t 'z'", "one of a, b, c, d"),
    ("if (standard_metadata.parser_error == error.@@NoEror) { }", "unknown error 'NoEror'", "'NoError'"),
    (
        "hash(meta.w, HashAlgorithm.@@crc23, 8w0, { hdr.h }, 8w1);",
        "unknown member of HashAlgorithm 'crc23'",
        None,
    ),
    ("hdr.h.a = @@later; bit<8> later = 1;", "unknown name 'later'", None),
    ("hdr.h.@@isVaild();", "unknown method of header h_t 'isVaild'", "'isValid' or 'setValid'"),
    ("P.@@apply();", "a parser cannot be applied in a control", "a parser state"),
    # types of operands
    ("hdr.h.a = meta.@@w;", "the assigned value is bit<32>, not bit<8>", "bit<8>; a cast (bit<8>) converts"),
    (
        "hdr.h.a = hdr.h.b @@+ meta.w;",
        "+ does not apply to bit<8> and bit<32>",
        "two operands of the same type bit<W> or int<W>",
    ),
    ("if (hdr.h.@@a) { }", "the condition is bit<8>, not bool", "bool; a comparison makes one"),
    ("if (hdr.h.a == 1 && hdr.h.@@b) { }", "the operand of && is bit<8>, not bool", None),
    ("if (hdr.h.a @@== meta.t) { }", "bit<8> and bool cannot be compared", "two operands of one type"),
    ("if (hdr.h @@== meta.n) { }", "h_t and inner_t cannot be compared", None),
    ("meta.t = @@!hdr.h.a;", "! does not apply to bit<8>", "bool"),
    ("hdr.h.a = @@~3;", "~ does not apply to an int without a width", "a width, such as 8w1"),
    ("meta.i = meta.i @@/ 2;", "/ does not apply to int<8>", "operands of type bit<W>"),
    ("hdr.h.a = hdr.h.b @@% 0;", "% by zero has no value", "a divisor other than 0"),
    ("hdr.h.a = (bit<8>)(1 @@/ 0);", "1 / 0 has no value", "a divisor other than 0"),
    ("hdr.h.a = hdr.h.a << @@-1;", "cannot shift by -1", None),
    ("hdr.h.a = hdr.h.a << meta.@@i;", "cannot shift by int<8>", "an amount of type bit<W>, or a constant"),
    (
        "hdr.h.a = (bit<8>)(@@1 << hdr.h.a);",
        "cannot shift 1, which has no width, by an amount known only at run time",
        None,
    ),
    ("meta.w = hdr.h.a ++ @@1;", "++ does not apply to an int without a width", "a width, such as 8w1"),
    ("hdr.h.a = hdr.h.b == 1 @@? 1 : 0;", "the width of the result is not known", None),
    ("hdr.h.a = hdr.h.b == 1 @@? hdr.h.a : meta.w;", "the branches of ?: are bit<8> and bit<32>", None),
    (
        "meta.i = @@(int<8>)meta.w;",
        "bit<32> cannot be cast to int<8>",
        "first a cast to int<32>: a cast changes either width or sign",
    ),
    ("meta.t = @@(bool)hdr.h.a;", "bit<8> cannot be cast to bool", None),
    ("hdr.h.a = @@(bit<8>)hdr.h;", "h_t cannot be cast to bit<8>", None),
    ("hdr.h.a = hdr.h.b@@[8:1];", "slice [8:1] does not fit in bit<8>", "7 >= high >= low >= 0"),
    ("hdr.h.a = hdr.h@@[1:0];", "there is no slice of h_t", "bit<W> or int<W>"),
    ("hdr.h = hdr.s[@@3];", "index 3 is out of range for h_t[3]", "0 to 2"),
    ("hdr.h = hdr.s.@@last;", "stack.last cannot be used in a control", "an index, or use in a parser"),
    ("hdr.h = @@{ 1, 2, 3 };", "3 values for h_t", "4, one for each field"),
    ("meta.n = { x = 1, @@z = 2 };", "unknown field of inner_t 'z'", "one of x, y"),
    ("meta.n = @@{ x = 1 };", "field 'y' of inner_t has no value", "a value for every field"),
    ("bit<8> v = @@true;", "the initial value of 'v' is true, not bit<8>", None),
    # places
    (
        "const bit<8> K = 1; @@K = 2;",
        "this cannot be assigned to: 'K' is a constant",
        "a variable, or a part of one",
    ),
    (
        "const bit<8> K = hdr.h.@@a;",
        "the value of constant 'K' is known only at run time",
        "a compile-time constant",
    ),
    ("bit<8> v; bit<8> @@v;", "'v' is already declared at", "a name of its own for each declaration"),
    ("int @@v = 1;", "a variable cannot have type int", "a type that exists at run time"),
    # calls
    ("hdr.h.a = @@f(1);", "no argument for parameter 'q' of function f", "function f(in p, out q)"),
    ("hdr.h.a = f(1, @@2);", "this cannot be assigned to", "a variable, or a part of one"),
    ("hdr.h.a = f(1, meta.@@w);", "the argument of out parameter 'q' is bit<32>, not bit<8>", None),
    ("hdr.h.a = f(@@r = 1, q = hdr.h.b);", "unknown parameter of function f 'r'", "one of p, q"),
    ("hdr.h.a = @@f(1, hdr.h.b, 3);", "3 arguments for function f", None),
    ("@@meta();", "'meta' cannot be called", "a function, action or method"),
    ("hdr.h.@@extract();", "unknown method of header h_t 'extract'", None),
    ("hdr.s.push_front(@@0);", "push_front of 0 elements", "at least 1"),
    ("return @@1;", "return with a value where none is expected", "return;"),
    ("switch (hdr.h.a) { 1: { } @@1: { } }", "duplicate label", None),
    ("switch (hdr.h.a) { @@default: { } 1: { } }", "a label after default is never reached", None),
    ('@@static_assert(1 == 2, "no");', "no", "a condition that holds"),
]


LOCALS = [
    # actions and tables
    ("action a(bit<8> v) { @@a(v); }", "'a' is used before its declaration at t.p4:", None),
    ("action a() { } table @@a { actions = { a; } }", "'a' is already declared at t.p4:", None),
    ("table @@t { key = { hdr.h.a: exact; } }", "table 't' has no actions", "actions = { … }"),
    ("action a() { } table t { actions = { @@b; } }", "unknown action 'b'", "one of NoAction, a"),
    ("action a() { } table t { actions = { a; @@a; } }", "action 'a' is listed twice", "each action once"),
    (
        "action a() { } table t { key = { @@hdr.h.a: exakt; } actions = { a; } }",
        "unknown match kind 'exakt'",
        "'exact'",
    ),
    ("action a() { } table t { key = { hdr.@@h: exact; } actions = { a; } }", "h_t cannot be a key", None),
    (
        "action a() { } table t { key = { hdr.h.a @@+ 1: exact; } actions = { a; } }",
        "this key has no name for the control plane",
        '@name("…") after the match kind',
    ),
    (T + "size = @@-1; }", "a table of size -1", "0, which stands for 1024, or more"),
    (T + "default_action = @@b; }", "unknown action of table 't' 'b'", None),
    (T + "default_action = @@a; }", "no argument for parameter 'v' of action a", "action a(v)"),
    (T + "default_action = a(hdr.h.@@a); }", "argument 'v' is known only at run time", None),
    (T + "const entries = { @@(1, 2): a(1); } }", "an entry has 2 values", "1, one for each key"),
    (T + "const entries = { @@_: a(1); } }", "don't care cannot be used for exact key 'hdr.h.a'", "a value"),
    (
        T + "const entries = { 1: a(1); @@1: a(2); } }",
        "this entry has the same key as the one at t.p4:",
        None,
    ),
    (T + "counters = @@hdr; }", "headers_t cannot be the counter of a table", "a direct_counter"),
    ("action a(in bit<8> p) { } table t { actions = { @@a; } }", "0 arguments bound for action 'a'", None),
    ("action a() { @@t.apply(); }", "unknown name 't'", None),
    ("action a() { hdr.h.a = @@q; }", "unknown name 'q'", None),
    # instances
    ("register<bit<8>>(@@0) r;", "a size of 0", None),
    (
        "register<bit<8>>(4, 5) @@r;",
        "2 arguments for the constructor of register",
        "the constructor of register(size)",
    ),
    ("counter(4, @@3) c;", "parameter 'type' is int 3, not CounterType", "CounterType"),
    ("@@K() k;", "unknown name 'K'", None),
    ("@@headers_t() k;", "'headers_t' cannot be instantiated", "an extern, control or parser"),
]


PARSERS = [
    ("state start { transition @@strat; }", "unknown state 'strat'", "'start'"),
    (
        "state start { transition select(hdr.h.a) { @@(1, 2): accept; } }",
        "a case of select has 2 values",
        None,
    ),
    (
        "state start { transition select(hdr.h.a) { hdr.h.@@b: accept; } }",
        "the keyset is known only at run time",
        None,
    ),
    (
        "state start { transition accept; } state @@start { transition accept; }",
        "state 'start' is declared twice",
        None,
    ),
    (
        "state start { transition accept; } state @@accept { transition reject; }",
        "state 'accept' is built in",
        None,
    ),
    (
        "state start { packet.extract(meta.@@x); transition accept; }",
        "cannot extract into bit<8>",
        "a header",
    ),
    (
        "state start { packet.@@extract(hdr.h, 8); transition accept; }",
        "header h_t has no varbit field",
        None,
    ),
    ("state start { packet.@@emit(hdr.h); transition accept; }", "unknown method of packet_in 'emit'", None),
    ("state start { @@mark(1); transition accept; }", "unknown name 'mark'", None),
]


CODE = [
    *((source(code, declarations=F), *said) for code, *said in EXPRESSIONS),
    *((source(locals=code), *said) for code, *said in LOCALS),
    *((source(parser=code), *said) for code, *said in PARSERS),
]


@pytest.mark.parametrize(("program", "message", "expected"), CODE)
def test_code(program: str, message: str, expected: str | None):
    error = refusal(program)
    assert error.message.startswith(message)
    if expected is not None:
        assert error.expected == expected


IDLE = "state start { transition s1; } state @@s1 { transition s2; } state s2 { transition s1; }"

STRICTER = [  # what p4c refuses, too
    (
        {
            "declarations": "bit<8> f() { return 1; }",
            "parser": "state start { transition select(hdr.h.a) { @@f(): accept; } }",
        },
        "a keyset cannot contain a call",
    ),
    ({"locals": "action a(in int @@v) { }", "apply": "a(1);"}, "parameter 'v' of type int is 'in'"),
    ({"parser": IDLE}, "the parser never leaves"),
    ({"apply": "bit<8> i; @@for (i in 1 .. 6) { }"}, "the variable 'i' of the loop has no type"),
    ({"apply": "@@break;"}, "break or continue outside a loop"),
    ({"declarations": "control K() { apply { } } K() @@k;"}, "'k' is an instance of a control or parser"),
    (
        {"locals": T.replace("key =", "const entries = { 1: a(1); } @@key =") + "}"},
        "the table's key comes after its entries",
    ),
    (
        {"declarations": "control K(in bit<8> v)(in bit<8> @@w) { apply { } }"},
        "constructor parameter 'w' has the direction 'in'",
    ),
    (
        {"declarations": "parser K(packet_in p, out headers_t h) { state start { transition @@nowhere; } }"},
        "unknown state 'nowhere'",
    ),
]


@pytest.mark.parametrize(("parts", "message"), STRICTER)
def test_what_p4c_refuses_is_refused(parts: dict[str, str], message: str):
    assert refusal(source(**parts)).message.startswith(message)


def test_an_unknown_version_of_v1model_is_refused():
    with pytest.raises(CompileError, match="version 20000101 of v1model is unknown"):
        compile_source(f"#define V1MODEL_VERSION 20000101\n{source()}", name="t.p4")


REMARKS = [
    (
        {"locals": T + "@@sizes = 4; }", "apply": "t.apply();"},
        "unknown table property 'sizes' has no effect; there is 'size'",
    ),
    ({"apply": "hdr.h.a = @@256;"}, "256 does not fit in bit<8> (0 to 255) and becomes 0"),
    ({"apply": "hdr.h.a = @@-129;"}, "-129 does not fit in bit<8> (0 to 255) and becomes 127"),
    ({"apply": "meta.i = @@128;"}, "128 does not fit in int<8> (-128 to 127) and becomes -128"),
    ({"apply": "hdr.h.a = hdr.h.b + @@300;"}, "300 does not fit in bit<8> (0 to 255) and becomes 44"),
    ({"apply": "hdr.h = { 1, 2, @@256, 4 };"}, "256 does not fit in bit<8> (0 to 255) and becomes 0"),
    ({"apply": "hdr.h.a = (bit<8>) (@@4 / 1w1);"}, "4 does not fit in bit<1> (0 to 1) and becomes 0"),
    (
        {"locals": T + "const entries = { @@300: a(1); } }", "apply": "t.apply();"},
        "300 does not fit in bit<8> (0 to 255) and becomes 44",
    ),
    (
        {"parser": "state start { transition select(hdr.h.a) { @@300: accept; } }"},
        "300 does not fit in bit<8> (0 to 255) and becomes 44",
    ),
]


@pytest.mark.parametrize(("parts", "message"), REMARKS)
def test_numbers_that_do_not_fit_are_cut_with_a_remark(parts: dict[str, str], message: str):
    text = source(**parts)
    where = text.index("@@")
    [remark] = compile_source(text.replace("@@", ""), name="t.p4").remarks
    assert remark.message == message
    assert remark.pos.line == text[:where].count("\n") + 1


def test_every_error_is_told_up_to_twenty():
    text = source("hdr.h.a = no1; bit<8> v = no2; hdr.h.b = v; hdr.h.c = no3;", egress="hdr.h.a = no4;")
    with pytest.raises(CompileError) as caught:
        compile_source(text, name="t.p4")
    errors = (caught.value, *caught.value.others)
    assert [error.message for error in errors] == [f"unknown name 'no{i}'" for i in (1, 2, 3, 4)]
    with pytest.raises(CompileError) as caught:
        compile_source(source("".join(f"hdr.h.a = no{i};" for i in range(25))), name="t.p4")
    text = caught.value.render()
    assert text.count("unknown name") == 20
    assert text.endswith("and 5 more errors")


@pytest.mark.parametrize(
    ("old", "new", "keyword"),
    [
        ("control D(", "contrl D(", "control"),
        ("parser P(", "pasrer P(", "parser"),
        ("    apply {", "    aply {", "apply"),
        ("state start", "stat start", "state"),
        ("struct headers_t", "sturct headers_t", "struct"),
    ],
)
def test_a_misspelt_keyword_is_said(old: str, new: str, keyword: str):
    with pytest.raises(CompileError) as caught:
        compile_source(source().replace(old, new, 1), name="t.p4")
    assert caught.value.message == f"unknown keyword {new.split()[0].split('(')[0]!r}"
    assert caught.value.expected == repr(keyword)


@pytest.mark.parametrize("text", [source("bitt<8> v;"), source(declarations="struct x_t { bitt<8> v; }")])
def test_a_misspelt_type_with_a_width_is_said(text: str):
    with pytest.raises(CompileError, match="type 'bitt' has no width") as caught:
        compile_source(text, name="t.p4")
    assert caught.value.expected == "'bit', 'int' or 'varbit'"


@pytest.mark.parametrize(
    ("locals_", "what"),
    [
        ("table x { key = { hdr.h.a: exact; } actions = { NoAction; } }", "table"),
        ("Sub() x;", "parser or control"),
    ],
)
def test_a_misspelt_apply_is_said(locals_: str, what: str):
    text = source("x.aply();", locals=locals_, declarations="control Sub() { apply { } }")
    with pytest.raises(CompileError, match=f"unknown method of a {what} 'aply'") as caught:
        compile_source(text, name="t.p4")
    assert caught.value.expected == "'apply'"


@pytest.mark.parametrize(
    ("declared", "called"),
    [
        ("extern void random<T>(out T v);", "random(hdr.h.a);"),
        ("extern void hash<T>(out T v, in T w);", "hash(hdr.h.a, hdr.h.b);"),
        ("extern void mine(inout bit<8> v);", "mine(hdr.h.a);"),
    ],
)
def test_user_externs_are_refused_by_name(declared: str, called: str):
    text = source(called, declarations=declared)
    with pytest.raises(Unsupported) as caught:
        compile_source(text, name="t.p4")
    assert f"extern function '{called.partition('(')[0]}'" in caught.value.message


def test_errors_of_core_come_first():
    text = f"error {{ Mine }}\n{source()}"
    assert compile_source(text, name="t.p4").errors.members[:2] == ("NoError", "PacketTooShort")


DECLARATIONS = [
    ("header k_t { bit<8> a; bit<8> @@a; }", "k_t has two fields 'a'"),
    ("header k_t { error @@a; }", "a header field cannot have type error"),
    ("struct k_t { @@nothing_t a; }", "unknown name 'nothing_t'"),
    ("struct k_t { int @@a; }", "a struct field cannot have type int"),
    ("const bit<8> K = @@L; const bit<8> L = 1;", "unknown name 'L'"),
    ("const bit<(@@-1)> K = 1;", "a width of -1 bits"),
    ("error { A } error { @@A }", "error 'A' is already declared at t.p4:"),
    ("enum bit<4> e_t { a = @@16 }", "16 does not fit in bit<4>"),
    ("bit<8> @@g(in bit<8> p) { if (p == 1) { return 1; } }", "function 'g' may end without a value"),
    ("bit<8> g(in bit<8> p) { @@p = 1; return p; }", "this cannot be assigned to: 'p' is an `in` parameter"),
    ("bit<8> g(in bit<8> p) { return @@true; }", "the result is true, not bit<8>"),
    ("bit<8> g(in bit<8> p) { @@exit; return 1; }", "exit cannot be used in a function"),
    ("control Unused(inout headers_t hdr) { apply { hdr.h.a = @@nothing; } }", "unknown name 'nothing'"),
    ("action unused() { @@nothing(); }", "unknown name 'nothing'"),
]


@pytest.mark.parametrize(("declarations", "message"), DECLARATIONS)
def test_declarations(declarations: str, message: str):
    assert refusal(source(declarations=declarations)).message.startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message", "expected"),
    [
        (
            "V1Switch(P(), None()",
            "V1Switch(P(), @@P()",
            "this is no control for verify",
            "a control, such as Name()",
        ),
        (") main;", ") @@other;", "the package is called 'other'", "main"),
        (
            "control E(inout headers_t hdr, inout metadata_t meta,",
            "control E(inout headers_t hdr, in metadata_t @@meta,",
            "parameter 'meta' of 'E' is in",
            "(inout hdr, inout meta, inout standard_metadata)",
        ),
        (
            "control E(inout headers_t hdr, inout metadata_t meta,",
            "control E(inout headers_t hdr, inout inner_t @@meta,",
            "parameter 'meta' of 'E' is inner_t",
            "metadata_t",
        ),
        (
            "control None(inout headers_t hdr, inout metadata_t meta)",
            "control @@None(inout headers_t hdr)",
            "control 'None' has 1 parameters as verify of V1Switch",
            "(inout hdr, inout meta)",
        ),
        (
            "packet.emit(hdr);",
            "@@hdr.h.a = 1;",
            "this cannot be assigned to: 'hdr' is an `in` parameter",
            None,
        ),
        ("packet.emit(hdr);", "packet.emit(hdr.h.@@a);", "cannot emit bit<8>", None),
    ],
)
def test_the_pipeline(old: str, new: str, message: str, expected: str | None):
    text = source()
    assert text.count(old) == 1
    error = refusal(text.replace(old, new))
    assert error.message == message
    if expected is not None:
        assert error.expected == expected


UNSUPPORTED = [
    ("", "@@register<h_t>(4) r;", "a register of h_t"),
    ("hash(meta.w, HashAlgorithm.@@random, 8w0, { hdr.h }, 8w1);", "", "HashAlgorithm.random"),
    (
        "@@update_checksum(true, { hdr.h }, hdr.h.a, HashAlgorithm.csum16);",
        "",
        "update_checksum in the ingress block",
    ),
    ("clone(CloneType.@@E2E, 5);", "", "CloneType.E2E in ingress"),
    ("clone3(CloneType.I2E, 5, @@standard_metadata);", "", "bit<9> in a field list"),
    ("@@recirculate_preserving_field_list(1);", "", "recirculate_preserving_field_list in the ingress block"),
    ("hdr.h.a = (bit<8>)(@@(int)hdr.h.b + 1);", "", "a cast to int of a value known only at run time"),
]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        *(({"apply": apply, "locals": locals_}, message) for apply, locals_, message in UNSUPPORTED),
        ({"declarations": "const bit<@@0> K = 0;"}, "a width of 0 bits"),
        ({"declarations": "extern thing { thing(); } thing() @@one;"}, "extern 'thing': v1model has none"),
        (
            {
                "declarations": "header odd_t { bit<4> a; }",
                "parser": "state start { odd_t @@o; packet.extract(o); transition accept; }",
            },
            "header odd_t has 4 bits",
        ),
        (
            {"declarations": "struct w_t { bit<200> w; }", "locals": "w_t x;", "apply": "x.w = x.w @@+ 1;"},
            "a computation with 200 bits",
        ),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(parts: dict[str, str], message: str):
    error = refusal(source(**parts))
    assert isinstance(error, Unsupported)
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            {"locals": "action a() { update_checksum(true, { hdr.h }, hdr.h.a, HashAlgorithm.csum16); }"},
            id="unsupported_code_that_nothing_uses",
        ),
        pytest.param(
            {
                "declarations": """
                bit<0> f(in bit<0> p) { return p ++ p; }
                bool g(list<bit<8>> p) { list<bit<8>> q = p; q = { 1, 2 }; return q == p; }
                action a(tuple<bit<8>> p) { tuple<bit<8>> q = p; }
                """
            },
            id="unsupported_types_in_code_that_nothing_uses",
        ),
        pytest.param(
            {
                "apply": "box_t<box_t<bit<8>>> b; b.in_it.in_it = hdr.h.a; hdr.h.b = b.in_it.in_it;",
                "declarations": "struct box_t<T> { T in_it; }",
            },
            id="a_generic_type_as_an_argument_of_itself",
        ),
        pytest.param(
            {"apply": "bit<8> exact = 1; hdr.h.a = exact;"}, id="a_match_kind_hidden_by_another_name"
        ),
    ],
)
def test_what_does_no_harm_is_accepted(parts: dict[str, str]):
    lowered(**parts)


def test_a_generic_type_that_was_only_checked_is_refused_where_it_is_used():
    unused = "struct box_t<T> { @@list<T> all; T x; } void f(in box_t<bit<8>> p) { }"
    error = refusal(source("box_t<bit<8>> b; b.x = hdr.h.a;", declarations=unused))
    assert isinstance(error, Unsupported)
    assert error.message == "list<…> types"
