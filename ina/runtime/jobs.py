"""Runs jobs at the same time: a thread for each, and one that monitors all.

The jobs of one group take turns on storage, CPU, GPU and network (`hostlib.interleave`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from hostlib.launch.launcher import Output
from ina.runtime.errors import GroupFailed
from ina.runtime.hosts import Hosts
from ina.runtime.launch import JobRun
from ina.runtime.spec import JobResult, LaunchSpec, Reports

TICK_S = 0.1

OnOutput = Callable[[LaunchSpec, int, bytes, bool], None]
"""Gets what workers write: job, and the rest as in `hostlib.launch.launcher.Output`."""

OnProgress = Callable[[Mapping[str, Reports]], None]
"""Gets the workers' reports by job name, several times per second."""

Granted = Callable[[str], int]
"""Returns how many packets a job may have in flight; 0: no bound. Asked several times per second."""


class Launcher(Protocol):
    """Runs jobs: admits them to switches first, or finds them admitted."""

    @property
    def hosts(self) -> Hosts:
        """Where workers run."""

    def launch(self, run: JobRun) -> JobResult | None:
        """Run a job to its end; None if it was cancelled before it began."""

    def ended(self) -> str | None:
        """Return which part that jobs need has ended for good, and how; None while all run."""


def run_jobs(
    launcher: Launcher,
    runs: Sequence[JobRun],
    *,
    on_output: OnOutput,
    on_progress: OnProgress = lambda reports: None,
    granted: Granted = lambda name: 0,
    on_end: Callable[[JobRun], None] = lambda end: None,
) -> None:
    """Run jobs at the same time; if one fails, the others continue.

    An exception here (an interrupt) ends all of them, and records their results, before it is raised further.

    Args:
        launcher: Runs each.
        runs: The jobs, of which none has begun.
        on_output: Called with the output of workers.
        on_progress: Called with the reports of all ranks.
        granted: Bounds the jobs' packets in flight.
        on_end: Called with each job's end at once, in a thread of its own.
    """
    for run in runs:
        run.on_output = _for_job(on_output, run.spec)
    threads = [
        threading.Thread(target=_run, args=(launcher, run, on_end), name=run.spec.job.name) for run in runs
    ]

    def grant() -> None:
        for run in runs:
            run.grant(granted(run.spec.job.name))

    try:
        grant()
        for thread in threads:
            thread.start()
        while not all(run.over.wait(TICK_S) for run in runs):
            if why := launcher.ended():
                for run in runs:
                    run.fault(why)
            grant()
            on_progress({run.spec.job.name: run.reports() for run in runs})
    except BaseException:
        for run in runs:
            run.cancel()
        raise
    finally:
        # Not by Thread.join: if a signal interrupts it, Python takes the thread for ended.
        for thread, run in zip(threads, runs, strict=True):
            if thread.ident is not None:
                run.over.wait()


def first_failure(runs: Sequence[JobRun]) -> JobRun | None:
    """Return the job that failed first."""
    failed = [run for run in runs if run.failure()]
    return min(failed, key=_failed_at_s, default=None)


def _failed_at_s(run: JobRun) -> float:
    # The other workers of a job that failed take their time to notice.
    return run.result.failure.at_s if run.result and run.result.failure else run.at_s


def _run(launcher: Launcher, run: JobRun, on_end: Callable[[JobRun], None]) -> None:
    try:
        run.result = launcher.launch(run)
    except BaseException as error:
        run.error = error
    run.at_s = time.monotonic()
    try:
        on_end(run)
    finally:
        run.over.set()


def _for_job(on_output: OnOutput, spec: LaunchSpec) -> Output:
    return lambda rank, data, is_error: on_output(spec, rank, data, is_error)


class _Stopped(Exception):
    """The group was told to stop."""


class GroupRun:
    """One group from its start to its end; `run` blocks, the rest may be called from other threads."""

    def __init__(
        self,
        launcher: Launcher,
        specs: Sequence[LaunchSpec],
        offsets: Sequence[int],
        *,
        on_output: OnOutput,
        on_end: Callable[[JobRun], None] = lambda end: None,
        granted: Granted = lambda name: 0,
    ) -> None:
        """Prepare a group. Raises GroupError.

        Args:
            launcher: Runs each job.
            specs: The jobs.
            offsets: The stages at which they start their rounds.
            on_output: Called with what workers write.
            on_end: Called with each job's end at once, in a thread of its own; not of a cancelled job.
            granted: Bounds the jobs' packets in flight.
        """
        from hostlib import interleave  # jobs that take no turns start without

        self._launcher = launcher
        self._on_output = on_output
        self._on_end = on_end
        self._granted = granted
        self._stopping = threading.Event()
        self._reports: dict[str, Reports] = {}
        names = [spec.job.name for spec in specs]
        self.turns = interleave.TurnServer(
            dict(zip(names, offsets, strict=True)),
            {spec.job.name: spec.job.workers for spec in specs},
            host=launcher.hosts.group_host,
        )
        self._specs = [
            replace(spec, variables={**spec.variables, **self.turns.environment(spec.job.name)})
            for spec in specs
        ]

    def run(self) -> list[JobRun]:
        """Run all jobs to their ends, in the order given; if one fails, the others end, too.

        After `cancel` their workers are ended. An exception here (an interrupt) ends all jobs before it is
        raised further.
        """
        ends = [JobRun(spec) for spec in self._specs]
        with self.turns, contextlib.suppress(_Stopped):
            run_jobs(
                self._launcher,
                ends,
                on_output=self._on_output,
                on_progress=self._on_tick,
                granted=self._granted,
                on_end=self._ended,
            )
        return ends

    def reports(self, job: str) -> Reports:
        """Return the latest report of each rank of a job that has sent one."""
        return self._reports.get(job, {})

    def cancel(self) -> None:
        """End the jobs soon."""
        self._stopping.set()

    def check(self, ends: Sequence[JobRun]) -> None:
        """Raise GroupFailed if the group broke, naming the job that failed, or any other error.

        Nothing is wrong with a group that was cancelled.
        """
        if self._stopping.is_set():
            return
        if why := self.turns.broken:
            names = ", ".join(spec.job.name for spec in self._specs)
            how = next((end.failure() for end in ends if end.spec.job.name == self.turns.culprit), None)
            raise GroupFailed(f"the group of {names} broke: {why}" + (f" ({how})" if how else ""))
        for end in ends:
            end.check()

    def _ended(self, end: JobRun) -> None:
        failure = end.failure()
        # of a job that was cancelled nothing is told, unless its workers had ended before
        if self._stopping.is_set() and (end.interrupted or end.result is None or failure is not None):
            return
        if len(self._specs) > 1:  # alone it may do without
            why = str(failure or "a process ended without joining the group")
            self.turns.ended(end.spec.job.name, why)
        self._on_end(end)

    def _on_tick(self, reports: Mapping[str, Reports]) -> None:
        self._reports |= reports
        if self._stopping.is_set():
            raise _Stopped
