"""Tests that p4testgen makes of programs for Tofino, on the embedded switch: passed, failed or refused.

``python -m benchmarks.p4.p4testgen -I P4INCLUDE NAME=FOLDER… [--output docs/results]`` runs ``p4testgen``
(p4c, built with ``-DENABLE_TEST_TOOLS=ON -DENABLE_TOFINO=ON``) on every program of each folder, for each chip
whose architecture it includes. It finds paths, and for each a packet, the matching entries, and the expected
packets with their ports. P4INCLUDE are the folders of ``core.p4`` and of ``tna.p4``. Each test runs in both
back ends, on a switch of its own; no other packet may leave:

passed    the packets are as p4testgen expects in both back ends;
failed    they differ in at least one;
refused   the program does not compile here, or a test needs a setting that a script lacks.

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

from benchmarks.fill import check, console, option, parse_options, publish
from bmv2_topos.harness import markdown
from controller.vocabulary.lists import by_key
from softswitch.compiler import CompileError, compile_file, ir
from softswitch.stf import ScriptError, parse_script, run_script
from softswitch.stf.script import NoPacket, Statement

CHIPS: Final = {"tofino": ("tna", "0:63"), "tofino2": ("t2na", "8:71")}
"""The architecture of each chip, and the ports for tests, as in p4c's own tests."""
SEED: Final = 1000
BACKENDS: Final[tuple[Literal["compiled", "interpreter"], ...]] = ("compiled", "interpreter")
OUTCOMES: Final = ("passed", "failed", "refused")

