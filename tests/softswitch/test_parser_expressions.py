"""The grammar of expressions and types: precedence, and what is only told apart by looking ahead."""

import pytest

from softswitch.compiler.frontend import ast
from tests.softswitch.parsing import expression, statement, statements, text


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
