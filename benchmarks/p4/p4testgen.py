"""Tests that p4testgen makes of programs for Tofino, on the embedded switch: passed, failed or refused.

``python -m benchmarks.p4.p4testgen -I P4INCLUDE NAME=FOLDER… [--output docs/results]`` has ``p4testgen``
(p4c, built with ``-DENABLE_TEST_TOOLS=ON -DENABLE_TOFINO=ON``) find paths through every program of each
folder, for each chip that it includes an architecture of: for each a packet, the entries that it meets, and
what must leave where; with ``--as PTF`` also what the registers hold that it meets, and with ``--slots``, of
our own programs, only packets that meet a slot. P4INCLUDE are the folders of ``core.p4`` and of ``tna.p4``,
with ``--slots`` also that of ``testgen.p4``. Each test runs in both back ends, on a switch of its own;
nothing else may leave:

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
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from benchmarks.fill import asked, check, console, option, publish
from benchmarks.p4.ptf_scripts import scripts_of
from benchmarks.p4.tofino_programs import programs_in
from softswitch.compiler import CompileError, compile_file, ir
from softswitch.stf import ScriptError, parse_script, run_script
from softswitch.stf.script import NoPacket, PacketLine, ScriptCommand, Statement

CHIPS: Final = {"tofino": ("tna", "0:63"), "tofino2": ("t2na", "8:71")}
"""Of each chip: the architecture, and the ports that tests may use, as p4c's own tests have them."""
FORMS: Final = {"STF": "stf", "PTF": "py"}
"""What p4testgen can write tests as, and how its files end."""
SLOTS: Final = "PTF, slots"
"""The form of tests that meet slots only."""
ASSUMED: Final = {
    "exclusive": (
        ("#include <core.p4>", "#include <core.p4>\n#include <testgen.p4>"),
        (
            "        bool fits = false;",
            "        bool fits = false;\n        testgen_assume(hdr.ina.isValid());",
        ),
        (
            "            bool known = member.apply().hit;",
            "            bool known = member.apply().hit;\n"
            "            testgen_assume(known && fits && hdr.ina.flags[7:7] == 0);",
        ),
        ("meta.bad_checksum == 1", "false"),
    ),
    "shared": (
        ("#include <core.p4>", "#include <core.p4>\n#include <testgen.p4>"),
        (
            "        bool fits = false;",
            "        bool fits = false;\n        testgen_assume(hdr.ina.isValid());",
        ),
        (
            "            if (meta.bad_checksum == 1) {",
            "            testgen_assume(meets && fits);\n            if (false) {",
        ),
    ),
}
"""What p4testgen is told to assume of packets, in a copy of a program of ours: that they are whole, known to
a job, and meet a slot. It cannot tell a right checksum from a wrong one, so packets get theirs afterwards."""
SEED: Final = 1000
BACKENDS: Final[tuple[Literal["compiled", "interpreter"], ...]] = ("compiled", "interpreter")
OUTCOMES: Final = ("passed", "failed", "refused")

