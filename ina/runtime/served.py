"""A job of this process on the switches of a fabric: admitted, registered, met, counted, and removed.

Its registration, and its lease, are renewed as long as it is served. So a job without a run does not stay,
and a switch can tell who holds its jobs and how they progress.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import math
import os
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from controller import ControllerError, NoSuchJob, Registration
from controller.errors import SwitchRestarted
from controller.switches.leases import RENEWALS_PER_LEASE, this_process
from hostlib.launch.launcher import Rendezvous, WorkerExit
from ina.runtime.admission import admitted
from ina.runtime.fabric import SwitchFabric
from ina.runtime.launch import Admitted
from ina.runtime.metrics import goodput_bps
from ina.runtime.spec import JobResult, LaunchSpec

_log = logging.getLogger(__name__)

RENEW_S = 15.0
"""Longest time between two renewals, also without a lease: others want to know how the job does."""
CHECK_S = 1.0
"""Interval at which a job is looked for on its switches: one may have been restarted."""
LONGEST_COMMAND = 200
"""Characters of a command that others are shown."""


def awake_s() -> float:
    """Return the time of a clock that goes on while the machine is suspended, unlike `time.monotonic`'s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True, eq=False)
class ServedJob:
    """A job that this process has had admitted, and the point where its ranks meet.

    Attributes:
        fabric: Its switches.
        job: The job, as its workers have to know it.
        rendezvous: Where its ranks meet.
        registered: What the switches keep of it for others; None: nothing, and it has no lease.
        lost: Why the switches have the job no more, once that has shown; None: they have it.
    """

    fabric: SwitchFabric
    job: Admitted
    rendezvous: Rendezvous
    registered: Registration | None
    lost: str | None = None
    _begun_s: float = field(default_factory=awake_s)
    _renewed_s: float = field(default_factory=awake_s)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def server_port(self) -> str | None:
        """The fallback server's switch port; None if the job has no fallback server."""
        fallback = self.fabric.fallback
        return f"{self.fabric.root}/{fallback.port}" if fallback else None

    def host(self, rank: int) -> str | None:
        """Return the host of the topology that a rank is on; None where the controller chooses ports."""
        topology = self.fabric.topology
        if topology is None:
            return None
        switch, member = self.job.worker(rank)
        if member is self.job.tree.beside:
            return self.fabric.hosts.machine(member)
        assert member.port is not None
        return topology.ports[switch][member.port].other(switch)

    def counted(self, result: JobResult) -> JobResult:
        """Return a result with what switches and fallback server counted; call it before the job is removed.

        Raises ControllerError if the switches of a job that did not fail cannot be asked.
        """
        fabric, tree, failure = self.fabric, self.job.tree, result.failure
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if fabric.switch_ended() is None and fabric.silent is None:
                switches = fabric.counters(tree)
                fallback = fabric.fallback.statistics(tree.job) if fabric.fallback else {}
        except NoSuchJob as error:
            self.lost = self.lost or self._why(error)
        except ControllerError as error:
            if failure is None:
                raise
            _log.warning("cannot read the switch's counters: %s", error)
        if self.lost and not result.interrupted:
            # Workers only notice that nobody answers.
            failure = WorkerExit(-1, 1, self.lost)
        elif failure and fabric.silent:
            failure = replace(failure, reason=f"{failure.reason}; {fabric.silent}")
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        return replace(result, failure=failure, counters=counters, switches=switches, fallback=fallback)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the registration and the lease, if there is any, as long as the context lasts.

        Ranks are told once the switches no longer have the job. Also removes other jobs whose holders are
        gone. A failed renewal is tried again: until the switch is swept nothing is lost.
        """
        if self.registered is None:
            yield
            return
        thread = threading.Thread(target=self._keep, name=f"lease of job {self.job.tree.job}")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _keep(self) -> None:
        assert self.registered is not None
        fabric, tree, due_s = self.fabric, self.job.tree, 0.0
        interval_s = min(RENEW_S, (self.registered.lease_s or math.inf) / RENEWALS_PER_LEASE)
        while not self._over.wait(min(CHECK_S, interval_s)):
            due = time.monotonic() >= due_s
            try:
                with fabric.asking(again=True):
                    if self._over.is_set():
                        return
                    fabric.fleet.check(tree)
                    if due:
                        self.registered = self._next(self.registered)
                        fabric.fleet.renew(tree, self.registered)
                fabric.silent = None
                if due:
                    due_s = time.monotonic() + interval_s
                    self._renewed_s = awake_s()
                    with fabric.lock:
                        fabric.fleet.sweep()
            except NoSuchJob as error:
                fabric.silent = None
                self.lost = self.lost or self._readmitted(error)
                if self.lost:
                    self.rendezvous.fault(self.lost)
            except ControllerError:
                continue

    def _next(self, registered: Registration) -> Registration:
        """Return the registration to write now."""
        return replace(
            registered,
            renewals=registered.renewals + 1,
            age_s=round(awake_s() - self._begun_s, 3),
            goodput_bps=goodput_bps(self.rendezvous.reports()),
        )

    def _why(self, error: NoSuchJob) -> str:
        """Return why a job that the switch has no more is gone."""
        job, lease_s = self.job.tree.job, self.registered.lease_s if self.registered else None
        if isinstance(error, SwitchRestarted):
            return str(error)
        if lease_s is None or awake_s() - self._renewed_s < lease_s:
            return f"job {job} was removed from the switch by another program, such as 'ina remove'"
        return f"job {job} is gone: its lease of {lease_s:g} s expired, and other jobs took its slots"

    def _readmitted(self, error: NoSuchJob) -> str | None:
        """Put the job on a switch again that was restarted; return why it is lost, or None."""
        why = self._why(error)
        if not isinstance(error, SwitchRestarted):
            return why
        if reason := self.fabric.readmit():
            return f"{why}; the job cannot go on: {reason}"
        _log.warning("%s; its jobs are admitted again, and continue", why)
        return None


@contextlib.contextmanager
def served(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    cancelled: threading.Event,
    *,
    listen: str | None = None,
    beside: Sequence[str | None] = (),
) -> Iterator[ServedJob]:
    """Admit a job to the switches while the context lasts; nothing of it stays there.

    Args:
        fabric: The switches.
        spec: The job.
        cancelled: Once set, nothing is waited for.
        listen: Address of this machine at which the ranks meet; None: one that only this machine reaches.
        beside: See `admitted`.

    Raises:
        ControllerError: a switch refused the job.
        ProcessFailed: the fallback server did not start.
        AddressTaken: another process has the address of a host.
        BadRun: nobody can listen at `listen`, or the machines are not the job's.
    """
    registered = _registration(fabric, spec)
    with admitted(fabric, spec, registered, cancelled, beside=beside) as tree:
        job = Admitted(fabric.hosts, spec, tree, fabric.offers, fabric.paced)
        with job.rendezvous(listen) as rendezvous:
            found = ServedJob(fabric, job, rendezvous, registered)
            with found.kept():
                yield found


def _registration(fabric: SwitchFabric, spec: LaunchSpec) -> Registration | None:
    """Return a job's registration at the switches; None where no others can read it."""
    if not fabric.asked_by_others:
        return None
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may not name its users
        user = f"uid {os.getuid()}"
    command = shlex.join(spec.job.command or ())
    return Registration(
        f"{socket.gethostname()} pid {os.getpid()}",
        process=this_process(),
        lease_s=fabric.lease_s,
        age_s=0.0,
        name=spec.job.name,
        user=user,
        command=command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 1] + "…",
        priority=spec.job.priority,
    )
