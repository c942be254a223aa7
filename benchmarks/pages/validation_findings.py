"""What the rows of the experiment `cluster-validation` show, in words; figures come from the rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.pages.cases import WINDOW
from benchmarks.pages.validation_jobs import JobTimes, correlations, jobs_of, p95, sizes
from benchmarks.pages.validation_runs import (
    AVERAGE,
    BY_ARTICLE,
    HELD,
    JITTERS,
    PHASES,
    PREEMPTIVE,
    RACKS,
    SETS,
    SHARED,
    cases,
)
from bmv2_topos.harness import ResultRow, column, selected

MANY: Final = 12
"""Jobs that are many on two racks."""


def findings(rows: Sequence[ResultRow]) -> str:
    """Return the findings of all scenarios; none for some of them."""
    jobs = jobs_of(rows)
    if len({(job.case, job.memory) for job in jobs}) < len(cases()):
        return ""
    bullets = "\n".join(f"- {line}" for line in (*_figures(jobs), *_failures(jobs)))
    return f"{bullets}\n\n### Which hold time is right?\n\n{_hold(selected(rows, part=HELD))}"


def _figures(jobs: Sequence[JobTimes]) -> Iterator[str]:
    scenarios = len({(job.case, job.memory) for job in jobs})
    phases, average = (sizes(jobs, model) for model in (PHASES, AVERAGE))
    ranks = statistics.fmean(correlations(jobs, PHASES).values())
    yield (
        f"The median error in phases is {statistics.median(phases):.1%}, the 95th"
        f" percentile {p95(phases):.1%}, over {scenarios} scenarios and {len(jobs)}"
        f" jobs. The mean rank correlation of policies is {ranks:.2f}."
    )
    yield (
        f"On average (`--model average`) the median is {statistics.median(average):.1%} and the 95th"
        f" percentile {p95(average):.1%}."
    )


def _failures(jobs: Sequence[JobTimes]) -> Iterator[str]:
    racks = [job for job in jobs if job.kind == RACKS and job.jobs >= MANY]
    preemptive, shared = (
        [job.error() for job in jobs if job.kind == SETS and job.memory == memory]
        for memory in (PREEMPTIVE, SHARED)
    )
    yield (
        f"What is left are three kinds of jobs. Some of {MANY} and more on two racks are off by up to"
        f" {min(job.error() for job in racks):+.0%}: water-filling gives all an equal share of a trunk at"
        " once, and windows take many round trips to come to one. With preemptive memory the mean error is"
        f" {statistics.fmean(preemptive):+.0%}, and {min(preemptive):+.0%} at worst: a job that is given"
        " other slots moves to them over two windows of packets, which is much of six iterations here and"
        f" nothing of thousands. With shared memory it is {statistics.fmean(shared):+.0%}: collisions also"
        " cost reminders and packets sent again, which are no flows."
    )
    alone = max((job for job in jobs if job.jobs == 1), key=JobTimes.error)
    yield (
        f"The job alone that is farthest off (`{alone.case}`, {alone.slots} slots) is so by"
        f" {alone.error():+.0%}: the flows take a skewed job's whole window for held, and here all its"
        " packets found slots."
    )


def _hold(rows: Sequence[ResultRow]) -> str:
    by_article, by_window, twice = (
        column(rows, "iteration_s", jitter=JITTERS[1], slots=slots)[0]
        for slots in (BY_ARTICLE, WINDOW, 2 * WINDOW)
    )
    return (
        f"The article's formula holds a slot for a round trip: {BY_ARTICLE} slots for all of the link's rate"
        " here. That is more than enough for ranks in step, and too few for others: with"
        f" {JITTERS[1]:.0%} of jitter an iteration takes {by_article / by_window - 1:.0%} longer than with"
        f" {WINDOW}. Early ranks have their whole window under way while they wait, so what is held is the"
        " window, however short the round trip. A formula that is fed with this time (`--reading measured`"
        f" with `hold_s`) asks for {WINDOW} slots, which suffice; twice as many bring"
        f" {by_window / twice - 1:.1%}."
    )
