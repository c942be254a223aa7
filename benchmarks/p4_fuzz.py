"""Fuzz of the P4 front end: damaged programs are refused with a place, or compile; nothing else happens.

``python -m benchmarks.p4_fuzz --seconds 3600`` takes programs (those of ``tests/`` and ``p4src/``, or those
of ``--corpus``), drops, doubles, swaps and replaces some of their tokens, but none of core.p4 and v1model.p4,
and compiles them to C, with every choice for undefined values. Whatever is no `CompileError` is a defect; it
ends the run with the program that made it, which ``--seed`` brings back.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from softswitch import compiler
from softswitch.compiler import Choice, CompileError, compile_source, preprocess_file
from softswitch.compiler.frontend.lexer import tokenize
from softswitch.compiler.ir.verify import verify_program
from softswitch.engine.emit_c.program import emit_c

ROOT = Path(__file__).parents[1]
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


def main() -> None:
    """Run for some time, or until a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder of other programs")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    corpus = programs(asked.corpus)
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + asked.seconds
    while time.monotonic() < until:
        text = damaged(rng.choice(corpus), corpus, rng)
        try:
            outcomes[tried(text)] += 1
        except Exception:
            traceback.print_exc()
            sys.exit(f"after {outcomes.total()} programs, this one:\n{text}")
    print(f"{outcomes.total()} programs: {dict(outcomes)}")


Program = tuple[list[str], list[str]]
"""The tokens of what it includes of ours, and its own."""


def programs(folder: Path | None) -> list[Program]:
    """Return all programs of the corpus that the front end can read."""
    paths = sorted((folder or ROOT / "tests").rglob("*.p4")) + sorted((ROOT / "p4src").glob("*.p4"))
    found = []
    for path in paths:
        try:
            text = preprocess_file(path, defines={"LANES": "32"})
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
    """Return a program with one to four things wrong, most of the time."""
    ours, tokens = program[0], list(program[1])
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
    return " ".join((*ours, *tokens))


def tried(text: str) -> str:
    """Compile a program in every way, and return what became of it. Raises whatever is a defect."""
    try:
        for choice in (None, *Choice):
            program = compile_source(text, name="fuzzed.p4", preprocessed=True, undefined=choice)
            verify_program(program)
            emit_c(program)
    except CompileError as error:
        error.render({"fuzzed.p4": text})
        return error.kind
    return "compiled"


if __name__ == "__main__":
    main()
