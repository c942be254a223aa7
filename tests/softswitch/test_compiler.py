"""What users see when a program is wrong: compile_errors.txt has bad programs, and what is said of each.

``pytest tests/softswitch/test_compiler.py --update-golden`` rewrites what is said.

The tables of docs/reference/p4-constructs.md: each row has programs that are accepted, or refused as it says.

The verifier finds what a defect of the compiler would leave behind.

Passes of the compiler as text: what ``ina compile --dump`` prints.

The list of passes: what each shows, and that a preprocessed program is the same program.

Undefined behaviour: what the checker finds and what it does not, and what each choice makes of it.

Numbers of any size are compiled or refused: whoever reaches P4Runtime sends programs.
"""

from __future__ import annotations

import cProfile
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from softswitch.compiler import (
    Choice,
    CompileError,
    Unsupported,
    compile_file,
    compile_source,
    find_undefined,
    ir,
    preprocess_file,
)
from softswitch.compiler.ir import Position
from softswitch.compiler.ir.verify import InconsistentProgram, verify_program
from softswitch.compiler.show import show
from softswitch.engine.build import load
from softswitch.engine.emit_c import emit_c
from softswitch.engine.interpreter import Interpreter
from softswitch.engine.pipeline import Copy
from tests.programs import p4src_program
from tests.softswitch.constructs import ROWS
from tests.softswitch.lowering import lowered, marked, source

