"""Jobs whose workers another launcher starts: torchrun, mpirun, srun, or any caller of ``ina admit``.

Such a job is called *external*. The controller chooses its switches and admits it to them, as for any job.
But the request names the job's servers, and the controller starts no process. In place of a runner there is a
*holder*, the process that requested the admission (`ina.run.holder`). The holder renews the job's lease,
learns when the workers must end, and reports their end. It identifies itself by a token for this job, of
which the controller knows the SHA-256.

Leases are kept in memory; after a restart of the controller, each lease begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from controller.core import Cancelled, Ended
from controller.switches.leases import RENEWALS_PER_LEASE
from controller.vocabulary import Job, Topology
from ina.errors import RunnerGone
from ina.faults import fault_point
from ina.run.launch import files
from ina.run.launch.executor import Executor, RunFolders
from ina.run.launch.orders import RunOrder, RunStatus
from ina.run.ledger import Ledger
from ina.run.records import LEASE_S


def is_external(job: Job) -> bool:
    """Return whether a job is external: another launcher starts its workers."""
    return job.command is None


class ExternalRuns(RunFolders):
    """The executor of external jobs, which passes calls about other jobs on to the executor `own`.

    Each run of an external job has a folder. It has ``run.json`` once the job's switches serve the run,
    ``stop.json`` once the holder has been asked to end the workers, with the time of the first request, and
    ``status.json`` once the workers have ended.

    Args:
        own: The executor of all other jobs.
        folder: The folder in which the runs' folders are created.
        now: Returns the time, in seconds, of a clock that continues over restarts of the controller.
    """

    def __init__(self, own: Executor, folder: Path, now: Callable[[], float]) -> None:
        super().__init__(folder)
        self._own = own
        self._now = now
        self._done: dict[int, dict[str, int]] = {}
        self._own_runs: set[int] = set()
        """Numbers of the runs that are known to belong to `own`. Without this set, each call would look for
        files."""

    # ------------------------------------------------------------------ reports of holders

    def progress(self, number: int, job: str, done: int) -> None:
        """Record the number of iterations that a job has done in its current run."""
        self._done[number] = {job: done}

    def end(self, number: int, job: str, failure: str) -> None:
        """Record that a run's workers have ended; `failure` is their error, "" for none. Raises OSError."""
        if self._is_external(number) and not self._ended(number):
            ends = RunStatus(done=self._done.get(number, {}), ends={job: failure}, over=True, final=True)
            files.write(self._of(number) / "status.json", ends)

    def to_stop(self, number: int) -> bool:
        """Return whether the holder must end the workers of a run."""
        return (self._of(number) / "stop.json").exists()

    # ------------------------------------------------------------------ the executor

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already. Raises OSError."""
        if any(job.job.command for job in order.jobs):
            self._own_runs.add(order.number)
            self._own.start(order)
            return
        folder = self._of(order.number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(folder / "run.json", [job.name for job in order.jobs])

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Set the maximum number of packets in flight of each job of a run; do nothing for external jobs."""
        if not self._is_external(number):
            self._own.grant(number, in_flight)

    def stop(self, number: int) -> None:
        """End a run. If its job is external, ask the job's holder to end the workers.

        Raises RunnerGone if the holder has not reported the end of the workers yet. The caller must then call
        again. From `LEASE_S` seconds after the first call on, a call records the end of the run itself.
        """
        if not self._is_external(number):
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
            raise RunnerGone(
                "the launcher of the run's workers was asked to end them, and has not done so yet"
            )
        for job in files.read(self._of(number) / "run.json"):
            self.end(number, job, f"its workers were asked to end, but did not within {LEASE_S:g} s")

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started."""
        if not self._is_external(number):
            return self._own.status(number)
        found: RunStatus | None = files.read(self._of(number) / "status.json", RunStatus)
        return found or RunStatus(done=self._done.get(number, {}))

    def other_version(self, number: int) -> str:
        """Ask the executor `own` why the status of a run cannot be read; external jobs have no runner."""
        return "" if self._is_external(number) else self._own.other_version(number)

    def lives(self, number: int) -> bool:
        """Return True until the end of a run is recorded; for runs of other jobs, ask the executor `own`."""
        return not self._ended(number) if self._is_external(number) else self._own.lives(number)

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over."""
        self._done.pop(number, None)
        if self._is_external(number):
            super().forget(number)
        else:
            self._own_runs.discard(number)
            self._own.forget(number)

    def known(self) -> list[int]:
        """Return the numbers of all runs that have been started and not yet forgotten."""
        own = self._own.known()
        self._own_runs |= {*own}
        return [*own, *super().known()]

    def why_ended(self, number: int) -> str:
        """Return, as text, why a run has ended without reporting the ends of its jobs."""
        return "its workers have ended" if self._is_external(number) else self._own.why_ended(number)

    def shown(self, number: int) -> tuple[str, bool]:
        """Return the name and state of a run in Slurm or Ray, as one text, and whether it has started there.

        The result is ("", True) if neither has it.
        """
        return ("", True) if self._is_external(number) else self._own.shown(number)

    def gone(self) -> Mapping[str, str]:
        """Return the names of the servers that the engine cannot use, each with the reason."""
        return self._own.gone()

    def looked_within(self, age_s: float) -> bool:
        """Return whether the look at the servers that `gone` last reported began in the last `age_s` s."""
        return self._own.looked_within(age_s)

    def change_cluster(self, cluster: Topology) -> None:
        """Start later runs on the servers of `cluster`; runs that have started are not affected."""
        self._own.change_cluster(cluster)

    def _is_external(self, number: int) -> bool:
        return number not in self._own_runs and (self._of(number) / "run.json").exists()

    def _ended(self, number: int) -> bool:
        return (self._of(number) / "status.json").exists()


