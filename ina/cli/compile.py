"""``ina compile`` and ``ina stf``: compile P4, and send the packets of a script through the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import softswitch
from controller.switches.programs import source_of
from ina.cli import options
from ina.cli.command import (
    USAGE,
    Declared,
    Failure,
    Json,
    Listing,
    Reply,
    Result,
    plural,
    print_json,
    refuse,
    say,
)
from softswitch.stf import Event, ScriptReport, parse_script, run_script

CompilerPass = Literal["preprocess", "lex", "parse", "lower", "emit", "all"]
"""Compiler passes whose output ``--dump`` can show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options for reading the source of a P4 program: lanes, macros, include directories."""

    lanes: options.Lanes = 256
    define: options.Defines = None
    include: Annotated[
        list[Path] | None,
        Declared("-I", "--include", help="Search this directory for #include files. Repeatable."),
    ] = None
    undefined: options.Undefined = None

    def of(self, program: str) -> tuple[Path, dict[str, str]]:
        """Return the source file of a program, and the macros to define. Raises Failure, NoSuchProgram."""
        path, defines = source_of(program, self.lanes)
        return path, defines | options.parse_defines(self.define or [])


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """Options of 'ina compile': a program, and the outputs of its compilation."""

    source: Annotated[str, Declared(argument=True, help="Compile this .p4 file, or this program of p4src/.")]
    of_source: SourceOptions
    output: Annotated[
        Path | None,
        Declared(
            "-o", "--output", writable=True, metavar="FILE.c", help="Write the generated C to this file."
        ),
    ] = None
    p4info: Annotated[
        Path | None,
        Declared(writable=True, metavar="FILE", help="Write the P4Info to this file, as text."),
    ] = None
    device_config: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Write the P4Runtime device config to this file: the preprocessed source.",
        ),
    ] = None
    dump: Annotated[CompilerPass | None, Declared(help="Print the output of this compiler pass.")] = None
    build: Annotated[
        bool, Declared(help="Run the C compiler, too, and print the path of the shared object.")
    ] = False
    check_undefined: Annotated[
        bool,
        Declared(
            "--check-undefined",
            help="Report where the program depends on values that P4 leaves undefined; exit with "
            "status 1 if it does.",
        ),
    ] = False
    single_access: Annotated[
        bool,
        Declared(
            "--single-access",
            help="Refuse a program for Tofino that may access a register twice for one packet, as the "
            "chip's compiler does. Default: warn.",
        ),
    ] = False
    explain: Annotated[
        bool,
        Declared(
            "--explain",
            help="Show the memory layout of registers, how tables are looked up, and the loops over lanes.",
        ),
    ] = False
    packets: Annotated[
        Path | None,
        Declared(
            metavar="SCRIPT.stf",
            help="With --explain: measure the cost of each packet of this STF script in the compiled "
            "program.",
        ),
    ] = None
    json: Json = False


def compile_(asked: CompileSettings) -> Reply | None:
    """Compile a P4 program for the embedded switch.

    Examples:
        ina compile p4src/exclusive.p4 -D LANES=32 -o exclusive.c --p4info exclusive.p4info.txtpb

        ina compile mine.p4 --p4info mine.p4info.txtpb --device-config mine.config

        ina compile mine.p4 --dump lower

        ina compile mine.p4 --build

        ina compile mine.p4 --check-undefined

        ina compile exclusive --explain

        ina compile mine.p4 --explain --packets mine.stf
    """
    path, defines = asked.of_source.of(asked.source)
    refuse(asked.dump and asked.json, "--dump and --json are mutually exclusive: --dump prints text")
    refuse(
        asked.packets and not asked.explain,
        "--packets needs --explain, which measures the packets: give both",
    )
    include = asked.of_source.include or ()
    if asked.check_undefined:
        with _errors_as_json(path, asked.json):
            found = softswitch.find_undefined(path, defines=defines, include_dirs=include)
        return _undefined(path, found)

    def show(name: str, render: Callable[[], str]) -> None:
        if asked.device_config and name == "preprocess":
            _write(asked.device_config, render())
        if asked.dump in (name, "all"):
            whole = asked.dump == "all"
            print(f"==== {name}" if whole else "", render(), sep="\n" if whole else "")

    with _errors_as_json(path, asked.json):
        program = softswitch.compile_file(
            path,
            defines=defines,
            include_dirs=include,
            undefined=options.choice(asked.of_source.undefined),
            single_access=asked.single_access,
            dump=show,
        )
    for remark in program.remarks:
        say(str(remark))
    with _errors_as_json(path, asked.json):
        text = softswitch.emit_c(program)
        info = softswitch.p4info(program)  # always made: it finds duplicate ids
    show("emit", lambda: text)
    if asked.output:
        _write(asked.output, text)
    if asked.p4info:
        _write(asked.p4info, softswitch.p4info_text(info))
    shared_object = str(softswitch.build_c(text)) if asked.build else None
    if asked.dump:
        return None
    return _compiled(asked, program, text, {"source": str(path), "defines": defines}, shared_object)


def _compiled(
    settings: CompileSettings,
    program: Any,
    text: str,
    setup: Mapping[str, object],
    shared_object: str | None,
) -> Reply:
    """Return the reply: how many tables, actions, registers … a program has, and the requested results."""
    facts = {
        "tables": len(program.tables),
        "actions": len(program.actions),
        "parser_states": len(program.states),
        "registers": len(program.registers),
        "counters": len(program.counters),
        "c_lines": text.count("\n"),
    }
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in facts.items()]
    parts: list[Listing | str] = [Listing(Path(str(setup["source"])).name, ["", "number"], rows)]
    warnings = [_described(remark.pos, "warning", remark.message) for remark in program.remarks]
    metrics: dict[str, object] = {**facts, "warnings": warnings}
    if settings.explain:
        layout = softswitch.explain(program, text)
        metrics["explain"] = asdict(layout)
        parts += _layout(layout)
    if settings.packets:
        # Imported here, because only --packets needs a switch.
        from ina.bench.frame_loop import packet_times
        from softswitch.stf import parse_script

        with script_errors(settings.packets):
            times = packet_times(program, parse_script(settings.packets.read_text()))
        metrics["packets"] = [asdict(one) for one in times]
        costs = [(it.line, it.port, f"{it.bytes:,}", it.copies, f"{it.ns:,.0f}") for it in times]
        columns = ["line", "port", "bytes", "copies", "ns"]
        parts.append(Listing("cost of each packet, measured", columns, costs))
    parts += [f"built {shared_object}"] if shared_object else []
    return Reply(Result("compile", {**setup, "shared_object": shared_object}, metrics), parts)


def _write(path: Path, text: str) -> None:
    """Write a file, and make missing directories for it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _layout(layout: softswitch.Explanation) -> list[Listing | str]:
    rows = [
        (it.name, len(it.registers), f"{it.slots:,}", it.slot_bytes, f"{it.bytes:,}") for it in layout.memory
    ]
    tables = [(it.table, it.key_bits, f"{it.entries:,}", it.lookup) for it in layout.lookups]
    columns = ["", "registers", "slots", "bytes a slot", "bytes"]
    return [
        Listing("registers that lie together", columns, rows),
        Listing("tables", ["", "bits of key", "entries", "look-up"], tables),
        f"{layout.lane_loops} loops over lanes, {layout.vector_loops} of them vectorized",
    ]


