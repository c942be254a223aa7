"""The tables of docs/p4-support.md: each row has programs that are accepted, or refused as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softswitch.compiler import CompileError, compile_source
from softswitch.engine.emit_c.program import emit_c
from softswitch.engine.interpreter.pipeline import Interpreter
from tests.softswitch.constructs import ROWS

PAGE = (Path(__file__).parents[2] / "docs/p4-support.md").read_text()


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
