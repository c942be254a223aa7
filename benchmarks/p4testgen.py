"""Tests that p4testgen makes of programs for Tofino, on the embedded switch: passed, failed or refused.

``python -m benchmarks.p4testgen -I P4INCLUDE NAME=FOLDER… [--output docs/results]`` has ``p4testgen`` (p4c,
built with ``-DENABLE_TEST_TOOLS=ON -DENABLE_TOFINO=ON``) find paths through every program of each folder: for
each a packet, the entries that it meets, and what must leave where. P4INCLUDE are the folders of ``core.p4``
and of ``tna.p4``. Each test runs in both back ends, on a switch of its own; nothing else may leave:

passed    in both, what leaves is what p4testgen expects;
failed    in one at least it is not;
refused   the program does not compile here, or a test asks for what a script cannot set.

A program for which p4testgen makes no test counts as such, with p4testgen's own error. Nothing is written to
the folders of programs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from benchmarks.fill import check, console, publish
from benchmarks.tofino_programs import programs_in
from softswitch.compiler import CompileError, compile_file, ir
from softswitch.stf import ScriptError, parse_script, run_script
from softswitch.stf.script import NoPacket

CHIPS: Final = {"tofino": ("tna", "0:63"), "tofino2": ("t2na", "8:71")}
"""Of each chip: the architecture, and the ports that tests may use, as p4c's own tests have them."""
SEED: Final = 1000
BACKENDS: Final[tuple[Literal["compiled", "interpreter"], ...]] = ("compiled", "interpreter")
OUTCOMES: Final = ("passed", "failed", "refused")