_IPV4 = slice(14, 34)
"""An IPv4 header without options in a frame."""
_ERROR = re.compile(r"^(?:[^\s(]+\(\d+\): )?(?:\[--Werror=[\w-]+\] )?error: (.*)$", re.MULTILINE)
_PROBLEM = re.compile(r"^(?:Compiler Bug|Unimplemented compiler support).*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a program's tests.

    `outcomes` are counts by the names of OUTCOMES; `why` tells what became of those that did not pass, a
    message for each cause with the number of tests; `no_tests` why p4testgen made none. `form` is how
    p4testgen wrote them: a key of FORMS, or SLOTS; `slots` counts those that meet registers.
    """

    source: str
    program: str
    chip: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, int] = field(default_factory=dict)
    no_tests: str = ""
    form: str = "STF"
    slots: int = 0


def main() -> None:
    """Run the command."""
    args = _arguments()
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
        tables = _tables(found)
        publish(args.output, "p4testgen", tables, [asdict(each) for each in found])


def published(path: Path) -> list[Found]:
    """Return the rows of an earlier run; none if the file is not there."""
    if not path.exists():
        return []
    return [Found(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def _key(found: Found) -> tuple[str, str, str, str]:
    return found.source, found.chip, found.form, found.program


def _tables(found: Sequence[Found]) -> str:
    return f"{counts(found)}\n\n{exceptions(found)}"


def _arguments() -> argparse.Namespace:
    return asked(
        __doc__,
        option("folders", nargs="+", metavar="NAME=FOLDER"),
        option("--p4testgen", default="p4testgen", metavar="COMMAND", help="its name or path"),
        option("-I", dest="includes", type=Path, action="append", default=[], metavar="DIR"),
        option("--as", dest="form", choices=FORMS, default="STF", help="have tests written so (STF)"),
        option("--chip", choices=CHIPS, help="for this chip only (both)"),
        option(
            "--slots", action="store_true", help="of our own programs, only packets that meet a slot, as PTF"
        ),
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


def _all(args: argparse.Namespace) -> Iterator[Found]:
    for item in args.folders:
        name, _, folder = item.partition("=")
        one = partial(
            _one,
            name,
            Path(folder),
            form=SLOTS if args.slots else args.form,
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


def _one(
    source: str,
    root: Path,
    path: Path,
    chip: str,
    *,
    form: str,
    command: Sequence[str],
    tests: int,
    time_limit_s: float,
) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        asked, kind = (assuming(path, Path(folder)), "PTF") if form == SLOTS else (path, form)
        to = Path(folder)
        why_not = made(asked, chip, to, form=kind, command=command, tests=tests, time_limit_s=time_limit_s)
        scripts = [script for file in sorted(Path(folder).glob(f"*.{FORMS[kind]}")) for script in _read(file)]
    if form == SLOTS:
        scripts = [each if isinstance(each, ScriptError) else list(map(summed, each)) for each in scripts]
    if not scripts:
        return Found(source, path.stem, chip, no_tests=why_not, form=form)
    slots = sum(
        any(isinstance(s, ScriptCommand) for s in script) for script in scripts if isinstance(script, list)
    )
    try:
        version = str(list(CHIPS).index(chip) + 1)
        program = compile_file(path, defines={"__TARGET_TOFINO__": version}, include_dirs=[root])
    except CompileError as error:
        refused = {f"not compiled: {error.message}": len(scripts)}
        return Found(source, path.stem, chip, {"refused": len(scripts)}, refused, form=form, slots=slots)
    results = [judged(program, script) for script in scripts]
    outcomes = Counter(outcome for outcome, _ in results)
    why = Counter(why for _, why in results if why)
    return Found(source, path.stem, chip, dict(outcomes), dict(why), form=form, slots=slots)


def _read(file: Path) -> Iterator[list[Statement] | ScriptError]:
    """Yield the tests of a file, or the reason why one cannot be read."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from scripts_of(text)
        return
    try:
        yield parse_script(text)
    except ScriptError as error:
        yield error


def assuming(path: Path, folder: Path) -> Path:
    """Copy a program of ours, with what is around it, and ASSUMED into it. Raises SystemExit for others."""
    copied = folder / "p4src" / path.relative_to(path.parents[1])
    shutil.copytree(path.parents[1], folder / "p4src")
    text = copied.read_text(encoding="utf-8")
    for place, assumed in ASSUMED.get(path.stem, (("", ""),)):
        if not place or place not in text:
            raise SystemExit(f"benchmarks.p4.p4testgen: {path} has no {place!r} to assume something at")
        text = text.replace(place, assumed, 1)
    copied.write_text(text, encoding="utf-8")
    return copied


def summed(statement: Statement) -> Statement:
    """Return a statement; a packet gets the checksum that its IPv4 header should have."""
    if not isinstance(statement, PacketLine) or len(statement.data) < _IPV4.stop:
        return statement
    header = bytearray(statement.data[_IPV4])
    header[10:12] = bytes(2)
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    header[10:12] = ((0xFFFF - total % 0xFFFF) % 0xFFFF).to_bytes(2, "big")
    return replace(statement, data=statement.data[: _IPV4.start] + header + statement.data[_IPV4.stop :])


def made(
    path: Path, chip: str, folder: Path, *, form: str, command: Sequence[str], tests: int, time_limit_s: float
) -> str:
    """Have p4testgen write tests of a program into a folder.

    Args:
        path: The program.
        chip: A key of CHIPS.
        folder: The tests get there.
        form: A key of FORMS.
        command: p4testgen, where it finds included files, and further options.
        tests: How many at most.
        time_limit_s: It is stopped after so long; what it has written stays.

    Returns:
        Its error; "" if it had none.
    """
    arch, ports = CHIPS[chip]
    asked = [
        *command,
        *("--target", chip, "--arch", arch, f"-D__TARGET_TOFINO__={list(CHIPS).index(chip) + 1}"),
        *("--test-backend", form, "--port-ranges", ports, "--seed", str(SEED)),
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


def chips_of(root: Path, path: Path) -> tuple[str, ...]:
    """Return the chips that a program is for: as its path below `root` says, else as its includes do."""
    told = re.search("(tofino2|t2na)|(tofino1)", str(path.relative_to(root)))
    if told:
        return ("tofino2",) if told[1] else ("tofino",)
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
    """Return a message without what belongs to one packet: bytes and numbers."""
    message = re.sub(r"\b(?:[0-9A-F]{2}){1,4}(?: (?:[0-9A-F]{2}){1,4})*\b", "…", message)
    return re.sub(r"\b(0x)?\d+\b", "…", message)


def counts(found: Sequence[Found]) -> str:
    """Return the table of programs and tests by source, chip and form of tests."""
    head = (
        "| programs of | chip | as | programs | with tests | tests | registers | passed | failed | refused |"
    )
    lines = [head, "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for group in dict.fromkeys((each.source, each.chip, each.form) for each in found):
        rows = [each for each in found if (each.source, each.chip, each.form) == group]
        total = sum((Counter(each.outcomes) for each in rows), Counter[str]())
        tested, slots = sum(not each.no_tests for each in rows), sum(each.slots for each in rows)
        numbers = [len(rows), tested, total.total(), slots, *(total[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {' | '.join(group)} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def exceptions(found: Sequence[Found]) -> str:
    """Return the table of what did not pass, program by program, and of programs without tests."""
    lines = ["| program | chip | as | tests | what became of them |", "| --- | --- | --- | ---: | --- |"]
    for each in found:
        name = f"{each.source}: {each.program} | {each.chip} | {each.form}"
        if each.no_tests:
            lines.append(f"| {name} | none | p4testgen: {_cell(each.no_tests)} |")
        for why, number in each.why.items():
            lines.append(f"| {name} | {number} of {sum(each.outcomes.values())} | {_cell(why)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
