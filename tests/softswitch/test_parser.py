"""Parts of a P4 program, parsed, and text of what came out.

Tokens and their positions.

Includes, macros and what becomes of positions.

The grammar of declarations, and their annotations.

Positions, what is refused, and programs with damage.

The grammar of expressions and types: precedence, and what is only told apart by looking ahead.

The grammar of statements.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast, parse, parse_tokens
from softswitch.compiler.frontend.lexer import integer, string, tokenize
from softswitch.compiler.frontend.preprocess import preprocess


def declarations(source: str) -> tuple[ast.Decl, ...]:
    return parse(source, "f").declarations


def declaration(source: str) -> ast.Decl:
    (only,) = declarations(source)
    return only


def statements(source: str) -> tuple[ast.Stmt, ...]:
    """Parse statements in the apply block of a control, behind a type T."""
    _, control = declarations(f"struct T {{}} control C() {{ apply {{ {source} }} }}")
    return control.body.body


def statement(source: str) -> ast.Stmt:
    (only,) = statements(source)
    return only


def expression(source: str) -> ast.Expr:
    return statement(f"x = {source};").value


def text(node: object) -> str:
    """Return an expression or type with all its parentheses."""
    match node:
        case ast.Name(name, absolute):
            return "." * absolute + name
        case ast.IntLiteral(value, width, signed):
            return str(value) if width is None else f"{width}{'s' if signed else 'w'}{value}"
        case ast.BoolLiteral(value):
            return str(value).lower()
        case ast.StringLiteral(value):
            return f'"{value}"'
        case ast.Word(word) | ast.BasicType(word):
            return word
        case ast.MemberExpr(base, name):
            return f"{text(base)}.{name}"
        case ast.IndexExpr(base, index):
            return f"{text(base)}[{text(index)}]"
        case ast.SliceExpr(base, high, low):
            return f"{text(base)}[{text(high)}:{text(low)}]"
        case ast.PlusSlice(base, low, width):
            return f"{text(base)}[{text(low)}+:{text(width)}]"
        case ast.UnaryExpr(op, operand):
            return f"({op}{text(operand)})"
        case ast.BinaryExpr(op, left, right):
            return f"({text(left)} {op} {text(right)})"
        case ast.MuxExpr(condition, then, otherwise):
            return f"({text(condition)} ? {text(then)} : {text(otherwise)})"
        case ast.CastExpr(type_, operand):
            return f"(({text(type_)}){text(operand)})"
        case ast.CallExpr(callee, type_args, args):
            generic = f"<{', '.join(map(text, type_args))}>" if type_args else ""
            return f"{text(callee)}{generic}({', '.join(map(text, args))})"
        case ast.GivenArgument(name, value):
            return text(value) if name is None else f"{name}={text(value)}"
        case ast.ListExpr(elements, dots):
            return f"{{{', '.join([*map(text, elements), *['...'] * dots])}}}"
        case ast.StructExpr(fields, dots):
            return f"{{{', '.join([*map(text, fields), *['...'] * dots])}}}"
        case ast.Mask(value, mask):
            return f"{text(value)} &&& {text(mask)}"
        case ast.RangeExpr(low, high):
            return f"{text(low)} .. {text(high)}"
        case ast.TypeExpr(type_):
            return text(type_)
        case ast.BitsType(width, signed):
            return f"{'int' if signed else 'bit'}<{text(width)}>"
        case ast.VarbitType(width):
            return f"varbit<{text(width)}>"
        case ast.TupleType(elements):
            return f"tuple<{', '.join(map(text, elements))}>"
        case ast.ListTypeRef(element):
            return f"list<{text(element)}>"
        case ast.NamedType(name, absolute, args):
            return "." * absolute + name + (f"<{', '.join(map(text, args))}>" if args else "")
        case ast.StackTypeRef(element, size):
            return f"{text(element)}[{text(size)}]"
    raise AssertionError(node)


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source, "f")[:-1]]


def test_longest_operator_wins_except_for_closing_brackets():
    assert texts("a&&&b&&c&d") == ["a", "&&&", "b", "&&", "c", "&", "d"]
    assert texts("|+| |-| |+|= ++ +: +") == ["|+|", "|-|", "|+|=", "++", "+:", "+"]
    assert texts("a..b ...") == ["a", "..", "b", "..."]
    assert texts("{#} <<= >>= << >>") == ["{#}", "<<=", ">>=", "<<", ">", ">"]


def test_words_that_are_keywords_only_in_their_place_are_names():
    kinds = {token.text: token.kind for token in tokenize("apply key actions state table int", "f")}
    assert kinds == {
        "apply": "id",
        "key": "id",
        "actions": "id",
        "state": "id",
        "table": "table",
        "int": "int",
        "": "end",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0, None, False)),
        ("1_000", (1000, None, False)),
        ("0xFf_00", (0xFF00, None, False)),
        ("0b1010", (10, None, False)),
        ("0o17", (15, None, False)),
        ("0d19", (19, None, False)),
        ("8w255", (255, 8, False)),
        ("8w0xFF", (255, 8, False)),
        ("16s0b11", (3, 16, True)),
        ("4s7", (7, 4, True)),
    ],
)
def test_numbers(text: str, expected: tuple[int, int | None, bool]):
    (token,) = tokenize(text, "f")[:-1]
    assert integer(token) == expected


@pytest.mark.parametrize(
    ("text", "why"), [("0x_", "no digits"), ("9" * 5000, "too many digits")], ids=["none", "5000"]
)
def test_a_number_without_digits_or_with_too_many_is_refused(text: str, why: str):
    (token,) = tokenize(text, "f")[:-1]
    with pytest.raises(CompileError, match=why):
        integer(token)


def test_strings_know_two_escapes():
    (token,) = tokenize(r'"a\"b\\c\n"', "f")[:-1]
    assert string(token) == r'a"b\c\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a\n  b /* x\n y */ c // d\ne", "a f:1:1 b f:2:3 c f:3:7 e f:4:1"),
        (
            'a\n#line 10 "g"\nb\n c\n# 3 "h" 1 2\nd\n# 7\ne',
            "a f:1:1 b g:10:1 c g:11:2 d h:3:1 e h:7:1",
        ),
        # one with a column holds until the next one
        ('#line 4 "g" 9\na b\n c\n#line 5 "g"\nd', "a g:4:9 b g:4:9 c g:4:9 d g:5:1"),
    ],
)
def test_positions_count_from_one_and_line_markers_name_file_and_line(source: str, expected: str):
    assert " ".join(f"{token.text} {token.pos}" for token in tokenize(source, "f")[:-1]) == expected


def test_the_end_has_a_position():
    assert str(tokenize("a\nbc", "f")[-1].pos) == "f:2:3"
    assert str(tokenize("", "f")[-1].pos) == "f:1:1"


@pytest.mark.parametrize(("source", "message"), [("a /* b", "comment"), ('a\n"b', "string")])
def test_comments_and_strings_must_end(source: str, message: str):
    with pytest.raises(CompileError, match=f"this {message} has no end"):
        tokenize(source, "f")


def test_a_pragma_is_one_token_up_to_the_end_of_its_line():
    assert texts("@pragma name a b c\nd") == ["@pragma name a b c", "d"]


P4_SOURCES = Path(__file__).parents[2] / "p4src"


def places(text: str, name: str = "main.p4", **options) -> list[tuple[str, str]]:
    output = preprocess(text, name, **options)
    return [(token.text, str(token.pos)) for token in tokenize(output, name)[:-1]]


def words(text: str, **options) -> str:
    return " ".join(word for word, _ in places(text, **options))


# --------------------------------------------------------------------------- files


def test_quoted_includes_are_relative_to_the_including_file(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.p4").write_text('#include "b.p4"\na\n')
    (tmp_path / "sub" / "b.p4").write_text("b\n")
    main = str(tmp_path / "main.p4")
    assert places('#include "sub/a.p4"\n  c', main) == [
        ("b", f"{tmp_path}/sub/b.p4:1:1"),
        ("a", f"{tmp_path}/sub/a.p4:2:1"),
        ("c", f"{tmp_path}/main.p4:2:3"),
    ]


def test_files_are_named_as_the_user_named_the_main_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.p4").write_text("a")
    monkeypatch.chdir(tmp_path)
    assert places('#include "a.p4"', "sub/main.p4") == [("a", "sub/a.p4:1:1")]
    assert places('#include "sub/a.p4"', "main.p4") == [("a", "sub/a.p4:1:1")]


def test_include_directories_come_before_the_standard_includes(tmp_path: Path):
    (tmp_path / "core.p4").write_text("mine\n")
    assert words("#include <core.p4>", include_dirs=[tmp_path]) == "mine"
    assert words("#include <core.p4>").startswith("error { NoError ,")


def test_include_guards_work(tmp_path: Path):
    (tmp_path / "a.p4").write_text("#ifndef A\n#define A\na\n#endif\n")
    assert words('#include "a.p4"\n#include "a.p4"\nb', name=str(tmp_path / "m.p4")) == "a b"


def test_a_file_that_includes_itself_is_refused(tmp_path: Path):
    (tmp_path / "a.p4").write_text('\n#include "a.p4"\n')
    with pytest.raises(CompileError, match="without end") as caught:
        preprocess('#include "a.p4"', str(tmp_path / "main.p4"))
    assert str(caught.value.pos) == f"{tmp_path}/a.p4:2:10"


# --------------------------------------------------------------------------- macros


CONDITIONS = "#if LANES == 32\na\n#elif LANES > 60 && defined(X)\nb\n#else\nc\n#endif\n#ifdef X\nd\n#endif"


@pytest.mark.parametrize(
    ("source", "defines", "expected"),
    [
        (CONDITIONS, {"LANES": "32"}, "a"),
        (CONDITIONS, {"LANES": "64", "X": ""}, "b d"),
        (CONDITIONS, {}, "c"),
        (
            "#define N 4\n#define F(x, y) ((x) + (y) * N)\nF(a, b(1, 2)) N\n",
            {},
            "( ( a ) + ( b ( 1 , 2 ) ) * 4 ) 4",
        ),
        ("#define F(n) lane_##n\nF(1) F(2)", {}, "lane_1 lane_2"),
        # an expansion does not touch its neighbours
        ("#define P PortId_t\nP       a;\nP b; P\n", {}, "PortId_t a ; PortId_t b ; PortId_t"),
        # a comment may end the file without a newline
        ("a // b", {}, "a"),
        ("// b", {}, ""),
    ],
)
def test_conditions_and_macros(source: str, defines: dict[str, str], expected: str):
    assert words(source, defines=defines) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # text around a macro keeps its place
        (
            "#define A aa bb\n#define LONGER b\n  x A y\n  LONGER, A;\nz",
            "x 3:3 aa 3:5 bb 3:5 y 3:7 b 4:3 , 4:9 aa 4:11 bb 4:11 ; 4:12 z 5:1",
        ),
        # comments and directives do not move positions
        (
            "a /* x\n y */ b // c\n\n\n#define X\n\n\n\n\n\n\n\n\n\n\nc \\\n d",
            "a 1:1 b 2:7 c 16:1 d 17:2",
        ),
        ('#line 9 "main.p4"\na\n\n b', "a 9:1 b 11:2"),
    ],
)
def test_what_is_preprocessed_keeps_its_positions(source: str, expected: str):
    assert " ".join(f"{word} {at.removeprefix('main.p4:')}" for word, at in places(source)) == expected


# --------------------------------------------------------------------------- invariants


def test_the_output_preprocesses_to_itself():
    path = P4_SOURCES / "exclusive.p4"
    once = preprocess(path.read_text(), str(path), defines={"LANES": "32"})
    assert preprocess(once, str(path)) == once


@pytest.mark.parametrize("path", sorted(P4_SOURCES.glob("*.p4")), ids=lambda path: path.name)
def test_every_token_stands_where_its_position_says(path: Path):
    output = preprocess(path.read_text(), str(path), defines={"LANES": "32"})
    elsewhere = set()
    for token in tokenize(output, str(path))[:-1]:
        line = Path(token.pos.file).read_text().split("\n")[token.pos.line - 1]
        if not line.startswith(token.text, token.pos.column - 1):
            elsewhere.add(line[token.pos.column - 1 :].split()[0].strip("();,{}"))
    # The others come from macros, whose names stand there.
    assert all(word.isupper() for word in map(str, elsewhere)), elsewhere


FRAGMENTS = """
    #define #undef #if #ifdef #ifndef #elif #else #endif #include #error #line #pragma # ##
    F G ( ) , a 1 0x " "x" < > core.p4 ... defined && + == ? : ! __LINE__ {#} @pragma 1.5 << ~ ' // /* */