class Holders:
    """Keeps the leases of external jobs, and ends jobs whose leases have expired.

    Between two looks at most a quarter of a lease counts, as for the leases on switches
    (`controller.switches.leases`): a process that was suspended could not answer requests.

    All calls must be made in the thread of the service's loop.
    """

    def __init__(self, ledger: Ledger, runs: ExternalRuns) -> None:
        self._ledger = ledger
        self._runs = runs
        self._renewed_s: dict[str, float] = {}
        self._looked_s = ledger.now_s

    @property
    def next_s(self) -> float:
        """Time at which the next lease expires; infinite if there is no lease."""
        return min(self._renewed_s.values(), default=float("inf")) + LEASE_S

    def recover(self) -> None:
        """Start a new lease for each external job that is not over."""
        for name, record in self._ledger.submitted.items():
            if is_external(record.job) and self._ledger.unfinished(name):
                self.hear(name)

    def hear(self, name: str) -> None:
        """Extend a job's lease to `LEASE_S` seconds from now."""
        self._renewed_s[name] = self._ledger.now_s

    def renew(self, name: str, done: int | None) -> None:
        """Extend the lease of a job that is not over to `LEASE_S` seconds from now.

        Record `done`, the number of iterations in the job's current run; None: unknown.
        """
        if not self._ledger.unfinished(name):
            return
        self.hear(name)
        if done is not None and (number := self.run_of(name)) is not None:
            self._runs.progress(number, name, done)

    def look(self) -> None:
        """End the jobs whose leases have expired. Raises StoreError, OSError."""
        before_s, self._looked_s = self._looked_s, self._ledger.now_s
        uncounted_s = max(0.0, self._looked_s - before_s - LEASE_S / RENEWALS_PER_LEASE)
        for name, renewed_s in list(self._renewed_s.items()):
            self._renewed_s[name] = min(renewed_s + uncounted_s, self._looked_s)
            if not self._ledger.unfinished(name):
                del self._renewed_s[name]
            elif self._looked_s - self._renewed_s[name] > LEASE_S:
                self.end(name, f"the launcher of its workers has not sent a request for {LEASE_S:g} s")
                del self._renewed_s[name]

    def end(self, name: str, failure: str) -> None:
        """Record that a job's workers have ended, or will never start. Raises StoreError and OSError.

        `failure` is the error of the workers, "" for none.
        """
        ledger = self._ledger
        number = self.run_of(name)
        if number is not None and self._runs.status(number) is not None:
            self._runs.end(number, name, failure)
            ledger.stirred = True
        elif name in ledger.core.jobs:
            ledger.record([Ended(ledger.now_s, name, failure or "its workers ended first", final=True)])
        elif name in ledger.quotas.waiting:
            ledger.record([Cancelled(ledger.now_s, name, failure or "by its owner")])
        ledger.woken.set()

    def run_of(self, name: str) -> int | None:
        """Return the number of the held run (`HeldRun`) that has a job; None: no held run has the job."""
        return next((n for n, hold in self._ledger.holds.items() if name in hold.run.jobs), None)
