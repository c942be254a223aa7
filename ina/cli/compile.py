"""``ina compile``: P4 in; C, P4Info or any pass's result out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import softswitch
from controller.switches.programs import source_of
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out, table
from ina.cli.plain import Result, plural, say

if TYPE_CHECKING:
    from ina.bench.frame_loop import PacketTime

EPILOG = """Examples:

  ina compile p4src/exclusive.p4 -D LANES=32 -o exclusive.c --p4info exclusive.p4info.txtpb

  ina compile mine.p4 --p4info mine.p4info.txtpb --device-config mine.config

  ina compile mine.p4 --dump lower

  ina compile mine.p4 --build

  ina compile mine.p4 --check-undefined

  ina compile exclusive --explain

  ina compile mine.p4 --explain --packets mine.stf
"""


class Pass(StrEnum):
    """Passes that ``--dump`` can show."""

    PREPROCESS = "preprocess"
    LEX = "lex"
    PARSE = "parse"
    LOWER = "lower"
    EMIT = "emit"
    ALL = "all"


def compile_(
    source: Annotated[str, typer.Argument(help="Compile this .p4 file, or this program of p4src/.")],
    lanes: options.Lanes = 256,
    define: options.Defines = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("-I", "--include", help="Search this directory for #include files. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", writable=True, metavar="FILE.c", help="Write the generated C to this file."
        ),
    ] = None,
    p4info: Annotated[
        Path | None,
        typer.Option(writable=True, metavar="FILE", help="Write the P4Info to this file, as text."),
    ] = None,
    device_config: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Write the P4Runtime device config to this file: the preprocessed source.",
        ),
    ] = None,
    dump: Annotated[Pass | None, typer.Option(help="Print the output of this compiler pass.")] = None,
    build: Annotated[
        bool, typer.Option(help="Run the C compiler, too, and print the path of the shared object.")
    ] = False,
    undefined: options.Undefined = None,
    check_undefined: Annotated[
        bool,
        typer.Option(
            "--check-undefined",
            help="Report where the program depends on values that P4 leaves undefined; exit with "
            "status 1 if it does.",
        ),
    ] = False,
    single_access: Annotated[
        bool,
        typer.Option(
            "--single-access",
            help="Refuse a program for Tofino that may access a register twice for one packet, as the "
            "chip's compiler does. Default: warn.",
        ),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show how registers lie in memory, how tables are looked up, and what threads divide by.",
        ),
    ] = False,
    packets: Annotated[
        Path | None,
        typer.Option(
            metavar="SCRIPT.stf",
            help="With --explain: measure the cost of each packet of this STF script in the compiled "
            "program.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compile a P4 program for the embedded switch."""
    path, defines = source_of(source, lanes)
    defines |= options.parse_defines(define or [])
    if dump and json:
        raise Failure("--dump and --json are mutually exclusive: --dump prints text", exit_code=USAGE)

    if packets and not explain:
        raise Failure("--packets needs --explain, which measures them: give both", exit_code=USAGE)

    if check_undefined:
        with _told_as_json(path, json):
            found = softswitch.find_undefined(path, defines=defines, include_dirs=include or ())
        _check_undefined(path, found, json)
        return

    def show(name: str, render: Callable[[], str]) -> None:
        if device_config and name == "preprocess":
            _write(device_config, render())
        if dump in (Pass(name), Pass.ALL):
            print(f"==== {name}" if dump is Pass.ALL else "", render(), sep="\n" if dump is Pass.ALL else "")

    with _told_as_json(path, json):
        program = softswitch.compile_file(
            path,
            defines=defines,
            include_dirs=include or (),
            undefined=options.choice(undefined),
            single_access=single_access,
            dump=show,
        )
    for remark in program.remarks:
        say(str(remark))
    with _told_as_json(path, json):
        text = softswitch.emit_c(program)
        info = softswitch.p4info(program)  # made always, for it finds ids that two objects have
    show("emit", lambda: text)
    if output:
        _write(output, text)
    if p4info:
        _write(p4info, softswitch.p4info_text(info))
    shared_object = softswitch.build_c(text) if build else None
    if dump:
        return
    times: list[PacketTime] = []
    if packets:
        # Imported here, because nothing else that this command does needs a switch.
        from ina.bench.frame_loop import packet_times
        from softswitch.stf import parse_script

        with _told_by_line(packets):
            times = packet_times(program, parse_script(packets.read_text()))
    facts = {
        "tables": len(program.tables),
        "actions": len(program.actions),
        "parser_states": len(program.states),
        "registers": len(program.registers),
        "counters": len(program.counters),
        "c_lines": text.count("\n"),
    }
    if json:
        setup = {
            "source": str(path),
            "defines": defines,
            "shared_object": str(shared_object) if build else None,
        }
        warnings = [_described(remark.pos, "warning", remark.message) for remark in program.remarks]
        explained = {"explain": asdict(softswitch.explain(program, text))} if explain else {}
        timed = {"packets": [asdict(one) for one in times]} if packets else {}
        Result("compile", setup, {**facts, "warnings": warnings, **explained, **timed}).print_json()
        return
    table(
        path.name, ["", "number"], [(name.replace("_", " "), f"{value:,}") for name, value in facts.items()]
    )
    if explain:
        _show_layout(softswitch.explain(program, text))
    if packets:
        _show_times(times)
    if shared_object:
        out.print(f"built {shared_object}", highlight=False, soft_wrap=True)