"""


@given(st.lists(st.sampled_from([*FRAGMENTS.split(), "\n", "\n", "\n", " ", "\\\n", "\t"]), max_size=30))
def test_garbage_gives_text_or_a_compile_error(fragments: list[str]):
    try:
        tokens = tokenize(preprocess(" ".join(fragments), "main.p4"), "main.p4")
    except CompileError as error:
        assert "main.p4:" in error.render()  # noqa: PT017 - both outcomes are right
    else:
        assert tokens[-1].kind == "end"


def test_types_with_fields():
    header, struct, union = declarations(
        """
        @h header H { @f bit<8> a; varbit<16> b; }
        struct S<A> { A a; H[2] stack; }
        header_union U { H x; }
        """
    )
    assert [(type(d), d.kind) for d in (header, struct, union)] == [
        (ast.FieldsDecl, kind) for kind in ("header", "struct", "header_union")
    ]
    assert [note.name for note in header.annotations] == ["h"]
    assert [(field.name, text(field.type)) for field in header.fields] == [
        ("a", "bit<8>"),
        ("b", "varbit<16>"),
    ]
    assert [note.name for note in header.fields[0].annotations] == ["f"]
    assert [param.name for param in struct.type_params] == ["A"]
    assert text(struct.fields[1].type) == "H[2]"


def test_enums_errors_and_match_kinds():
    plain, serialisable, errors, kinds = declarations(
        "enum E { A, B, } enum bit<8> F { A = 1, B = 2 + 1 } error { X, Y } match_kind { near }"
    )
    assert (plain.underlying, text(serialisable.underlying)) == (None, "bit<8>")
    assert [member.name for member in plain.members] == ["A", "B"]
    assert [text(member.value) for member in serialisable.members] == ["1", "(2 + 1)"]
    assert [(type(d), d.name) for d in (errors, kinds)] == [
        (ast.MembersDecl, "error"),
        (ast.MembersDecl, "match_kind"),
    ]


def test_typedefs():
    found = declarations("typedef bit<9> P; type bit<9> Q; typedef struct S { bit<1> a; } R;")
    assert [(type(d), d.distinct) for d in found] == [
        (ast.TypedefDecl, distinct) for distinct in (False, True, False)
    ]
    assert (type(found[2].type), found[2].type.kind) == (ast.FieldsDecl, "struct")


def test_externs():
    assert declarations("extern F;") == ()
    function, generic, extern = declarations(
        """
        extern void f(in bit<8> a, out bool b);
        extern T g<T>(T x, optional_ y = 1);
        @e extern X<T> { X(bit<32> size); X(); T get<U>(in U u); abstract void run(inout T t); }
        """
    )
    assert [param.direction for param in function.prototype.params] == ["in", "out"]
    assert text(generic.prototype.params[1].default) == "1"
    assert [(m.name, m.result is None, m.abstract) for m in extern.methods] == [
        ("X", True, False),
        ("X", True, False),
        ("get", False, False),
        ("run", False, True),
    ]


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (
            """
            bit<8> f(in bit<8> a) { return a; }
            T g<T>(in T a) { return a; }
            action act(inout bit<8> a, bit<8> b) { a = b; }
            const bit<8> N = 1 + 2;
            X(1) x;
            V<H, M>(A(), B<bit<8>>(1)) main;
            """,
            [ast.FunctionDecl, ast.FunctionDecl, ast.ActionDecl, ast.ConstDecl, *2 * [ast.Instantiation]],
        ),
        (
            "parser P<H>(packet_in b, out H h); control C<H>(inout H h); package V<H>(P<H> p, C<H> c);",
            [ast.ParserTypeDecl, ast.ControlTypeDecl, ast.PackageDecl],
        ),
    ],
)
def test_functions_actions_constants_instances_and_architecture_types(source: str, kinds: list[type]):
    found = declarations(source)
    assert [type(d) for d in found] == kinds
    for action in (d for d in found if isinstance(d, ast.ActionDecl)):
        assert [param.direction for param in action.params] == ["inout", ""]
    for main in (d for d in found if getattr(d, "name", "") == "main"):
        assert [text(argument) for argument in main.args] == ["A()", "B<bit<8>>(1)"]


def test_parsers():
    parsed = declaration(
        """
        parser P<H>(packet_in b, out H h)(bit<8> n) {
            bit<8> x;
            const bit<8> c = 1;
            value_set<bit<16>>(4) ports;
            Sub() sub;
            @s state start {
                b.extract(h.a);
                transition select(h.a.x, h.a.y) {
                    (1, 2 &&& 3): next;
                    (4 .. 5, _): next;
                    ports: next;
                    (1 + 2) * 3: next;
                    (bit<8>) 3: next;
                    (7): next;
                    (_, default): accept;
                    default: reject;
                }
            }
            state next { if (x == 1) { x = 2; } transition accept; }
            state last { }
        }
        """
    )
    assert [param.name for param in parsed.constructor_params] == ["n"]
    assert [type(local) for local in parsed.locals] == [
        ast.VarDecl,
        ast.ConstDecl,
        ast.ValueSetDecl,
        ast.Instantiation,
    ]
    start, following, last = (state.transition for state in parsed.states)
    assert [type(each) for each in (start, following, last)] == [ast.Select, ast.Goto, type(None)]
    assert [(", ".join(map(text, case.keys)), case.target) for case in start.cases] == [
        ("1, 2 &&& 3", "next"),
        ("4 .. 5, _", "next"),
        ("ports", "next"),
        ("((1 + 2) * 3)", "next"),
        ("((bit<8>)3)", "next"),
        ("7", "next"),
        ("_, default", "accept"),
        ("default", "reject"),
    ]


def test_controls_and_tables():
    parsed = declaration(
        """
        control C(inout bit<8> x)(int n) {
            action a(bit<8> v) { x = v; }
            bit<8> local = 1;
            @t table t {
                key = { x: exact @name("x"); x[3:0] + 1: ternary; }
                actions = { a; @defaultonly NoAction(); .b(x); }
                const default_action = a(1);
                size = 1 << 4;
                const entries = {
                    const priority = 3: (1, _) : a(2);
                    priority = (1 + 1): (2, 3 &&& 1) : a(3) @note;
                    (3, 4 .. 5) : a(4);
                }
                @p implementation = x;
            }
            apply { t.apply(); }
        }
        """
    )
    table = parsed.locals[2]
    assert [(text(key.expr), key.match) for key in table.keys] == [
        ("x", "exact"),
        ("(x[3:0] + 1)", "ternary"),
    ]
    assert table.keys[0].annotations[0].body == '"x"'
    assert [(ref.absolute, ref.name, ref.args is None) for ref in table.actions] == [
        (False, "a", True),
        (False, "NoAction", False),
        (True, "b", False),
    ]
    assert [(p.const, p.name, text(p.value)) for p in table.properties] == [
        (True, "default_action", "a(1)"),
        (False, "size", "(1 << 4)"),
        (False, "implementation", "x"),
    ]
    assert table.entries.const
    assert [(e.const, text(e.priority) if e.priority else None) for e in table.entries.entries] == [
        (True, "3"),
        (False, "(1 + 1)"),
        (False, None),
    ]


def test_annotations_keep_their_text():
    parsed = declaration(
        '@a @b(x + (1, "y") it\'s ) @c[1, "two"] @d[k = 1, l = true] @table @pragma e f g\n'
        "const bit<8> N = 1;"
    )
    assert [(n.name, n.body, n.elements is None) for n in parsed.annotations] == [
        ("a", "", True),
        ("b", 'x + (1, "y") it\'s', True),
        ("c", '1, "two"', False),
        ("d", "k = 1, l = true", False),
        ("table", "", True),
        ("e", "f g", True),
    ]


def test_positions_point_at_what_an_error_would_be_about():
    source = "control C() {\n  apply {\n    hdr.ip.ttl = a[1] + f(b) ;\n  }\n}"
    control = declaration(source)
    (assignment,) = control.body.body
    nodes = {
        "declaration": control,
        "statement": assignment,
        "member": assignment.target,
        "operator": assignment.value,
        "index": assignment.value.left,
        "call": assignment.value.right,
    }
    assert {name: str(node.pos) for name, node in nodes.items()} == {
        "declaration": "f:1:9",
        "statement": "f:3:5",
        "member": "f:3:12",
        "operator": "f:3:23",
        "index": "f:3:19",
        "call": "f:3:25",
    }


@pytest.mark.parametrize(
    "source",
    ["x = f(a,);", "x = ;", "x + 1;", "f<>();", "x = (a;", "if a { }", "if (a) bit<8> x;", "x = y y;"],
)
def test_what_is_no_statement(source: str):
    with pytest.raises(CompileError):
        statement(source)


@pytest.mark.parametrize("open_", ["(", "{", "-", "a[", "(bit<8>)", "f("])
def test_deep_nesting_is_refused_and_not_a_crash(open_: str):
    with pytest.raises(CompileError, match="nested too deeply"):
        parse(f"const bit<8> x = {open_ * 5000}", "f")


PROGRAM = tokenize(
    preprocess(
        (P4_SOURCES / "exclusive.p4").read_text(), str(P4_SOURCES / "exclusive.p4"), defines={"LANES": "32"}
    ),
    "exclusive.p4",
)
# Without the architecture and without the lanes: the part in which everything occurs.
WINDOW = [token for token in PROGRAM if not token.pos.file.endswith(("/lanes.p4", "v1model.p4", "core.p4"))]


@given(st.data())
def test_damaged_programs_are_refused_with_a_position(data: st.DataObject):
    tokens = WINDOW.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(tokens) - 2))
        other = data.draw(st.integers(0, len(tokens) - 2))
        match data.draw(st.sampled_from(["delete", "swap", "copy", "cut"])):
            case "delete":
                del tokens[at]
            case "swap":
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case "copy":
                tokens.insert(at, tokens[other])
            case "cut":
                tokens = [*tokens[:at], tokens[-1]]
        if len(tokens) < 2:
            break
    places = {(token.pos.file, token.pos.line) for token in tokens}
    try:
        parse_tokens(tokens, "exclusive.p4")
        pos = tokens[-1].pos
    except CompileError as error:
        pos = error.pos
    assert (pos.file, pos.line) in places


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b * c - d", "((a + (b * c)) - d)"),
        ("a - b - c", "((a - b) - c)"),
        ("a == b & c", "(a == (b & c))"),  # other than in C
        ("a & b | c ^ d", "((a & b) | (c ^ d))"),
        ("a < b == c > d", "((a < b) == (c > d))"),
        ("a << b + c", "(a << (b + c))"),
        ("a >> b >> c", "((a >> b) >> c)"),
        ("a ++ b + c", "((a ++ b) + c)"),
        ("a |+| b |-| c * d", "((a |+| b) |-| (c * d))"),
        ("a || b && c", "(a || (b && c))"),
        ("a && b == c || d", "((a && (b == c)) || d)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a || b ? c + 1 : d", "((a || b) ? (c + 1) : d)"),
        ("!a.b[3] && ~c == -d", "((!a.b[3]) && ((~c) == (-d)))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a / b % c", "((a / b) % c)"),
        ("a <= b", "(a <= b)"),
        ("a >= b", "(a >= b)"),
        ("a != b", "(a != b)"),
        ("+a", "(+a)"),
        # casts bind like other prefixes
        ("(bit<8>)a + b", "(((bit<8>)a) + b)"),
        ("(T)a", "((T)a)"),
        ("(T)-a", "((T)(-a))"),
        ("(a)-b", "(a - b)"),
        ("(a)+b", "(a + b)"),
        ("(T)(a)", "((T)a)"),
        ("(unknown)a", "((unknown)a)"),
        ("(a).b", "a.b"),
        ("(T){a, b}", "((T){a, b})"),
        ("(bool)x[1:0][1]", "((bool)x[1:0][1])"),
        ("(bit<(a > b ? 8 : 4)>)c", "((bit<((a > b) ? 8 : 4)>)c)"),
        ("(error)x", "((error)x)"),
        ("(tuple<bit<8>, bool>){1, true}", "((tuple<bit<8>, bool>){1, true})"),
        # angle brackets
        ("a < b", "(a < b)"),
        ("a < b && c > d", "((a < b) && (c > d))"),
        ("f<T>(a)", "f<T>(a)"),
        ("p.lookahead<bit<8>>()", "p.lookahead<bit<8>>()"),
        ("p.lookahead<bit<8>>().x", "p.lookahead<bit<8>>().x"),
        ("f<_, bool>(a)", "f<_, bool>(a)"),
        ("f<tuple<bit<8>, T>>(a) > b", "(f<tuple<bit<8>, T>>(a) > b)"),
        ("a < b ? c : d", "((a < b) ? c : d)"),
        ("i < hdr.n", "(i < hdr.n)"),
        # postfixes and primaries
        ("a.b.c[1][2:1].d", "a.b.c[1][2:1].d"),
        ("a[i+:4]", "a[i+:4]"),
        ("f(a, name = b, _)", "f(a, name=b, _)"),
        ("t.apply().hit", "t.apply().hit"),
        (".f(.a)", ".f(.a)"),
        ("error.NoError", "error.NoError"),
        ("(error.NoError) == e", "(error.NoError == e)"),
        ("E.A", "E.A"),
        ("this.m()", "this.m()"),
        ("{a, {b, c}}", "{a, {b, c}}"),
        ("{a, b,}", "{a, b}"),
        ("{}", "{}"),
        ("{x = 1, y = {2}}", "{x=1, y={2}}"),
        ("{a, ...}", "{a, ...}"),
        ("{x = 1, ...}", "{x=1, ...}"),
        ("{#}", "{#}"),
        ("...", "..."),
        ('"text"', '"text"'),
        ("8w5 ++ 4s3", "(8w5 ++ 4s3)"),
        ("true != false", "(true != false)"),
        ("{{1, 2,}, f(3), }", "{{1, 2}, f(3)}"),
        ("apply.key.state.type", "apply.key.state.type"),
    ],
)
def test_expressions(source: str, expected: str):
    assert text(expression(source)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("bool x", "bool"),
        ("error x", "error"),
        ("string x", "string"),
        ("int x", "int"),
        ("bit<8> x", "bit<8>"),
        ("int<N> x", "int<N>"),
        ("varbit<320> x", "varbit<320>"),
        ("tuple<bit<8>, int<4>> x", "tuple<bit<8>, int<4>>"),
        ("list<T> x", "list<T>"),
        ("T x", "T"),
        (".T x", ".T"),
        ("T[4] x", "T[4]"),
        ("T<bit<8>, _> x", "T<bit<8>, _>"),
        ("T<T<bit<8>>> x", "T<T<bit<8>>>"),
        ("bit<(N + 1)>[2] x", "bit<(N + 1)>[2]"),
        ("bit x", "bit<1>"),
        ("T x[2][3]", "T[3][2]"),  # sizes may follow the name
    ],
)
def test_types(source: str, expected: str):
    parsed = statement(f"{source};")
    assert (type(parsed), text(parsed.type)) == (ast.VarDecl, expected)


def test_a_name_may_stop_to_be_a_type():
    hidden, outside = statements("{ bit<8> T; x = (T) - 1; } x = (T) - 1;")
    assert text(hidden.body[1].value) == "(T - 1)"
    assert text(outside.value) == "((T)(-1))"


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("x = 1;", ast.AssignStatement),
        ("a.b[2].c = 1;", ast.AssignStatement),
        ("a[3:0] = 1;", ast.AssignStatement),
        ("(a) = 1;", ast.AssignStatement),
        ("x += 1;", ast.AssignStatement),
        ("x |+|= 1;", ast.AssignStatement),
        ("x >>= 1;", ast.AssignStatement),
        ("f();", ast.CallStatement),
        ("f<T>(x);", ast.CallStatement),
        ("f<bit<8>>(x);", ast.CallStatement),
        ("a.b.f(x, y);", ast.CallStatement),
        ("T.apply(x);", ast.CallStatement),
        ("T<bit<8>>.apply(x);", ast.CallStatement),
        (".f();", ast.CallStatement),
        ("{ x = 1; }", ast.BlockStatement),
        ("@atomic { x = 1; }", ast.BlockStatement),
        ("if (a) x = 1;", ast.IfStatement),
        ("if (a) { } else if (b) { } else { }", ast.IfStatement),
        ("if (a) ;", ast.IfStatement),
        ("switch (a) { 1: { } 2: 3: { } default: { } }", ast.SwitchStatement),
        ("return;", ast.ReturnStatement),
        ("return x;", ast.ReturnStatement),
        ("exit;", ast.Jump),
        ("for (bit<8> i = 0, j = 1; i < 8; i = i + 1, j += 2) { break; }", ast.For),
        ("for (;true;) continue;", ast.For),
        ("for (bit<8> i in 0 .. 7) { }", ast.ForIn),
        ("for (i in list_) x = i;", ast.ForIn),
        ("@unroll for (T h in stack) { }", ast.ForIn),
        ("bit<8> x;", ast.VarDecl),
        ("T x = {1, 2};", ast.VarDecl),
        ("T[2] x;", ast.VarDecl),
        ("Unknown x;", ast.VarDecl),
        ("@a @b(1) T x;", ast.VarDecl),
        ("const bit<8> x = 1;", ast.ConstDecl),
        ("T(1) x;", ast.Instantiation),
        ("T<bit<8>>(1, 2) x;", ast.Instantiation),
        ("T() x = { void f() { } T() y; };", ast.Instantiation),
    ],
)
def test_statements(source: str, node: type):
    assert isinstance(statement(source), node)


def test_empty_statements_leave_nothing():
    assert statements(";;") == ()


def test_switch_labels_fall_through():
    parsed = statement("switch (t.apply().action_run) { a: b: { x = 1; } default: { } }")
    assert [(text(case.label), case.body is None) for case in parsed.cases] == [
        ("a", True),
        ("b", False),
        ("default", False),
    ]


def test_an_else_belongs_to_the_nearest_if():
    parsed = statement("if (a) if (b) x = 1; else x = 2;")
    assert parsed.otherwise is None
    assert parsed.then.otherwise is not None
