"""Runs an experiment in parallel processes, and repeats some runs to check published rows.

The rows, in the order of the runs, do not depend on the number of processes that ran them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import NoReturn

from bmv2_topos.harness.errors import BadExperiment, RunFailed
from bmv2_topos.harness.load import load
from bmv2_topos.harness.model import Experiment, Measure, Run
from bmv2_topos.harness.rows import ResultRow, Value, plain
from controller.interrupts import delay_interrupts
from controller.plugins import is_user_error


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of a published row that is different when the run is repeated."""

    labels: ResultRow
    column: str
    published: Value
    now: Value


def compare(experiment: Experiment, published: Sequence[ResultRow], *, count: int) -> list[Difference]:
    """Repeat the `count` shortest runs of an experiment; return their differences from the rows `published`.

    Virtual time gives the same digits anywhere, so a difference means that the published page is stale. Real
    runs and timed columns are not compared. The published rows may lack real runs, because tools for them
    were missing.

    Raises:
        ValueError: the rows do not match the experiment's runs.
    """
    runs, left = list(experiment.scenarios(False)), list(published)
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
        raise ValueError(
            f"{len(published)} rows are published, and the experiment has {len(runs)} runs, whose"
            " labels do not match the rows: make the page again"
        )
    shortest = sorted(same, key=lambda pair: pair[0].elements)[:count]
    differences = []
    for scenario, before in shortest:
        row = _row(experiment.measure, scenario, experiment.source)
        differences += [
            Difference(scenario.labels, column, before.get(column), row.get(column))
            for column in dict.fromkeys([*before, *row])
            if column not in experiment.timed and before.get(column) != row.get(column)
        ]
    return differences


def sweep(
    experiment: Experiment,
    runs: Iterable[Run],
    *,
    quick: bool = False,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ResultRow]:
    """Run these runs of an experiment and return their rows, in order.

    Args:
        experiment: The experiment. Each of several processes loads it from `Experiment.source`. If the source
            is "", the processes get the experiment's `measure` and its runs, which `pickle` must then
            support.
        runs: Some or all of ``experiment.scenarios(quick)``.
        quick: True if `runs` come from ``experiment.scenarios(True)``, a trial.
        processes: Number of processes that share the runs; 1: run them in this process.
        progress: Called with the number of finished runs and the number of all runs.

    Raises:
        RunFailed: a run raised an error, or a process died. Runs that have not started are cancelled.
        BadExperiment: two runs have the same labels.
    """
    runs = list(runs)
    keys = [_key(run) for run in runs]
    if len({*keys}) < len(keys):
        twice = next(dict(key) for place, key in enumerate(keys) if key in keys[:place])
        raise BadExperiment(f"two runs have the same labels: {named(twice)}")
    rows: list[ResultRow] = []
    progress(0, len(runs))
    if processes <= 1:
        for run in runs:
            rows.append(_row(experiment.measure, run, experiment.source))
            progress(len(rows), len(runs))
        return rows
    calls: list[Callable[[], ResultRow]]
    if experiment.source:
        calls = [partial(_found, experiment.source, quick, key) for key in keys]
    else:
        calls = [partial(_row, experiment.measure, run) for run in runs]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(processes, len(calls)), mp_context=context, initializer=_end_at_interrupts
    ) as pool:
        try:
            with delay_interrupts():
                found = pool.map(_call, calls)
            for row in found:
                rows.append(row)
                progress(len(rows), len(runs))
        except BrokenProcessPool as error:
            at = named(runs[len(rows)].labels)
            raise RunFailed(
                f"a process ended during the run {at} or one after it: it was killed, lacked memory,"
                " or called os._exit"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return rows


def named(labels: ResultRow) -> str:
    """Return labels as text, as in ``window 64, seed 1``."""
    return ", ".join(f"{name} {value}" for name, value in labels.items()) or "without labels"


_Key = tuple[tuple[str, Value], ...]


def _end_at_interrupts() -> None:
    """Make an interrupt end this process of a pool, even if it arrived during the process's imports.

    An interrupt from the terminal reaches all processes; only the parent reports it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _call(call: Callable[[], ResultRow]) -> ResultRow:
    return call()


def _found(source: str, quick: bool, key: _Key) -> ResultRow:
    """Carry out the run with this key (its labels) of the experiment `source`, and return its row.

    The key is passed to this process instead of the run, because runs with functions cannot be pickled.
    """
    return _row(load(source).measure, _runs(source, quick)[key], source)


@cache
def _runs(source: str, quick: bool) -> Mapping[_Key, Run]:
    return {_key(run): run for run in load(source).scenarios(quick)}


def _key(run: Run) -> _Key:
    return tuple(run.labels.items())


def _row(measure: Measure, run: Run, source: str = "") -> ResultRow:
    try:
        with _exits_raised(run):
            measured = measure(run.run())
        return {**run.labels, **{name: plain(value) for name, value in measured.items()}}
    except BaseException as error:
        if not is_user_error(error):
            raise
        message = f"{type(error).__name__}: {error}{_place(error, source)}" if source else str(error)
        raise RunFailed(f"the run {named(run.labels)}: {message}") from error


@contextmanager
def _exits_raised(run: Run) -> Iterator[None]:
    """Make os._exit raise SystemExit, in the block and in this thread.

    Otherwise a call of os._exit would end the process without a message.
    """
    real_exit, own = os._exit, (os.getpid(), threading.get_ident())

    def exit_(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) == own:
            raise SystemExit(f"os._exit({status})")
        real_exit(status)

    os._exit = exit_
    try:
        yield
    finally:
        os._exit = real_exit


def _place(error: BaseException, source: str) -> str:
    """Return the file and line of an error as text: if possible, a line of the experiment's own file."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith(source)]
    at = (own or frames)[-1]
    return f" ({at.filename}:{at.lineno})"
