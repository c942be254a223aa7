"""``ina stf``: sends the packets of an STF script through a P4 program, and checks its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import softswitch
from ina.cli import options
from ina.cli.compile import SourceOptions, script_errors
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Reply, Result, plural
from softswitch.stf import Event, ScriptReport, parse_script, run_script


class Backend(StrEnum):
    """Ways to run the program: compiled C, the interpreter in Python, or both."""

    C = "c"
    PYTHON = "python"
    BOTH = "both"


_BACKENDS: dict[Backend, tuple[Literal["compiled", "interpreter"], ...]] = {
    Backend.C: ("compiled",),
    Backend.PYTHON: ("interpreter",),
    Backend.BOTH: ("compiled", "interpreter"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StfSettings:
    """Options of 'ina stf': a program, a script of packets, and the targets that run the program."""

    program: Annotated[str, Declared(argument=True, help="Run this .p4 file, or this program of p4src/.")]
    script: Annotated[
        Path, Declared(argument=True, help="Run this STF script, in the format of p4c's tests.")
    ]
    backend: Annotated[Backend, Declared(help="Run the program as C, interpreted in Python, or both.")] = (
        Backend.BOTH
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
    if asked.trace and asked.backend is Backend.C:
        raise Failure("--trace needs the interpreter: leave --backend c out", exit_code=USAGE)
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
