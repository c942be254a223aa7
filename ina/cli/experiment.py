"""``ina experiment``: a sweep that a file describes: whole, in short, or one row as a check."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from traceback import extract_tb
from typing import Annotated

import typer

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Run,
    compare,
    load,
    named,
    read,
    sweep,
    with_seeds,
    write,
)
from bmv2_topos.harness.errors import HarnessError
from controller.errors import ControllerError
from controller.plugins import is_own_fault
from ina.cli.errors import FAILED, USAGE, Failure
from ina.cli.output import Bar, out
from ina.cli.plain import plural, say, seconds

EPILOG = """Examples:

  ina experiment own.py

  ina experiment own.py --quick --output /tmp/results

  ina experiment own.py --seeds 2 --json

  ina experiment own.py --check
"""


def experiment(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Name Python files or modules that define EXPERIMENT: own.py, package.module.",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Make few and short runs, as a trial.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="all", help="Run only this many seeds, the first ones of the experiment."
        ),
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="all", help="Make only the runs of this runner: virtual or netns."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="one per processor", help="Run this many processes.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="DIR",
            show_default="./NAME, the experiment's name",
            help="Write page, rows and plots into this directory.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run nothing; make page and plots again from the rows in --output DIR."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run the shortest run again, and compare its row with the one in --output DIR; exit with "
            "status 1 if they differ.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the rows by experiment as one JSON object; write no files.")
    ] = False,
) -> None:
    """Run the experiment of a Python file, and write its rows, page and plots.

    Rows are JSON, the page is Markdown, and plots are SVG. Runs in virtual time give the same rows on any
    machine.
    """
    if check + again + (quick or seeds is not None or runner is not None or json) > 1:
        raise Failure(
            "--check and --again are mutually exclusive, with each other and with --quick, --seeds, "
            "--runner and --json",
            exit_code=USAGE,
        )
    with _failures(files):
        chosen = [load(file) for file in dict.fromkeys(files)]
        if check:
            _check(chosen, output)
        else:
            _make(chosen, quick, seeds, runner, processes, output, again=again, json=json)


@contextmanager
def _failures(files: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (Failure, HarnessError, ControllerError, KeyboardInterrupt):
        raise
    except BaseException as error:
        own = [frame for frame in extract_tb(error.__traceback__) if frame.filename.endswith(tuple(files))]
        if not (own and is_own_fault(error)):
            raise
        place = f"{own[-1].filename}:{own[-1].lineno}: {own[-1].name}"
        raise Failure(f"{place}: {type(error).__name__}: {error}") from error


def _make(
    chosen: Sequence[Experiment],
    quick: bool,
    seeds: int | None,
    runner: str | None,
    processes: int | None,
    output: Path | None,
    *,
    again: bool,
    json: bool,
) -> None:
    found: dict[str, Sequence[ResultRow]] = {}
    for one in chosen:
        folder = _folder(one, output)
        if again:
            rows, command = _published(one, folder)
        else:
            rows = found[one.name] = _run(one, quick, seeds, runner, processes)
            command = " ".join(["ina experiment", one.source, *_as_given(quick, seeds, runner)])
        if not json:
            for path in write(one, rows, folder, command=command):
                out.print(str(path), soft_wrap=True)
            print(one.tables(rows))
    if json:
        print(dumps({name: [dict(row) for row in rows] for name, rows in found.items()}, indent=1))


def _as_given(quick: bool, seeds: int | None, runner: str | None) -> list[str]:
    numbered = ["--seeds", str(seeds)] if seeds is not None else []
    return ["--quick"] * quick + numbered + (["--runner", runner] if runner is not None else [])


def _folder(one: Experiment, output: Path | None) -> Path:
    return Path(one.name) if output is None else output


def _scenarios(one: Experiment, quick: bool, seeds: int | None, runner: str | None) -> Sequence[Run]:
    scenarios = list(one.scenarios(quick))
    if runner is not None:
        scenarios = _of_runner(one, scenarios, runner)
    try:
        scenarios = scenarios if seeds is None else with_seeds(scenarios, seeds)
    except ValueError as error:
        raise Failure(f"{one.name}: {error}", exit_code=USAGE) from error
    possible = [scenario for scenario in scenarios if not scenario.missing]
    if len(possible) < len(scenarios):
        why = "; ".join(dict.fromkeys(scenario.missing for scenario in scenarios if scenario.missing))
        if not possible:
            raise Failure(
                f"{one.name}: none of the {len(scenarios)} runs can be run here: {why}", exit_code=USAGE
            )
        say(f"{one.name}: {len(scenarios) - len(possible)} of {len(scenarios)} runs are left out: {why}")
    return possible


def _of_runner(one: Experiment, scenarios: Sequence[Run], runner: str) -> Sequence[Run]:
    found = {"netns" if scenario.real else "virtual" for scenario in scenarios}
    if runner not in found:
        raise Failure(
            f"{one.name} has no runs of {runner!r}; its runners: {', '.join(sorted(found))}", exit_code=USAGE
        )
    return [scenario for scenario in scenarios if scenario.real == (runner == "netns")]


def _run(
    one: Experiment, quick: bool, seeds: int | None, runner: str | None, processes: int | None
) -> Sequence[ResultRow]:
    scenarios = _scenarios(one, quick, seeds, runner)
    began = time.monotonic()
    if any(scenario.real for scenario in scenarios):
        processes = 1  # beside others they would measure each other
    with Bar() as bar:
        rows = sweep(
            one,
            scenarios,
            quick=quick,
            processes=processes or len(os.sched_getaffinity(0)),
            progress=lambda done, total: bar.show(done / total, f"{one.name}: {done} of {total} runs"),
        )
    say(f"{one.name}: {plural(len(rows), 'run')} in {seconds(time.monotonic() - began)}")
    return rows


def _published(one: Experiment, folder: Path) -> tuple[Sequence[ResultRow], str]:
    try:
        return read(one, folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{folder / one.name}.json holds no rows: {error}") from error


def _check(chosen: Sequence[Experiment], output: Path | None) -> None:
    stale = False
    for one in chosen:
        rows, _ = _published(one, _folder(one, output))
        try:
            differences = compare(one, rows, count=1)
        except ValueError as error:
            raise Failure(f"{one.name} is stale: {error}") from error
        for each in differences:
            now = f"{each.column} is {each.now}, but {each.published} is published"
            say(f"{one.name} is stale: {now} ({named(each.labels)})")
        stale |= bool(differences)
        if not differences:
            out.print(f"{one.name}: the shortest row is reproduced")
    if stale:
        raise typer.Exit(FAILED)
