"""Tokens and their positions."""

import pytest

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend.lexer import integer, string, tokenize


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source, "f")[:-1]]


def places(source: str) -> list[tuple[str, str]]:
    return [(token.text, str(token.pos)) for token in tokenize(source, "f")[:-1]]


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


def test_a_number_without_digits_is_refused():
    (token,) = tokenize("0x_", "f")[:-1]
    with pytest.raises(CompileError, match="no digits"):
        integer(token)


def test_a_number_beyond_python_s_limit_is_refused():
    (token,) = tokenize("9" * 5000, "f")[:-1]
    with pytest.raises(CompileError, match="too many digits"):
        integer(token)


def test_strings_know_two_escapes():
    (token,) = tokenize(r'"a\"b\\c\n"', "f")[:-1]
    assert string(token) == r'a"b\c\n'


def test_positions_count_from_one():
    assert places("a\n  b /* x\n y */ c // d\ne") == [
        ("a", "f:1:1"),
        ("b", "f:2:3"),
        ("c", "f:3:7"),
        ("e", "f:4:1"),
    ]


def test_line_markers_name_file_and_line():
    source = 'a\n#line 10 "g"\nb\n c\n# 3 "h" 1 2\nd\n# 7\ne'
    assert places(source) == [
        ("a", "f:1:1"),
        ("b", "g:10:1"),
        ("c", "g:11:2"),
        ("d", "h:3:1"),
        ("e", "h:7:1"),
    ]


def test_a_line_marker_with_column_holds_until_the_next_one():
    source = '#line 4 "g" 9\na b\n c\n#line 5 "g"\nd'
    assert places(source) == [("a", "g:4:9"), ("b", "g:4:9"), ("c", "g:4:9"), ("d", "g:5:1")]


def test_the_end_has_a_position():
    assert str(tokenize("a\nbc", "f")[-1].pos) == "f:2:3"
    assert str(tokenize("", "f")[-1].pos) == "f:1:1"


@pytest.mark.parametrize(("source", "message"), [("a /* b", "comment"), ('a\n"b', "string")])
def test_comments_and_strings_must_end(source: str, message: str):
    with pytest.raises(CompileError, match=f"this {message} has no end"):
        tokenize(source, "f")


def test_a_pragma_is_one_token_up_to_the_end_of_its_line():
    assert texts("@pragma name a b c\nd") == ["@pragma name a b c", "d"]