@contextmanager
def script_errors(script: Path) -> Iterator[None]:
    """Turn a ScriptError inside the context into a Failure that names the script and the line."""
    from softswitch.stf import ScriptError

    try:
        yield
    except ScriptError as error:
        raise Failure(f"{script}:{error.line}: {error.message}", exit_code=USAGE) from error


def _undefined(path: Path, found: Sequence[softswitch.Finding]) -> Reply:
    """Return the reply of ``--check-undefined``: a failure if there are findings."""
    shown = [
        {"file": it.pos.file, "line": it.pos.line, "column": it.pos.column, "message": it.message}
        for it in found
    ]
    failure = ""
    lines = [*map(str, found)]
    if found:
        failure = f"{path.name} depends on undefined behaviour in {plural(len(found), 'place')}"
    else:
        lines.append(f"{path.name} does not depend on undefined behaviour")
    return Reply(Result("check-undefined", {"source": str(path)}, {"findings": shown}), lines, failure)


@contextmanager
def _errors_as_json(path: Path, json: bool) -> Iterator[None]:
    """Print the compiler's errors as JSON, too, if `json` is set: for editors and other tools."""
    try:
        yield
    except softswitch.CompileError as error:
        if json:
            errors = [
                _described(one.pos, one.kind, one.message, one.expected) for one in (error, *error.others)
            ]
            print_json(Result("compile", {"source": str(path)}, {"errors": errors}))
        raise


