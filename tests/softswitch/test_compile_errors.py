"""What users see when a program is wrong: one golden file beside each bad program.

``pytest tests/softswitch/test_compile_errors.py --update-golden`` rewrites them.
"""

from pathlib import Path

import pytest

from softswitch.compiler import CompileError, Unsupported, compile_file
from softswitch.compiler.ir import Position

FOLDER = Path(__file__).parent / "compile_errors"
PROGRAMS = sorted(FOLDER.glob("*.p4"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_message(program: Path, update_golden: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(FOLDER)
    with pytest.raises(CompileError) as caught:
        compile_file(program.name)
    rendered = caught.value.render() + "\n"
    golden = program.with_suffix(".expected")
    if update_golden:
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_every_golden_file_has_its_program():
    assert {path.stem for path in FOLDER.glob("*.expected")} == {path.stem for path in PROGRAMS}


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
