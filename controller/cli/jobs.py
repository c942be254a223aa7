"""Runs jobs at the same time on one cluster: a thread for each, and one that watches over all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.cli.cluster import Cluster, open_cluster
from controller.cli.errors import Failure, verdict
from controller.cli.job import JobRun
from controller.cli.spec import ClusterSpec, JobResult, JobSpec, Reports

TICK_S = 0.1

OnLine = Callable[[JobSpec, int, str, bool], None]
"""Gets what workers write: job, rank, line, whether it came from stderr."""

OnProgress = Callable[[Mapping[str, Reports]], None]
"""Gets the workers' reports by job name, several times per second."""


@dataclass(slots=True)
class JobEnd:
    """What came of a job: a result, or an error before it could have one."""

    spec: JobSpec
    result: JobResult | None = None
    error: BaseException | None = None
    at_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error
        if failure := self.failure():
            raise failure

    def failure(self) -> Failure | None:
        """Return why it failed, with the exit status that says so, or None."""
        if self.error is not None:
            return Failure(*verdict(self.error))
        if self.result is not None and (failed := self.result.failure):
            who = f"rank {failed.rank} " if failed.rank >= 0 else ""
            return Failure(f"{who}{failed.reason}", exit_code=failed.status)
        return None


def run_jobs(
    cluster: Cluster,
    specs: Sequence[JobSpec],
    *,
    on_line: OnLine,
    on_progress: OnProgress = lambda reports: None,
) -> list[JobEnd]:
    """Run jobs to their ends, in the order of `specs`; one that fails leaves the others alone.

    An exception here (an interrupt) ends all of them before it goes on.
    """
    ends = [JobEnd(spec) for spec in specs]
    runs = [JobRun(cluster, spec, _for_job(on_line, spec)) for spec in specs]
    threads = [
        threading.Thread(target=_run, args=(run, end), name=end.spec.name)
        for run, end in zip(runs, ends, strict=True)
    ]
    try:
        for thread in threads:
            thread.start()
        while not all(end.over.wait(TICK_S) for end in ends):
            if why := cluster.ended():
                for run in runs:
                    run.fault(why)
            on_progress({spec.name: run.reports() for spec, run in zip(specs, runs, strict=True)})
    except BaseException:
        for run in runs:
            run.cancel()
        raise
    finally:
        # Not by Thread.join: if a signal interrupts it, Python takes the thread for ended.
        for thread, end in zip(threads, ends, strict=True):
            if thread.ident is not None:
                end.over.wait()
    return ends


def run_alone(
    cluster_spec: ClusterSpec,
    spec: JobSpec,
    *,
    on_line: OnLine,
    on_progress: OnProgress = lambda reports: None,
) -> JobResult:
    """Run one job on switches of its own.

    Raises Failure if it failed, or what kept it from running.
    """
    with open_cluster(cluster_spec, [spec.workers]) as cluster:
        (end,) = run_jobs(cluster, [spec], on_line=on_line, on_progress=on_progress)
    end.check()
    assert end.result is not None
    return end.result


def first_failure(ends: Sequence[JobEnd]) -> JobEnd | None:
    """Return the job that failed before any other did."""
    failed = [end for end in ends if end.failure()]
    return min(failed, key=_failed_at_s, default=None)


def _failed_at_s(end: JobEnd) -> float:
    # The other workers of a job that failed take their time to notice.
    return end.result.failure.at_s if end.result and end.result.failure else end.at_s


def _run(run: JobRun, end: JobEnd) -> None:
    try:
        end.result = run.run()
    except BaseException as error:
        end.error = error
    end.at_s = time.monotonic()
    end.over.set()


def _for_job(on_line: OnLine, spec: JobSpec) -> Callable[[int, str, bool], None]:
    return lambda rank, line, is_error: on_line(spec, rank, line, is_error)
