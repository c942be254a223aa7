"""``ina experiment``: the sweeps behind the pages of docs/results, whole, in short, or one row as a check."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from bmv2_topos.experiments.harness import (
    RESULTS,
    Experiment,
    ResultRow,
    Run,
    compare,
    read,
    sweep,
    with_seeds,
    write,
)
from bmv2_topos.experiments.index import QUESTIONS, load
from ina.cli.errors import FAILED, USAGE, Failure
from ina.cli.output import Bar, out
from ina.cli.plain import plural, say, seconds

EPILOG = """Examples:

  ina experiment list

  ina experiment loss --quick --output /tmp/results

  ina experiment memory stragglers --seeds 2 --json

  ina experiment scaling --runner virtual --json

  ina experiment all --check
"""

LIST = "list"
ALL = "all"


def experiment(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Name the experiments; or give all, or list.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Make few and short runs, as a trial.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, show_default="all of the page", help="Run this many seeds.")
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default="all of the page",
            help="Make only the runs of this runner: virtual or netns.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="one per processor", help="Run this many processes.")
    ] = None,
    output: Annotated[
        Path,
        typer.Option(metavar="DIR", show_default="docs/results", help="Write into this directory."),
    ] = RESULTS,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run nothing; make page and plots again from the rows in --output DIR."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run the shortest row again, and compare it with the row in --output DIR; exit "
            "with status 1 if they differ.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the rows by experiment as one JSON object; write no files.")
    ] = False,
) -> None:
    """Run a published experiment, and write its page of rows, tables and plots.

    Experiments run in virtual time: the same code gives the same rows on any machine. A whole page takes
    minutes to an hour on two cores; --quick takes a few seconds.
    """
    if names == [LIST]:
        for name, asks in QUESTIONS.items():
            out.print(f"  {name:<18} {asks}", soft_wrap=True)
        return
    if check + again + (quick or seeds is not None or runner is not None or json) > 1:
        raise Failure(
            "--check and --again are mutually exclusive, with each other and with --quick, "
            "--seeds, --runner and --json",
            exit_code=USAGE,
        )
    chosen = [load(name) for name in _known(names)]
    if check:
        _check(chosen, output)
        return
    found: dict[str, Sequence[ResultRow]] = {}
    for one in chosen:
        if again:
            rows, command = _published(one, output)
        else:
            rows = found[one.name] = _run(one, _scenarios(one, quick, seeds, runner), processes)
            command = " ".join(["ina experiment", one.name, *_as_given(quick, seeds, runner)])
        if not json:
            for path in write(one, rows, output, command=command):
                out.print(str(path), soft_wrap=True)
    if json:
        print(dumps({name: [dict(row) for row in rows] for name, rows in found.items()}, indent=1))


def _as_given(quick: bool, seeds: int | None, runner: str | None) -> list[str]:
    numbered = ["--seeds", str(seeds)] if seeds is not None else []
    return ["--quick"] * quick + numbered + (["--runner", runner] if runner is not None else [])


def _known(names: Sequence[str]) -> list[str]:
    if names == [ALL]:
        return list(QUESTIONS)
    for name in names:
        if name not in QUESTIONS:
            close = difflib.get_close_matches(name, QUESTIONS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(QUESTIONS)}"
            raise Failure(f"there is no experiment {name!r}; {hint}", exit_code=USAGE)
    return list(dict.fromkeys(names))


def _scenarios(one: Experiment, quick: bool, seeds: int | None, runner: str | None) -> Sequence[Run]:
    scenarios = one.scenarios(quick)
    if runner is not None:
        scenarios = _of_runner(one, scenarios, runner)
    if why := one.missing():
        if runner == "netns":
            raise Failure(f"{one.name}: {why}", exit_code=USAGE)
        say(f"{one.name}: runs in virtual time only: {why}")
        scenarios = [scenario for scenario in scenarios if not scenario.real]
    try:
        return scenarios if seeds is None else with_seeds(scenarios, seeds)
    except ValueError as error:
        raise Failure(f"{one.name}: {error}", exit_code=USAGE) from error


def _of_runner(one: Experiment, scenarios: Sequence[Run], runner: str) -> Sequence[Run]:
    found = {"netns" if scenario.real else "virtual" for scenario in scenarios}
    if runner not in found:
        raise Failure(
            f"{one.name} has no runs of {runner!r}; its runners: {', '.join(sorted(found))}", exit_code=USAGE
        )
    return [scenario for scenario in scenarios if scenario.real == (runner == "netns")]


def _run(one: Experiment, scenarios: Sequence[Run], processes: int | None) -> Sequence[ResultRow]:
    began = time.monotonic()
    if any(scenario.real for scenario in scenarios):
        processes = 1  # beside others they would measure each other
    with Bar() as bar:
        rows = sweep(
            scenarios,
            one.measure,
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


def _check(chosen: Sequence[Experiment], folder: Path) -> None:
    stale = False
    for one in chosen:
        rows, _ = _published(one, folder)
        try:
            differences = compare(one, rows, count=1)
        except ValueError as error:
            raise Failure(f"{one.name} is stale: {error}") from error
        for each in differences:
            labels = ", ".join(f"{name} {value}" for name, value in each.labels.items())
            say(
                f"{one.name} is stale: {each.column} is {each.now}, "
                f"but {each.published} is published ({labels})"
            )
        stale |= bool(differences)
        if not differences:
            out.print(f"{one.name}: the shortest row is reproduced")
    if stale:
        raise typer.Exit(FAILED)
