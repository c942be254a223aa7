"""``ina experiment``: runs the experiment that a Python file defines, all of it or a short version."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Annotated

from bmv2_topos.harness import (
    Experiment,
    HarnessError,
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
from controller.errors import ControllerError
from controller.plugins import is_user_error
from ina.cli.command import FAILED, Declared, Failure, Reply, failing_at, plural, refuse, say, seconds
from ina.cli.output import Bars, out


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """Options of 'ina experiment': the experiments, the choice of their runs, and the output."""

    files: Annotated[
        list[str],
        Declared(
            argument=True,
            metavar="FILE...",
            help="Run the EXPERIMENT that each of these Python files or modules defines: own.py, "
            "package.module.",
        ),
    ]
    quick: Annotated[bool, Declared("--quick", help="Make few and short runs, as a trial.")] = False
    seeds: Annotated[
        int | None,
        Declared(
            min=1, show_default="all", help="Run only this many seeds, the first ones of the experiment."
        ),
    ] = None
    runner: Annotated[
        str | None,
        Declared(
            metavar="NAME", show_default="all", help="Make only the runs of this runner: virtual or netns."
        ),
    ] = None
    processes: Annotated[
        int | None, Declared(min=1, show_default="one per processor", help="Run this many processes.")
    ] = None
    output: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            show_default="./NAME, the experiment's name",
            help="Write page, rows and plots into this directory.",
        ),
    ] = None
    again: Annotated[
        bool,
        Declared("--again", help="Run nothing; make page and plots again from the rows in --output DIR."),
    ] = False
    check: Annotated[
        bool,
        Declared(
            "--check",
            help="Run the shortest run again, and compare its row with the one in --output DIR; exit with "
            "status 1 if they differ.",
        ),
    ] = False
    json: Annotated[
        bool, Declared("--json", help="Print the rows by experiment as one JSON object; write no files.")
    ] = False

    def folder(self, one: Experiment) -> Path:
        """Return the folder with the page, the rows and the plots of an experiment."""
        return Path(one.name) if self.output is None else self.output

    def as_given(self) -> list[str]:
        """Return the given options that choose runs, as words of a command line."""
        numbered = ["--seeds", str(self.seeds)] if self.seeds is not None else []
        of_runner = ["--runner", self.runner] if self.runner is not None else []
        return ["--quick"] * self.quick + numbered + of_runner


def experiment(asked: ExperimentSettings) -> Reply:
    """Run the experiment of a Python file, and write its rows, page and plots.

    Rows are JSON, the page is Markdown, and plots are SVG. Runs in virtual time give the same rows on any
    machine.

    Examples:
        ina experiment own.py

        ina experiment own.py --quick --output /tmp/results

        ina experiment own.py --seeds 2 --json

        ina experiment own.py --check
    """
    refuse(
        asked.check
        + asked.again
        + (asked.quick or asked.seeds is not None or asked.runner is not None or asked.json)
        > 1,
        "--check and --again are mutually exclusive, with each other and with --quick, --seeds, "
        "--runner and --json",
    )
    with _failures(asked.files):
        chosen = [load(file) for file in dict.fromkeys(asked.files)]
        return _check(chosen, asked) if asked.check else _make(chosen, asked)


@contextmanager
def _failures(files: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (Failure, HarnessError, ControllerError, KeyboardInterrupt):
        raise
    except BaseException as error:
        own = [frame for frame in extract_tb(error.__traceback__) if frame.filename.endswith(tuple(files))]
        if not (own and is_user_error(error)):
            raise
        place = f"{own[-1].filename}:{own[-1].lineno}: {own[-1].name}"
        raise Failure(f"{place}: {type(error).__name__}: {error}") from error


def _make(chosen: Sequence[Experiment], settings: ExperimentSettings) -> Reply:
    found: dict[str, object] = {}
    for one in chosen:
        if settings.again:
            rows, command = _published(one, settings.folder(one))
        else:
            rows = _run(one, settings)
            command = " ".join(["ina experiment", one.source, *settings.as_given()])
        found[one.name] = [dict(row) for row in rows]
        if not settings.json:  # as soon as they are there
            for path in write(one, rows, settings.folder(one), command=command):
                out.print(str(path), soft_wrap=True)
            print(one.tables(rows))
    return Reply(found)


def _scenarios(one: Experiment, settings: ExperimentSettings) -> Sequence[Run]:
    scenarios: Sequence[Run] = list(one.scenarios(settings.quick))
    if settings.runner is not None:
        found = {"netns" if scenario.real else "virtual" for scenario in scenarios}
        refuse(
            settings.runner not in found,
            f"{one.name} has no runs of {settings.runner!r}; its runners: {', '.join(sorted(found))}",
        )
        scenarios = [each for each in scenarios if each.real == (settings.runner == "netns")]
    with failing_at(one.name, ValueError):
        scenarios = scenarios if settings.seeds is None else with_seeds(scenarios, settings.seeds)
    possible = [scenario for scenario in scenarios if not scenario.missing]
    if len(possible) < len(scenarios):
        why = "; ".join(dict.fromkeys(scenario.missing for scenario in scenarios if scenario.missing))
        refuse(not possible, f"{one.name}: none of the {len(scenarios)} runs can be made here: {why}")
        say(f"{one.name}: {len(scenarios) - len(possible)} of {len(scenarios)} runs are left out: {why}")
    return possible


def _run(one: Experiment, settings: ExperimentSettings) -> Sequence[ResultRow]:
    scenarios = _scenarios(one, settings)
    began = time.monotonic()
    processes = settings.processes or len(os.sched_getaffinity(0))
    if any(scenario.real for scenario in scenarios):
        processes = 1  # parallel runs would slow each other down
    with Bars() as bar:
        rows = sweep(
            one,
            scenarios,
            quick=settings.quick,
            processes=processes,
            progress=lambda done, total: bar.show(done / total, f"{one.name}: {done} of {total} runs"),
        )
    say(f"{one.name}: {plural(len(rows), 'run')} in {seconds(time.monotonic() - began)}")
    return rows


def _published(one: Experiment, folder: Path) -> tuple[Sequence[ResultRow], str]:
    try:
        return read(one, folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{folder / one.name}.json holds no rows: {error}") from error


def _check(chosen: Sequence[Experiment], settings: ExperimentSettings) -> Reply:
    stale = []
    for one in chosen:
        rows, _ = _published(one, settings.folder(one))
        with failing_at(f"{one.name} is stale", ValueError, exit_code=FAILED):
            differences = compare(one, rows, count=1)
        for each in differences:
            now = f"{each.column} is {each.now}, but {each.published} is published"
            stale.append(f"{one.name} is stale: {now} ({named(each.labels)})")
        if not differences:
            out.print(f"{one.name}: the shortest row is reproduced")
    return Reply({}, failure="\n".join(stale))
