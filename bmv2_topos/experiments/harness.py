"""Runs many testbeds over many parameters, in parallel processes, and writes their results to files.

An experiment is data: a `Run` is one run with the labels of its row, mostly a `Scenario` in virtual time, and
an `Experiment` turns what runs return into numbers and rows into tables and plots. The rows, in the order of
the runs, do not depend on the number of processes that ran them.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from bmv2_topos.experiments.plots import PlotsMissing
from bmv2_topos.experiments.wrap import wrap
from bmv2_topos.testbeds.virtual import Fault, Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Link

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

Value = float | int | str | None
ResultRow = Mapping[str, Value]
"""One run of an experiment: its labels and measured values by column."""


class Run(Protocol):
    """One run. It is sent to other processes."""

    @property
    def labels(self) -> ResultRow:
        """Columns that identify its row."""

    @property
    def real(self) -> bool:
        """True if the machine decides what comes out, and no two runs give the same."""

    @property
    def elements(self) -> int:
        """Elements that all workers send: about how long it takes."""

    def run(self) -> Any:
        """Run it, and return what the experiment's `measure` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run in virtual time.

    It is sent to other processes, so `settings.make_congestion` has to be picklable.
    """

    labels: ResultRow
    """Columns that identify its row."""
    jobs: tuple[Job, ...]
    settings: VirtualSettings
    shape: tuple[int, ...] | None = None
    """Children per level of a tree that holds one job; None: one switch."""
    link: Link | None = None
    trunk: Link | None = None
    transit: tuple[int, ...] = ()
    """Levels of the tree, the root's 0, whose switches pass packets on without adding."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rates of the links of some hosts, bits/s."""
    faults: tuple[Fault, ...] = ()

    @property
    def real(self) -> bool:
        """False: virtual time gives the same digits anywhere."""
        return False

    @property
    def elements(self) -> int:
        """Elements that all workers send."""
        return sum(job.workers * job.iterations * sum(job.tensors) for job in self.jobs)

    def run(self) -> Report:
        """Run the scenario. Raises the errors of `VirtualTestbed`."""
        servers = self.settings.shares
        topology, placements = build(
            self.jobs,
            self.shape,
            servers=servers,
            link=self.link,
            trunk=self.trunk,
            transit=self.transit,
        )
        links = tuple(self._rated(link) for link in topology.links)
        topology = replace(topology, links=links)
        return VirtualTestbed(topology, self.jobs, placements, self.settings, self.faults).run()

    def _rated(self, link: Link) -> Link:
        rate_bps = self.rates.get(link.a, self.rates.get(link.b, link.rate_bps))
        return replace(link, rate_bps=rate_bps)


Measure = Callable[[Any], ResultRow]
"""Makes of what a run returns, a `Report` in virtual time, the columns that it adds to its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A sweep, and the page that is made of its rows."""

    name: str
    """Name of its files, for ``ina experiment``, and of its module, where a hyphen is an underscore."""
    title: str
    question: str = ""
    """The question, and findings of others; Markdown, as all texts that follow."""
    about: str
    """The runs, and the meaning of the columns."""
    scenarios: Callable[[bool], Sequence[Run]]
    """Makes the runs; True: few and short ones, for a trial."""
    measure: Measure
    tables: Callable[[Sequence[ResultRow]], str]
    """Makes the page's tables of the rows."""
    findings: Callable[[Sequence[ResultRow]], str] = field(default=lambda rows: "")
    """Makes the text of the findings; figures in it come from the rows."""
    limits: str = ""
    """Limits of the experiment."""
    plots: Callable[[Sequence[ResultRow], Path], Sequence[Path]] = field(default=lambda rows, directory: [])
    """Draws plots of the rows into a directory; returns their files."""
    timed: frozenset[str] = frozenset()
    """Columns that are measured on the machine: they come out otherwise each time."""
    missing: Callable[[], str] = field(default=lambda: "")
    """Says why its real runs cannot be run here; empty if they can."""


