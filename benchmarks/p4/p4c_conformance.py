"""p4c's own test programs through our compiler, counted by outcome and cause.

``python -m benchmarks.p4.p4c_conformance TESTDATA errors|samples|scripts [--json FILE]`` takes the folder
`testdata` of a clone of https://github.com/p4lang/p4c, and its `p4include` beside it:

errors   programs that p4c refuses. Each should be refused here, at a line that p4c names, too.
samples  programs that p4c accepts. Programs for v1model should compile; others are checked except
         for the parts that the architecture decides.
scripts  programs for v1model with a script in STF, compiled and interpreted. All should pass.

A program without a package, or with one of another architecture, is checked whole, too, for other errors.
Nothing is written there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.table import Table

from benchmarks.fill import console, option, parse_options
from benchmarks.p4.p4testgen import BACKENDS, P4C_ERROR
from controller.vocabulary.lists import by_key
from softswitch.compiler import CompileError, Unsupported, compile_file, p4info, preprocess_file
from softswitch.engine.emit_c import emit_c
from softswitch.stf import ScriptError, parse_script, run_script

NO_PACKAGE = "the program instantiates no package"
SHOWN = 5
"""Number of programs that a row of the table names."""

_P4C_PLACE = re.compile(r"^([^\s(]+)\((\d+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """Result for a program: `outcome`, its `cause`, our messages, and p4c's."""

    program: str
    outcome: str
    cause: str = ""
    messages: tuple[str, ...] = ()
    p4c: tuple[str, ...] = ()


def main() -> None:
    """Count one set of programs."""
    options = parse_options(
        __doc__,
        option("testdata", type=Path, help="read the programs of this folder testdata of a clone of p4c"),
        option("set", choices=_SETS),
        option(
            "--include", type=Path, help="the folder of core.p4 and v1model.p4 (p4include beside testdata)"
        ),
        option("--json", type=Path, metavar="FILE", help="write the result of each program to this file"),
        prog="python -m benchmarks.p4.p4c_conformance",
    )
    try_one, pattern = _SETS[options.set]
    files = sorted(path for path in (options.testdata / pattern).rglob("*.p4") if path.exists())
    if not files:
        raise SystemExit(f"{options.testdata / pattern} has no program; want the folder testdata of p4c")
    include = options.include or options.testdata.parent / "p4include"
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        results = processes.map(partial(try_one, include=include), files, chunksize=8)
        found = [result for result in results if result is not None]
    console().print(_table(options.set, found))
    if options.json is not None:
        document = {"set": options.set, "programs": [asdict(each) for each in found]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def try_error(path: Path, *, include: Path) -> Found:
    """Compile a program that p4c refuses."""
    errors = _errors(path, include)
    output = path.parents[1] / f"{path.parent.name}_outputs" / f"{path.name}-stderr"
    text = output.read_text(errors="replace") if output.exists() else ""
    places = {(Path(file).name, int(line)) for file, line in _P4C_PLACE.findall(text)}
    wrong = [error for error in errors if not isinstance(error, Unsupported) and error.message != NO_PACKAGE]
    messages = tuple(map(str, errors)), tuple(P4C_ERROR.findall(text))
    if not wrong:
        unsupported = [error for error in errors if isinstance(error, Unsupported)]
        if unsupported:
            return Found(
                path.name, "refused for what it uses, only", _general(unsupported[0].message), *messages
            )
        return Found(path.name, "accepted", _general(" ".join(messages[1][:1])), *messages)
    if not places:
        return Found(path.name, "refused; p4c names no line", _general(wrong[0].message), *messages)
    if any((Path(error.pos.file).name, error.pos.line) in places for error in wrong):
        return Found(path.name, "refused at a line that p4c names", _general(wrong[0].message), *messages)
    return Found(path.name, "refused at another line", _general(wrong[0].message), *messages)


def try_sample(path: Path, *, include: Path) -> Found:
    """Compile a program that p4c accepts, to C and P4Info if it is for v1model."""
    errors = _errors(path, include)
    messages = tuple(map(str, errors))
    kind = "v1model" if _for_v1model(path, include) else "other architectures"
    if not errors:
        return Found(path.name, f"{kind}: compiled")
    wrong = [error for error in errors if not isinstance(error, Unsupported) and error.message != NO_PACKAGE]
    if not wrong and kind != "v1model":
        return Found(path.name, f"{kind}: checked, nothing wrong", "", messages)
    first = wrong[0] if wrong else errors[0]
    return Found(path.name, f"{kind}: {first.kind}", _general(first.message), messages)


def try_script(path: Path, *, include: Path) -> Found | None:
    """Run the script beside a program for v1model, compiled and interpreted; None if it has none."""
    script = path.with_suffix(".stf")
    if not script.exists() or not _for_v1model(path, include):
        return None
    try:
        statements = parse_script(script.read_text())
        program = compile_file(path, include_dirs=[include])
        reports = {each: run_script(program, statements, backend=each) for each in BACKENDS}
    except (CompileError, ScriptError) as error:
        return Found(path.name, "refused", _general(error.message), (str(error),))
    failures = [
        f"{name}: {failure.line}: {failure.message}"
        for name, report in reports.items()
        for failure in report.failures
    ]
    return Found(path.name, "wrong" if failures else "passed", "", tuple(failures))


def _errors(path: Path, include: Path) -> list[CompileError]:
    try:
        program = compile_file(path, include_dirs=[include])
        p4info(program)
        emit_c(program)
    except CompileError as error:
        return [error, *error.others]
    return []


def _for_v1model(path: Path, include: Path) -> bool:
    try:
        return "v1model.p4" in preprocess_file(path, include_dirs=[include])
    except CompileError:
        return False


def _general(message: str) -> str:
    """Return a message without the names and numbers of one program."""
    message = re.sub(r"'[^']*'", "'…'", message)
    message = re.sub(r"/\S+:\d+:\d+", "…", message)
    return re.sub(r"\b\d+\b", "…", message)[:100]


def _table(name: str, found: Sequence[Found]) -> Table:
    outcomes = by_key((each.outcome, each) for each in found)
    table = Table("outcome", "cause", "programs", "among them", title=f"{name}: {len(found)} programs")
    for outcome, programs in sorted(outcomes.items(), key=lambda item: -len(item[1])):
        table.add_row(outcome, "", str(len(programs)), "", style="bold")
        causes = by_key((each.cause, each.program) for each in programs)
        for cause, names in sorted(causes.items(), key=lambda item: -len(item[1])):
            if cause:
                table.add_row("", cause, str(len(names)), " ".join(names[:SHOWN]))
    return table


_SETS: Mapping[str, tuple[Callable[..., Found | None], str]] = {
    "errors": (try_error, "p4_16_errors"),
    "samples": (try_sample, "p4_16_samples"),
    "scripts": (try_script, "p4_16_samples"),
}


if __name__ == "__main__":
    main()