_MAIN = re.compile(r"\bmain\s*;")
P4C_ERROR = re.compile(r"^(?:[^\s(]+\(\d+\): )?(?:\[--Werror=[\w-]+\] )?error: (.*)$", re.MULTILINE)
_PROBLEM = re.compile(r"^(?:Compiler Bug|Unimplemented compiler support).*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a program's tests.

    `outcomes` are counts by the names of OUTCOMES; `why` has the message of each cause of
    failure or refusal, with the number of tests; `no_tests` the reason for which p4testgen made none.
    """

    source: str
    program: str
    chip: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, int] = field(default_factory=dict)
    no_tests: str = ""


def main() -> None:
    """Run the command."""
    args = parse_options(
        __doc__,
        option("folders", nargs="+", metavar="NAME=FOLDER"),
        option("--p4testgen", default="p4testgen", metavar="COMMAND", help="its name or path"),
        option("-I", dest="includes", type=Path, action="append", default=[], metavar="DIR"),
        option("--chip", choices=CHIPS, help="for this chip only (both)"),
        option("--option", action="append", default=[], help="of p4testgen, besides; may be repeated"),
        option("--tests", type=int, default=100, help="tests of a program, at most (100)"),
        option("--time-limit", type=float, default=300, metavar="S", help="for a program (300)"),
        option("--processes", type=int, default=2, help="programs at a time (2)"),
        option(
            "--output",
            type=Path,
            metavar="DIR",
            help="write p4testgen.md and .json; rows of other programs stay",
        ),
        prog="python -m benchmarks.p4.p4testgen",
    )
    if shutil.which(args.p4testgen) is None:
        raise SystemExit(
            f"benchmarks.p4.p4testgen: {args.p4testgen} is not on PATH: build p4c with -DENABLE_TEST_TOOLS=ON"
            " -DENABLE_TOFINO=ON"
        )
    if args.output:
        check(args.output / "p4testgen.md")
    found = list(_all(args))
    console().print(_tables(found), markup=False, highlight=False)
    if args.output:
        both = {_key(each): each for each in (*published(args.output / "p4testgen.json"), *found)}
        found = [both[key] for key in sorted(both)]
        publish(args.output, "p4testgen", _tables(found), [asdict(each) for each in found])


def published(path: Path) -> list[Found]:
    """Return the rows of an earlier run; none if the file is not there."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [Found(**row) for row in rows]


def _key(found: Found) -> tuple[str, str, str]:
    return found.source, found.chip, found.program


def _tables(found: Sequence[Found]) -> str:
    return f"{counts(found)}\n\n{exceptions(found)}"


def _all(args: argparse.Namespace) -> Iterator[Found]:
    for item in args.folders:
        name, _, folder = item.partition("=")
        one = partial(
            _one,
            name,
            Path(folder),
            command=[args.p4testgen, *(f"-I{path.resolve()}" for path in args.includes), *args.option],
            tests=args.tests,
            time_limit_s=args.time_limit,
        )
        programs = programs_in(Path(folder))
        wanted = [(path, chip) for path in programs for chip in chips_of(Path(folder), path)]
        if args.chip:
            wanted = [(path, chip) for path, chip in wanted if chip == args.chip]
        with ProcessPoolExecutor(args.processes) as pool:
            yield from pool.map(one, *map(list, zip(*wanted, strict=True)))


def programs_in(folder: Path) -> list[Path]:
    """Return the files that instantiate `main`, below a folder. Raises SystemExit if there are none."""
    found = [
        path
        for path in sorted(folder.rglob("*.p4"))
        if _MAIN.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    if not found:
        raise SystemExit(f"{folder}: no program, a file that instantiates main, is there")
    return found


def _one(
    source: str,
    root: Path,
    path: Path,
    chip: str,
    *,
    command: Sequence[str],
    tests: int,
    time_limit_s: float,
) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        why_not = made(path, chip, Path(folder), command=command, tests=tests, time_limit_s=time_limit_s)
        scripts = [_read(file) for file in sorted(Path(folder).glob("*.stf"))]
    if not scripts:
        return Found(source, path.stem, chip, no_tests=why_not)
    try:
        version = str(list(CHIPS).index(chip) + 1)
        program = compile_file(path, defines={"__TARGET_TOFINO__": version}, include_dirs=[root])
    except CompileError as error:
        refused = {f"not compiled: {error.message}": len(scripts)}
        return Found(source, path.stem, chip, {"refused": len(scripts)}, refused)
    results = [judged(program, script) for script in scripts]
    outcomes = Counter(outcome for outcome, _ in results)
    why = Counter(why for _, why in results if why)
    return Found(source, path.stem, chip, dict(outcomes), dict(why))


def _read(file: Path) -> list[Statement] | ScriptError:
    """Return a test, or the reason for which it cannot be read."""
    try:
        return parse_script(file.read_text(encoding="utf-8"))
    except ScriptError as error:
        return error


def made(
    path: Path, chip: str, folder: Path, *, command: Sequence[str], tests: int, time_limit_s: float
) -> str:
    """Write tests of a program into a folder, by p4testgen.

    Args:
        path: The program.
        chip: A key of CHIPS.
        folder: The folder for the tests.
        command: p4testgen, with the folders of included files and further options.
        tests: Most tests.
        time_limit_s: Time after which it is stopped; its tests so far stay.

    Returns:
        Its error; "" if it had none.
    """
    arch, ports = CHIPS[chip]
    argv = [
        *command,
        *("--target", chip, "--arch", arch, f"-D__TARGET_TOFINO__={list(CHIPS).index(chip) + 1}"),
        *("--test-backend", "STF", "--port-ranges", ports, "--seed", str(SEED)),
        *("--max-tests", str(tests), "--out-dir", str(folder), str(path)),
    ]
    try:
        done = subprocess.run(
            argv,
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
    problems = (
        P4C_ERROR.findall(done.stdout) or _PROBLEM.findall(done.stdout) or done.stdout.splitlines()[-1:]
    )
    return problems[0] if problems else f"it ended with {done.returncode}"


def chips_of(root: Path, path: Path) -> tuple[str, ...]:
    """Return the chips that a program is for: as its path below `root` says, else as its includes do."""
    named = re.search("(tofino2|t2na)|(tofino1)", str(path.relative_to(root)))
    if named:
        return ("tofino2",) if named[1] else ("tofino",)
    included = re.findall(r"^#\s*include\W+(tna|t2na)\.p4", path.read_text(encoding="utf-8"), re.MULTILINE)
    return tuple(chip for chip, (arch, _) in CHIPS.items() if arch in included) or ("tofino",)


def judged(program: ir.Program, script: Sequence[Statement] | ScriptError) -> tuple[str, str]:
    """Run a test in both back ends; return its outcome (of OUTCOMES), and why if it did not pass."""
    if isinstance(script, ScriptError):
        return "refused", _general(script.message)
    try:
        statements = [*script, NoPacket(0)]
        reports = {each: run_script(program, statements, backend=each) for each in BACKENDS}
    except ScriptError as error:
        return "refused", _general(error.message)
    wrong = [report.failures[0].message for report in reports.values() if not report.passed]
    if not wrong:
        return "passed", ""
    return "failed", _general(wrong[0])


def _general(message: str) -> str:
    """Return a message without the bytes and numbers of one packet."""
    message = re.sub(r"\b(?:[0-9A-F]{2}){1,4}(?: (?:[0-9A-F]{2}){1,4})*\b", "…", message)
    return re.sub(r"\b(0x)?\d+\b", "…", message)


def counts(found: Sequence[Found]) -> str:
    """Return the table of programs and tests by source and chip."""
    lines = []
    for group, rows in by_key(((each.source, each.chip), each) for each in found).items():
        total = sum((Counter(each.outcomes) for each in rows), Counter[str]())
        tested = sum(not each.no_tests for each in rows)
        numbers = [len(rows), tested, total.total(), *(total[outcome] for outcome in OUTCOMES)]
        lines.append([*group, *map(str, numbers)])
    return markdown(["programs of", "chip", "programs", "with tests", "tests", *OUTCOMES], lines)


def exceptions(found: Sequence[Found]) -> str:
    """Return the table of tests that did not pass, by program, and of programs without tests."""
    lines = []
    for each in found:
        head, tests = [f"{each.source}: {each.program}", each.chip], sum(each.outcomes.values())
        lines += [[*head, "none", f"p4testgen: {each.no_tests}"]] if each.no_tests else []
        lines += [[*head, f"{number} of {tests}", why] for why, number in each.why.items()]
    return markdown(["program", "chip", "tests", "what became of them"], lines)


if __name__ == "__main__":
    main()
