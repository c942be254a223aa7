"""The grammar of statements."""

import pytest

from softswitch.compiler.frontend import ast
from tests.softswitch.parsing import statement, statements, text


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
