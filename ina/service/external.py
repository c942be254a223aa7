"""Jobs whose workers another launcher starts: torchrun, mpirun, srun, or any caller of ``ina admit``.

For such a job, as for any other, the controller chooses switches, and admits the job to them. The job's
servers are given, and the controller starts no process. Instead of a runner there is a *holder*, the process
that asked for admission: it renews the job's lease, learns when the workers must end, and reports their end.
The holder identifies itself by a token for this job, of which the controller knows the SHA-256.

Leases are kept in memory. After a restart of the controller, each lease begins anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from controller.core import Cancelled, Ended
from controller.vocabulary import Job, Topology
from ina.errors import RunnerGone
from ina.faults import fault_point
from ina.launch import files
from ina.launch.executor import Executor
from ina.launch.orders import RunOrder, RunStatus
from ina.service.ledger import Ledger
from ina.service.records import LEASE_S


def is_external(job: Job) -> bool:
    """Return whether another launcher starts a job's workers."""
    return job.command is None


class ExternalRuns:
    """The executor of external jobs, which passes calls about all other jobs to their executor.

    Each run of an external job has a folder: ``run.json`` once its switches serve it, ``stop.json`` with the
    time at which its holder was first asked to end it, ``status.json`` once its workers have ended.

    Args:
        own: The executor of all other jobs.
        folder: The folder in which the runs' folders are made.
        now: Returns the time, in seconds, of a clock that continues over restarts of the controller.
    """

    def __init__(self, own: Executor, folder: Path, now: Callable[[], float]) -> None:
        self._own = own
        self._folder = folder
        self._now = now
        self._done: dict[int, dict[str, int]] = {}
        self._own_runs: set[int] = set()
        """Numbers of known runs of `own`: the set saves hundreds of look-ups of files per second."""

    # ------------------------------------------------------------------ reports of holders

    def progress(self, number: int, job: str, done: int) -> None:
        """Record the number of iterations that a job has done in its current run."""
        self._done[number] = {job: done}

    def end(self, number: int, job: str, failure: str) -> None:
        """Record that a run's workers have ended; `failure` "" means without an error. Raises OSError."""
        if self._has(number) and not self._ended(number):
            ends = RunStatus(done=self._done.get(number, {}), ends={job: failure}, over=True, final=True)
            files.write(self._of(number) / "status.json", ends)

    def to_stop(self, number: int) -> bool:
        """Return whether the workers of a run must end."""
        return (self._of(number) / "stop.json").exists()

    # ------------------------------------------------------------------ the executor

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already. Raises OSError."""
        if any(job.spec.job.command for job in order.jobs):
            self._own_runs.add(order.number)
            self._own.start(order)
            return
        folder = self._of(order.number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(folder / "run.json", [job.name for job in order.jobs])

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Limit the packets in flight of a run's jobs; without effect on external jobs."""
        if not self._has(number):
            self._own.grant(number, in_flight)

    def stop(self, number: int) -> None:
        """End a run. Raises RunnerGone until the holder has ended the workers, or `LEASE_S` have passed."""
        if not self._has(number):
            self._own.stop(number)
            return
        if self._ended(number):
            return
        stop = self._of(number) / "stop.json"
        if (since_s := files.read(stop)) is None:
            since_s = self._now()
            files.write(stop, since_s)
            fault_point("asked to end")
        if self._now() - since_s < LEASE_S:
            raise RunnerGone("the launcher of its workers was asked to end them, but has not done so yet")
        for job in files.read(self._of(number) / "run.json"):
            self.end(number, job, f"its workers were asked to end, but did not within {LEASE_S:g} s")

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started."""
        if not self._has(number):
            return self._own.status(number)
        found: RunStatus | None = files.read(self._of(number) / "status.json", RunStatus)
        return RunStatus(done=self._done.get(number, {})) if found is None else found

    def lives(self, number: int) -> bool:
        """Return whether a run has not ended, as far as its holder or its executor has reported."""
        return not self._ended(number) if self._has(number) else self._own.lives(number)

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over."""
        self._done.pop(number, None)
        if self._has(number):
            shutil.rmtree(self._of(number), ignore_errors=True)
        else:
            self._own_runs.discard(number)
            self._own.forget(number)

    def known(self) -> list[int]:
        """Return the numbers of the runs that have files."""
        own = self._own.known()
        self._own_runs |= {*own}
        return [*own, *(int(path.name) for path in self._folder.iterdir())] if self._folder.exists() else own

    def why_ended(self, number: int) -> str:
        """Return why a run has ended without a report of its jobs' ends."""
        return "its workers have ended" if self._has(number) else self._own.why_ended(number)

    def shown(self, number: int) -> str:
        """Return the name and state of a run in Slurm or Ray, as one text; "" if neither has it."""
        return "" if self._has(number) else self._own.shown(number)

    def gone(self) -> Mapping[str, str]:
        """Return the servers that the engine cannot use, with reasons."""
        return self._own.gone()

    def change_cluster(self, cluster: Topology) -> None:
        """Use the servers of this changed cluster for runs that start from now on."""
        self._own.change_cluster(cluster)

    def _has(self, number: int) -> bool:
        return number not in self._own_runs and (self._of(number) / "run.json").exists()

    def _ended(self, number: int) -> bool:
        return (self._of(number) / "status.json").exists()

    def _of(self, number: int) -> Path:
        return self._folder / str(number)


