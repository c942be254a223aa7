"""The list of passes: what each shows, and that a preprocessed program is the same program."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from softswitch.compiler import compile_file, compile_source, preprocess_file

PROGRAM = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
SMALL = Path(__file__).parent / "features" / "dropping" / "program.p4"
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
    assert dataclasses.replace(compile_source(text), name=whole.name) == whole
