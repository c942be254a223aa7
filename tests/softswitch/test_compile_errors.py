"""What users see when a program is wrong: compile_errors.txt has bad programs, and what is said of each.

``pytest tests/softswitch/test_compile_errors.py --update-golden`` rewrites what is said.
"""

import re
from pathlib import Path

import pytest

from softswitch.compiler import CompileError, Unsupported, compile_file
from softswitch.compiler.ir import Position

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
