"""Keeps the lease of a run's job for as long as the run lives, so that a job without a run does not stay."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from controller import ControllerError, Lease, NoSuchJob
from controller.switches.tree import TreeAdmission
from ina.runtime.fabric import SwitchFabric

PER_LEASE = 4
"""Renewals of a lease in its time: one or two may fail."""


class Renewal:
    """Status of the lease of a job; of one that has none, too."""

    def __init__(self, job: int, length_s: float | None) -> None:
        self._job = job
        self._length_s = length_s
        self._renewed_at = time.time()
        self.lost: str | None = None
        """Reason for which the switch has the job no more, once that has shown."""

    def why(self) -> str:
        """Say why a job that the switch has no more is gone."""
        if self._length_s is None or time.time() - self._renewed_at < self._length_s:
            return f"job {self._job} was removed from the switch by another program, such as 'ina remove'"
        return (
            f"job {self._job} is gone: its lease of {self._length_s:g} s expired, and other jobs "
            "took its slots"
        )

    def renewed(self) -> None:
        """Note that the lease begins again."""
        self._renewed_at = time.time()


def new_lease(fabric: SwitchFabric) -> Lease | None:
    """Make a lease from now on; None where the switches end with the run anyway."""
    if fabric.lease_s is None:
        return None
    length_s = fabric.lease_s
    return Lease(int((time.time() + length_s) * 1000), f"{socket.gethostname()} pid {os.getpid()}")


@contextlib.contextmanager
def renewed(fabric: SwitchFabric, job: TreeAdmission, on_lost: Callable[[str], None]) -> Iterator[Renewal]:
    """Renew the lease of a job as long as the context lasts.

    If the switch has the job no more, `on_lost` is told why, again and again. A renewal that fails otherwise
    is tried again: while nobody sweeps the switch, nothing is lost.
    """
    length_s = fabric.lease_s
    if length_s is None:
        yield Renewal(job.job, None)
        return
    renewal = Renewal(job.job, length_s)
    over = threading.Event()

    def renew() -> None:
        while not over.wait(length_s / PER_LEASE):
            lease = new_lease(fabric)
            assert lease is not None
            try:
                with fabric.lock:
                    if not over.is_set():
                        fabric.fleet.renew(job, lease)
                renewal.renewed()
            except NoSuchJob:
                renewal.lost = renewal.lost or renewal.why()
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
