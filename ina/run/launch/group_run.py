"""Runs admitted jobs at the same time, a thread for each.

The jobs of one group take turns on storage, CPU, GPU and network (`hostlib.interleave`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hostlib.launch.launcher import Rendezvous
from ina.errors import GroupFailed
from ina.run.launch.job_run import JobRun, met
from ina.run.launch.orders import RunStatus
from ina.run.launch.spec import LaunchSpec, RankReports

if TYPE_CHECKING:
    from hostlib import interleave

STAGE_TIMES = 8
"""Number of latest iterations whose median time is reported as the iteration time."""

OnOutput = Callable[[LaunchSpec, int, bytes, bool], None]
"""Function that receives output of a worker: the worker's job, its rank, the bytes, and whether they were
written to standard error."""

OnProgress = Callable[[Mapping[str, RankReports]], None]
"""Function that is called several times per second with the workers' latest reports, by job name."""

Meet = Callable[[JobRun], AbstractContextManager[Rendezvous]]
"""Function that returns a context manager; within the context, the `Rendezvous` of a job accepts ranks."""


class GroupRun:
    """Runs the jobs of one group. `run` blocks; other threads may call the other methods.

    Attributes:
        runs: The jobs, in the order of the constructor's argument.
        error: The error that ended `run` early; None: none. Failures of single jobs are in `status`.
        over: Set when all jobs have ended.
    """

    def __init__(
        self,
        runs: Sequence[JobRun],
        offsets: Sequence[int] | None,
        *,
        on_output: OnOutput,
        on_end: Callable[[], object] = lambda: None,
        meet: Meet = met,
        describe: Callable[[BaseException], str] = str,
    ) -> None:
        """Prepare a group. Raises GroupError.

        Args:
            runs: The jobs.
            offsets: Index in `hostlib.interleave.STAGES` of the stage that each job may run first; None: the
                jobs do not take turns.
            on_output: Called with the output of workers.
            on_end: Called after each job's end, in the job's thread; not called for a cancelled job.
            meet: Opens the rendezvous of a job, see `Meet`.
            describe: Converts the error of a failed job to the text in `status`.
        """
        self._on_end, self._meet, self._describe = on_end, meet, describe
        self._stopping = threading.Event()
        self._turns: interleave.TurnServer | None = None
        if offsets is not None:
            self._turns = _turns(runs, offsets)
            for run in runs:
                variables = {**run.spec.variables, **self._turns.environment(run.spec.name)}
                run.spec = replace(run.spec, variables=variables)
        for run in runs:
            run.on_output = partial(on_output, run.spec)
        self.runs = runs
        self._ends: dict[str, tuple[str, float]] = {}
        """By name of each ended job, its error ("": none), and the Unix time of its end."""
        self.error: BaseException | None = None
        self.over = threading.Event()

    @property
    def turns(self) -> interleave.TurnServer:
        """The server that assigns turns to the jobs and receives their progress.

        It exists only if the constructor got `offsets`.
        """
        assert self._turns is not None
        return self._turns

    def run(self) -> None:
        """Run all jobs; return when all have ended.

        If a job fails, the jobs that take turns with it are ended, too. After `cancel`, all jobs are ended.
        """
        try:
            with self._turns or contextlib.nullcontext():
                for run in self.runs:
                    threading.Thread(target=self._run, args=(run,), name=run.spec.name).start()
                for run in self.runs:
                    run.over.wait()
        except BaseException as error:
            self.error = error
        finally:
            self.over.set()

    def reports(self, job: str) -> RankReports:
        """Return the latest report of each rank of a job; ranks that have not reported are missing."""
        return next(run.reports() for run in self.runs if run.spec.name == job)

    def grant(self, in_flight: Mapping[str, int]) -> None:
        """Set the maximum number of packets in flight of each job, by the job's name; 0: no limit."""
        for run in self.runs:
            if (name := run.spec.name) in in_flight:
                run.grant(in_flight[name])

    def cancel(self) -> None:
        """Request the end of all jobs, and return at once."""
        self._stopping.set()
        for run in self.runs:
            run.cancel()

    def check(self) -> None:
        """Raise an error if a job has failed; raise nothing if the group was cancelled.

        Raises GroupFailed, which names the failed job, if the jobs could no longer take turns, and otherwise
        the error of the first failed job.
        """
        if self._stopping.is_set():
            return
        if why := self.turns.broken:
            names = ", ".join(run.spec.name for run in self.runs)
            how = next((run.failure() for run in self.runs if run.spec.name == self.turns.culprit), None)
            raise GroupFailed(
                f"the jobs {names} can no longer take turns: {why}" + (f" ({how})" if how else "")
            )
        for run in self.runs:
            run.check()

    @property
    def status(self) -> RunStatus:
        """The present status of the jobs. Only jobs that take turns report progress."""
        over, ends = self.over.is_set(), dict(self._ends)  # in this order: all ends are known then
        status = RunStatus(
            over=over,
            ends={name: why for name, (why, _) in ends.items()},
            ended_at={name: at for name, (_, at) in ends.items()},
            failure="" if self.error is None else f"{type(self.error).__name__}: {self.error}",
        )
        if (turns := self._turns) is None:
            return status
        names = [run.spec.name for run in self.runs]
        return replace(
            status,
            done={name: turns.iterations(name) for name in names},
            iteration_s={name: times[len(times) // 2] for name in names if (times := self._times(name))},
            compute_s={name: found for name in names if (found := self._compute_s(name)) is not None},
            hold_s={name: found for name in names if (found := self._hold_s(name)) is not None},
            blame=turns.culprit,
            broke=turns.broken or "",
        )

    def _run(self, run: JobRun) -> None:
        try:
            if not run.cancelled.is_set():
                with self._meet(run) as rendezvous:
                    run.result = run.run(rendezvous)
        except BaseException as error:
            run.error = error
        run.at_s = time.monotonic()
        try:
            self._ended(run)
        finally:
            run.over.set()

    def _ended(self, end: JobRun) -> None:
        failure, name = end.failure(), end.spec.name
        # a cancelled job reports nothing, unless its workers had ended before
        if self._stopping.is_set() and (end.interrupted or end.result is None or failure is not None):
            return
        if self._turns is not None and len(self.runs) > 1:  # alone it need not join
            self._turns.ended(name, str(failure or "a process ended without joining the group"))
        self._ends[name] = "" if failure is None else self._describe(failure), time.time()
        self._on_end()

    def _times(self, name: str) -> list[float]:
        measured = self.turns.measured(name)
        return sorted(each.total_s for ranks in measured for each in ranks[-STAGE_TIMES:])

    def _compute_s(self, name: str) -> float | None:
        """Return the median time, in s, of a job's iteration without the network stage.

        Each rank has a median of its own; the value is the largest of them. None: no rank has reported.
        """
        from hostlib.interleave import STAGES  # jobs without turns start without it

        network = STAGES.index("network")
        ranks = [
            sorted(each.total_s - each.stages_s[network] for each in iterations[-STAGE_TIMES:])
            for iterations in self.turns.measured(name)
            if iterations
        ]
        return max((times[len(times) // 2] for times in ranks), default=None)

    def _hold_s(self, name: str) -> float | None:
        """Return the time, in s, for which a packet of a job occupies a slot.

        The value is the longest time that a rank of the job has reported; None: no rank has reported.
        """
        reported = (report.get("hold_s", 0.0) for report in self.reports(name).values())
        return max((hold_s for hold_s in reported if hold_s > 0), default=None)


def _turns(jobs: Sequence[JobRun], offsets: Sequence[int]) -> interleave.TurnServer:
    from hostlib import interleave

    names = [job.spec.name for job in jobs]
    return interleave.TurnServer(
        dict(zip(names, offsets, strict=True)),
        {job.spec.name: job.spec.job.workers for job in jobs},
        host=jobs[0].hosts.group_host,
    )
