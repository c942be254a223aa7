"""An experiment as data: runs with the labels of their rows, and the processing of the rows.

A `Run` is mostly a `Scenario` in virtual time, or a `Call` of a function; an `Experiment` turns the results
of runs into numbers, and rows into tables and plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bmv2_topos.faults import Fault
from bmv2_topos.harness.rows import ResultRow, number
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Link


class Run(Protocol):
    """One run."""

    @property
    def labels(self) -> ResultRow:
        """Columns that identify its row."""

    @property
    def real(self) -> bool:
        """True if the result depends on the machine, and differs between runs."""

    @property
    def missing(self) -> str:
        """This machine's or user's missing requirements, as a sentence; empty if none."""

    @property
    def elements(self) -> int:
        """Elements that all workers send: a measure of the run's duration."""

    def run(self) -> Any:
        """Run it, and return the input of the experiment's `measure`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run in virtual time."""

    jobs: tuple[Job, ...]
    settings: VirtualSettings
    labels: ResultRow = field(default_factory=dict)
    """Columns that identify its row."""
    shape: tuple[int, ...] | None = None
    """Children per level of a tree that holds one job; None: one switch."""
    link: Link | None = None
    trunk: Link | None = None
    transit: tuple[int, ...] = ()
    """Levels of the tree, the root's 0, whose switches pass packets on without adding."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rates of the links of some hosts, bits/s."""
    faults: tuple[Fault, ...] = ()

    real: ClassVar[bool] = False
    """Virtual time gives the same digits anywhere."""
    missing: ClassVar[str] = ""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run that is a call."""

    labels: ResultRow
    """Columns that identify its row."""
    call: Callable[[], Any]
    """Returns what the experiment's `measure` takes."""
    elements: int = 0
    """Elements that all workers send packet by packet; 0: it is only computed, in less than a second."""
    real: bool = False
    """The result depends on the machine, and differs between calls."""

    missing: ClassVar[str] = ""

    def run(self) -> Any:
        """Call it."""
        return self.call()


def columns(found: ResultRow) -> ResultRow:
    """Return the result of a call as columns: the `measure` of experiments whose runs are calls."""
    return found


Measure = Callable[[Any], ResultRow]
"""Computes the columns to add to a run's labels from its result, a `Report` in virtual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A sweep, and the page made of its rows."""

    name: str = ""
    """Name of its files; "": its module's."""
    title: str
    question: str = ""
    """The question, and findings of others; Markdown, as all texts that follow."""
    about: str = ""
    """The runs, and the meaning of the columns."""
    scenarios: Callable[[bool], Iterable[Run]]
    """Makes the runs; True: few and short ones, for a trial."""
    measure: Measure
    tables: Callable[[Sequence[ResultRow]], str]
    """Makes the page's tables of the rows."""
    findings: Callable[[Sequence[ResultRow]], str] = field(default=lambda rows: "")
    """Makes the text of the findings; figures in it come from the rows. Pages that are kept have sentences of
    their own, beside the marks (`page`)."""
    limits: str = ""
    """Limits of the experiment."""
    plots: Callable[[Sequence[ResultRow], Path], Sequence[Path]] = field(default=lambda rows, directory: [])
    """Draws plots of the rows into a directory; returns their files."""
    timed: frozenset[str] = frozenset()
    """Columns measured on the machine: their values differ between runs."""
    source: str = ""
    """The file or module that defines it (`load`), from which other processes load it, too."""


def with_seeds(scenarios: Iterable[Run], count: int) -> list[Run]:
    """Return the runs with the first `count` seeds. Raises ValueError if there are fewer."""
    scenarios = list(scenarios)
    seeds = sorted({number(scenario.labels, "seed") for scenario in scenarios if "seed" in scenario.labels})
    if not seeds:
        raise ValueError(f"{count} seeds, and nothing of the page is random")
    if not 1 <= count <= len(seeds):
        raise ValueError(f"{count} seeds, must be 1 to {len(seeds)}, as many as the page has")
    return [scenario for scenario in scenarios if number(scenario.labels, "seed") in seeds[:count]]


def mean_iteration_s(report: Report) -> float:
    """Return the mean time of an iteration over all jobs, each counted once."""
    return sum(job.mean_iteration_s for job in report.jobs) / len(report.jobs)
