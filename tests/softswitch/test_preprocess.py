"""Includes, macros and what becomes of positions."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend.lexer import tokenize
from softswitch.compiler.frontend.preprocess import preprocess

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


def test_conditions():
    source = "#if LANES == 32\na\n#elif LANES > 60 && defined(X)\nb\n#else\nc\n#endif\n#ifdef X\nd\n#endif"
    assert words(source, defines={"LANES": "32"}) == "a"
    assert words(source, defines={"LANES": "64", "X": ""}) == "b d"
    assert words(source) == "c"


def test_macros_with_and_without_parameters():
    source = "#define N 4\n#define F(x, y) ((x) + (y) * N)\nF(a, b(1, 2)) N #undef\n"
    assert words(source.replace(" #undef", "")) == "( ( a ) + ( b ( 1 , 2 ) ) * 4 ) 4"


def test_macros_paste_tokens():
    assert words("#define F(n) lane_##n\nF(1) F(2)") == "lane_1 lane_2"


def test_text_around_a_macro_keeps_its_place():
    source = "#define A aa bb\n#define LONGER b\n  x A y\n  LONGER, A;\nz"
    assert places(source) == [
        ("x", "main.p4:3:3"),
        ("aa", "main.p4:3:5"),
        ("bb", "main.p4:3:5"),
        ("y", "main.p4:3:7"),
        ("b", "main.p4:4:3"),
        (",", "main.p4:4:9"),
        ("aa", "main.p4:4:11"),
        ("bb", "main.p4:4:11"),
        (";", "main.p4:4:12"),
        ("z", "main.p4:5:1"),
    ]


def test_an_expansion_does_not_touch_its_neighbours():
    source = "#define P PortId_t\nP       a;\nP b; P\n"
    assert words(source) == "PortId_t a ; PortId_t b ; PortId_t"


def test_the_text_of_comments_and_directives_does_not_move_positions():
    source = "a /* x\n y */ b // c\n\n\n#define X\n\n\n\n\n\n\n\n\n\n\nc \\\n d"
    assert places(source) == [
        ("a", "main.p4:1:1"),
        ("b", "main.p4:2:7"),
        ("c", "main.p4:16:1"),
        ("d", "main.p4:17:2"),
    ]


def test_line_markers_in_the_input_hold():
    assert places('#line 9 "x.p4"\na\n\n b') == [("a", "x.p4:9:1"), ("b", "x.p4:11:2")]


def test_a_comment_may_end_the_file_without_a_newline():
    assert words("a // b") == "a"
    assert words("// b") == ""


# --------------------------------------------------------------------------- invariants


@pytest.mark.parametrize("lanes", ["32", "256"])
def test_the_output_preprocesses_to_itself(lanes: str):
    path = P4_SOURCES / "exclusive.p4"
    once = preprocess(path.read_text(), str(path), defines={"LANES": lanes})
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
