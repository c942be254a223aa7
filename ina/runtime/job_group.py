"""Runs the jobs of one group: they take turns on storage, CPU, GPU and network (`hostlib.interleave`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hostlib import interleave
from ina.runtime.errors import GroupBroken
from ina.runtime.jobs import Granted, JobEnd, Launcher, OnOutput, run_jobs
from ina.runtime.spec import LaunchSpec, Reports


class Cancelled(Exception):
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
        on_end: Callable[[JobEnd], None] = lambda end: None,
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

    def run(self) -> list[JobEnd]:
        """Run all jobs to their ends, in the order given; if one fails, the others end, too.

        Raises Cancelled after `cancel`. An exception here (an interrupt) ends all jobs before it is raised
        further.
        """
        ends = [JobEnd(spec) for spec in self._specs]
        with self.turns:
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

    def check(self, ends: Sequence[JobEnd]) -> None:
        """Raise GroupBroken if the group broke, naming the job that failed, or any other error."""
        if why := self.turns.broken:
            names = ", ".join(spec.job.name for spec in self._specs)
            how = next((end.failure() for end in ends if end.spec.job.name == self.turns.culprit), None)
            raise GroupBroken(f"the group of {names} broke: {why}" + (f" ({how})" if how else ""))
        for end in ends:
            end.check()

    def _ended(self, end: JobEnd) -> None:
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
            raise Cancelled
