"""Damaged programs through the compiler: refused with a place, or compiled; nothing else happens.

A case drops, doubles, swaps and replaces some tokens of a program, but, nine times of ten, none of core.p4
and v1model.p4, and compiles it to C, with every choice for undefined values. Any exception other than
`CompileError` is a defect.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from softswitch import compiler
from softswitch.compiler import Choice, CompileError, compile_source, preprocess_file
from softswitch.compiler.frontend.lexer import tokenize
from softswitch.compiler.ir.verify import verify_program
from softswitch.engine.emit_c import emit_c

ROOT = Path(__file__).parents[3]
SIZES = {"LANES": "32", "SLOTS": "64"}
"""Definitions that make our own programs small."""
REFUSED = "no program"
"""The outcome of a case whose program does not compile."""


def program_files(folder: Path | None) -> Sequence[Path]:
    """Return all programs below a folder: without one, the tests' and our own."""
    if folder is not None:
        return sorted(folder.rglob("*.p4"))
    return [*sorted((ROOT / "tests").rglob("*.p4")), *sorted((ROOT / "p4src").glob("*.p4"))]


INCLUDES = Path(compiler.__file__).parent / "include"
MOST_TOKENS = 4000
"""Longer programs take too long to be damaged often."""
STRANGE = (
    "0",
    "-1",
    "8w255",
    "32w0xffffffff",
    "(",
    ")",
    "{",
    "}",
    ";",
    ".",
    "<",
    ">",
    "in",
    "out",
    "bit",
    "_",
)


def cases(seed: int, corpus: Path | None) -> Callable[[int], str]:
    """Return a function that tries one case by its number and returns its outcome. It raises defects."""
    found = programs(corpus)

    def case(number: int) -> str:
        rng = random.Random(f"{seed}/{number}")
        text = damaged(rng.choice(found), found, rng)
        try:
            return tried(text)
        except Exception as error:
            error.add_note(f"the program:\n{text}")
            raise

    return case


Program = tuple[list[str], list[str]]
"""The tokens of our included files, and its own."""


def programs(folder: Path | None) -> list[Program]:
    """Return all programs of the corpus that the front end can read."""
    found = []
    for path in program_files(folder):
        try:
            text = preprocess_file(path, defines=SIZES)
            tokens = [token for token in tokenize(text, str(path)) if token.text]
        except CompileError:
            continue
        ours, own = (
            [token.text for token in tokens if token.pos.file.startswith(str(INCLUDES)) is included]
            for included in (True, False)
        )
        if own and len(tokens) <= MOST_TOKENS:
            found.append((ours, own))
    return found


def damaged(program: Program, corpus: Sequence[Program], rng: random.Random) -> str:
    """Return a program with one to four changes, most of them errors."""
    ours, own = list(program[0]), list(program[1])
    tokens = ours if ours and rng.random() < 0.1 else own
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = tokens[other]
            case 4:
                tokens[at] = rng.choice(STRANGE)
            case _:
                tokens[at] = rng.choice(rng.choice(corpus)[1])
    return " ".join((*ours, *own))


def tried(text: str) -> str:
    """Compile a program in every way, and return the outcome. Raises defects."""
    try:
        for choice in (None, *Choice):
            program = compile_source(text, name="fuzzed.p4", preprocessed=True, undefined=choice)
            verify_program(program)
            emit_c(program)
    except CompileError as error:
        error.render({"fuzzed.p4": text})
        return error.kind
    return "compiled"
