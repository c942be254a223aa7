"""Runs an experiment, in parallel processes, or again as a check of rows that are there.

The rows, in the order of the runs, do not depend on the number of processes that ran them.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

from bmv2_topos.harness.errors import BadExperiment, RunFailed
from bmv2_topos.harness.load import load
from bmv2_topos.harness.model import Experiment, Run
from bmv2_topos.harness.rows import ResultRow, Value


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
    columns that are timed are left out, and a page may lack rows of real runs, whose tools were not there.

    Raises:
        ValueError: the rows are not those of the experiment's scenarios.
    """
    runs, left = experiment.scenarios(False), list(published)
    same: list[tuple[Run, ResultRow]] = []
    lacking = 0
    for run in runs:
        row = next((row for row in left if run.labels.items() <= row.items()), None)
        if row is None:
            lacking += not run.real
            continue
        left.remove(row)
        if not run.real:
            same.append((run, row))
    if left or lacking:
        raise ValueError(f"{len(published)} rows are published, and {len(runs)} are to be run")
    shortest = sorted(same, key=lambda pair: pair[0].elements)[:count]
    differences = []
    for scenario, before in shortest:
        row = _row(experiment, scenario)
        differences += [
            Difference(scenario.labels, column, before.get(column), row.get(column))
            for column in dict.fromkeys([*before, *row])
            if column not in experiment.timed and before.get(column) != row.get(column)
        ]
    return differences


def sweep(
    experiment: Experiment,
    runs: Sequence[Run],
    *,
    quick: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ResultRow]:
    """Run these runs of an experiment and return their rows, in order.

    Args:
        experiment: With more than one process, one that `load` has found: they load it, too.
        runs: Some or all of ``experiment.scenarios(quick)``.
        quick: Whether they are those of a trial.
        processes: Processes that share the runs; 1: they are run in this one.
        progress: Called with the number of runs that are done, and of all.

    Raises:
        RunFailed: a run raised an error, the first of all; the others are not waited for.
        BadExperiment: two runs have the same labels.
    """
    keys = [_key(run) for run in runs]
    if len({*keys}) < len(keys):
        twice = next(dict(key) for place, key in enumerate(keys) if key in keys[:place])
        raise BadExperiment(f"two runs have the same labels: {named(twice)}")
    rows: list[ResultRow] = []
    progress(0, len(runs))
    if processes <= 1 or not experiment.source:
        for run in runs:
            rows.append(_row(experiment, run))
            progress(len(rows), len(runs))
        return rows
    tasks = [_Task(experiment.source, quick, key) for key in keys]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        try:
            for row in pool.map(_call, tasks):
                rows.append(row)
                progress(len(rows), len(runs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return rows


def named(labels: ResultRow) -> str:
    """Return labels as text, as in ``window 64, seed 1``."""
    return ", ".join(f"{name} {value}" for name, value in labels.items()) or "without labels"


_Key = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """A run by where it is found: runs hold functions, which other processes cannot be sent."""

    source: str
    quick: bool
    key: _Key


def _call(task: _Task) -> ResultRow:
    return _row(load(task.source), _runs(task.source, task.quick)[task.key])


@cache
def _runs(source: str, quick: bool) -> Mapping[_Key, Run]:
    return {_key(run): run for run in load(source).scenarios(quick)}


def _key(run: Run) -> _Key:
    return tuple(run.labels.items())


def _row(experiment: Experiment, run: Run) -> ResultRow:
    try:
        return {**run.labels, **experiment.measure(run.run())}
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename.endswith(experiment.source or "\0")]
        at = (own or frames)[-1]
        said = f"{type(error).__name__}: {error} ({at.filename}:{at.lineno})"
        raise RunFailed(f"the run {named(run.labels)}: {said}") from error