GOLDEN = Path(__file__).parent / "compile_errors.txt"
FILES = dict(re.findall(r"^#### (\S+)\n(.*?)(?=^####|\Z)", GOLDEN.read_text(), re.M | re.S))
PROGRAMS = [name for name in FILES if name.endswith(".p4")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_message(name: str, update_golden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for file in {*FILES} - {*PROGRAMS} | {name}:
        Path(file).write_text(FILES[file].partition("----\n")[0])
    with pytest.raises(CompileError) as caught:
        compile_file(name)
    rendered = caught.value.render() + "\n"
    program, _, golden = FILES[name].partition("----\n")
    if update_golden:
        FILES[name] = f"{program}----\n{rendered}"
        GOLDEN.write_text("".join(f"#### {file}\n{text}" for file, text in FILES.items()))
    else:
        assert rendered == golden


def test_a_source_in_memory_is_shown_too():
    error = CompileError("wrong", Position("<string>", 2, 3), "right")
    assert error.render({"<string>": "a\nb\tc\n"}).split("\n") == [
        "<string>:2:3: error: wrong",
        "  b       c",
        "          ^",
        "  expected: right",
    ]


@pytest.mark.parametrize(("column", "shown"), [(3, "ab@cdef"), (500, "xx@xx"), (1004, "xtu@vwx")])
def test_of_a_long_line_the_place_of_the_error_is_shown(column: int, shown: str):
    line = "abcdef" + "x" * 995 + "tuvwxyz"
    _, excerpt, caret = (
        CompileError("wrong", Position("<string>", 1, column)).render({"<string>": line}).split("\n")
    )
    assert len(excerpt) <= 2 + 202
    at = len(caret) - 1
    assert (
        excerpt[at - shown.index("@") : at] + "@" + excerpt[at:][: len(shown) - 1 - shown.index("@")] == shown
    )


def test_without_the_source_the_message_stands_alone():
    assert CompileError("wrong", Position("nowhere.p4", 2, 3)).render() == "nowhere.p4:2:3: error: wrong"


def test_what_is_not_supported_says_so():
    error = Unsupported("value sets are not supported", Position("nowhere.p4", 2, 3))
    assert str(error) == "nowhere.p4:2:3: unsupported: value sets are not supported"


PAGE = (Path(__file__).parents[2] / "docs/reference/p4-constructs.md").read_text()


def rows() -> dict[str, tuple[str, list[str]]]:
    """The rows of the page by their first cell: what is supported, and the messages of what is not."""
    found = {}
    for line in PAGE.partition("## Constructs")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0] not in ("", "construct", "extern", "---"):
            found[cells[0]] = (cells[1], re.findall("`([^`]+)`", cells[2]))
    return found


def test_every_row_has_programs_and_every_program_a_row() -> None:
    assert rows().keys() == ROWS.keys()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_what_the_compiler_does(row: str) -> None:
    supported, messages = rows()[row]
    tried = {phrase for phrase, _ in ROWS[row]}
    assert tried - {""} == set(messages)
    assert ("" in tried) == (not supported.startswith("no")), "nothing is accepted, or the row says so"
    for phrase, text in ROWS[row]:
        if phrase:
            pattern = ".+".join(map(re.escape, phrase.split("…")))
            with pytest.raises(CompileError, match=pattern):
                emit_c(compile_source(text, name="t.p4"))
        else:
            program = compile_source(text, name="t.p4")
            emit_c(program)
            Interpreter(program)


POS = ir.Position("t.p4", 1, 1)
B8 = ir.Bits(8)
LOCALS = """
action a(bit<8> v) { hdr.h.b = v; }
register<bit<8>>(4) r;
table t { key = { hdr.h.a: exact; } actions = { a; } const entries = { 1: a(2); } }
"""


def program() -> ir.Program:
    return lowered("t.apply(); r.write(0, hdr.h.a);", locals=LOCALS)


def number(value: int, type_: ir.Scalar = B8) -> ir.Const:
    return ir.Const(type_, value, pos=POS)


def added(*statements: ir.Stmt) -> Callable[[ir.Program], ir.Program]:
    return lambda p: replace(p, ingress=(*p.ingress, *statements))


def with_table(**changes: object) -> Callable[[ir.Program], ir.Program]:
    return lambda p: replace(p, tables={"C.t": replace(p.tables["C.t"], **changes)})  # type: ignore[arg-type]


X = ir.Var(B8, "x", pos=POS)
META_X = ir.Member(B8, ir.Var(program().meta, "meta", pos=POS), "x", pos=POS)


def test_a_lowered_program_is_consistent():
    verify_program(program())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (added(ir.Assign(X, number(1), pos=POS)), "no variable x"),
        (added(ir.Assign(META_X, number(256), pos=POS)), "constant 256"),
        (added(ir.Assign(META_X, number(1, ir.Bits(9)), pos=POS)), "where Bits(width=9"),
        (added(ir.Assign(number(1), number(1), pos=POS)), "Const cannot be assigned to"),
        (added(ir.If(META_X, (), (), pos=POS)), "where Bool() is expected"),
        (
            added(ir.Assign(META_X, ir.Binary(B8, "+", META_X, number(1, ir.Bits(9)), pos=POS), pos=POS)),
            "where",
        ),
        (added(ir.Assign(META_X, ir.Binary(B8, "**", META_X, META_X, pos=POS), pos=POS)), "no operator **"),
        (added(ir.Assign(META_X, ir.Slice(B8, META_X, 8, 1, pos=POS), pos=POS)), "slice [8:1]"),
        (added(ir.Call("C.none", pos=POS)), "no action C.none"),
        (added(ir.Apply("C.none", None, None, pos=POS)), "no table C.none"),
        (added(ir.SetValidity(META_X, True, pos=POS)), "in the wrong place"),
        (
            added(ir.Extern("register.write", "C.none", ((number(0),), (number(0),)), pos=POS)),
            "no object C.none",
        ),
        (
            added(ir.Extern("register.write", "C.r", ((number(0),), (number(0, ir.Bits(9)),)), pos=POS)),
            "where",
        ),
        (lambda p: replace(p, states={}), "no state start"),
        (
            lambda p: replace(
                p,
                states={
                    "start": replace(
                        p.states["start"], transition=ir.Transition((), (((), "away"),), pos=POS)
                    )
                },
            ),
            "no state away",
        ),
        (with_table(default=ir.Invocation("C.b", ())), "C.b is no action of C.t"),
        (with_table(default=ir.Invocation("C.a", ())), "0 arguments for C.a"),
        (with_table(size=0), "C.t has size 0"),
        (with_table(direct_counter="C.c"), "no counter C.c of table C.t"),
        (
            with_table(entries=(ir.ConstEntry((ir.Pattern("exact", 256),), ir.Invocation("C.a", (1,)), 1),)),
            "does not fit",
        ),
        (with_table(entries=(ir.ConstEntry((), ir.Invocation("C.a", (1,)), 1),)), "an entry of 0 patterns"),
        (lambda p: replace(p, field_lists={1: (("meta", "none"),)}), "field list 1 has no field meta.none"),
    ],
)
def test_what_is_inconsistent_is_found(change: Callable[[ir.Program], ir.Program], message: str):
    with pytest.raises(InconsistentProgram) as caught:
        verify_program(change(program()))
    assert message in str(caught.value)


