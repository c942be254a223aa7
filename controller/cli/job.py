"""Runs one job on a cluster: its admission, its workers, and all of it taken down again."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable

from controller import ControllerError
from controller.cli.admission import Admitted, admitted
from controller.cli.cluster import Cluster
from controller.cli.spec import JobResult, JobSpec, Reports
from hostlib.launcher import Rendezvous, WorkerExit, Workers

OnLine = Callable[[int, str, bool], None]
"""Gets what workers write: rank, line, whether it came from stderr."""


class JobRun:
    """One job from its admission to its end; `run` blocks, the rest may be called from other threads."""

    def __init__(self, cluster: Cluster, spec: JobSpec, on_line: OnLine) -> None:
        self._cluster = cluster
        self._spec = spec
        self._on_line = on_line
        self._cancelled = threading.Event()
        self._rendezvous: Rendezvous | None = None
        self._fault: str | None = None

    def reports(self) -> Reports:
        """Return the latest report of each rank that has sent one."""
        rendezvous = self._rendezvous
        return rendezvous.reports() if rendezvous else {}

    def fault(self, reason: str) -> None:
        """Tell the workers that the job cannot go on."""
        self._fault = self._fault or reason
        if rendezvous := self._rendezvous:
            rendezvous.fault(self._fault)  # again and again: more workers may have joined

    def cancel(self) -> None:
        """End the workers soon."""
        self._cancelled.set()

    def run(self) -> JobResult | None:
        """Run the job to its end; nothing of it stays in the switches. None if it was cancelled before.

        Raises:
            ControllerError: a switch refused the job.
            Failure: the fallback server did not start.
            LaunchError: the command cannot be run.
        """
        if self._cancelled.wait(self._spec.start_s):
            return None
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(admitted(self._cluster, self._spec))
            rendezvous = stack.enter_context(Rendezvous(job=job.tree.job, size=self._spec.workers))
            environments = [
                {**self._spec.environment(), "INA_JOB": job.config(rank, rendezvous.address)}
                for rank in range(self._spec.workers)
            ]
            started = time.monotonic()
            workers = Workers(self._spec.command, environments, rendezvous, self._on_line)
            stack.callback(workers.kill)
            self._rendezvous = rendezvous

            def tick() -> None:
                if self._cancelled.is_set():
                    workers.kill()

            failure = workers.wait(on_tick=tick)
            elapsed = time.monotonic() - started
            if failure is None and self._fault is not None:
                failure = WorkerExit(-1, 1, self._fault)
            return self._result(job, failure, elapsed)

    def _result(self, job: Admitted, failure: WorkerExit | None, elapsed: float) -> JobResult:
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if self._cluster.switch_ended() is None:
                switches = job.counters()
                fallback = job.fallback_statistics()
        except ControllerError as error:
            if failure is None:
                raise
            warnings.warn(f"the switch's counters are not known: {error}", stacklevel=2)
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        return JobResult(failure, elapsed, self.reports(), counters, switches, fallback)