def with_seeds(scenarios: Sequence[Run], count: int) -> list[Run]:
    """Return the runs with the first `count` seeds. Raises ValueError if there are not so many."""
    seeds = sorted({number(scenario.labels, "seed") for scenario in scenarios if "seed" in scenario.labels})
    if not seeds:
        raise ValueError(f"{count} seeds, and nothing of the page is random")
    if not 1 <= count <= len(seeds):
        raise ValueError(f"{count} seeds, must be 1 to {len(seeds)}, as many as the page has")
    return [scenario for scenario in scenarios if number(scenario.labels, "seed") in seeds[:count]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A column of a published row that comes out otherwise now."""

    labels: ResultRow
    column: str
    published: Value
    now: Value


def compare(experiment: Experiment, published: Sequence[ResultRow], *, count: int) -> list[Difference]:
    """Run the `count` shortest runs of a page again; return all that differs from its rows.

    Virtual time gives the same digits anywhere, so a difference says that the page is stale. Real runs and
    columns that are timed are left out.

    Raises:
        ValueError: the rows are not those of the experiment's scenarios.
    """
    scenarios = experiment.scenarios(False)
    if len(scenarios) != len(published):
        raise ValueError(f"{len(published)} rows are published, and {len(scenarios)} are to be run")
    same = [pair for pair in zip(scenarios, published, strict=True) if not pair[0].real]
    shortest = sorted(same, key=lambda pair: pair[0].elements)[:count]
    differences = []
    for scenario, before in shortest:
        row = _Task(scenario, experiment.measure)()
        differences += [
            Difference(scenario.labels, column, before.get(column), row.get(column))
            for column in dict.fromkeys([*before, *row])
            if column not in experiment.timed and before.get(column) != row.get(column)
        ]
    return differences


@dataclass(frozen=True, slots=True)
class _Task:
    scenario: Run
    measure: Measure

    def __call__(self) -> ResultRow:
        try:
            return {**self.scenario.labels, **self.measure(self.scenario.run())}
        except Exception as error:
            error.add_note(f"in the run {dict(self.scenario.labels)}")
            raise


def _call(task: _Task) -> ResultRow:
    return task()


def sweep(
    scenarios: Sequence[Run],
    measure: Measure,
    *,
    processes: int = 2,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ResultRow]:
    """Run all scenarios and return their rows, in order.

    `measure` must be a function of a module if there is more than one process. The first error ends the
    sweep; its note names the run.
    """
    tasks = [_Task(scenario, measure) for scenario in scenarios]
    rows: list[ResultRow] = []
    progress(0, len(tasks))
    if processes <= 1:
        for task in tasks:
            rows.append(task())
            progress(len(rows), len(tasks))
        return rows
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        try:
            for row in pool.map(_call, tasks):
                rows.append(row)
                progress(len(rows), len(tasks))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return rows


def averaged(rows: Sequence[ResultRow], by: Sequence[str]) -> list[ResultRow]:
    """Return one row for all rows that agree in the columns `by`, in the order in which they first turn up.

    Other columns become the mean of their numbers, over the rows that have one there; None if none has.
    """
    groups: dict[tuple[Value, ...], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    result: list[ResultRow] = []
    for key, group in groups.items():
        columns = dict.fromkeys(column for row in group for column in row if column not in by)
        means = {column: _mean([row.get(column) for row in group]) for column in columns}
        result.append({**dict(zip(by, key, strict=True)), **means})
    return result


def _mean(values: Sequence[Value]) -> float | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) / len(numbers) if numbers else None


def number(row: ResultRow, column: str) -> float:
    """Return a column that holds a number. Raises TypeError if it does not."""
    value = row[column]
    if not isinstance(value, int | float):
        raise TypeError(f"column {column} is {value!r} in the row {dict(row)}, want a number")
    return float(value)


def selected(rows: Sequence[ResultRow], **labels: Value) -> list[ResultRow]:
    """Return the rows with these labels."""
    return [row for row in rows if all(row[name] == value for name, value in labels.items())]


def column(rows: Sequence[ResultRow], name: str, **labels: Value) -> list[float]:
    """Return a column of the rows with these labels, which are the seeds of one setting."""
    return [number(row, name) for row in selected(rows, **labels)]


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return mean, minimum and maximum, as in ``1.50 (1.25..1.75)``; `form` as `format` takes it."""
    mean, least, most = (
        format(value, form) for value in (statistics.fmean(values), min(values), max(values))
    )
    return mean if least == most else f"{mean} ({least}..{most})"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first align right."""
    head = f"| {' | '.join(columns)} |"
    rule = f"| --- |{' ---: |' * (len(columns) - 1)}"
    return "\n".join([head, rule, *(f"| {' | '.join(row)} |" for row in rows)])


def mean_iteration_s(report: Report) -> float:
    """Return the mean time of an iteration over all jobs, each counted once."""
    return sum(job.mean_iteration_s for job in report.jobs) / len(report.jobs)


def read(experiment: Experiment, directory: Path) -> tuple[list[ResultRow], str]:
    """Return the rows that `write` wrote, and the command that made them. Raises OSError."""
    document = json.loads((directory / f"{experiment.name}.json").read_text(encoding="utf-8"))
    return document["rows"], document["command"]


def write(experiment: Experiment, rows: Sequence[ResultRow], directory: Path, *, command: str) -> list[Path]:
    """Write the rows, the page and the plots; return the files. Without matplotlib there are no plots."""
    directory.mkdir(parents=True, exist_ok=True)
    base = directory / experiment.name
    document = {"name": experiment.name, "command": command, "rows": [dict(row) for row in rows]}
    data = base.with_suffix(".json")
    data.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    try:
        plots = list(experiment.plots(rows, directory))
    except PlotsMissing as error:
        print(f"no plots: {error}", file=sys.stderr)
        plots = []
    pictures = "\n\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    parts = [
        f"# {experiment.title}",
        experiment.question.strip(),
        _section("Setting", experiment.about),
        _section("Results", f"{experiment.tables(rows).strip()}\n\n{pictures}"),
        _section("What it shows", experiment.findings(rows)),
        _section("Limits", experiment.limits),
        _section(
            "Again", f"```\n{command}\n```\n\nmakes this page; the rows are in [{data.name}]({data.name})."
        ),
    ]
    page = base.with_suffix(".md")
    page.write_text(wrap("\n\n".join(part for part in parts if part)) + "\n", encoding="utf-8")
    return [data, page, *plots]


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text.strip()}" if text.strip() else ""
