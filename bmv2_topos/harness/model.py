"""An experiment as data: runs with the labels of their rows, and the processing of the rows.

A `Run` is a `Scenario` in virtual time, or a `Call` of a function. An `Experiment` has the functions that
turn results of runs into rows of numbers, and rows into tables and plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bmv2_topos.harness.rows import ResultRow, number
from bmv2_topos.testbeds.virtual import Report


class Run(Protocol):
    """One run of an experiment, which makes one row of results."""

    @property
    def labels(self) -> ResultRow:
        """Columns that identify the run's row."""

    @property
    def real(self) -> bool:
        """True if the result depends on the machine, and differs between runs."""

    @property
    def missing(self) -> str:
        """Requirements of the run that this machine or user lacks, as a sentence; empty if none."""

    @property
    def elements(self) -> int:
        """Number of tensor elements that all workers send together: a measure of the run's duration."""

    def run(self) -> Any:
        """Carry out the run, and return the result to pass to the experiment's `measure`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run that calls a function."""

    labels: ResultRow
    """Columns that identify the run's row."""
    call: Callable[[], Any]
    """Function to call; the experiment's `measure` gets its result."""
    elements: int = 0
    """Number of tensor elements that all workers send, if the call simulates packets; 0 for a call that
    simulates no packets and takes less than a second."""
    real: bool = False
    """True if the result depends on the machine, and differs between calls."""

    missing: ClassVar[str] = ""

    def run(self) -> Any:
        """Call the function and return its result."""
        return self.call()


def columns(found: ResultRow) -> ResultRow:
    """Return `found` unchanged; use it as `measure` in experiments whose calls already return columns."""
    return found


Measure = Callable[[Any], ResultRow]
"""Function that takes the result of a run (in virtual time, a `Report`) and returns the columns to add to the
run's labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A set of runs, and the page made of their rows."""

    name: str = ""
    """Base name of the files to write; "": the name of the experiment's own file or module."""
    title: str
    question: str = ""
    """The question that the experiment answers, and the findings of earlier work. All texts of an experiment
    are Markdown."""
    about: str = ""
    """Description of the runs and of the columns."""
    scenarios: Callable[[bool], Iterable[Run]]
    """Function that returns the runs; with True as its argument, a few short runs for a trial."""
    measure: Measure
    tables: Callable[[Sequence[ResultRow]], str]
    """Function that turns the rows into the tables of the page."""
    findings: Callable[[Sequence[ResultRow]], str] = field(default=lambda rows: "")
    """Function that writes the findings for a new page, with figures from the rows. A page that exists
    already, with the marks that `page` describes, keeps its own findings."""
    limits: str = ""
    """Limits of the experiment."""
    plots: Callable[[Sequence[ResultRow], Path], Sequence[Path]] = field(default=lambda rows, directory: [])
    """Function that draws plots of the rows into a directory and returns their files."""
    timed: frozenset[str] = frozenset()
    """Columns measured on the machine: their values differ between runs."""
    source: str = ""
    """The file or module that defines the experiment, set by `load`; other processes load it from there."""


def with_seeds(scenarios: Iterable[Run], count: int) -> list[Run]:
    """Return the runs with the first `count` seeds. Raises ValueError if there are fewer."""
    scenarios = list(scenarios)
    seeds = sorted({number(scenario.labels, "seed") for scenario in scenarios if "seed" in scenario.labels})
    if not seeds:
        raise ValueError(f"{count} seeds cannot be run: no run of the experiment has a seed")
    if not 1 <= count <= len(seeds):
        raise ValueError(f"{count} seeds cannot be run; want 1 to {len(seeds)}, the seeds of the experiment")
    return [scenario for scenario in scenarios if number(scenario.labels, "seed") in seeds[:count]]


def mean_iteration_s(report: Report) -> float:
    """Return the mean over all jobs of their mean iteration times, in seconds; jobs have equal weight."""
    return sum(job.mean_iteration_s for job in report.jobs) / len(report.jobs)
