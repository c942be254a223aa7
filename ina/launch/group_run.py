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
from ina.launch.job_run import JobEnd, JobRun, met
from ina.launch.orders import RunStatus
from ina.launch.spec import LaunchSpec, Reports

if TYPE_CHECKING:
    from hostlib import interleave

STAGE_TIMES = 8
"""Number of latest iterations over which the median is the reported iteration time."""

OnOutput = Callable[[LaunchSpec, int, bytes, bool], None]
"""Receives the output of workers: their job, and the arguments of `hostlib.launch.launcher.Output`."""

OnProgress = Callable[[Mapping[str, Reports]], None]
"""Receives the workers' reports by job name, several times per second."""

Meet = Callable[[JobRun], AbstractContextManager[Rendezvous]]
"""Returns a context in which the `Rendezvous` of a job's ranks is open."""


def first_failure(runs: Sequence[JobEnd]) -> JobEnd | None:
    """Return the job that failed first; None: none failed."""
    failed = [run for run in runs if run.failure()]
    # The other workers of a failed job notice later.
    return min(failed, key=lambda run: ((run.result and run.result.failure) or run).at_s, default=None)


class GroupRun:
    """One group from its start to its end; `run` blocks, and other threads may call the other methods.

    Attributes:
        runs: The jobs' runs, in the order given.
        status: The status of these runs.
        error: The error that stopped the group as a whole; None: none.
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
            offsets: The stage at which each job starts its rounds; None: the jobs take no turns.
            on_output: Called with the output of workers.
            on_end: Called after each job's end, in the job's thread; not for a cancelled job.
            meet: Returns a context in which the rendezvous of a job is open.
            describe: Returns the text that the status has for the error of a failed job.
        """
        self._on_end, self._meet, self._describe = on_end, meet, describe
        self._stopping = threading.Event()
        self._turns: interleave.TurnServer | None = None
        if offsets is not None:
            self._turns = _turns(runs, offsets)
            for run in runs:
                variables = {**run.spec.variables, **self._turns.environment(run.spec.job.name)}
                run.spec = replace(run.spec, variables=variables)
        for run in runs:
            run.on_output = partial(on_output, run.spec)
        self.runs = runs
        self.status = RunStatus()
        self.error: BaseException | None = None
        self.over = threading.Event()

    @property
    def turns(self) -> interleave.TurnServer:
        """The server that assigns turns to the jobs and receives their progress; only with `offsets`."""
        assert self._turns is not None
        return self._turns

    def run(self) -> None:
        """Run all jobs until they end. If a job fails, the jobs that take turns with it end, too.

        After `cancel`, all workers end.
        """
        try:
            with self._turns or contextlib.nullcontext():
                for run in self.runs:
                    threading.Thread(target=self._run, args=(run,), name=run.spec.job.name).start()
                for run in self.runs:
                    run.over.wait()
        except BaseException as error:
            self.error = error
            self.status.failure = f"{type(error).__name__}: {error}"
        finally:
            self.status.over = True
            self.over.set()

    def reports(self, job: str) -> Reports:
        """Return the latest report of each rank of a job; ranks that have not reported are missing."""
        return next(run.reports() for run in self.runs if run.spec.job.name == job)

    def grant(self, in_flight: Mapping[str, int]) -> None:
        """Limit the packets in flight of these jobs, by job name; 0: no limit."""
        for run in self.runs:
            if (name := run.spec.job.name) in in_flight:
                run.grant(in_flight[name])

    def cancel(self) -> None:
        """Request the end of all jobs, and return at once."""
        self._stopping.set()
        for run in self.runs:
            run.cancel()

    def check(self) -> None:
        """Raise GroupFailed, which names the failed job, if the group broke; else the error of a failed job.

        A cancelled group raises nothing.
        """
        if self._stopping.is_set():
            return
        if why := self.turns.broken:
            names = ", ".join(run.spec.job.name for run in self.runs)
            how = next((run.failure() for run in self.runs if run.spec.job.name == self.turns.culprit), None)
            raise GroupFailed(f"the group of {names} broke: {why}" + (f" ({how})" if how else ""))
        for run in self.runs:
            run.check()

    def note_progress(self) -> bool:
        """Record the jobs' progress; return whether any has advanced. Jobs without turns do not report."""
        if self._turns is None:
            return False
        names = [run.spec.job.name for run in self.runs]
        status, done = self.status, {name: self._turns.iterations(name) for name in names}
        if done == status.done:
            return False
        status.done = done
        status.iteration_s = {name: times[len(times) // 2] for name in names if (times := self._times(name))}
        status.compute_s = {
            name: compute_s for name in names if (compute_s := self._compute_s(name)) is not None
        }
        status.hold_s = {name: hold_s for name in names if (hold_s := self._hold_s(name)) is not None}
        return True

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
        failure, name, status = end.failure(), end.spec.job.name, self.status
        # a cancelled job reports nothing, unless its workers had ended before
        if self._stopping.is_set() and (end.interrupted or end.result is None or failure is not None):
            return
        if (turns := self._turns) is not None:
            if len(self.runs) > 1:  # alone it need not join
                turns.ended(name, str(failure or "a process ended without joining the group"))
            status.blame, status.broke = turns.culprit, turns.broken or ""
        # other threads may read these: they are replaced
        status.ended_at = {**status.ended_at, name: time.time()}
        status.ends = {**status.ends, name: "" if failure is None else self._describe(failure)}
        self._on_end()

    def _times(self, name: str) -> list[float]:
        measured = self.turns.measured(name)
        return sorted(each.total_s for ranks in measured for each in ranks[-STAGE_TIMES:])

    def _compute_s(self, name: str) -> float | None:
        """Return the median time of an iteration without its network stage, at the slowest rank.

        None: no rank has reported.
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
        """Return the longest time for which a rank holds a slot; None: no rank has reported."""
        told = (report.get("hold_s", 0.0) for report in self.reports(name).values())
        return max((hold_s for hold_s in told if hold_s > 0), default=None)


def _turns(jobs: Sequence[JobRun], offsets: Sequence[int]) -> interleave.TurnServer:
    from hostlib import interleave

    names = [job.spec.job.name for job in jobs]
    return interleave.TurnServer(
        dict(zip(names, offsets, strict=True)),
        {job.spec.job.name: job.spec.job.workers for job in jobs},
        host=jobs[0].hosts.group_host,
    )