def _write(path: Path, text: str) -> None:
    """Write a file, and make directories that are missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _show_layout(layout: softswitch.Explanation) -> None:
    rows = [
        (it.name, str(len(it.registers)), f"{it.slots:,}", str(it.slot_bytes), f"{it.bytes:,}")
        for it in layout.memory
    ]
    table("registers that lie together", ["", "registers", "slots", "bytes a slot", "bytes"], rows)
    tables = [(it.table, f"{it.key_bits}", f"{it.entries:,}", it.lookup) for it in layout.lookups]
    table("tables", ["", "bits of key", "entries", "look-up"], tables)
    out.print(f"{layout.lane_loops} loops over lanes, {layout.vector_loops} of them for vectors")
    out.print(f"threads: {layout.threads}", highlight=False, soft_wrap=True)


@contextmanager
def _told_by_line(script: Path) -> Iterator[None]:
    from softswitch.stf import ScriptError

    try:
        yield
    except ScriptError as error:
        raise Failure(f"{script}:{error.line}: {error.message}", exit_code=USAGE) from error


def _show_times(times: Sequence[PacketTime]) -> None:
    rows = [(f"{it.line}", f"{it.port}", f"{it.bytes:,}", f"{it.copies}", f"{it.ns:,.0f}") for it in times]
    table("cost of each packet, measured", ["line", "port", "bytes", "copies", "ns"], rows)


def _check_undefined(path: Path, found: Sequence[softswitch.Finding], json: bool) -> None:
    """Show the findings of the checker. Raises Failure if there are any."""
    if json:
        shown = [
            {"file": it.pos.file, "line": it.pos.line, "column": it.pos.column, "message": it.message}
            for it in found
        ]
        Result("check-undefined", {"source": str(path)}, {"findings": shown}).print_json()
    else:
        for finding in found:
            out.print(str(finding), highlight=False, markup=False, soft_wrap=True)
    if found:
        raise Failure(f"{path.name} depends on undefined behaviour in {plural(len(found), 'place')}")
    if not json:
        out.print(f"{path.name} does not depend on undefined behaviour", highlight=False, soft_wrap=True)


@contextmanager
def _told_as_json(path: Path, json: bool) -> Iterator[None]:
    """Print the compiler's errors as JSON, too, if that is wanted: for editors and other tools."""
    try:
        yield
    except softswitch.CompileError as error:
        if json:
            errors = [
                _described(one.pos, one.kind, one.message, one.expected) for one in (error, *error.others)
            ]
            Result("compile", {"source": str(path)}, {"errors": errors}).print_json()
        raise


def _described(
    pos: softswitch.Position, severity: str, message: str, expected: str | None = None
) -> dict[str, object]:
    place = {"file": pos.file, "line": pos.line, "column": pos.column}
    return {**place, "severity": severity, "message": message, "expected": expected}
