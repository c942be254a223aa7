"""Runs admitted jobs at the same time: a thread for each, and one that monitors all.

The jobs of one group take turns on storage, CPU, GPU and network (`hostlib.interleave`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from hostlib.launch.launcher import Output, Rendezvous
from ina.runtime.errors import GroupFailed
from ina.runtime.launch import Admitted, JobRun, met
from ina.runtime.spec import LaunchSpec, Reports

if TYPE_CHECKING:
    from hostlib import interleave

TICK_S = 0.1

OnOutput = Callable[[LaunchSpec, int, bytes, bool], None]
"""Gets what workers write: job, and the rest as in `hostlib.launch.launcher.Output`."""

OnProgress = Callable[[Mapping[str, Reports]], None]
"""Gets the workers' reports by job name, several times per second."""

Granted = Callable[[str], int]
"""Returns how many packets a job may have in flight; 0: no bound. Asked several times per second."""

Meet = Callable[[Admitted], AbstractContextManager[Rendezvous]]
"""Keeps the meeting point of a job's ranks."""


def first_failure(runs: Sequence[JobRun]) -> JobRun | None:
    """Return the job that failed first."""
    failed = [run for run in runs if run.failure()]
    return min(failed, key=_failed_at_s, default=None)


def _failed_at_s(run: JobRun) -> float:
    # The other workers of a job that failed take their time to notice.
    return run.result.failure.at_s if run.result and run.result.failure else run.at_s


def _for_job(on_output: OnOutput, spec: LaunchSpec) -> Output:
    return lambda rank, data, is_error: on_output(spec, rank, data, is_error)


class GroupRun:
    """One group from its start to its end; `run` blocks, the rest may be called from other threads."""

    def __init__(
        self,
        jobs: Sequence[Admitted],
        offsets: Sequence[int] | None,
        *,
        on_output: OnOutput,
        on_end: Callable[[JobRun], None] = lambda end: None,
        granted: Granted = lambda name: 0,
        meet: Meet = met,
    ) -> None:
        """Prepare a group. Raises GroupError.

        Args:
            jobs: The jobs.
            offsets: The stages at which they start their rounds; None: they take no turns.
            on_output: Called with what workers write.
            on_end: Called with each job's end at once, in a thread of its own; not of a cancelled job.
            granted: Bounds the jobs' packets in flight.
            meet: Keeps the meeting point of each job.
        """
        self._on_end = on_end
        self._granted = granted
        self._meet = meet
        self._stopping = threading.Event()
        self._turns: interleave.TurnServer | None = None
        if offsets is not None:
            self._turns = _turns(jobs, offsets)
            jobs = [_with_turns(job, self._turns) for job in jobs]
        self._jobs = jobs
        self.runs = [JobRun(job.spec, _for_job(on_output, job.spec)) for job in jobs]
        """The jobs' runs, in the order given."""

    @property
    def takes_turns(self) -> bool:
        """Whether its jobs take turns, and tell how far they are."""
        return self._turns is not None

    @property
    def turns(self) -> interleave.TurnServer:
        """Where they take them."""
        assert self._turns is not None
        return self._turns

    def run(self) -> None:
        """Run all jobs to their ends; of jobs that take turns, the others end, too, if one fails.

        After `cancel` their workers are ended. An exception here (an interrupt) ends all jobs before it is
        raised further.
        """
        threads = [
            threading.Thread(target=self._run, args=each, name=each[0].spec.job.name)
            for each in zip(self.runs, self._jobs, strict=True)
        ]
        with self._turns or contextlib.nullcontext():
            try:
                self._grant()
                for thread in threads:
                    thread.start()
                while not all(run.over.wait(TICK_S) for run in self.runs):
                    self._grant()
            except BaseException:
                self.cancel()
                raise
            finally:
                # Not by Thread.join: if a signal interrupts it, Python takes the thread for ended.
                for thread, run in zip(threads, self.runs, strict=True):
                    if thread.ident is not None:
                        run.over.wait()

    def reports(self, job: str) -> Reports:
        """Return the latest report of each rank of a job that has sent one."""
        return next(run.reports() for run in self.runs if run.spec.job.name == job)

    def fault(self, reason: str) -> None:
        """Tell all workers that the jobs cannot continue."""
        for run in self.runs:
            run.fault(reason)

    def cancel(self) -> None:
        """End the jobs soon."""
        self._stopping.set()
        for run in self.runs:
            run.cancel()

    def check(self) -> None:
        """Raise GroupFailed if the group broke, naming the job that failed, or any other error.

        Nothing is wrong with a group that was cancelled.
        """
        if self._stopping.is_set():
            return
        if why := self.turns.broken:
            names = ", ".join(run.spec.job.name for run in self.runs)
            how = next((run.failure() for run in self.runs if run.spec.job.name == self.turns.culprit), None)
            raise GroupFailed(f"the group of {names} broke: {why}" + (f" ({how})" if how else ""))
        for run in self.runs:
            run.check()

    def _grant(self) -> None:
        for run in self.runs:
            run.grant(self._granted(run.spec.job.name))

    def _run(self, run: JobRun, job: Admitted) -> None:
        try:
            if not run.cancelled.is_set():
                with self._meet(job) as rendezvous:
                    run.result = run.run(job, rendezvous)
        except BaseException as error:
            run.error = error
        run.at_s = time.monotonic()
        try:
            self._ended(run)
        finally:
            run.over.set()

    def _ended(self, end: JobRun) -> None:
        failure = end.failure()
        # of a job that was cancelled nothing is told, unless its workers had ended before
        if self._stopping.is_set() and (end.interrupted or end.result is None or failure is not None):
            return
        if self._turns is not None and len(self.runs) > 1:  # alone it may do without
            why = str(failure or "a process ended without joining the group")
            self._turns.ended(end.spec.job.name, why)
        self._on_end(end)


def _turns(jobs: Sequence[Admitted], offsets: Sequence[int]) -> interleave.TurnServer:
    from hostlib import interleave  # jobs that take no turns start without

    names = [job.spec.job.name for job in jobs]
    return interleave.TurnServer(
        dict(zip(names, offsets, strict=True)),
        {job.spec.job.name: job.spec.job.workers for job in jobs},
        host=jobs[0].hosts.group_host,
    )


def _with_turns(job: Admitted, turns: interleave.TurnServer) -> Admitted:
    variables = {**job.spec.variables, **turns.environment(job.spec.job.name)}
    return replace(job, spec=replace(job.spec, variables=variables))
