"""``ina stf``: a script of packets against a P4 program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

import softswitch
from controller.switches.programs import source_of
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out
from ina.cli.plain import Result, plural
from softswitch.stf import Event, ScriptError, ScriptReport, parse_script, run_script

EPILOG = """Examples:

  ina stf mine.p4 mine.stf

  ina stf mine.p4 mine.stf --backend python --json

  ina stf mine.p4 mine.stf --undefined random

  ina stf mine.p4 mine.stf --trace

  ina stf mine.p4 mine.stf --bmv2
"""


class Backend(StrEnum):
    """Back ends that run the program."""

    C = "c"
    PYTHON = "python"
    BOTH = "both"


_BACKENDS: dict[Backend, tuple[Literal["compiled", "interpreter"], ...]] = {
    Backend.C: ("compiled",),
    Backend.PYTHON: ("interpreter",),
    Backend.BOTH: ("compiled", "interpreter"),
}


def stf(
    program: Annotated[str, typer.Argument(help="Run this .p4 file, or this program of p4src/.")],
    script: Annotated[Path, typer.Argument(help="Run this STF script, in the format of p4c's tests.")],
    backend: Annotated[
        Backend, typer.Option(help="Run the program as C, interpreted in Python, or both.")
    ] = Backend.BOTH,
    lanes: options.Lanes = 256,
    define: options.Defines = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("-I", "--include", help="Search this directory for #include files. Repeatable."),
    ] = None,
    undefined: options.Undefined = None,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Show what happens to each packet: parser states, tables, actions, registers. Uses "
            "the interpreter.",
        ),
    ] = False,
    bmv2: Annotated[
        bool,
        typer.Option("--bmv2", help="Run on BMv2, too. Needs p4c-bm2-ss or p4c, and simple_switch_grpc."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Send scripted packets through a P4 program, and check what comes out."""
    if trace and backend is Backend.C:
        raise Failure("--trace needs the interpreter: leave --backend c out", exit_code=USAGE)
    path, defines = source_of(program, lanes)
    defines |= options.parse_defines(define or [])
    compiled = softswitch.compile_file(
        path, defines=defines, include_dirs=include or (), undefined=options.choice(undefined)
    )
    try:
        statements = parse_script(script.read_text())
        events: list[Event] = []
        tellers: dict[str, Callable[[Event], None] | None] = {"interpreter": events.append if trace else None}
        reports: dict[str, ScriptReport] = {
            name: run_script(compiled, statements, backend=name, trace=tellers.get(name))
            for name in _BACKENDS[backend]
        }
        if bmv2:
            # Imported here, because a controller and testbeds take longer than most scripts.
            from bmv2_topos.testbeds.bmv2 import run_on_bmv2

            reports["bmv2"] = run_on_bmv2(
                path, compiled, statements, defines=defines, include_dirs=include or ()
            )
    except ScriptError as error:
        raise Failure(f"{script}:{error.line}: {error.message}", exit_code=USAGE) from error
    if json:
        result = _result(path, script, reports)
        traced = {"trace": [event.as_json() for event in events]} if trace else {}
        replace(result, metrics={**result.metrics, **traced}).print_json()
    else:
        for event in events:
            out.print(str(event), highlight=False, markup=False, soft_wrap=True)
        _show(script, reports)
    failed = [name for name, report in reports.items() if not report.passed]
    if failed:
        raise Failure(f"{script.name} failed on {' and '.join(failed)}")


def _result(path: Path, script: Path, reports: dict[str, ScriptReport]) -> Result:
    metrics: dict[str, object] = {}
    for name, report in reports.items():
        metrics |= {
            f"{name}_passed": report.passed,
            f"{name}_packets": report.packets,
            f"{name}_checks": report.checks,
            f"{name}_failures": [f"{failure.line}: {failure.message}" for failure in report.failures],
            f"{name}_readings": [f"{reading.line}: {reading.text}" for reading in report.readings],
        }
    return Result("stf", {"program": str(path), "script": str(script)}, metrics)


def _show(script: Path, reports: dict[str, ScriptReport]) -> None:
    for name, report in reports.items():
        for reading in report.readings:
            out.print(f"{script}:{reading.line}: {name}: {reading.text}", soft_wrap=True)
        for failure in report.failures:
            where = f"{script}:{failure.line}" if failure.line else f"{script}: end"
            out.print(f"{where}: {name}: {failure.message}", soft_wrap=True)
        verdict = "passed" if report.passed else f"FAILED ({plural(len(report.failures), 'difference')})"
        counts = f"{plural(report.packets, 'packet')}, {plural(report.checks, 'check')}"
        out.print(f"{name}: {verdict}, {counts}", soft_wrap=True)