def _described(
    pos: softswitch.Position, severity: str, message: str, expected: str | None = None
) -> dict[str, object]:
    place = {"file": pos.file, "line": pos.line, "column": pos.column}
    return {**place, "severity": severity, "message": message, "expected": expected}


Backend = Literal["c", "python", "both"]
"""Ways to run the program: compiled C, the interpreter in Python, or both."""

_BACKENDS: dict[Backend, tuple[Literal["compiled", "interpreter"], ...]] = {
    "c": ("compiled",),
    "python": ("interpreter",),
    "both": ("compiled", "interpreter"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StfSettings:
    """Options of 'ina stf': a program, a script of packets, and the targets that run the program."""

    program: Annotated[str, Declared(argument=True, help="Run this .p4 file, or this program of p4src/.")]
    script: Annotated[
        Path, Declared(argument=True, help="Run this STF script, in the format of p4c's tests.")
    ]
    backend: Annotated[Backend, Declared(help="Run the program as C, interpreted in Python, or both.")] = (
        "both"
    )
    of_source: SourceOptions
    trace: Annotated[
        bool,
        Declared(
            "--trace",
            help="Show what happens to each packet: parser states, tables, actions, registers. Uses "
            "the interpreter.",
        ),
    ] = False
    bmv2: Annotated[
        bool,
        Declared("--bmv2", help="Run on BMv2, too. Needs p4c-bm2-ss or p4c, and simple_switch_grpc."),
    ] = False


def stf(asked: StfSettings) -> Reply:
    """Send scripted packets through a P4 program, and check its output.

    Examples:
        ina stf mine.p4 mine.stf

        ina stf mine.p4 mine.stf --backend python --json

        ina stf mine.p4 mine.stf --undefined random

        ina stf mine.p4 mine.stf --trace

        ina stf mine.p4 mine.stf --bmv2
    """
    refuse(asked.trace and asked.backend == "c", "--trace needs the interpreter: leave --backend c out")
    path, defines = asked.of_source.of(asked.program)
    include = asked.of_source.include or ()
    undefined = options.choice(asked.of_source.undefined)
    compiled = softswitch.compile_file(path, defines=defines, include_dirs=include, undefined=undefined)
    with script_errors(asked.script):
        statements = parse_script(asked.script.read_text())
        events: list[Event] = []
        tellers: dict[str, Callable[[Event], None] | None] = {
            "interpreter": events.append if asked.trace else None
        }
        reports: dict[str, ScriptReport] = {
            name: run_script(compiled, statements, backend=name, trace=tellers.get(name))
            for name in _BACKENDS[asked.backend]
        }
        if asked.bmv2:
            # Imported here, because importing controller and testbeds takes longer than most scripts.
            from bmv2_topos.testbeds.bmv2 import run_on_bmv2

            reports["bmv2"] = run_on_bmv2(path, compiled, statements, defines=defines, include_dirs=include)
    metrics = _metrics(reports) | ({"trace": [event.as_json() for event in events]} if asked.trace else {})
    failed = [name for name, report in reports.items() if not report.passed]
    return Reply(
        Result("stf", {"program": str(path), "script": str(asked.script)}, metrics),
        [*map(str, events), *_lines(asked.script, reports)],
        f"{asked.script.name} failed on {' and '.join(failed)}" if failed else "",
    )


def _metrics(reports: Mapping[str, ScriptReport]) -> dict[str, object]:
    metrics: dict[str, object] = {}
    for name, report in reports.items():
        metrics |= {
            f"{name}_passed": report.passed,
            f"{name}_packets": report.packets,
            f"{name}_checks": report.checks,
            f"{name}_failures": [f"{failure.line}: {failure.message}" for failure in report.failures],
            f"{name}_readings": [f"{reading.line}: {reading.text}" for reading in report.readings],
        }
    return metrics


def _lines(script: Path, reports: Mapping[str, ScriptReport]) -> Iterator[str]:
    for name, report in reports.items():
        for reading in report.readings:
            yield f"{script}:{reading.line}: {name}: {reading.text}"
        for failure in report.failures:
            where = f"{script}:{failure.line}" if failure.line else f"{script}: end"
            yield f"{where}: {name}: {failure.message}"
        verdict = "passed" if report.passed else f"FAILED ({plural(len(report.failures), 'difference')})"
        yield f"{name}: {verdict}, {plural(report.packets, 'packet')}, {plural(report.checks, 'check')}"
