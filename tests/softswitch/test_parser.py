"""The grammar: every construct, precedence, and what is only told apart by looking ahead."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.compiler import ast
from softswitch.compiler.errors import CompileError
from softswitch.compiler.lexer import tokenize
from softswitch.compiler.parser import parse, parse_tokens
from softswitch.compiler.preprocess import preprocess

P4_SOURCES = Path(__file__).parents[2] / "p4src"


def declarations(source: str) -> tuple[ast.Decl, ...]:
    return parse(source, "f").declarations


def declaration(source: str) -> ast.Decl:
    (only,) = declarations(source)
    return only


def statements(source: str) -> tuple[ast.Stmt, ...]:
    """Parse statements in the apply block of a control, behind a type T."""
    control = declarations(f"struct T {{}} control C() {{ apply {{ {source} }} }}")[1]
    assert isinstance(control, ast.ControlDecl)
    return control.body.body


def statement(source: str) -> ast.Stmt:
    (only,) = statements(source)
    return only


def expression(source: str) -> ast.Expr:
    parsed = statement(f"x = {source};")
    assert isinstance(parsed, ast.Assign)
    return parsed.value


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
        case ast.This():
            return "this"
        case ast.Member(base, name):
            return f"{text(base)}.{name}"
        case ast.Index(base, index):
            return f"{text(base)}[{text(index)}]"
        case ast.Slice(base, high, low):
            return f"{text(base)}[{text(high)}:{text(low)}]"
        case ast.PlusSlice(base, low, width):
            return f"{text(base)}[{text(low)}+:{text(width)}]"
        case ast.Unary(op, operand):
            return f"({op}{text(operand)})"
        case ast.Binary(op, left, right):
            return f"({text(left)} {op} {text(right)})"
        case ast.Mux(condition, then, otherwise):
            return f"({text(condition)} ? {text(then)} : {text(otherwise)})"
        case ast.Cast(type_, operand):
            return f"(({text(type_)}){text(operand)})"
        case ast.Call(callee, type_args, args):
            generic = f"<{', '.join(map(text, type_args))}>" if type_args else ""
            return f"{text(callee)}{generic}({', '.join(map(text, args))})"
        case ast.Argument(name, value):
            return text(value) if name is None else f"{name}={text(value)}"
        case ast.ListExpr(elements, dots):
            return f"{{{', '.join([*map(text, elements), *['...'] * dots])}}}"
        case ast.StructExpr(fields, dots):
            return f"{{{', '.join([*map(text, fields), *['...'] * dots])}}}"
        case ast.InvalidHeader():
            return "{#}"
        case ast.Mask(value, mask):
            return f"{text(value)} &&& {text(mask)}"
        case ast.Range(low, high):
            return f"{text(low)} .. {text(high)}"
        case ast.DontCare() | ast.DontCareType():
            return "_"
        case ast.Default():
            return "default"
        case ast.Dots():
            return "..."
        case ast.TypeExpr(type_):
            return text(type_)
        case ast.BoolType():
            return "bool"
        case ast.ErrorType():
            return "error"
        case ast.MatchKindType():
            return "match_kind"
        case ast.StringType():
            return "string"
        case ast.VoidType():
            return "void"
        case ast.IntegerType():
            return "int"
        case ast.BitsType(width, signed):
            return f"{'int' if signed else 'bit'}<{text(width)}>"
        case ast.VarbitType(width):
            return f"varbit<{text(width)}>"
        case ast.TupleType(elements):
            return f"tuple<{', '.join(map(text, elements))}>"
        case ast.ListType(element):
            return f"list<{text(element)}>"
        case ast.NamedType(name, absolute, args):
            return "." * absolute + name + (f"<{', '.join(map(text, args))}>" if args else "")
        case ast.StackType(element, size):
            return f"{text(element)}[{text(size)}]"
    raise AssertionError(node)


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
    "source",
    [
        "bool",
        "error",
        "string",
        "int",
        "bit<8>",
        "int<N>",
        "varbit<320>",
        "tuple<bit<8>, int<4>>",
        "list<T>",
        "T",
        ".T",
        "T[4]",
        "T<bit<8>, _>",
        "T<T<bit<8>>>",
        "bit<(N + 1)>[2]",
    ],
)
def test_types(source: str):
    parsed = statement(f"{source} x;")
    assert isinstance(parsed, ast.VarDecl)
    assert text(parsed.type) == source


def test_bit_alone_is_one_bit():
    parsed = statement("bit x;")
    assert isinstance(parsed, ast.VarDecl)
    assert text(parsed.type) == "bit<1>"


def test_sizes_may_follow_the_name():
    parsed = statement("T x[2][3];")
    assert isinstance(parsed, ast.VarDecl)
    assert text(parsed.type) == "T[3][2]"


def test_a_name_may_stop_to_be_a_type():
    hidden, outside = statements("{ bit<8> T; x = (T) - 1; } x = (T) - 1;")
    assert isinstance(hidden, ast.Block)
    inside = hidden.body[1]
    assert isinstance(inside, ast.Assign)
    assert isinstance(outside, ast.Assign)
    assert text(inside.value) == "(T - 1)"
    assert text(outside.value) == "((T)(-1))"


# --------------------------------------------------------------------------- statements


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("x = 1;", ast.Assign),
        ("a.b[2].c = 1;", ast.Assign),
        ("a[3:0] = 1;", ast.Assign),
        ("(a) = 1;", ast.Assign),
        ("x += 1;", ast.Assign),
        ("x |+|= 1;", ast.Assign),
        ("x >>= 1;", ast.Assign),
        ("f();", ast.CallStatement),
        ("f<T>(x);", ast.CallStatement),
        ("f<bit<8>>(x);", ast.CallStatement),
        ("a.b.f(x, y);", ast.CallStatement),
        ("T.apply(x);", ast.CallStatement),
        ("T<bit<8>>.apply(x);", ast.CallStatement),
        (".f();", ast.CallStatement),
        ("{ x = 1; }", ast.Block),
        ("@atomic { x = 1; }", ast.Block),
        ("if (a) x = 1;", ast.If),
        ("if (a) { } else if (b) { } else { }", ast.If),
        ("if (a) ;", ast.If),
        ("switch (a) { 1: { } 2: 3: { } default: { } }", ast.Switch),
        ("return;", ast.Return),
        ("return x;", ast.Return),
        ("exit;", ast.Exit),
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
    assert isinstance(parsed, ast.Switch)
    assert [(text(case.label), case.body is None) for case in parsed.cases] == [
        ("a", True),
        ("b", False),
        ("default", False),
    ]


def test_an_else_belongs_to_the_nearest_if():
    parsed = statement("if (a) if (b) x = 1; else x = 2;")
    assert isinstance(parsed, ast.If)
    assert parsed.otherwise is None
    assert isinstance(parsed.then, ast.If)
    assert parsed.then.otherwise is not None


# --------------------------------------------------------------------------- declarations


def test_types_with_fields():
    header, struct, union = declarations(
        """
        @h header H { @f bit<8> a; varbit<16> b; }
        struct S<A> { A a; H[2] stack; }
        header_union U { H x; }
        """
    )
    assert isinstance(header, ast.HeaderDecl)
    assert [note.name for note in header.annotations] == ["h"]
    assert [(field.name, text(field.type)) for field in header.fields] == [
        ("a", "bit<8>"),
        ("b", "varbit<16>"),
    ]
    assert [note.name for note in header.fields[0].annotations] == ["f"]
    assert isinstance(struct, ast.StructDecl)
    assert [param.name for param in struct.type_params] == ["A"]
    assert text(struct.fields[1].type) == "H[2]"
    assert isinstance(union, ast.HeaderUnionDecl)


def test_enums_errors_and_match_kinds():
    plain, serialisable, errors, kinds = declarations(
        "enum E { A, B, } enum bit<8> F { A = 1, B = 2 + 1 } error { X, Y } match_kind { near }"
    )
    assert isinstance(plain, ast.EnumDecl)
    assert plain.underlying is None
    assert [member.name for member in plain.members] == ["A", "B"]
    assert isinstance(serialisable, ast.EnumDecl)
    assert text(serialisable.underlying) == "bit<8>"
    assert [text(member.value) for member in serialisable.members] == ["1", "(2 + 1)"]
    assert isinstance(errors, ast.ErrorDecl)
    assert isinstance(kinds, ast.MatchKindDecl)


def test_typedefs():
    alias, distinct, inline = declarations(
        "typedef bit<9> P; type bit<9> Q; typedef struct S { bit<1> a; } R;"
    )
    assert isinstance(alias, ast.TypedefDecl)
    assert not alias.distinct
    assert isinstance(distinct, ast.TypedefDecl)
    assert distinct.distinct
    assert isinstance(inline, ast.TypedefDecl)
    assert isinstance(inline.type, ast.StructDecl)


def test_externs():
    forward = declarations("extern F;")
    assert forward == ()
    function, generic, extern = declarations(
        """
        extern void f(in bit<8> a, out bool b);
        extern T g<T>(T x, optional_ y = 1);
        @e extern X<T> { X(bit<32> size); X(); T get<U>(in U u); abstract void run(inout T t); }
        """
    )
    assert isinstance(function, ast.ExternFunctionDecl)
    assert [param.direction for param in function.prototype.params] == ["in", "out"]
    assert isinstance(generic, ast.ExternFunctionDecl)
    assert text(generic.prototype.params[1].default) == "1"
    assert isinstance(extern, ast.ExternDecl)
    assert [(m.name, m.result is None, m.abstract) for m in extern.methods] == [
        ("X", True, False),
        ("X", True, False),
        ("get", False, False),
        ("run", False, True),
    ]


def test_functions_actions_constants_and_instances():
    function, generic, action, constant, instance, main = declarations(
        """
        bit<8> f(in bit<8> a) { return a; }
        T g<T>(in T a) { return a; }
        action act(inout bit<8> a, bit<8> b) { a = b; }
        const bit<8> N = 1 + 2;
        X(1) x;
        V<H, M>(A(), B<bit<8>>(1)) main;
        """
    )
    assert isinstance(function, ast.FunctionDecl)
    assert isinstance(generic, ast.FunctionDecl)
    assert isinstance(action, ast.ActionDecl)
    assert [param.direction for param in action.params] == ["inout", ""]
    assert isinstance(constant, ast.ConstDecl)
    assert isinstance(instance, ast.Instantiation)
    assert isinstance(main, ast.Instantiation)
    assert [text(argument) for argument in main.args] == ["A()", "B<bit<8>>(1)"]


def test_architecture_types():
    parser, control, package = declarations(
        "parser P<H>(packet_in b, out H h); control C<H>(inout H h); package V<H>(P<H> p, C<H> c);"
    )
    assert isinstance(parser, ast.ParserTypeDecl)
    assert isinstance(control, ast.ControlTypeDecl)
    assert isinstance(package, ast.PackageDecl)


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
    assert isinstance(parsed, ast.ParserDecl)
    assert [param.name for param in parsed.constructor_params] == ["n"]
    assert [type(local) for local in parsed.locals] == [
        ast.VarDecl,
        ast.ConstDecl,
        ast.ValueSetDecl,
        ast.Instantiation,
    ]
    start, following, last = parsed.states
    assert isinstance(start.transition, ast.Select)
    assert [(", ".join(map(text, case.keys)), case.target) for case in start.transition.cases] == [
        ("1, 2 &&& 3", "next"),
        ("4 .. 5, _", "next"),
        ("ports", "next"),
        ("((1 + 2) * 3)", "next"),
        ("((bit<8>)3)", "next"),
        ("7", "next"),
        ("_, default", "accept"),
        ("default", "reject"),
    ]
    assert isinstance(following.transition, ast.Goto)
    assert last.transition is None


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
    assert isinstance(parsed, ast.ControlDecl)
    table = parsed.locals[2]
    assert isinstance(table, ast.TableDecl)
    assert table.keys is not None
    assert [(text(key.expr), key.match) for key in table.keys] == [
        ("x", "exact"),
        ("(x[3:0] + 1)", "ternary"),
    ]
    assert table.keys[0].annotations[0].body == '"x"'
    assert table.actions is not None
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
    assert table.entries is not None
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
    assert isinstance(parsed, ast.ConstDecl)
    assert [(n.name, n.body, n.elements is None) for n in parsed.annotations] == [
        ("a", "", True),
        ("b", 'x + (1, "y") it\'s', True),
        ("c", '1, "two"', False),
        ("d", "k = 1, l = true", False),
        ("table", "", True),
        ("e", "f g", True),
    ]


# --------------------------------------------------------------------------- positions and errors


def test_positions_point_at_what_an_error_would_be_about():
    source = "control C() {\n  apply {\n    hdr.ip.ttl = a[1] + f(b) ;\n  }\n}"
    control = declaration(source)
    assert isinstance(control, ast.ControlDecl)
    (assignment,) = control.body.body
    assert isinstance(assignment, ast.Assign)
    assert isinstance(assignment.value, ast.Binary)
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


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("path", sorted(P4_SOURCES.glob("*.p4")), ids=lambda path: path.name)
def test_our_programs_parse(path: Path, lanes: int):
    source = preprocess(path.read_text(), str(path), defines={"LANES": str(lanes)})
    names = [getattr(declaration, "name", None) for declaration in declarations(source)]
    assert names[-1] == "main"


PROGRAM = tokenize(
    preprocess(
        (P4_SOURCES / "exclusive.p4").read_text(), str(P4_SOURCES / "exclusive.p4"), defines={"LANES": "32"}
    ),
    "exclusive.p4",
)
# Without the architecture and without the lanes: the part in which everything occurs.
WINDOW = [token for token in PROGRAM if "lanes_32" not in token.pos.file and "compiler" not in token.pos.file]


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