WORD = ir.Header("word_h", (("value", ir.Bits(32)),))
TWO = ir.Struct("two_t", (("first", WORD), ("second", WORD)))


def test_a_type_is_shown_whole_once_and_by_its_name_from_then_on() -> None:
    whole = "Header(name='word_h', fields=(('value', Bits(width=32, signed=False))))"
    assert show((WORD, WORD)) == f"({whole}, Header word_h)"
    assert show(TWO).splitlines() == [
        "Struct",
        "  name='two_t'",
        "  fields=",
        f"    ('first', {whole})",
        "    ('second', Header word_h)",
        "  union=False",
    ]


def test_another_type_of_the_same_name_is_shown_whole() -> None:
    other = ir.Header("word_h", (("bit", ir.Bits(1)),))
    assert show((WORD, other)).splitlines()[2:] == [
        "  Header(name='word_h', fields=(('bit', Bits(width=1, signed=False))))"
    ]


def test_a_program_with_many_lanes_is_shown_in_megabytes_not_in_tens() -> None:
    """Each expression holds its type: the headers, with all lanes. 256 lanes once took 80 s and 77 MB."""
    text = show(p4src_program("exclusive", LANES=32))
    assert text.count("'lanes_t'") == 1
    assert len(text) < 1_000_000


PROGRAM = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
SMALL = Path(__file__).parent / "features" / "dropping.p4"
LANES = {"LANES": "32"}


def test_every_pass_can_be_dumped():
    shown: dict[str, str] = {}

    def dump(name: str, render: Callable[[], str]) -> None:
        shown[name] = render()

    compile_file(SMALL, dump=dump)  # to print the whole tree of a large one takes long
    assert list(shown) == ["preprocess", "lex", "parse", "lower"]
    assert shown["lex"].endswith(" tokens")
    assert "name='seen'" in shown["parse"]
    assert shown["lower"].startswith("Program\n")


def test_a_preprocessed_program_is_the_same_program():
    text = preprocess_file(PROGRAM, defines=LANES)
    whole = compile_file(PROGRAM, defines=LANES)
    assert compile_source(text, name=str(PROGRAM)) == whole
    # The name of the source only matters for what no marker covers.
    assert replace(compile_source(text), name=whole.name) == whole


P4SRC = Path(__file__).parents[2] / "p4src"
REGISTER = "register<bit<8>>(16) r;"
ACTIONS = "action a1() {} action a2(bit<8> v) { meta.x = v; }"
TABLE = f"{ACTIONS} table t {{ key = {{ @@; }} actions = {{ a1; a2; }} default_action = a1; }}"
INVALID = "may be invalid"
UNSET = "nothing has set"
BEYOND = "cells, and the index"


def findings(folder: Path, text: str) -> list[tuple[int, int, str]]:
    file = folder / "t.p4"
    file.write_text(text)
    return [(it.pos.line, it.pos.column, it.message) for it in find_undefined(file)]


