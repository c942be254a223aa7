"""The holder of an external job: requests the job's admission, and renews its lease while its workers run.

Another launcher, such as torchrun, mpirun or srun, starts the workers of an external job. ``ina admit`` uses
this module for such ranks. The controller's side is `ina.run.external`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.switches.layout import TreeAdmission
from controller.switches.model import Feature, SwitchInfo
from hostlib.launch.launcher import Rendezvous
from ina.errors import WorkerFailed
from ina.run.client import Client, ClientError, Refused
from ina.run.launch.files import record_of
from ina.run.launch.hosts import UdpHosts
from ina.run.launch.job_run import Attendance, JobRun, met
from ina.run.launch.spec import JobResult, LaunchSpec, RankReports, summed_bytes

if TYPE_CHECKING:  # the deciding parts
    from ina.run.views import AdmissionView, JobGrant

RENEW_S = 2.0
"""Interval, in s, at which the lease of a running job is renewed."""
LOOK_S = 0.25
"""Interval, in s, at which the lease of a waiting job is renewed; each answer has the job's state."""
LEAVE_S = 10.0
"""Maximum time, in s, for which the report that the workers have ended is retried. Without that report, the
controller ends the job when its lease expires."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalJob:
    """A job whose workers another launcher starts.

    Attributes:
        name: The job's name.
        spec: The job's ranks by machine, and how they run.
        known_as: Names and addresses of each machine, by which the controller identifies the machine.
        keys: Further keys of the job's ``[[job]]`` table.
        iteration_bytes: Number of bytes that the job sums in an iteration, from which its progress is
            computed; None: unknown.
        wait_s: Maximum time, in s, to wait for admission.
        listen: Address of this machine at which ranks meet; None: all ranks are on this machine.
    """

    name: str
    spec: LaunchSpec
    known_as: Sequence[Sequence[str]]
    keys: Mapping[str, object] = field(default_factory=dict)
    iteration_bytes: int | None = None
    wait_s: float
    listen: str | None = None


def _granted(spec: LaunchSpec, grant: JobGrant) -> JobRun:
    """Return the `JobRun` of a job that a controller has admitted, given the settings in its `grant`."""
    lacks = {Feature(name): part for name, part in grant.get("lacks", {}).items()}
    offers = SwitchInfo(grant["lanes"], 0, 0, 0, mode="shared", salted=grant["salted"], lacks=lacks)
    switches = {name: each for name, each in grant["switches"].items() if name}
    tree = record_of(TreeAdmission, {"switches": switches, "beside": grant["switches"].get("")})
    return JobRun(spec, hosts=UdpHosts(grant["address"]), tree=tree, offers=offers, paced=grant["paced"])


class Lease:
    """Renews the lease of an external job, in a thread of its own."""

    def __init__(self, client: Client, held: ExternalJob) -> None:
        self._client = client
        self._held = held
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._reports: Callable[[], RankReports] = dict
        self._on_stop: Callable[[str], None] = lambda why: None
        self._thread = threading.Thread(target=self._run, name=f"lease of job {held.name}")
        self.running = threading.Event()
        self.stop = ""
        """Why the workers must end; "": they may continue."""
        self.reason = ""
        """The reason for the job's state, from the controller's latest answer."""

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease at intervals until the end of the context."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def follow(self, rendezvous: Rendezvous) -> None:
        """Report the progress of the job's ranks to the controller from now on.

        If the controller ends the job, the ranks learn this through their `rendezvous`.
        """
        with self._lock:
            self._reports, self._on_stop = rendezvous.reports, rendezvous.fault
            if self.stop:
                rendezvous.fault(self.stop)

    def _run(self) -> None:
        while not self._over.wait(RENEW_S if self.running.is_set() else LOOK_S):
            try:
                self._take(self._client.renew(self._held.name, done=self._done()))
            except ClientError as error:
                if _for_good(error):
                    self._end(str(error))
                else:  # the switches serve the job meanwhile
                    _log.info("%s", error)

    def _take(self, found: AdmissionView) -> None:
        self.reason = found["reason"]
        if found["stop"]:
            self._end(found["stop"])
        elif found["state"] == "running":
            self.running.set()

    def _end(self, why: str) -> None:
        with self._lock:
            if not self.stop:
                self.stop = why
                self._on_stop(f"the controller ends job {self._held.name!r}: {why}")

    def _done(self) -> int | None:
        if self._held.iteration_bytes is None:
            return None
        return int(summed_bytes(self._reports()) // self._held.iteration_bytes)


def hold(
    held: ExternalJob,
    connect: Callable[[str], contextlib.AbstractContextManager[Client]],
    attendance: Attendance,
    *,
    on_wait: Callable[[str], None],
) -> JobResult:
    """Request the admission of an external job, and serve its ranks until they leave. Return its result.

    The ranks get their configurations through `attendance`. A thread renews the job's lease.

    Args:
        held: The job.
        connect: Returns a client that sends the given token, or the tenant's token if the given one is "".
        attendance: Callbacks that pass the configurations to the workers' launcher.
        on_wait: Called with the reason why the job waits, whenever it changes.

    Raises ClientError, and WorkerFailed if the job is not admitted.
    """
    token, key = secrets.token_urlsafe(32), secrets.token_urlsafe(16)
    machines = list(zip(held.known_as, held.spec.machines, strict=True))
    with connect("") as client:
        client.admit(held.name, machines, token, job=held.keys, key=key)
    failure = "the launcher of its workers has ended"
    with connect(token) as client, connect(token) as own:
        lease = Lease(client, held)
        try:
            with lease.kept():
                _await(lease, held, on_wait, attendance.starter_left)
                job = _granted(held.spec, own.grant(held.name))
                job.attendance = attendance
                with met(job, held.listen or "127.0.0.1") as rendezvous:
                    lease.follow(rendezvous)
                    result = job.run(rendezvous)
                failure = lease.stop or (result.failure.reason if result.failure else "")
        except Exception as error:
            failure = str(error)
            raise
        finally:
            _leave(own, held.name, failure)
    return result


def _await(
    lease: Lease, held: ExternalJob, on_wait: Callable[[str], None], starter_left: Callable[[], bool]
) -> None:
    """Wait until the switches serve the job.

    Raises WorkerFailed if the controller ends the job, its launcher has ended, or the wait takes too long.
    """
    reported, until = "", time.monotonic() + held.wait_s
    while not lease.running.wait(LOOK_S):
        reason = lease.reason
        if lease.stop:
            raise WorkerFailed(f"the controller has not admitted job {held.name!r}: {lease.stop}")
        if starter_left():
            raise WorkerFailed(f"the launcher of job {held.name!r} has ended before its admission")
        if time.monotonic() > until:
            raise WorkerFailed(
                f"job {held.name!r} has not been admitted within {held.wait_s:g} s: {reason or 'no answer'}"
            )
        if reason and reason != reported:
            reported = reason
            on_wait(reason)


def _leave(client: Client, name: str, failure: str) -> None:
    """Report to the controller that the workers have ended; give up after `LEAVE_S`."""
    until = time.monotonic() + LEAVE_S
    while True:
        try:
            client.leave(name, failure[:4000])
            return
        except ClientError as error:
            if _for_good(error):
                return  # the controller no longer knows the job
            if time.monotonic() > until:
                _log.warning("%s; job %r leaves its switches when its lease ends", error, name)
                return
            time.sleep(LOOK_S)


def _for_good(error: ClientError) -> bool:
    """Return whether a retry is useless, because the controller does not know the job or its token."""
    return isinstance(error, Refused) and error.status in (401, 403, 404)
