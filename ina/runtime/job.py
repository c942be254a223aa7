"""Runs one job on a fabric: its admission, its workers, and its removal."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from controller import ControllerError, NoSuchJob
from hostlib.launcher import JobLog, Output, Rendezvous, WorkerExit, torch_variables
from ina.runtime.admission import Admitted, admitted
from ina.runtime.fabric import SwitchFabric
from ina.runtime.groups import groups_of
from ina.runtime.lease import Renewal, renewed
from ina.runtime.metrics import metrics
from ina.runtime.spec import JobResult, LaunchSpec, Reports

_log = logging.getLogger(__name__)


class JobRun:
    """One job from its admission to its end; `run` blocks, the rest may be called from other threads."""

    def __init__(self, fabric: SwitchFabric, spec: LaunchSpec, on_output: Output) -> None:
        self._fabric = fabric
        self._spec = spec
        self._on_output = on_output
        self._cancelled = threading.Event()
        self._rendezvous: Rendezvous | None = None
        self._fault: str | None = None
        self._fault_s = 0.0
        self._granted = 0
        self._interrupted = False

    def reports(self) -> Reports:
        """Return the latest report of each rank that has sent one."""
        rendezvous = self._rendezvous
        return rendezvous.reports() if rendezvous else {}

    def fault(self, reason: str) -> None:
        """Tell the workers that the job cannot continue."""
        if self._fault is None:
            self._fault, self._fault_s = reason, time.monotonic()
        if rendezvous := self._rendezvous:
            rendezvous.fault(self._fault)  # which keeps it for those that join later

    def grant(self, packets: int) -> None:
        """Tell the workers how many packets they may have in flight; 0: no bound."""
        self._granted = packets
        if rendezvous := self._rendezvous:
            rendezvous.grant(packets)

    def cancel(self) -> None:
        """End the workers soon."""
        self._cancelled.set()

    def run(self) -> JobResult | None:
        """Run the job to its end; nothing of it stays in the switches. None if it was cancelled before.

        Raises:
            ControllerError: a switch refused the job.
            ProcessFailed: the fallback server did not start.
            AddressTaken: another process has the address of a host.
            LaunchError: the command cannot be run.
        """
        if self._cancelled.wait(self._spec.job.arrival_s):
            return None
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(admitted(self._fabric, self._spec, self._cancelled))
            renewal = stack.enter_context(
                renewed(self._fabric, job.tree, job.registration, self.reports, self.fault)
            )
            rendezvous = stack.enter_context(job.rendezvous())
            rendezvous.grant(self._granted)
            stack.enter_context(groups_of(job, rendezvous))
            store = stack.enter_context(job.torch_store())
            environments = [
                {
                    **self._spec.environment(),
                    **torch_variables(rank, self._spec.job.workers, store),
                    **job.environment(rank),
                    "INA_JOB": job.config(rank, rendezvous),
                }
                for rank in range(self._spec.job.workers)
            ]
            log = stack.enter_context(contextlib.closing(JobLog(self._spec.log))) if self._spec.log else None
            if log:
                log.write(
                    "start",
                    job=job.tree.job,
                    name=self._spec.job.name,
                    workers=self._spec.job.workers,
                    ports=job.ports(),
                    server=job.server_port(),
                )
            started = time.monotonic()
            workers = self._fabric.start_workers(
                self._spec, job.command(), environments, rendezvous, self._on_output
            )
            stack.callback(workers.kill)
            self._rendezvous = rendezvous

            def tick() -> None:
                if self._cancelled.is_set() and len(workers.exits) < self._spec.job.workers:
                    self._interrupted = True
                    workers.kill()

            failure = workers.wait(on_tick=tick)
            elapsed = max(exit_.at_s for exit_ in workers.exits) - started
            if workers.left_running and not self._interrupted:
                left = workers.left_running
                processes = f"{left:,} process" + "es" * (left != 1)
                _log.warning("the workers left %s running, which is now ended", processes)
            if self._fault is not None and (failure is None or failure.at_s > self._fault_s):
                failure = WorkerExit(-1, 1, self._fault)
            elif failure is not None and rendezvous.broken is not None and not rendezvous.complete:
                failure = WorkerExit(-1, 1, rendezvous.broken)  # who has not joined
            result = self._result(job, failure, elapsed, renewal)
            if log:
                _log_end(log, job.tree.job, workers.exits, result)
            return result

    def _result(
        self, job: Admitted, failure: WorkerExit | None, elapsed: float, renewal: Renewal
    ) -> JobResult:
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if self._fabric.switch_ended() is None and self._fabric.silent is None:
                switches = job.counters()
                fallback = job.fallback_statistics()
        except NoSuchJob as error:
            renewal.lost = renewal.lost or renewal.why(error)
        except ControllerError as error:
            if failure is None:
                raise
            _log.warning("cannot read the switch's counters: %s", error)
        if renewal.lost and not self._interrupted:
            # Workers only notice that nobody answers.
            failure = WorkerExit(-1, 1, renewal.lost)
        elif failure and self._fabric.silent:
            failure = replace(failure, reason=f"{failure.reason}; {self._fabric.silent}")
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        return JobResult(failure, elapsed, self.reports(), counters, switches, fallback, self._interrupted)


def _log_end(log: JobLog, job: int, exits: Sequence[WorkerExit], result: JobResult) -> None:
    for exit_ in exits:
        log.write("exit", job=job, rank=exit_.rank, status=exit_.status, reason=exit_.reason)
    log.write("end", job=job, **metrics(result))