class Holders:
    """The leases of external jobs; used in the thread of the loop."""

    def __init__(self, ledger: Ledger, runs: ExternalRuns) -> None:
        self._ledger = ledger
        self._runs = runs
        self._heard_s: dict[str, float] = {}

    @property
    def next_s(self) -> float:
        """Time of the next end of a lease; infinite if there is no lease."""
        return min(self._heard_s.values(), default=float("inf")) + LEASE_S

    def recover(self) -> None:
        """Start a new lease for each external job that is not over."""
        for name, said in self._ledger.submitted.items():
            if is_external(said.job) and self._unfinished(name):
                self.hear(name)

    def hear(self, name: str) -> None:
        """Restart a job's lease from now."""
        self._heard_s[name] = self._ledger.now_s

    def renew(self, name: str, done: int | None) -> None:
        """Restart a job's lease; record `done`, its number of iterations in the current run, unless None."""
        if not self._unfinished(name):
            return
        self.hear(name)
        number = self.run_of(name)
        if done is not None and number is not None:
            self._runs.progress(number, name, done)

    def look(self) -> None:
        """End the jobs whose leases have expired. Raises StoreError, OSError."""
        now_s = self._ledger.now_s
        for name, heard_s in list(self._heard_s.items()):
            if not self._unfinished(name):
                del self._heard_s[name]
            elif now_s - heard_s > LEASE_S:
                self.end(name, f"the launcher of its workers has not sent a request for {LEASE_S:g} s")
                del self._heard_s[name]

    def end(self, name: str, failure: str) -> None:
        """Record that a job's workers have ended, or will never start. Raises StoreError, OSError."""
        ledger = self._ledger
        number = self.run_of(name)
        if number is not None and self._runs.status(number) is not None:
            self._runs.end(number, name, failure)
            ledger.stirred = True
        elif name in ledger.core.jobs:
            ledger.record([Ended(ledger.now_s, name, failure or "its workers ended first", final=True)])
        elif ledger.quotas.waits(name) is not None:
            ledger.record([Cancelled(ledger.now_s, name, failure or "by its owner")])
        ledger.woken.set()

    def run_of(self, name: str) -> int | None:
        """Return the number of the run of a job; None: it has none."""
        held = self._ledger.holds.items()
        return next((number for number, hold in held if name in hold.run.jobs), None)

    def _unfinished(self, name: str) -> bool:
        return name in self._ledger.core.jobs or self._ledger.quotas.waits(name) is not None