_ERROR = re.compile(r"^(?:[^\s(]+\(\d+\): )?(?:\[--Werror=[\w-]+\] )?error: (.*)$", re.MULTILINE)
_PROBLEM = re.compile(r"^(?:Compiler Bug|Unimplemented compiler support).*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a program's tests.

    `outcomes` are counts by the names of OUTCOMES; `why` tells what became of those that did not pass, a
    message for each cause with the number of tests; `no_tests` why p4testgen made none.
    """

    source: str
    program: str
    chip: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, int] = field(default_factory=dict)
    no_tests: str = ""


def main() -> None:
    """Run the command."""
    args = _arguments()
    if shutil.which(args.p4testgen) is None:
        raise SystemExit(
            f"benchmarks.p4testgen: {args.p4testgen} is not on PATH: build p4c with -DENABLE_TEST_TOOLS=ON"
            " -DENABLE_TOFINO=ON"
        )
    if args.output:
        check(args.output / "p4testgen.md")
    found = list(_all(args))
    console().print(_tables(found), markup=False, highlight=False)
    if args.output:
        both = {_key(each): each for each in (*published(args.output / "p4testgen.json"), *found)}
        found = [both[key] for key in sorted(both)]
        tables = _tables(found)
        publish(args.output, "p4testgen", tables, [asdict(each) for each in found])


def published(path: Path) -> list[Found]:
    """Return the rows of an earlier run; none if the file is not there."""
    if not path.exists():
        return []
    return [Found(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def _key(found: Found) -> tuple[str, str, str]:
    return found.source, found.chip, found.program


def _tables(found: Sequence[Found]) -> str:
    return f"{counts(found)}\n\n{exceptions(found)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.p4testgen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--p4testgen", default="p4testgen", metavar="COMMAND", help="its name or path")
    parser.add_argument("-I", dest="includes", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--tests", type=int, default=100, help="tests of a program, at most (100)")
    parser.add_argument("--time-limit", type=float, default=300, metavar="S", help="for a program (300)")
    parser.add_argument("--processes", type=int, default=2, help="programs at a time (2)")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write p4testgen.md and .json; rows of other programs stay"
    )
    return parser.parse_args()


def _all(args: argparse.Namespace) -> Iterator[Found]:
    for item in args.folders:
        name, _, folder = item.partition("=")
        one = partial(
            _one,
            name,
            Path(folder),
            command=[args.p4testgen, *(f"-I{path.resolve()}" for path in args.includes)],
            tests=args.tests,
            time_limit_s=args.time_limit,
        )
        with ProcessPoolExecutor(args.processes) as pool:
            yield from pool.map(one, programs_in(Path(folder)))


def _one(
    source: str, root: Path, path: Path, *, command: Sequence[str], tests: int, time_limit_s: float
) -> Found:
    chip = chip_of(path.relative_to(root))
    with tempfile.TemporaryDirectory() as folder:
        why_not = made(path, chip, Path(folder), command=command, tests=tests, time_limit_s=time_limit_s)
        scripts = sorted(Path(folder).glob("*.stf"))
        if not scripts:
            return Found(source, path.stem, chip, no_tests=why_not)
        try:
            version = str(list(CHIPS).index(chip) + 1)
            program = compile_file(path, defines={"__TARGET_TOFINO__": version}, include_dirs=[root])
        except CompileError as error:
            refused = {f"not compiled: {error.message}": len(scripts)}
            return Found(source, path.stem, chip, {"refused": len(scripts)}, refused)
        results = [judged(program, script.read_text(encoding="utf-8")) for script in scripts]
    outcomes = Counter(outcome for outcome, _ in results)
    why = Counter(why for _, why in results if why)
    return Found(source, path.stem, chip, dict(outcomes), dict(why))


def made(
    path: Path, chip: str, folder: Path, *, command: Sequence[str], tests: int, time_limit_s: float
) -> str:
    """Have p4testgen write tests of a program into a folder, as STF.

    Args:
        path: The program.
        chip: A key of CHIPS.
        folder: The tests get there.
        command: p4testgen, and where it finds included files.
        tests: How many at most.
        time_limit_s: It is stopped after so long; what it has written stays.

    Returns:
        Its error; "" if it had none.
    """
    arch, ports = CHIPS[chip]
    asked = [
        *command,
        *("--target", chip, "--arch", arch, f"-D__TARGET_TOFINO__={list(CHIPS).index(chip) + 1}"),
        *("--test-backend", "STF", "--port-ranges", ports, "--seed", str(SEED)),
        *("--max-tests", str(tests), "--out-dir", str(folder), str(path)),
    ]
    try:
        done = subprocess.run(
            asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=time_limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"no test in {time_limit_s:g} s"
    if not done.returncode:
        return "it finds no path that it can test"
    said = _ERROR.findall(done.stdout) or _PROBLEM.findall(done.stdout) or done.stdout.splitlines()[-1:]
    return said[0] if said else f"it ended with {done.returncode}"


def chip_of(path: Path) -> str:
    """Return the chip that a program, whose path tells it, is for."""
    return "tofino2" if re.search("tofino2|t2na", str(path)) else "tofino"


def judged(program: ir.Program, script: str) -> tuple[str, str]:
    """Run a test in both back ends; return its outcome (of OUTCOMES), and why if it did not pass."""
    try:
        statements = [*parse_script(script), NoPacket(0)]
        reports = {each: run_script(program, statements, backend=each) for each in BACKENDS}
    except ScriptError as error:
        return "refused", _general(error.message)
    wrong = [report.failures[0].message for report in reports.values() if not report.passed]
    if not wrong:
        return "passed", ""
    return "failed", _general(wrong[0])


def _general(message: str) -> str:
    """Return a message without what belongs to one packet: bytes and numbers."""
    message = re.sub(r"\b(?:[0-9A-F]{2}){1,4}(?: (?:[0-9A-F]{2}){1,4})*\b", "…", message)
    return re.sub(r"\b(0x)?\d+\b", "…", message)


def counts(found: Sequence[Found]) -> str:
    """Return the table of programs and tests by source and chip."""
    head = "| programs of | chip | programs | with tests | tests | passed | failed | refused |"
    lines = [head, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for source, chip in dict.fromkeys((each.source, each.chip) for each in found):
        rows = [each for each in found if (each.source, each.chip) == (source, chip)]
        total = sum((Counter(each.outcomes) for each in rows), Counter[str]())
        tested = sum(not each.no_tests for each in rows)
        numbers = [len(rows), tested, total.total(), *(total[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {source} | {chip} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def exceptions(found: Sequence[Found]) -> str:
    """Return the table of what did not pass, program by program, and of programs without tests."""
    lines = ["| program | tests | what became of them |", "| --- | ---: | --- |"]
    for each in found:
        name = f"{each.source}: {each.program}"
        if each.no_tests:
            lines.append(f"| {name} | none | p4testgen: {_cell(each.no_tests)} |")
        for why, number in each.why.items():
            lines.append(f"| {name} | {number} of {sum(each.outcomes.values())} | {_cell(why)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