@pytest.mark.parametrize("name", ["exclusive", "shared", "atp"])
def test_our_programs_depend_on_nothing_undefined(name: str) -> None:
    assert find_undefined(P4SRC / f"{name}.p4", defines={"LANES": "32"}) == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"apply": "meta.x = hdr.g.@@a;"}, INVALID),
        ({"apply": "if (!hdr.g.isValid()) { meta.x = hdr.g.@@a; }"}, INVALID),
        ({"apply": "if (hdr.h.isValid() || hdr.g.@@a == 1) { meta.x = 1; }"}, INVALID),
        ({"apply": "if (hdr.h.isValid()) { hdr.h.setInvalid(); meta.x = hdr.h.@@a; }"}, INVALID),
        ({"apply": "meta.x = hdr.h.@@a;"}, INVALID),  # the packet may have been too short
        ({"locals": TABLE.replace("@@", "hdr.g.@@a: ternary"), "apply": "t.apply();"}, INVALID),
        ({"egress": "meta.x = hdr.g.@@a;"}, INVALID),
        (
            {
                "parser": "state start { packet.extract(hdr.h); transition select(hdr.g.@@a) "
                "{ 1: reject; default: accept; } }"
            },
            INVALID,
        ),
        ({"apply": "bit<8> v; meta.x = @@v + 1;"}, UNSET),
        ({"apply": "bit<8> v; if (meta.y == 3) { v = 1; } meta.y = 4; meta.x = @@v + 1;"}, UNSET),
        ({"apply": "bit<8> v; bit<8> w; w = v; meta.x = @@w + 1;"}, UNSET),  # a copy is no use, but tells on
        ({"apply": "bit<8> v; if (hdr.h.isValid() && hdr.h.a == 1) { v = 1; } meta.x = @@v + 1;"}, UNSET),
        ({"declarations": "control X(out bit<8> o) { apply { } }", "locals": "X() x;",
          "apply": "bit<8> v; x.apply(v); meta.x = @@v + 1;"}, UNSET),
        ({"apply": "@@hdr.g.setValid(); hdr.g.a = 1; hdr.g.b = 1; hdr.g.c = 1;"}, UNSET),
        ({"locals": REGISTER, "apply": "if (hdr.h.isValid()) r.@@read(meta.x, (bit<32>)hdr.h.a);"}, BEYOND),
        ({"locals": REGISTER, "apply": "r.@@read(meta.x, 16);"}, BEYOND),
        ({"apply": "if (hdr.h.isValid()) { hdr.s@@[hdr.h.a].a = 1; }"}, BEYOND),
    ],
)  # fmt: skip
def test_what_a_program_depends_on_is_found(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    plain, line, _ = marked(source(**parts))
    found = findings(tmp_path, plain)
    assert [one[0] for one in found] == [line], found
    assert message in found[0][2]


@pytest.mark.parametrize(
    "parts",
    [
        {"apply": "if (hdr.g.isValid()) { meta.x = hdr.g.a; }"},
        {"apply": "if (hdr.g.isValid() && hdr.g.a == 1) { meta.x = 1; }"},
        {"apply": "if (!hdr.g.isValid() || hdr.g.a == 1) { meta.x = 1; }"},
        {"apply": "meta.x = hdr.h.isValid() ? hdr.h.a : 0;"},
        {"apply": "if (standard_metadata.parser_error == error.NoError) { meta.x = hdr.h.a; }"},
        {"apply": "meta.t = hdr.g.isValid(); if (!hdr.g.isValid()) { return; } meta.x = hdr.g.a;"},
        {"apply": "bit<8> v; if (meta.w == 0) { v = 1; } else { v = 2; } meta.x = v + 1;"},
        {"apply": "bit<8> v; bit<8> w; w = v;"},
        {"apply": "hdr.g.setValid(); hdr.g = { 1, 2, 3, 4 };"},
        {"locals": REGISTER, "apply": "if (hdr.h.isValid()) { r.read(meta.x, (bit<32>)hdr.h.a[3:0]); }"},
        {"locals": REGISTER, "apply": "if (hdr.h.isValid()) { r.read(meta.x, (bit<32>)hdr.h.a & 15); }"},
        {"locals": REGISTER,
         "apply": "if (hdr.h.isValid() && hdr.h.a < 16) { r.read(meta.x, (bit<32>)hdr.h.a); }"},
        {"locals": REGISTER + TABLE.replace("@@", "meta.y: exact"),  # the control plane's is trusted
         "apply": "t.apply(); r.read(meta.x, (bit<32>)meta.x);"},
        {"parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) "
                   "{ 1: more; default: accept; } } state more { packet.extract(hdr.g); transition accept; }",
         "apply": "if (hdr.g.isValid()) { meta.x = hdr.h.a; }"},  # one header implies another
        {"parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) "
                   "{ 1: more; default: accept; } } state more { packet.extract(hdr.g); transition accept; }",
         "apply": "if (hdr.h.isValid() && hdr.h.a == 1 && standard_metadata.parser_error == error.NoError) "
                  "{ meta.x = hdr.g.a; }"},
        {"parser": "state start { packet.extract(hdr.s.next); transition select(hdr.s.last.a) "
                   "{ 1: start; default: accept; } }",
         "apply": "if (hdr.s[1].isValid()) { meta.x = hdr.s[0].a; }"},
        {"apply": "for (bit<8> i = 0; i < 3; i = i + 1) { if (hdr.s[i].isValid()) { meta.x = i; } }"},
    ],
)  # fmt: skip
def test_what_is_sure_is_not_found(tmp_path: Path, parts: dict[str, str]) -> None:
    assert findings(tmp_path, source(**parts)) == []


APPLY = """
    bit<8> v;
    meta.y = hdr.g.a;                       // b: a field of an invalid header
    hdr.h.b = meta.y;
    hdr.h.c = v;                            // c: what nothing has set
    bit<8> w = 7;
    r.read(w, (bit<32>)hdr.h.a);            // d: a register beyond its end
    hdr.h.d = w;
    hdr.g.b = 5;
    hdr.s[0].a = 6;
    bool hit = t.apply().hit;               // with fields of invalid headers in its key
    hdr.g.setValid();                       // its fields, that of them that was written before, too
    if (hit) { hdr.g.c = meta.x; }
"""
OWN_KEY = TABLE.replace(
    "@@; }",
    """hdr.g.b & 7: exact @name("masked"); hdr.g.b + 1: exact @name("sum"); hdr.s[0].a: exact; }
    const entries = { (5, 6, 6): a2(1); (0, 1, 0): a2(2); (0, 6, 6): a2(3); }""",
)


def outputs(choice: Choice | None, backend: str, frames: list[bytes]) -> list[bytes | None]:
    program = compile_source(source(APPLY, locals=REGISTER + OWN_KEY), name="t.p4", undefined=choice)
    pipeline = load(program, backend=backend, seed=3)  # type: ignore[arg-type]
    packets = [pipeline.ingress(frame, 1, now_us)[0] for now_us, frame in enumerate(frames)]
    return [pipeline.egress(packet, Copy(egress_port=1))[0] for packet in packets]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "c8 00 00 00 00 05 01 00"),
        (Choice.ZERO, "c8 00 00 00 00 00 02 00"),
        (Choice.BMV2, "c8 00 00 07 00 00 03 00"),
    ],
)
def test_each_choice_is_as_it_says(choice: Choice | None, expected: str) -> None:
    frame = bytes.fromhex("c8010203")
    assert outputs(choice, "interpreter", [frame]) == [bytes.fromhex(expected)]


