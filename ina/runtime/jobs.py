"""Runs jobs at the same time: a thread for each, and one that monitors all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hostlib.launch.launcher import Output
from ina.runtime.errors import WorkerFailed
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


@dataclass(slots=True)
class JobEnd:
    """End of a job: its result, or the error that prevented one."""

    spec: LaunchSpec
    result: JobResult | None = None
    error: BaseException | None = None
    at_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def interrupted(self) -> bool:
        """True if its workers were ended because `run_jobs` was."""
        return self.result is not None and self.result.interrupted

    def check(self) -> None:
        """Raise the error, if there is one."""
        if failure := self.failure():
            raise failure

    def failure(self) -> BaseException | None:
        """Return the error with which it failed, the one raised or WorkerFailed; None if it did not fail."""
        if self.error is not None:
            return self.error
        if self.result is not None and (failed := self.result.failure):
            who = f"rank {failed.rank} " if failed.rank >= 0 else ""
            return WorkerFailed(f"{who}{failed.reason}")
        return None


def run_jobs(
    launcher: Launcher,
    ends: Sequence[JobEnd],
    *,
    on_output: OnOutput,
    on_progress: OnProgress = lambda reports: None,
    granted: Granted = lambda name: 0,
    on_end: Callable[[JobEnd], None] = lambda end: None,
) -> None:
    """Run jobs at the same time; if one fails, the others continue.

    An exception here (an interrupt) ends all of them, and records their results, before it is raised further.

    Args:
        launcher: Runs each.
        ends: The jobs; results and errors are filled in.
        on_output: Called with the output of workers.
        on_progress: Called with the reports of all ranks.
        granted: Bounds the jobs' packets in flight.
        on_end: Called with each job's end at once, in a thread of its own.
    """
    runs = [JobRun(end.spec, _for_job(on_output, end.spec)) for end in ends]
    threads = [
        threading.Thread(target=_run, args=(launcher, run, end, on_end), name=end.spec.job.name)
        for run, end in zip(runs, ends, strict=True)
    ]

    def grant() -> None:
        for end, run in zip(ends, runs, strict=True):
            run.grant(granted(end.spec.job.name))

    try:
        grant()
        for thread in threads:
            thread.start()
        while not all(end.over.wait(TICK_S) for end in ends):
            if why := launcher.ended():
                for run in runs:
                    run.fault(why)
            grant()
            on_progress({end.spec.job.name: run.reports() for end, run in zip(ends, runs, strict=True)})
    except BaseException:
        for run in runs:
            run.cancel()
        raise
    finally:
        # Not by Thread.join: if a signal interrupts it, Python takes the thread for ended.
        for thread, end in zip(threads, ends, strict=True):
            if thread.ident is not None:
                end.over.wait()


def first_failure(ends: Sequence[JobEnd]) -> JobEnd | None:
    """Return the job that failed first."""
    failed = [end for end in ends if end.failure()]
    return min(failed, key=_failed_at_s, default=None)


def _failed_at_s(end: JobEnd) -> float:
    # The other workers of a job that failed take their time to notice.
    return end.result.failure.at_s if end.result and end.result.failure else end.at_s


def _run(launcher: Launcher, run: JobRun, end: JobEnd, on_end: Callable[[JobEnd], None]) -> None:
    try:
        end.result = launcher.launch(run)
    except BaseException as error:
        end.error = error
    end.at_s = time.monotonic()
    try:
        on_end(end)
    finally:
        end.over.set()


def _for_job(on_output: OnOutput, spec: LaunchSpec) -> Output:
    return lambda rank, data, is_error: on_output(spec, rank, data, is_error)
