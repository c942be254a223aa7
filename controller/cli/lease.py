"""Keeps the lease of a run's job for as long as the run lives, so that a job without a run does not stay."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from controller import ControllerError, Lease, NoSuchJob
from controller.cli.cluster import Cluster
from controller.tree import TreeAdmission

PER_LEASE = 4
"""How often a lease is renewed in its time: one or two renewals may fail."""


def new_lease(cluster: Cluster) -> Lease | None:
    """Make a lease from now on; None where the switches end with the run anyway."""
    length_s = cluster.spec.lease_s
    if length_s is None:
        return None
    return Lease(int((time.time() + length_s) * 1000), f"{socket.gethostname()} pid {os.getpid()}")


@contextlib.contextmanager
def renewed(cluster: Cluster, job: TreeAdmission, on_lost: Callable[[str], None]) -> Iterator[None]:
    """Renew the lease of a job as long as the context lasts.

    If the switch has the job no more, `on_lost` is told, again and again. A renewal that fails otherwise is
    tried again: while nobody sweeps the switch, nothing is lost.
    """
    length_s = cluster.spec.lease_s
    if length_s is None:
        yield
        return
    over = threading.Event()

    def renew() -> None:
        while not over.wait(length_s / PER_LEASE):
            lease = new_lease(cluster)
            assert lease is not None
            try:
                with cluster.lock:
                    if not over.is_set():
                        for name, admission in job.switches.items():
                            cluster.controllers[name].renew(admission, lease)
            except NoSuchJob as error:
                on_lost(f"{error}: it was removed, or its lease ran out ({length_s:g} s) and others came")
            except ControllerError:
                continue

    thread = threading.Thread(target=renew, name=f"lease of job {job.job}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
