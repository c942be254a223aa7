"""The grammar of declarations, and their annotations."""

from softswitch.compiler.frontend import ast
from tests.softswitch.parsing import declaration, declarations, text


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
