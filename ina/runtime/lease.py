"""Keeps the registration of a run's job, and its lease, for as long as the run lives.

So a job without a run does not stay, and a switch can tell who holds its jobs and how they progress.
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
from collections.abc import Callable, Iterator
from dataclasses import replace

from controller import ControllerError, NoSuchJob, Registration
from controller.errors import SwitchRestarted
from controller.switches.layout import TreeAdmission
from controller.switches.leases import RENEWALS_PER_LEASE, this_process
from ina.runtime.fabric import SwitchFabric
from ina.runtime.metrics import goodput_bps
from ina.runtime.spec import LaunchSpec, Reports

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


class Renewal:
    """Status of the registration of a job; of one that has none, too."""

    def __init__(self, job: int, registration: Registration | None) -> None:
        self._job = job
        self._registration = registration
        self._begun_s = self._renewed_s = awake_s()
        self.lost: str | None = None
        """Reason for which the switch has the job no more, once that has shown."""

    def why(self, error: NoSuchJob) -> str:
        """Say why a job that the switch has no more is gone."""
        lease_s = self._registration.lease_s if self._registration else None
        if isinstance(error, SwitchRestarted):
            return str(error)
        if lease_s is None or awake_s() - self._renewed_s < lease_s:
            return f"job {self._job} was removed from the switch by another program, such as 'ina remove'"
        return f"job {self._job} is gone: its lease of {lease_s:g} s expired, and other jobs took its slots"

    def next(self, reports: Reports) -> Registration:
        """Return the registration to write now."""
        assert self._registration is not None
        self._registration = replace(
            self._registration,
            renewals=self._registration.renewals + 1,
            age_s=round(awake_s() - self._begun_s, 3),
            goodput_bps=goodput_bps(reports),
        )
        return self._registration

    def renewed(self) -> None:
        """Note that the lease begins again."""
        self._renewed_s = awake_s()


def registration(fabric: SwitchFabric, spec: LaunchSpec) -> Registration | None:
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


@contextlib.contextmanager
def renewed(
    fabric: SwitchFabric,
    job: TreeAdmission,
    first: Registration | None,
    reports: Callable[[], Reports],
    on_lost: Callable[[str], None],
) -> Iterator[Renewal]:
    """Renew the registration of a job, and so its lease, as long as the context lasts.

    Also removes other jobs whose holders are gone. A failed renewal is tried again: until the switch is swept
    nothing is lost.

    Args:
        fabric: The switches.
        job: The job.
        first: Its present registration; None: it has none.
        reports: Returns the latest report of each rank, for the registration.
        on_lost: Called repeatedly with the reason, once the switch no longer has the job.
    """
    renewal = Renewal(job.job, first)
    if first is None:
        yield renewal
        return
    interval_s = min(RENEW_S, (first.lease_s or math.inf) / RENEWALS_PER_LEASE)
    over = threading.Event()

    def renew() -> None:
        due_s = 0.0
        while not over.wait(min(CHECK_S, interval_s)):
            due = time.monotonic() >= due_s
            try:
                with fabric.asking(again=True):
                    if over.is_set():
                        return
                    fabric.fleet.check(job)
                    if due:
                        fabric.fleet.renew(job, renewal.next(reports()))
                fabric.silent = None
                if due:
                    due_s = time.monotonic() + interval_s
                    renewal.renewed()
                    fabric.sweep()
            except NoSuchJob as error:
                fabric.silent = None
                renewal.lost = renewal.lost or _readmitted(fabric, renewal, error)
                if renewal.lost:
                    on_lost(renewal.lost)
            except ControllerError:
                continue

    thread = threading.Thread(target=renew, name=f"lease of job {job.job}")
    thread.start()
    try:
        yield renewal
    finally:
        over.set()
        thread.join()


def _readmitted(fabric: SwitchFabric, renewal: Renewal, error: NoSuchJob) -> str | None:
    """Put a job on a switch again that was restarted; return why it is lost, or None."""
    why = renewal.why(error)
    if not isinstance(error, SwitchRestarted):
        return why
    if reason := fabric.readmit():
        return f"{why}; the job cannot go on: {reason}"
    _log.warning("%s; its jobs are admitted again, and continue", why)
    return None