@pytest.mark.parametrize("choice", list(Choice))
def test_both_back_ends_choose_alike(choice: Choice) -> None:
    rng = random.Random(5)
    frames = [rng.randbytes(rng.randrange(2, 12)) for _ in range(40)]
    assert outputs(choice, "compiled", frames) == outputs(choice, "interpreter", frames)


def test_random_values_differ_from_packet_to_packet() -> None:
    left = outputs(Choice.RANDOM, "interpreter", [bytes.fromhex("c8010203")] * 8)
    columns = list(zip(*(frame for frame in left if frame is not None), strict=True))
    assert {column[0] for column in columns[:1]} == {0xC8}
    assert all(len(set(column)) > 1 for column in columns[1:])


def test_many_variables_of_an_action_are_emitted_in_some_calls_for_each() -> None:
    """The whole action was once walked for each of its variables: 18 million calls."""
    body = "".join(f"bit<8> v{i} = hdr.h.a + {i}; meta.x = v{i};" for i in range(400))
    profile = cProfile.Profile()
    profile.runcall(emit_c, lowered("act();", locals=f"action act() {{ {body} }}"))
    assert sum(entry.callcount for entry in profile.getstats()) < 2_000_000


SQUARES = "const int a0 = 1 << 5000;" + "".join(f"const int a{i + 1} = a{i} * a{i};" for i in range(40))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("const bit<8> x = 0x" + "f" * 50_000 + ";", "a number of 200000 bits"),
        ("const bit<8> x = 8w0b" + "1" * 50_000 + ";", "a number of 50000 bits"),
        ("const bit<8> x = " + "9" * 5_000 + "w1;", "too many digits"),
        ("const bit<8> x = 99999999999w1;", "a number of 99999999999 bits"),
        ("const int x = 1 << 0x" + "f" * 50_000 + ";", "a number of 200000 bits"),
        (SQUARES, "a number of 20001 bits"),
    ],
    ids=["hexadecimal", "binary", "width", "wide", "shift", "squares"],
)
def test_a_number_too_large_is_refused_with_its_size(program: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_source(program)
